"""DTW in plain torch, one cell at a time: the reference for the kernels.

R(i, j) = cost(i, j) + min(R(i-1, j-1), R(i-1, j), R(i, j-1)), with R(-1, -1) = 0 and infinity elsewhere outside. Open
at the beginning, R(-1, j) = 0 for every j; open at the end, the value is the minimum of the last row.
"""

import torch
from torch import Tensor

from likewise.ops.rules import Rules, Window


def value(cost: Tensor, rules: Rules = Rules()) -> Tensor:
    """Value of one alignment, cost (n, m), without padding. Differentiable; the derivative is the 0/1 plan.

    Example:
        >>> value(torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
        tensor(0.)
    """
    last_row = _table(cost, rules.window, rules.open_begin)[-1]
    return torch.stack(list(last_row.values())).min(0).values if rules.open_end else last_row[cost.shape[1] - 1]


def path(cost: Tensor, rules: Rules = Rules()) -> list[tuple[int, int]]:
    """Cells of one optimal path, from the first to the last. Ties prefer the diagonal, then the row above.

    Example:
        >>> path(torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
        [(0, 0), (1, 1)]
    """
    table = _table(cost, rules.window, rules.open_begin)
    above = _border(cost.shape[1], rules.open_begin)
    i, j = cost.shape[0] - 1, cost.shape[1] - 1
    if rules.open_end:
        j = min(table[i], key=lambda column: table[i][column].item())
    cells = []
    while i >= 0:
        cells.append((i, j))
        row_above = table[i - 1] if i > 0 else above
        candidates = [(row_above, i - 1, j - 1), (row_above, i - 1, j), (table[i], i, j - 1)]
        reachable = [(row[column].item(), k) for k, (row, _, column) in enumerate(candidates) if column in row]
        _, i, j = candidates[min(reachable)[1]]
    return cells[::-1]


def _table(cost: Tensor, window: Window, open_begin: bool) -> list[dict[int, Tensor]]:
    n, m = cost.shape
    above, rows = _border(m, open_begin), []
    for i in range(n):
        row: dict[int, Tensor] = {}
        first, last = window.row(n, m, i)
        for j in range(first, last + 1):
            before = [above.get(j - 1), above.get(j), row.get(j - 1)]
            row[j] = cost[i, j] + torch.stack([b.to(cost) for b in before if b is not None]).min(0).values
        rows.append(row)
        above = row
    return rows


def _border(m: int, open_begin: bool) -> dict[int, Tensor]:
    return {j: torch.tensor(0.0) for j in range(-1, m if open_begin else 0)}
