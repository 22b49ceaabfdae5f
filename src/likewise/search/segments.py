"""Segments: a path as a few straight pieces, each with one shift and one stretch."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Segment:
    """A piece of the query that matches a piece of the item uniformly.

    start, end: steps of the query, [start, end). match_start, match_end: those of the match.
    shift: how much later the match is, in steps, on average. stretch: steps of the match for each step of the query.
    amplitude: the deviation of the match divided by that of the query. level: the mean of the match less that of the
        query. cost: its part of the distance.

    Example:
        >>> print(Segment(0, 10, 3, 13, shift=3.0, stretch=1.0, amplitude=2.0, level=0.0, cost=0.5))
        steps 0..9: shift +3.0, stretch 1.00, amplitude 2.00, cost 0.5
    """

    start: int
    end: int
    match_start: int
    match_end: int
    shift: float
    stretch: float
    amplitude: float
    level: float
    cost: float

    def __str__(self) -> str:
        return (
            f"steps {self.start}..{self.end - 1}: shift {self.shift:+.1f}, stretch {self.stretch:.2f}, "
            f"amplitude {self.amplitude:.2f}, cost {self.cost:.4g}"
        )


def segments(
    path: Tensor, x: Tensor, y: Tensor, cost: Callable[[Tensor, Tensor], Tensor], step_costs: Tensor, tolerance: float
) -> list[Segment]:
    """The path (K, 2) between x (Tx, C) and y (Ty, C) as straight pieces that divide the steps of x.

    cost: of frames x[i] and y[j], (n,), (n,) -> (n,). step_costs: (Tx,), the parts of the distance. Following the
    pieces in place of the path costs at most ``tolerance`` times the path's cost more (and a little more where that is
    nearly nothing), and each piece no more than its share.

    As in dtaidistance's ExplainPair, a piece is split where it strays farthest from the path until it is good enough.
    Then neighbours are joined where that is good enough, too.
    """
    rows = torch.cat([torch.ones(1, dtype=torch.bool), path[1:, 0] > path[:-1, 0]]).nonzero()[:, 0]
    bounds = torch.cat([rows, torch.tensor([len(path)])]).tolist()  # where a step of x begins in the path
    along = cost(path[:, 0], path[:, 1])
    spread = cost(path[:, 0], path[:, 1].roll(len(path) // 2))  # the cost of frames that are not matched
    budget = tolerance * float(along.sum() + 0.02 * spread.sum()) / len(path)

    def good(a: int, b: int) -> bool:
        """Whether path[a:b] may be straight."""
        straight = _line(path[a], path[b - 1])
        return float(cost(*straight.T).sum() - along[a:b].sum()) <= budget * (b - a) + 1e-12

    pieces: list[tuple[int, int]] = []
    left = [(0, len(bounds) - 1)]
    while left:
        first, last = left.pop()
        a, b = bounds[first], bounds[last]
        if last - first == 1 or good(a, b):
            pieces.append((first, last))
            continue
        middle = first + 1 + int(_deviation(path[a:b])[[bounds[k] - a for k in range(first + 1, last)]].argmax())
        left += [(middle, last), (first, middle)]
    joined = [pieces[0]]
    for first, last in pieces[1:]:
        if good(bounds[joined[-1][0]], bounds[last]):
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return [_segment(path[bounds[a] : bounds[b]], x, y, step_costs) for a, b in joined]


def _segment(path: Tensor, x: Tensor, y: Tensor, step_costs: Tensor) -> Segment:
    (start, match_start), (last, match_last) = path[[0, -1]].tolist()
    a, b = x[path[:, 0]], y[path[:, 1]]
    deviations = [float((part - part.mean(0)).square().mean(0).sum().sqrt()) for part in (a, b)]
    flat = deviations[0] <= 1e-9 * float(a.abs().max() + 1e-300)
    return Segment(
        start,
        last + 1,
        match_start,
        match_last + 1,
        float((path[:, 1] - path[:, 0]).double().mean()),
        (match_last + 1 - match_start) / (last + 1 - start),
        1.0 if flat else deviations[1] / deviations[0],
        float((b.mean(0) - a.mean(0)).mean()),
        float(step_costs[start : last + 1].sum()),
    )


def _line(first: Tensor, last: Tensor) -> Tensor:
    """The cells of a straight path between two cells, (n, 2)."""
    count = int((last - first).abs().max()) + 1
    share = torch.linspace(0, 1, count, dtype=torch.float64)[:, None]
    return (first + share * (last - first)).round().long()


def _deviation(path: Tensor) -> Tensor:
    """How far each cell is from the straight line between the first and the last."""
    points = path.double()
    along = points[-1] - points[0]
    across = torch.stack([-along[1], along[0]])
    return ((points - points[0]) @ across).abs()
