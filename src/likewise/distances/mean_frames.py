"""MeanFrames: sequences compared by their mean over time."""

import torch
from torch import Tensor

from likewise import _check
from likewise.distances.distance import Distance, describe, full_lengths
from likewise.ops.ground import at_least_float32, scaled, scaled_down, zero_padding


class MeanFrames(Distance):
    """Euclidean distance between the means over time: ||mean_i x_i - mean_j y_j||. The order of the frames is ignored.

    squared: omit the square root, as ``Euclidean(squared=True)`` does. Prototypical networks compare class means by the
        squared distance. The derivative of the root at 0 is defined as 0.

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
        a, b, power = self._means(x, y, x_lengths, y_lengths)
        return self._value((a - b).square().sum(1), power, x.dtype)

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M) of padded sequences."""
        a, b, power = self._means(x, y, x_lengths, y_lengths)
        rows = max(1, (1 << 24) // max(1, b.numel()))  # differences, not dot products, to avoid cancellation
        parts = [(some[:, None] - b).square().sum(2) for some in a.split(rows)]
        return self._value(torch.cat(parts) if parts else a.new_empty(0, len(b)), power, x.dtype)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(squared=self.squared)

    def _means(
        self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None
    ) -> tuple[Tensor, Tensor, float]:
        """Means (B, C) of x and of y, at least float32, divided by a power of two that keeps their squares in range."""
        _check.finite(self.name, "x", x, x_lengths)
        frames = at_least_float32(zero_padding(x, x_lengths))
        if y is None:
            frames, _, power = scaled_down(frames, frames)
            means = frames.sum(1) / full_lengths(x, x_lengths)[:, None]
            return means, means, power
        _check.finite(self.name, "y", y, y_lengths)
        frames, others, power = scaled_down(frames, at_least_float32(zero_padding(y, y_lengths)))
        a, b = frames.sum(1) / full_lengths(x, x_lengths)[:, None], others.sum(1) / full_lengths(y, y_lengths)[:, None]
        return a, b, power

    def _value(self, squares: Tensor, power: float, dtype: torch.dtype) -> Tensor:
        if self.squared:
            found = scaled(scaled(squares, power), power)
        else:
            found = scaled(torch.where(squares > 0, squares, 1).sqrt() * (squares > 0), power)
        return _check.finite_values(self.name, found.to(dtype))
