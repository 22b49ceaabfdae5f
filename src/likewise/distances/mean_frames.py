"""MeanFrames: sequences compared by their mean over time."""

import torch
from torch import Tensor

from likewise import _check
from likewise.distances.distance import Distance, describe, full_lengths
from likewise.ops.ground import at_least_float32, zero_padding


class MeanFrames(Distance):
    """Euclidean distance between the means over time: ||mean_i x_i - mean_j y_j||. The order of the frames is ignored.

    squared: omit the square root, as ``Euclidean(squared=True)`` does. Prototypical networks compare class means by the
        squared distance. At 0, the derivative of the root is taken to be 0.

    Example:
        >>> MeanFrames()([[0.0, 2.0]], [[4.0]])
        tensor([3.])
        >>> MeanFrames(squared=True)([[0.0, 2.0]], [[4.0]])
        tensor([9.])
    """

    symmetric = True

    def __init__(self, *, squared: bool = False) -> None:
        super().__init__()
        self.squared = squared

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        apart = self._means("x", x, x_lengths) - self._means("y", y, y_lengths)
        return self._root(apart.square().sum(1)).to(x.dtype)

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M) of padded sequences."""
        a = self._means("x", x, x_lengths)
        b = a if y is None else self._means("y", y, y_lengths)
        rows = max(1, (1 << 24) // max(1, b.numel()))  # differences, not dot products, to avoid cancellation
        parts = [(some[:, None] - b).square().sum(2) for some in a.split(rows)]
        return self._root(torch.cat(parts) if parts else a.new_empty(0, len(b))).to(x.dtype)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(squared=self.squared)

    def _means(self, name: str, x: Tensor, lengths: Tensor | None) -> Tensor:
        """(B, C), at least float32."""
        _check.finite(self.name, name, x, lengths)
        total = at_least_float32(zero_padding(x, lengths)).sum(1)
        return total / full_lengths(x, lengths)[:, None]

    def _root(self, squares: Tensor) -> Tensor:
        return squares if self.squared else torch.where(squares > 0, squares, 1).sqrt() * (squares > 0)
