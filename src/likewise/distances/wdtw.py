"""Weighted dynamic time warping."""

import math

import torch
from torch import Tensor

from likewise import _check
from likewise.distances.elastic import Elastic
from likewise.ops.elastic import Moves, Recurrence, Side
from likewise.ops.rules import Rules


class WDTW(Elastic):
    """Weighted DTW: the further apart in time two frames are, the more their cost counts.

    D(i, j) = w(|i - j|) c(i, j) + min(D(i-1, j-1), D(i-1, j), D(i, j-1)), c(i, j) = ||x_i - y_j||^2, where
    w(k) = 1 / (1 + exp(-steepness (k - L / 2))) and L is the longer length.

    steepness: g of the paper. 0 is DTW with half the costs.
    band, itakura: as in ``DTW``. There are no open ends: weights compare times since the beginning of both sequences.

    Values equal aeon's. The paper's largest weight is 1 here. Where the smallest, 1 / (1 + exp(steepness L / 2)), would
    lose digits in the type of the sequences, an error says so: with a steepness of 0.05, beyond 2,856 steps in float32.
    Reference: Jeong, Jeong & Omitaomu (2011).

    Example:
        >>> WDTW(steepness=0.0)([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([0.5000])
    """

    def __init__(self, steepness: float = 0.05, *, band: float | None = None, itakura: float | None = None) -> None:
        super().__init__(Rules.of(self.name, band=band, itakura=itakura))
        self.steepness = _check.not_negative(self.name, "steepness", steepness)

    def moves(self) -> Moves:
        """DTW with weights."""
        return Moves(Recurrence.WARP)

    def weights(self, longest: int, like: Tensor) -> Tensor:
        """The logistic curve of 2 k - L."""
        difference = torch.arange(-longest, longest + 1, device=like.device, dtype=torch.float64)
        return torch.sigmoid(self.steepness / 2 * difference).to(like.dtype)

    def weights_of(self, x: Side, y: Side) -> Tensor:
        """The weights for these sequences, if the type holds them."""
        padded, dtype = max(x.frames.shape[1], y.frames.shape[1]), x.frames.dtype
        most = -2 * math.log(torch.finfo(dtype).tiny / torch.finfo(dtype).eps)  # beyond, products would lose digits
        if self.steepness * padded > most:
            longest = max((int(self.lengths_of(side).max()) for side in (x, y) if len(side)), default=0)
            if self.steepness * longest > most:
                wider = "" if dtype == torch.float64 else ", or use float64"
                fix = f"choose a steepness of {most / longest:.2g} or less{wider}"
                _check.refuse(self.name, f"the weights of {longest} steps are too small for {dtype}; {fix}")
        return self.weights(padded, x.frames)

    def settings(self) -> dict[str, object]:
        """The constructor's arguments, except those of the rules."""
        return {"steepness": self.steepness}
