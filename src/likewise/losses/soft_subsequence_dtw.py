"""SoftSubsequenceDTW: the softened cost of matching all of one sequence with a stretch of another."""

import torch
from torch import Tensor

from likewise import _check
from likewise.losses.path_loss import PathLoss


class SoftSubsequenceDTW(PathLoss):
    """Soft-DTW with free ends in x: frames of x before and after the matched stretch cost nothing.

    With c the cost and softmin(a) = -gamma log sum_k exp(-a_k / gamma), frame i of x and frame j of y, from 1:

        R(i, 0) = 0,  R(i, j) = c(i, j) + softmin(R(i - 1, j - 1), R(i, j - 1), R(i - 1, j)),
        E(i) = softmin(R(i - 1, Ly), R(i, Ly), E(i - 1)); the loss of a pair is E(Lx)

    All of y is matched with a stretch of x. The loss uses no ground truth: each pair must show the same thing.

    cost: (B, Tx, Ty), between the frames of the reference x and of the query y, such as their squared distances.
    x_lengths, y_lengths: (B,), the number of real frames. gamma: the smoothing, in the unit of the cost.

    Computed in float64, column by column; memory O(Tx Ty) for each pair. Differentiable twice.
    Reference: Xu et al. (2023), arXiv:2303.10778, section 7.2, who call it OTAM after Cao et al. (2020),
    arXiv:1906.11415. The recursion of Cao et al. is the distance ``likewise.OTAM``, where x moves on alone in the first
    and the last column only. As in the published code, a stretch that begins after the first frame of x is entered in
    two ways, and one that ends before the last frame is left in two. Each adds -gamma log 2, unlike
    ``SoftDTW(gamma, subsequence=True)(y, x)``.

    Example:
        >>> cost = torch.tensor([[[9.0, 9.0], [0.0, 9.0], [9.0, 0.0], [9.0, 9.0]]])  # frames 2 and 3 of x are y
        >>> SoftSubsequenceDTW(gamma=0.01)(cost)  # 0, entered and left in two ways each: -2 gamma log 2
        tensor(-0.0139)
    """

    def __init__(self, gamma: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.gamma = _check.positive(self.name, "gamma", gamma)

    def forward(self, cost: Tensor, x_lengths: Tensor | None = None, y_lengths: Tensor | None = None) -> Tensor:
        """The loss, a scalar."""
        cost = self._numbers("cost", cost, ("B", "Tx", "Ty"))
        if 0 in cost.shape[1:]:
            _check.refuse(self.name, f"expected cost with at least one frame of each sequence, got {tuple(cost.shape)}")
        rows = self._real("x_lengths", x_lengths, cost, cost.shape[1])
        columns = self._real("y_lengths", y_lengths, cost, cost.shape[2])
        real = rows[:, :, None] & columns[:, None]
        scaled = torch.where(real, cost, 0).double() / self.gamma
        R = scaled.new_zeros(scaled.shape[:2])  # (B, Tx), minus the column's values
        for column, inside in zip(scaled.unbind(2), columns.unbind(1), strict=True):
            R = torch.where(inside[:, None], _next(R, column), R)
        ends = _next(R, torch.zeros_like(R))
        last = rows.sum(1, keepdim=True) - 1
        return self.reduced(-self.gamma * ends.gather(1, last)[:, 0]).to(cost.dtype)


def _next(before: Tensor, cost: Tensor) -> Tensor:
    """Minus R of a column, (B, Tx), from minus that of the column before it; both in units of gamma.

    With the cumulative sums C of the column's costs, R(i) = C(i) + softmin over k <= i of (value entering row k) - C(k
    - 1).
    """
    sums = cost.cumsum(1)
    below = torch.logaddexp(before[:, 1:], before[:, :-1])
    found = torch.cat([before[:, :1], below], 1) + sums - cost
    # Sums over 2, 4, 8, ... rows: the second derivative of torch.logcumsumexp is NaN where a gradient is 0.
    reach = 1
    while reach < found.shape[1]:
        found = torch.cat([found[:, :reach], torch.logaddexp(found[:, reach:], found[:, :-reach])], 1)
        reach *= 2
    return found - sums
