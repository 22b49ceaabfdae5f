"""The recurrences of elastic distances in plain torch, one cell at a time: the reference for the kernels."""

from collections.abc import Callable

import torch
from torch import Tensor

from likewise.ops.elastic.moves import Border, Moves, Recurrence, Side
from likewise.ops.rules import Rules


def value(x: Side, y: Side, moves: Moves, rules: Rules = Rules(), weights: Tensor | None = None) -> Tensor:
    """Value of the first pair of x and y. Differentiable along the optimal path.

    Example:
        >>> x, y = (Side(torch.tensor([[[0.0], [1.0], [3.0]]]), gaps=torch.ones(1, 3)) for _ in range(2))
        >>> value(x, y, Moves(Recurrence.EDIT, root=True, border=Border.GAPS))
        tensor(0.)
    """
    if moves.recurrence == Recurrence.FOLLOW:
        first, count = moves.own(x.frames.shape[2])
        own = range(first, first + count)
        return sum(
            ((x.frames[0, i, c] - y.frames[0, j, c]).square() for i, j in path(x, y, moves, rules) for c in own),
            x.frames.new_zeros(()),
        )
    table, cost, _ = _table(x, y, moves, rules, weights)
    n, m = cost.shape
    last = [(table[n - 1, j], j) for j in range(m) if (n - 1, j) in table and (rules.open_end or j == m - 1)]
    found = [value + cost[n - 1, j] if moves.last_cost else value for value, j in last]
    return torch.stack(found).min(0).values


def path(
    x: Side, y: Side, moves: Moves, rules: Rules = Rules(), weights: Tensor | None = None
) -> list[tuple[int, int]]:
    """Cells of one optimal path. Ties go to the diagonal first, then to the row above; a step along the border appears
    in the first row or column.

    Example:
        >>> x, y = (Side(torch.tensor([[[0.0], [1.0], [3.0]]])) for _ in range(2))
        >>> path(x, y, Moves(Recurrence.WARP))
        [(0, 0), (1, 1), (2, 2)]
    """
    table, cost, came = _table(x, y, moves, rules, weights)
    n, m = cost.shape
    i, j = n - 1, m - 1
    if rules.open_end:
        columns = [j for j in range(m) if (n - 1, j) in table]
        j = min(columns, key=lambda j: (table[i, j] + (cost[i, j] if moves.last_cost else 0)).item())
    cells: list[tuple[int, int]] = []
    while (i, j) in came:
        cell = max(i, 0), max(j, 0)
        if not cells or cells[-1] != cell:
            cells.append(cell)
        i, j = came[i, j]
    return cells[::-1]


def table(
    x: Side, y: Side, moves: Moves, rules: Rules = Rules(), weights: Tensor | None = None
) -> dict[tuple[int, int], Tensor]:
    """D(i, j) of the cells that the first pair of x and y may visit."""
    return _table(x, y, moves, rules, weights)[0]


def step(x: Side, y: Side, moves: Moves, before: tuple[int, int], cell: tuple[int, int]) -> Tensor:
    """The cost of the move between two cells, without weights."""
    return steps(x, y, moves)(before, cell)


def steps(
    x: Side, y: Side, moves: Moves, weights: Tensor | None = None
) -> Callable[[tuple[int, int], tuple[int, int]], Tensor]:
    """The cost of the move between two cells, as a function of both; (-1, -1) is before the first."""
    cost, x_gaps, y_gaps, within = _terms(x, y, moves)
    n, m = cost.shape

    def cost_of(before: tuple[int, int], cell: tuple[int, int]) -> Tensor:
        i, j = cell
        if before == (i - 1, j - 1):
            return _match(cost, i, j, n, m, moves, within, weights)
        gap = x_gaps[i] if before == (i - 1, j) else y_gaps[j]
        if -1 in cell:  # along the border
            return gap if moves.border == Border.GAPS else gap.new_zeros(())
        return _gap(gap, cost, cell, before, moves, n, m, weights)

    return cost_of


