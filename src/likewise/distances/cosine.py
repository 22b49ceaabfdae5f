"""Cosine distance."""

from torch import Tensor

from likewise.distances.framewise import Framewise
from likewise.ops.ground import cosine


class Cosine(Framewise):
    """Cosine distance, 1 - <x, y> / (||x|| ||y||), between vectors (B, C) or between flattened sequences (B, T, C).

    Sequences of unequal length are compared over the steps that both have. A zero vector has distance 1 to every
    vector.

    Example:
        >>> import torch
        >>> Cosine()(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]]))
        tensor([1.0000])
    """

    def vectors(self, x: Tensor, y: Tensor) -> Tensor:
        """Distances (..., N, M) between vectors (..., N, D) and (..., M, D)."""
        if x.ndim == 2:
            return cosine(x[None], y[None])[0]
        return cosine(x, y)
