"""OTAM: ordered temporal alignment with free ends."""

import math

import torch
from torch import Tensor

from likewise import _check
from likewise.distances.alignment import PlanAlignment
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.ops.ground import GroundCost, evaluate, is_fused, resolve


class OTAM(Distance):
    """Ordered temporal alignment module: all frames of one sequence, in order, against a stretch of the other.

    From x to y, every frame of y is matched once, with a frame of x that stays or advances by one; the stretch of x
    may begin and end anywhere. With the ground cost c, frames i of x and j of y, counted from 1, and
    softmin(a) = -gamma log sum_k exp(-a_k / gamma):

        R(i, 1) = c(i, 1) + softmin(0, 0, R(i - 1, 1)), and R(1, 1) = c(1, 1)
        R(i, j) = c(i, j) + softmin(R(i - 1, j - 1), R(i, j - 1))
        E(i) = softmin(R(i - 1, Ly), R(i, Ly), E(i - 1)), and E(1) = R(1, Ly); the value is E(Lx)

    x may thus also advance alone in the first and the last column. The distance is the mean of both directions.

    gamma: the smoothing, in the unit of the ground cost. symmetric: False for the direction from x to y only.
    ground: between frames, as in ``DTW``; "cosine" is the paper's 1 - cos.

    Memory: O(Tx) for a pair without gradients, O(Tx Ty) with them. ``align`` gives d value / d cost.

    Reference: Cao, Ji, Cao, Chang & Niebles (2020), Few-shot video classification via temporal alignment,
    arXiv:1906.11415. As in the published implementations, the first row is a plain sum, and ends are reached from three
    sides, which counts some paths twice; those implementations sum both directions, and add 0.01 to the denominator
    of the cosine.

    Example:
        >>> otam = OTAM()
        >>> x, y = torch.eye(4)[None], torch.eye(4)[None, 1:3]
        >>> otam(x, y), OTAM(gamma=0.001, symmetric=False)(x, y)  # y is a stretch of x, but not vice versa
        (tensor([0.9307]), tensor([-0.0014]))
    """

    def __init__(self, gamma: float = 0.1, *, ground: str | GroundCost = "cosine", symmetric: bool = True) -> None:
        super().__init__()
        self.gamma = _check.positive(self.name, "gamma", gamma)
        self.ground = resolve(self.name, ground)
        self.both = symmetric
        self.symmetric = symmetric and is_fused(self.ground)  # a callable need not be symmetric

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        cost = self._costs(x, y, x_lengths, y_lengths)
        value = self._value(cost, full_lengths(x, x_lengths), full_lengths(y, y_lengths))
        return _check.finite_values(self.name, value.to(x.dtype))

    def align(self, x: Sequences, y: Sequences) -> PlanAlignment:
        """The expected number of matches of each pair of frames, averaged over both directions: d value / d cost."""
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        n, m = full_lengths(x, x_lengths), full_lengths(y, y_lengths)

        def plan() -> Tensor:
            with torch.enable_grad():
                cost = self._costs(x, y, x_lengths, y_lengths).detach().requires_grad_()
                return torch.autograd.grad(self._value(cost, n, m).sum(), cost)[0].to(x.dtype)

        return PlanAlignment(lambda: self.paired(x, y, x_lengths, y_lengths), plan, n, m)

    def config(self) -> dict[str, object]:
        """The constructor's arguments."""
        return {"gamma": self.gamma, "ground": self.ground, "symmetric": self.both}

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(("symmetric",), **self.config())

    def _costs(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        # Half precision is widened first: PyTorch cannot evaluate the named costs in it.
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        return evaluate(self.name, self.ground, wide, y.to(wide.dtype), x_lengths, y_lengths)  # (B, Tx, Ty)

    def _value(self, cost: Tensor, n: Tensor, m: Tensor) -> Tensor:
        if not len(cost):
            return cost.sum((1, 2))
        there = _directed(cost / self.gamma, n, m)
        if self.both:
            there = (there + _directed(cost.mT / self.gamma, m, n)) / 2
        return self.gamma * there


def _directed(cost: Tensor, n: Tensor, m: Tensor) -> Tensor:
    """Values (B,) from rows to columns, for costs (B, Tx, Ty) in units of gamma; n, m: lengths (B,).

    Each column depends on the previous one only; in the first, x may advance alone. Padded rows come after the real
    ones and do not affect them.
    """
    rows = torch.arange(cost.shape[1], device=cost.device)
    columns = cost.unbind(2)
    R = _first(columns[0])
    for j, column in enumerate(columns[1:], 1):
        before = torch.cat([R.new_full((len(R), 1), math.inf), R[:, :-1]], 1)  # R(i - 1, j - 1)
        R = torch.where((j < m)[:, None], column + _softmin(before, R), R)
    # The recursion of E adds every row once from the right, and all but the last once more from below.
    last = rows == n[:, None] - 1
    ends = torch.where(last, -R, math.log(2) - R).masked_fill(rows >= n[:, None], -math.inf)
    return -ends.logsumexp(1)


def _first(column: Tensor) -> Tensor:
    """R (B, Tx) in the first column, for its costs (B, Tx)."""
    found = [column[:, 0]]
    for cost in column.unbind(1)[1:]:
        free = torch.full_like(cost, -math.log(2))  # the softmin of two zeros
        found.append(cost + _softmin(free, found[-1]))
    return torch.stack(found, 1)


def _softmin(a: Tensor, b: Tensor) -> Tensor:
    return -torch.logaddexp(-a, -b)
