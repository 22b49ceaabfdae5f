"""The share of each step and channel in the distance between two sequences."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from likewise.distances.alignment import Alignment
from likewise.distances.cosine import Cosine
from likewise.distances.coupled_gru import CoupledAlignment
from likewise.distances.distance import Distance
from likewise.distances.dtw import DTW
from likewise.distances.elastic import Elastic
from likewise.distances.euclidean import Euclidean
from likewise.distances.gdtw import GDTW
from likewise.distances.mean_frames import MeanFrames
from likewise.distances.tap import PairNetwork
from likewise.ops.ground import GroundCost, cosine, euclidean, is_fused, sqeuclidean
from likewise.search.elastic_costs import elastic_costs

NUMBERS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Costs:
    """The cost of each step and channel of x, (Tx, C), and of y, (Ty, C), in float64; both sum to value - rest.

    Where a cost cannot be divided among channels, both have one column. rest: the part of the distance that belongs to
    no step, such as the entropy of soft-DTW, or the penalty of GDTW's slopes.
    """

    x: Tensor
    y: Tensor
    rest: float


def costs(distance: Distance, x: Tensor, y: Tensor, alignment: Alignment | None, value: float) -> Costs | None:
    """The costs of one pair (Tx, C), (Ty, C) whose distance is ``value``; None if the distance does not divide.

    - A path or a plan with a ground cost (DTW, soft-DTW, transport, OTAM, TAP): each cell's cost times its weight.
    - An elastic distance: each move of its path; by channel if these have paths of their own.
    - A root of a sum (Euclidean, MeanFrames): shares in proportion to the squares.
    - GDTW: the squared residuals at the steps of x, by the trapezoid rule.
    - A coupled GRU: by how much each step moves the two networks apart; not by channel.
    """
    x, y = x.double(), y.double()
    if isinstance(distance, Euclidean):
        return _scaled(*_on_cells(sqeuclidean, x, y, _diagonal(x, y)), value)
    if isinstance(distance, Cosine):
        steps = min(len(x), len(y))
        a, b = x[:steps].flatten()[None, None], y[:steps].flatten()[None, None]
        whole = by_channel(cosine, a[0], b[0])[0].reshape(steps, -1)
        return _scaled(_padded(whole, len(x)), _padded(whole, len(y)), value)
    if isinstance(distance, MeanFrames):
        apart = (x.mean(0) - y.mean(0)).square()
        return _scaled((apart / len(x)).expand(len(x), -1), (apart / len(y)).expand(len(y), -1), value)
    if isinstance(alignment, CoupledAlignment):
        return _apart(alignment, len(x), len(y))
    if isinstance(distance, GDTW) and alignment is not None:
        return _residuals(distance, x, y, alignment, value)
    if isinstance(distance, Elastic):
        first, second = elastic_costs(distance, x, y)
        return Costs(first, second, value - float(first.sum()))
    ground: Any = euclidean if isinstance(distance, PairNetwork) else getattr(distance, "ground", None)
    if alignment is None or not callable(ground):
        return None
    plan = _weights(distance, x, y, alignment)
    first, second = _on_plan(ground, x, y, plan)  # type: ignore[arg-type]
    return Costs(first, second, value - float(first.sum()))


def by_channel(ground: GroundCost, x: Tensor, y: Tensor) -> Tensor:
    """The cost of pairs of frames (K, C), (K, C), divided among channels: (K, C); (K, 1) for a callable.

    Squared Euclidean: the squares. Euclidean: in proportion to them. Cosine: half the squares of the directions'
    differences; a frame of zeros, whose cost is 1, divides it evenly.
    """
    if not is_fused(ground):
        return ground(x[:, None].float(), y[:, None].float())[:, 0].double()
    total = ground(x[:, None], y[:, None])[:, 0]  # (K, 1)
    if ground is cosine:
        x, y = (frames / torch.linalg.vector_norm(frames, dim=1, keepdim=True) for frames in (x, y))
        squares = (x - y).square() / 2
        return torch.where(squares.isfinite().all(1, keepdim=True), squares, total / x.shape[1])
    squares = (x - y).square()
    if ground is sqeuclidean:
        return squares
    return squares / torch.where(total > 0, total, 1)


def _weights(distance: Distance, x: Tensor, y: Tensor, alignment: Alignment) -> Tensor:
    """(Tx, Ty), how often the distance counts the cost of each cell."""
    plan = alignment.plan[0].detach().double()[: len(x), : len(y)]
    if isinstance(distance, DTW) and distance.normalize is not None:
        count = len(x) + len(y) if distance.normalize == "lengths" else len(alignment.path(0))
        return plan / count
    if isinstance(distance, PairNetwork) and distance.symmetric:
        dtype = next((p.dtype for p in distance.parameters()), torch.float32)
        back = distance.align(y[None].to(dtype), x[None].to(dtype)).plan[0].detach().double()
        return (plan + back.T) / 2
    return plan


def _on_plan(ground: GroundCost, x: Tensor, y: Tensor, plan: Tensor) -> tuple[Tensor, Tensor]:
    """Costs of the cells that have a weight, summed over the rows and over the columns of the plan."""
    first = second = None
    for some in plan.nonzero().split(max(1, NUMBERS_AT_ONCE // x.shape[1])):
        i, j = some.T
        cell = by_channel(ground, x[i], y[j]) * plan[i, j][:, None]
        first = cell.new_zeros(len(x), cell.shape[1]) if first is None else first
        second = cell.new_zeros(len(y), cell.shape[1]) if second is None else second
        first.index_add_(0, i, cell)
        second.index_add_(0, j, cell)
    if first is None or second is None:
        return x.new_zeros(x.shape), y.new_zeros(y.shape)
    return first, second


def _on_cells(ground: GroundCost, x: Tensor, y: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
    i, j = cells.T
    cell = by_channel(ground, x[i], y[j])
    return cell.new_zeros(x.shape).index_add_(0, i, cell), cell.new_zeros(y.shape).index_add_(0, j, cell)


def _diagonal(x: Tensor, y: Tensor) -> Tensor:
    return torch.arange(min(len(x), len(y)))[:, None].expand(-1, 2)


def _padded(cost: Tensor, steps: int) -> Tensor:
    return torch.nn.functional.pad(cost, (0, 0, 0, steps - len(cost)))


def _scaled(first: Tensor, second: Tensor, value: float) -> Costs:
    """Shares of a value, in proportion to costs."""
    total = float(first.sum())
    factor = value / total if total > 0 else 0.0
    return Costs(first * factor, second * factor, 0.0 if total > 0 else value)


def _apart(alignment: CoupledAlignment, n: int, m: int) -> Costs:
    """By how much each step moves two coupled networks apart; the shorter one waits at its last step."""
    error = alignment.error[0].detach().double()
    moves = torch.diff(error, prepend=error.new_zeros(1))
    i, j = alignment.path(0).T
    parts = [moves.new_zeros(steps).index_add_(0, at, moves[: len(at)]) for steps, at in ((n, i), (m, j))]
    return Costs(parts[0][:, None], parts[1][:, None], 0.0)


def _residuals(distance: GDTW, x: Tensor, y: Tensor, alignment: Alignment, value: float) -> Costs:
    """Residuals of a warp at the steps of x, with the weights of the trapezoid rule on times from 0 to 1."""
    plan = alignment.plan[0].detach().double()[: len(x), : len(y)]
    apart = (x - plan @ y).abs()
    if distance.ground == "absolute":
        cost = apart
    elif distance.huber is not None:
        cost = torch.where(apart > distance.huber, 2 * distance.huber * apart - distance.huber**2, apart.square())
    else:
        cost = apart.square()
    weight = torch.full((len(x),), 1 / max(1, len(x) - 1), dtype=torch.float64)
    weight[[0, -1]] /= 2
    first = cost * weight[:, None]
    return Costs(first, plan.T @ first, value - float(first.sum()))
