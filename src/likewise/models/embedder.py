"""Embedder: a backbone followed by a linear embedding layer."""

from torch import Tensor, nn

from likewise import _check
from likewise.models._sequences import unit
from likewise.models.layers import as_map, origin_of, read_items, width_of


class Embedder(nn.Module):
    """A backbone, the mean over positions if it returns a map or a sequence, and a linear layer to ``out`` features.

    backbone: any encoder. Its output is the layer named "backbone", the features that ClassAdversary and
        JointRepresentationSimilarity use.
    channels: the number of its features; by default, its attribute ``out``, or the equivalent of a timm model.
    normalize: scale the embedding to unit length.

    Example:
        >>> import torch
        >>> from likewise.models import SmallCNN
        >>> Embedder(SmallCNN(3, out=32), 16)(torch.randn(4, 3, 20, 20)).shape
        torch.Size([4, 16])
    """

    def __init__(
        self, backbone: nn.Module, out: int = 64, *, channels: int | None = None, normalize: bool = True
    ) -> None:
        super().__init__()
        if not isinstance(backbone, nn.Module):
            raise TypeError(f"Embedder: expected backbone to be an nn.Module, got {type(backbone).__name__}")
        self.backbone = backbone
        self.out = _check.whole("Embedder", "out", out)
        given = width_of("Embedder", backbone) if channels is None else channels
        self.channels = _check.whole("Embedder", "channels", given)
        self.normalize = normalize
        self.outward = nn.Linear(self.channels, self.out)

    def forward(self, x: object) -> Tensor:
        """Embed items (B, ...) as vectors (B, out)."""
        items, lengths = read_items("Embedder", x)
        origin = origin_of(self.backbone, "", items)
        found = as_map("Embedder", "the backbone", self.backbone(items), lengths, layer=self.backbone, origin=origin)
        features = found.mean()
        if features.shape[1] != self.channels:
            _check.refuse("Embedder", f"the backbone returned {features.shape[1]} features, not {self.channels}")
        vectors = self.outward(features)
        return unit(vectors) if self.normalize else vectors
