"""The share of each step in an elastic distance, from the cost of every move of its path."""

from itertools import pairwise

import torch
from torch import Tensor

from likewise.distances.elastic import Elastic
from likewise.ops.elastic import elastic_path, reference
from likewise.ops.elastic.moves import Border, Moves, Recurrence, Side

Cell = tuple[int, int]


def elastic_costs(distance: Elastic, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The cost of each step of x, (Tx, 1), and of y, (Ty, 1), in float64; if channels have paths of their own, (Tx, C).

    The cost of a match counts for both of its steps; that of a skipped step, for itself and for the step of the other
    sequence at which the path then is.

    Example:
        >>> from likewise import MSM
        >>> elastic_costs(MSM(cost=1.0), torch.tensor([[0.0], [5.0], [1.0]]), torch.tensor([[0.0], [1.0]]))[0].ravel()
        tensor([0., 4., 1.], dtype=torch.float64)
    """
    parts = [_one_path(distance, a, b) for a, b in distance.channels(x.double()[None], y.double()[None])]
    first, second = (torch.stack(side, 1) for side in zip(*parts, strict=True))
    return first, second


def _one_path(distance: Elastic, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The costs (Tx,) and (Ty,) of one pair (1, T, C) along its path."""
    a, b = distance.sides(x, y, None, None)
    weights, moves = distance.weights_of(a, b), distance.moves()
    cells, count = elastic_path(a, b, moves, rules=distance.rules, weights=weights)
    drawn: list[Cell] = [(i, j) for i, j in cells[0, : int(count[0])].tolist()]
    if moves.recurrence == Recurrence.FOLLOW:  # the path is that of windows, the value that of some of their channels
        first_channel, channels = moves.own(a.frames.shape[2])
        a, b = (Side(side.frames.narrow(2, first_channel, channels)) for side in (a, b))
        moves = Moves(Recurrence.WARP, root=moves.root)
    cost_of = reference.steps(a, b, moves, weights)
    _, factor = distance.scale(distance.lengths_of(a), distance.lengths_of(b))
    scale = float(factor)
    first, second = x.new_zeros(x.shape[1]), y.new_zeros(y.shape[1])
    ways = _beginnings(drawn, moves.border, bool(distance.rules.open_begin))
    costs = [[float(cost_of(*move)) for move in pairwise(way)] for way in ways]
    best = min(range(len(ways)), key=lambda k: sum(costs[k]))
    way, paid = ways[best], costs[best]
    if moves.last_cost:  # the engine charges part of a cell's cost to the move that leaves it: undo that
        held = [_held(a, b, cell, root=moves.root) for cell in way]
        paid = [cost + after - before for cost, (before, after) in zip(paid, pairwise(held), strict=True)]
    for (i, j), cost in zip(way[1:], paid, strict=True):
        first[max(i, 0) + distance.first_frame] += scale * cost
        second[max(j, 0) + distance.first_frame] += scale * cost
    return first, second


def _held(x: Side, y: Side, cell: Cell, *, root: bool) -> float:
    """The part of its cost that a cell charges to the move that leaves it; 0 outside the table."""
    if -1 in cell:
        return 0.0
    square = float((x.frames[0, cell[0]] - y.frames[0, cell[1]]).square().sum())
    return square**0.5 if root else square


def _beginnings(drawn: list[Cell], border: Border, open_begin: bool) -> list[list[Cell]]:
    """All paths with moves along the border, where indices are -1, that are drawn as this one.

    A path is drawn from its first cell inside; moves along the border are drawn along the first row or column.
    """
    start = (drawn[0][0] - 1, drawn[0][1] - 1)
    ways = [[start, *drawn]]
    if border == Border.NONE or open_begin:
        return ways
    rows = next((k for k, cell in enumerate(drawn) if cell[1] > 0), len(drawn))  # cells of the first column
    columns = next((k for k, cell in enumerate(drawn) if cell[0] > 0), len(drawn))
    for run, turn in ((rows, False), (columns, True)):
        for out in range(1, run + 1):  # skip this many steps along the border
            edge = [(-1, -1), *((-1, k) if turn else (k, -1) for k in range(out))]
            ways.append(edge + drawn[out - 1 :])  # then skip the first step of the other
            if out < len(drawn):
                ways.append(edge + drawn[out:])  # or a match
    return [way for way in ways if all(_is_move(*move) for move in pairwise(way))]


def _is_move(before: Cell, cell: Cell) -> bool:
    return (cell[0] - before[0], cell[1] - before[1]) in ((1, 1), (1, 0), (0, 1))
