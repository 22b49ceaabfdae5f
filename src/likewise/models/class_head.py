"""ClassHead: a small classifier on features."""

from torch import Tensor, nn

from likewise import _check


class ClassHead(nn.Module):
    """Linear - ReLU - dropout - linear: features (B, channels) -> scores (B, classes), before any softmax.

    hidden: the width of the hidden layer, by default the number of channels; 0 makes a linear classifier.

    Reference: the classification module, Figure 11, of Al-Kaabi, Monsefi & Zabihzadeh, A Framework to Enhance
    Generalization of Deep Metric Learning methods; the width is not given there.

    Example:
        >>> import torch
        >>> ClassHead(8, 5)(torch.randn(3, 8)).shape
        torch.Size([3, 5])
    """

    def __init__(self, channels: int, classes: int, *, hidden: int | None = None, dropout: float = 0.1) -> None:
        super().__init__()
        self.channels = _check.whole("ClassHead", "channels", channels)
        self.classes = _check.whole("ClassHead", "classes", classes)
        self.hidden = self.channels if hidden is None else _check.whole("ClassHead", "hidden", hidden, least=0)
        self.dropout = _check.fraction("ClassHead", "dropout", dropout)
        before = [nn.Linear(self.channels, self.hidden), nn.ReLU()] if self.hidden else []
        self.layers = nn.Sequential(
            *before, nn.Dropout(self.dropout), nn.Linear(self.hidden or self.channels, self.classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Scores (B, classes) of features (B, channels)."""
        return self.layers(x)