def _terms(x: Side, y: Side, moves: Moves) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Costs (n, m), the gaps of x and y, and a mask of the cells within reach."""
    n = int(x.frames.shape[1] if x.lengths is None else x.lengths[0])
    m = int(y.frames.shape[1] if y.lengths is None else y.lengths[0])
    difference = x.frames[0, :n, None] - y.frames[0, None, :m]
    cost = difference.square().sum(-1)  # (n, m)
    if moves.root:
        cost = torch.where(cost > 0, cost, 1).sqrt() * (cost > 0)
    x_gaps, y_gaps = (s.gaps[0] if s.gaps is not None else s.frames.new_zeros(max(n, m)) for s in (x, y))
    within = torch.maximum(x.reach[0], y.reach[0]) if x.reach is not None and y.reach is not None else None
    return cost, x_gaps, y_gaps, within


def _table(
    x: Side, y: Side, moves: Moves, rules: Rules, weights: Tensor | None
) -> tuple[dict[tuple[int, int], Tensor], Tensor, dict[tuple[int, int], tuple[int, int]]]:
    cost, x_gaps, y_gaps, within = _terms(x, y, moves)
    n, m = cost.shape
    table, came = _borders(x_gaps, y_gaps, n, m, moves, rules)
    for i in range(n):
        first, last = rules.window.row(n, m, i)
        for j in range(first, last + 1):
            steps = (
                _match(cost, i, j, n, m, moves, within, weights),
                _gap(x_gaps[i], cost, (i, j), (i - 1, j), moves, n, m, weights),
                _gap(y_gaps[j], cost, (i, j), (i, j - 1), moves, n, m, weights),
            )
            before = ((i - 1, j - 1), (i - 1, j), (i, j - 1))
            begins = moves.recurrence in (Recurrence.CARRY, Recurrence.BALL)  # a path begins with a match
            ways = [
                (table[b] + step, b)
                for b, step in zip(before, steps, strict=True)
                if b in table and not (begins and b != before[0] and -1 in b)
            ]
            if ways:
                table[i, j], came[i, j] = min(ways, key=lambda way: way[0].item())
    return table, cost, came


def _borders(
    x_gaps: Tensor, y_gaps: Tensor, n: int, m: int, moves: Moves, rules: Rules
) -> tuple[dict[tuple[int, int], Tensor], dict[tuple[int, int], tuple[int, int]]]:
    table, came = {(-1, -1): x_gaps.new_zeros(())}, {}
    for i in range(n) if moves.border != Border.NONE else ():
        gaps = moves.border == Border.GAPS
        table[i, -1] = table[i - 1, -1] + x_gaps[i] if gaps else x_gaps.new_zeros(())
        if gaps:
            came[i, -1] = (i - 1, -1)
    free = rules.open_begin or moves.border == Border.FREE
    for j in range(m) if free or moves.border == Border.GAPS else ():
        table[-1, j] = x_gaps.new_zeros(()) if free else table[-1, j - 1] + y_gaps[j]
        if not free:
            came[-1, j] = (-1, j - 1)
    return table, came


def _match(
    cost: Tensor, i: int, j: int, n: int, m: int, moves: Moves, within: Tensor | None, weights: Tensor | None
) -> Tensor:
    if moves.recurrence in (Recurrence.WARP, Recurrence.FOLLOW):
        return _weighted(cost, i, j, n, m, weights)
    if moves.recurrence == Recurrence.CARRY:
        before = cost[i - 1, j - 1] if i > 0 and j > 0 else cost.new_zeros(())
        return before + cost[i, j] + moves.slope * abs(i - j)
    if moves.recurrence == Recurrence.COUNT:
        assert within is not None
        return cost.new_tensor(moves.hit if cost[i, j] < within else moves.miss)
    return cost[i, j]


def _gap(
    gap: Tensor,
    cost: Tensor,
    cell: tuple[int, int],
    before: tuple[int, int],
    moves: Moves,
    n: int,
    m: int,
    weights: Tensor | None,
) -> Tensor:
    if moves.recurrence in (Recurrence.WARP, Recurrence.FOLLOW):
        return moves.penalty + _weighted(cost, *cell, n, m, weights)
    if moves.recurrence != Recurrence.BALL or -1 in before:  # the latter is never taken
        return gap
    inside = gap + cost[cell] <= cost[before]
    return moves.penalty + (cost.new_zeros(()) if inside else torch.minimum(gap, cost[cell]))


def _weighted(cost: Tensor, i: int, j: int, n: int, m: int, weights: Tensor | None) -> Tensor:
    """Weights (2 L + 1,) of 2 |i - j| - max(n, m) = -L, ..., L."""
    return cost[i, j] if weights is None else cost[i, j] * weights[2 * abs(i - j) - max(n, m) + len(weights) // 2]
