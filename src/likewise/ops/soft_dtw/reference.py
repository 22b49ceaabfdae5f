"""Soft-DTW in plain torch, one cell at a time: the reference for the kernels.

R(i, j) = cost(i, j) + softmin(R(i-1, j-1), R(i-1, j), R(i, j-1)) with softmin(a) = -gamma log sum_k exp(-a_k / gamma),
so the value is the softmin of the costs of all paths. Open at the beginning, a path may start in any
column of the first row; open at the end, it may stop in any column of the last.
"""

import torch
from torch import Tensor

from likewise.ops.rules import Rules


def value(cost: Tensor, gamma: float, rules: Rules = Rules()) -> Tensor:
    """Value of one alignment, cost (n, m), without padding. Twice differentiable by autograd.

    Example:
        >>> value(torch.tensor([[0.0, 1.0], [2.0, 0.0]]), gamma=1e-3)
        tensor(0.)
    """
    n, m = cost.shape
    above: dict[int, Tensor] = {}
    for i in range(n):
        row: dict[int, Tensor] = {}
        first, last = rules.window.row(n, m, i)
        for j in range(first, last + 1):
            before = [above.get(j - 1), above.get(j), row.get(j - 1)]
            if i == 0 and (j == 0 or rules.open_begin):
                before.append(cost.new_zeros(()))
            row[j] = cost[i, j] + _softmin([b for b in before if b is not None], gamma)
        above = row
    return _softmin(list(above.values()), gamma) if rules.open_end else above[m - 1]


def plan(cost: Tensor, gamma: float, rules: Rules = Rules()) -> Tensor:
    """Expected alignment (n, m): the derivative of the value, and the probability that a path visits each cell.

    Example:
        >>> plan(torch.zeros(1, 2), gamma=1.0)
        tensor([[1., 1.]])
    """
    cost = cost.detach().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(value(cost, gamma, rules), cost)[0]


def _softmin(values: list[Tensor], gamma: float) -> Tensor:
    return -gamma * torch.logsumexp(torch.stack(values) / -gamma, 0)
