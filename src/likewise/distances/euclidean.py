"""Euclidean distance."""

import torch
from torch import Tensor

from likewise.distances.framewise import Framewise
from likewise.ops.ground import scaled, scaled_down


class Euclidean(Framewise):
    """Euclidean distance, ||x - y||, between vectors (B, C) or between sequences (B, T, C), frame by frame.

    ``squared`` omits the square root. Sequences of unequal length are compared over the steps that both have, as in
    aeon. Computed from differences, not from dot products, it is exact for near neighbours and zero for equal items.

    Example:
        >>> Euclidean()(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]))
        tensor([5.])
        >>> Euclidean().matrix([[0.0, 0.0], [3.0, 4.0, 9.0]])
        tensor([[0., 5.],
                [5., 0.]])
    """

    def __init__(self, *, squared: bool = False) -> None:
        super().__init__()
        self.squared = squared

    def vectors(self, x: Tensor, y: Tensor) -> Tensor:
        """Distances (..., N, M) between vectors (..., N, D) and (..., M, D)."""
        x, y, power = scaled_down(x, y)
        distance = scaled(torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"), power)
        return distance.square() if self.squared else distance

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return "squared=True" if self.squared else ""
