"""Relative: a loss of distances in units of their mean."""

import torch
from torch import Tensor, nn

from likewise.losses.loss import Loss
from likewise.losses.pairs import Pairs

LEAST = 1e-6  # distances with a smaller mean are unchanged


class Relative(Loss):
    """loss(D / mean |D|): margins and temperatures do not depend on the scale of the distances.

    loss: another loss of distances. The mean is over the cells of D that are pairs, and has gradients.

    Distances of untrained networks can have any size: a margin of 0.1 is negligible for distances in the hundreds, and
    dominates distances of 0.01. ``Relative(HardMiningMeans())`` is the default of ``fit``.

    Example:
        >>> from likewise.losses.hard_mining import HardMiningMeans
        >>> loss, D = Relative(HardMiningMeans()), torch.tensor([[0.1, 0.8, 0.5, 2.0]])
        >>> bool(loss(D, [0], [0, 0, 1, 1]).isclose(loss(100 * D, [0], [0, 0, 1, 1])))
        True
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        if not isinstance(loss, nn.Module):
            raise TypeError(f"Relative: expected loss to be a loss of distances, got {type(loss).__name__}")
        self.loss = loss

    def forward(self, D: Tensor, row_labels: object, col_labels: object | None = None) -> Tensor:
        """The loss, a scalar, of distances D (N, M) between items with row_labels (N,) and col_labels (M,)."""
        pairs = Pairs.of(self.name, D, row_labels, col_labels)
        D, count = pairs.distances, (pairs.positives | pairs.negatives).sum()
        mean = (D.abs() / count.clamp(min=1)).sum()  # divide first: the sum of huge numbers would overflow
        return self.loss(D / torch.where(mean > LEAST, mean, 1), row_labels, col_labels)

    def extra_repr(self) -> str:
        """Empty, since the loss is shown as a submodule."""
        return ""
