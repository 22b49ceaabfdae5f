"""Elastic distances on a GPU: each lane holds one pair, and a few rows stay in registers while the columns go by.

The kernel computes the recurrences of ``moves.py`` from the same frames, gaps and numbers as the C++ kernels. Paths
are traced back from the moves that it records, two bits per cell; derivatives are those of the costs along the paths.
"""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.ops.elastic.cpu import LONGEST_IN_FLOAT32
from likewise.ops.elastic.cpu import scaled as scaled  # plain torch, on any device
from likewise.ops.elastic.gpu.follow import FEW, run_follow
from likewise.ops.elastic.gpu.sweep import sweep_kernel
from likewise.ops.elastic.gpu.trace import slope_kernel, trace_kernel
from likewise.ops.elastic.moves import Border, Moves, Recurrence, Tensors, by_name
from likewise.ops.launch.arguments import float64_bits, processors
from likewise.ops.launch.launcher import launch
from likewise.ops.rules import Rules

LANES = 64  # pairs of one program
ROWS, ROWS_KEPT = 16, 8  # rows in registers, without and with recorded moves
PROGRAMS = 16  # programs per multiprocessor
NARROW = 32  # fewer columns than these are compared pair by pair
BYTES_AT_ONCE = 1 << 30  # of moves, two bits per cell
NUMBERS_AT_ONCE = 1 << 26  # in copies of frames


@dataclass(frozen=True)
class _Given:
    """The arguments of an operator, and the pairs to compare."""

    tensors: Tensors
    moves: Moves
    rules: Rules
    x_items: Tensor
    y_items: Tensor

    @classmethod
    def paired(cls, arguments: tuple[Any, ...]) -> "_Given":
        tensors, moves, rules = _wide(arguments)
        items = torch.arange(len(tensors.x), device=tensors.x.device)
        return cls(tensors, moves, rules, items, items)

    @classmethod
    def all_pairs(cls, arguments: tuple[Any, ...]) -> "_Given":
        tensors, moves, rules = _wide(arguments)
        columns = max(1, len(tensors.y))
        pair = torch.arange(len(tensors.x) * len(tensors.y), device=tensors.x.device)
        return cls(tensors, moves, rules, pair // columns, pair % columns)

    def part(self, some: slice) -> "_Given":
        return replace(self, x_items=self.x_items[some], y_items=self.y_items[some])

    def lengths(self) -> tuple[Tensor, Tensor]:
        x, y, *_, x_lengths, y_lengths = self.tensors
        return _lengths("x_lengths", x, x_lengths), _lengths("y_lengths", y, y_lengths)


def _wide(arguments: tuple[Any, ...]) -> tuple[Tensors, Moves, Rules]:
    """The arguments by name, those of long pairs in float64 as on the CPU. Padding counts: no wait for the lengths."""
    tensors, moves, rules = by_name(arguments)
    steps = tensors.x.shape[1] + tensors.y.shape[1]
    if tensors.x.dtype == torch.float32 and steps > LONGEST_IN_FLOAT32[moves.recurrence]:
        wide = (t if t is None else t.double() for t in tensors[:-2])
        tensors = Tensors(*wide, *tensors[-2:])  # type: ignore[arg-type]
    return tensors, moves, rules


def _lengths(name: str, x: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return torch.full((len(x),), x.shape[1], dtype=torch.int64, device=x.device)
    _check.lengths_range("elastic", name, lengths, x.shape[1])
    return lengths.to(x.device)


def value(*arguments: Any) -> Tensor:
    """Values of pairs, (B,)."""
    given = _Given.paired(arguments)
    return _finite(given.tensors, _listed(given).to(arguments[0].dtype))


def matrix(*inputs: Any) -> Tensor:
    """Values of all pairs, (N, M)."""
    *arguments, symmetric = inputs
    tensors, *_ = by_name(tuple(arguments))
    rows, columns = len(tensors.x), len(tensors.y)
    if rows * columns == 0:
        return tensors.x.new_empty(rows, columns)
    if _follows(given := _Given.paired(tuple(arguments))):
        found = run_follow(*given.tensors[:2], given.moves, given.rules, given.lengths(), None, symmetric=symmetric)
    elif columns < NARROW:
        found = _listed(_Given.all_pairs(tuple(arguments))).reshape(rows, columns)
    else:
        found = _all_pairs(given, symmetric)
    return _finite(tensors, found.to(tensors.x.dtype))


def pairs(listed: Tensor, limits: Tensor | None, *arguments: Any) -> Tensor:
    """Values of listed pairs, (K,); nothing is given up early."""
    tensors, moves, rules = _wide(arguments)
    found = _listed(_Given(tensors, moves, rules, *listed.to(tensors.x.device).T.contiguous()))
    return _finite(tensors, found.to(arguments[0].dtype))


def path(*arguments: Any) -> tuple[Tensor, Tensor]:
    """Optimal paths (B, Tx + Ty - 1, 2), padded with -1, and their numbers of steps."""
    given = _Given.paired(arguments)
    x, y = given.tensors.x, given.tensors.y
    steps, found = _trace(given)
    cells = steps[..., :2].clamp(min=0)
    real = torch.arange(steps.shape[1], device=x.device) < found[:, None]
    fresh = real.clone()  # a step along the border may stay at its cell
    fresh[:, 1:] &= (cells[:, 1:] != cells[:, :-1]).any(-1)
    count = fresh.sum(1)
    place = count[:, None] - fresh.cumsum(1)  # turned round
    paths = torch.full((len(x), max(0, x.shape[1] + y.shape[1] - 1), 2), -1, dtype=torch.int64, device=x.device)
    item = torch.arange(len(x), device=x.device)[:, None].expand_as(place)
    paths[item[fresh], place[fresh]] = cells[fresh]
    return paths, count


def slopes(*arguments: Any) -> tuple[Tensor, ...]:
    """Values of pairs, (B,), and the derivative of each with respect to its frames and gaps."""
    given, dtype = _Given.paired(arguments), arguments[0].dtype
    values = given.tensors.x.new_empty(len(given.x_items))
    found = _gradient(given, torch.ones_like(values), values)
    return values.to(dtype), *(slope.to(dtype) for slope in found)


def gradient(weight: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    """Sum of weight * d value, along the paths."""
    given = _Given.all_pairs(arguments) if weight.ndim == 2 else _Given.paired(arguments)
    return tuple(slope.to(arguments[0].dtype) for slope in _gradient(given, weight.to(given.tensors.x.dtype)))


def _gradient(given: _Given, weight: Tensor, values: Tensor | None = None) -> tuple[Tensor, ...]:
    """Sum of weight * d value of the listed pairs; also writes the values, if memory for them is given."""
    x, y, x_gaps, y_gaps, *_ = given.tensors
    sums = [x.new_zeros(0) if t is None else torch.zeros_like(t) for t in (x, y, x_gaps, y_gaps)]
    chunk = _at_once(given)
    for first in range(0, len(given.x_items), chunk):
        part = slice(first, first + chunk)
        some = given.part(part)
        reached, lanes, slopes = _slopes(some)
        if values is not None:
            values[part] = reached
        share = weight.flatten()[part][lanes.order[: len(reached)]]
        for total, slope, items in zip(sums, slopes, (some.x_items, some.y_items) * 2, strict=True):
            if total.numel():
                each = slope[..., : len(reached)].movedim(-1, 0)  # (pairs, T, C) or (pairs, T)
                each = each * share.reshape(-1, *(1,) * (each.ndim - 1))
                total.index_add_(0, items[lanes.order[: len(reached)]], each)
    return tuple(sums)


def _slopes(given: _Given) -> tuple[Tensor, "_Lanes", list[Tensor]]:
    """Values of the listed pairs, the lanes, and in their layout the derivatives with respect to frames and gaps."""
    moves, weights = given.moves, given.tensors.weights
    values, lanes, ends, moved = _sweep(given, record=True)
    _finite(given.tensors, values)
    (x, x_gaps), (y, y_gaps) = lanes.x[:2], lanes.y[:2]
    found = [torch.zeros_like(t) for t in (x, y, x_gaps, y_gaps)]
    x_steps, channels, places = x.shape
    first, count = moves.own(channels) if moves.recurrence == Recurrence.FOLLOW else (0, channels)
    table = x.new_zeros(1) if weights is None else weights.detach().contiguous()
    launch(
        slope_kernel,
        (places // LANES,),
        (x, y, x_gaps, y_gaps, table, lanes.x_lengths, lanes.y_lengths, moved, ends, *found),
        (-(-x_steps // ROWS_KEPT), x_steps, len(y), channels, places, len(table) // 2, first, count),
        LANES // 32,
        LANES=LANES,
        ROWS=ROWS_KEPT,
        ONE=channels == 1,
        RECURRENCE=int(moves.recurrence),
        ROOT=moves.root,
        BORDER=int(moves.border),
        LAST_COST=moves.last_cost,
        WEIGHTED=weights is not None,
        OPEN_BEGIN=given.rules.open_begin,
    )
    return values, lanes, found


def _at_once(given: _Given) -> int:
    """Pairs whose moves, frames and derivatives fit in memory."""
    (_, x_steps, channels), y_steps = given.tensors.x.shape, given.tensors.y.shape[1]
    moves, numbers = 4 * BYTES_AT_ONCE // max(1, x_steps * y_steps), NUMBERS_AT_ONCE // max(1, x_steps + y_steps)
    return max(LANES, min(moves, numbers // max(1, channels)))


def _listed(given: _Given) -> Tensor:
    """Values (pairs,) of the listed pairs."""
    if _follows(given):
        items = given.x_items, given.y_items
        return run_follow(*given.tensors[:2], given.moves, given.rules, given.lengths(), items)
    (_, x_steps, channels), y_steps = given.tensors.x.shape, given.tensors.y.shape[1]
    chunk = max(LANES, NUMBERS_AT_ONCE // max(1, (x_steps + y_steps) * channels))
    count = len(given.x_items)
    found = [_sweep(given.part(slice(first, first + chunk)))[0] for first in range(0, count, chunk)]
    return torch.cat(found) if found else given.tensors.x.new_empty(0)


def _follows(given: _Given) -> bool:
    """Whether a warp may align each pair."""
    moves = given.moves
    few = given.tensors.x.shape[2] <= FEW * moves.parts
    return moves.recurrence == Recurrence.FOLLOW and moves.border == Border.NONE and few


def _trace(given: _Given) -> tuple[Tensor, Tensor]:
    """Steps (pairs, Tx + Ty, 3) of the paths, from the last to the first, and their numbers."""
    x_steps, y_steps, count = given.tensors.x.shape[1], given.tensors.y.shape[1], len(given.x_items)
    longest = x_steps + y_steps
    if count == 0:
        nothing = given.tensors.x.new_empty(0, dtype=torch.int64)
        return nothing.reshape(0, longest, 3), nothing
    values, lanes, ends, moves = _sweep(given, record=True)
    _finite(given.tensors, values)
    places = len(lanes.order)
    steps = torch.full((3, longest, places), -1, dtype=torch.int32, device=values.device)
    found = torch.empty(places, dtype=torch.int32, device=values.device)
    launch(
        trace_kernel,
        (places // LANES,),
        (moves, lanes.x_lengths, ends, steps, found),
        (places, -(-x_steps // ROWS_KEPT), x_steps, y_steps, longest, places),
        LANES // 32,
        LANES=LANES,
        ROWS=ROWS_KEPT,
        BORDER=int(given.moves.border),
        OPEN_BEGIN=given.rules.open_begin,
    )
    place = torch.empty(count, dtype=torch.int64, device=values.device)
    place[lanes.order[:count]] = torch.arange(count, device=values.device)
    return steps.permute(2, 1, 0)[place].long(), found[place].long()


@dataclass(frozen=True)
class _Lanes:
    """The order of pairs or of columns: similar lengths side by side, the last one repeated up to whole blocks."""

    order: Tensor
    x: tuple[Tensor, Tensor, Tensor]  # frames, gaps and reach
    y: tuple[Tensor, Tensor, Tensor]
    x_lengths: Tensor
    y_lengths: Tensor


def _lanes(keys: Tensor | None, count: int, device: torch.device) -> Tensor:
    order = torch.arange(count, device=device) if keys is None else torch.argsort(keys)
    return torch.cat([order, order[-1:].expand(-count % LANES)]) if count % LANES else order


def _side(side: tuple[Tensor, Tensor | None, Tensor | None], items: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Frames (steps, C, places), gaps (steps, places) and reach (places,) of these items."""
    frames, gaps, reach = (None if t is None else t.detach()[items] for t in side)
    assert frames is not None
    nothing = frames.new_zeros(1)
    turned = frames.permute(1, 2, 0).contiguous()
    return turned, nothing if gaps is None else gaps.T.contiguous(), nothing if reach is None else reach.contiguous()


def _sweep(given: _Given, *, record: bool = False) -> tuple[Tensor, _Lanes, Tensor, Tensor]:
    """Values of the listed pairs, the lanes and, if recorded, the columns where paths end and the moves."""
    x, y, x_gaps, y_gaps, x_reach, y_reach, _, *lengths = given.tensors
    count, device = len(given.x_items), x.device
    n, m = (t[items] for t, items in zip(given.lengths(), (given.x_items, given.y_items), strict=True))
    full = lengths == [None, None]
    order = _lanes(None if full else n * (y.shape[1] + 1) + m, count, device)
    x_side = _side((x, x_gaps, x_reach), given.x_items[order])
    y_side = _side((y, y_gaps, y_reach), given.y_items[order])
    lanes = _Lanes(order, x_side, y_side, n[order], m[order])
    blocks, strips = len(order) // LANES, -(-x.shape[1] // ROWS_KEPT)
    found = x.new_empty(len(order))
    ends = torch.empty(len(order) if record else 1, dtype=torch.int32, device=device)
    moves = torch.empty(blocks * strips * y.shape[1] * LANES if record else 1, dtype=torch.int16, device=device)
    _run(given, lanes, (found, ends, moves), (blocks, blocks), record=record)
    values = torch.empty_like(found[:count])
    values[order[:count]] = found[:count]
    return values, lanes, ends, moves


def _all_pairs(given: _Given, symmetric: bool) -> Tensor:
    """Values (N, M) of all pairs."""
    x, y, x_gaps, y_gaps, x_reach, y_reach, _, _, y_lengths = given.tensors
    n, m = given.lengths()
    order = _lanes(None if y_lengths is None else m, len(y), x.device)
    rows = order[: len(y)] if symmetric else torch.arange(len(x), device=x.device)
    y_side = _side((y, y_gaps, y_reach), order)
    nothing = x.new_zeros(1)
    frames, gaps, reach = (nothing if t is None else t.detach()[rows].contiguous() for t in (x, x_gaps, x_reach))
    blocks = len(order) // LANES
    found = x.new_empty(len(x), len(order))
    unused = torch.empty(1, dtype=torch.int32, device=x.device)
    lanes = _Lanes(order, (frames, gaps, reach), y_side, n[rows], m[order])
    _run(given, lanes, (found, unused, unused), (blocks * len(x), blocks), symmetric=symmetric)
    found = found[:, : len(y)]
    if symmetric:
        found = found.triu() + found.triu(1).T
        values = torch.empty_like(found)
        values[order[: len(y), None], order[: len(y)]] = found
        return values
    values = torch.empty_like(found)
    values[:, order[: len(y)]] = found
    return values


def _run(
    given: _Given,
    lanes: _Lanes,
    outputs: tuple[Tensor, Tensor, Tensor],
    tasks: tuple[int, int],
    *,
    record: bool = False,
    symmetric: bool | None = None,
) -> None:
    """One launch: for listed pairs if ``symmetric`` is None, otherwise for all pairs."""
    x, y, moves, rules, weights = given.tensors.x, given.tensors.y, given.moves, given.rules, given.tensors.weights
    programs = min(tasks[0], PROGRAMS * processors(x))
    found, ends, moved = outputs
    all_pairs = symmetric is not None
    table = weights is not None or (moves.recurrence == Recurrence.CARRY and moves.slope != 0)
    numbers = (moves.penalty, moves.slope, moves.hit, moves.miss, rules.window.size)
    places, follows = len(lanes.order), moves.recurrence == Recurrence.FOLLOW
    launch(
        sweep_kernel,
        (programs,),
        (
            *itertools.chain(*zip(lanes.x, lanes.y, strict=True)),
            x.new_zeros(1) if weights is None else weights.detach().contiguous(),
            lanes.x_lengths,
            lanes.y_lengths,
            found,
            ends,
            x.new_empty((1 + 2 * follows) * programs, y.shape[1], LANES),
            moved,
        ),
        (
            *tasks,
            -(-x.shape[1] // ROWS_KEPT),
            x.shape[1],
            y.shape[1],
            x.shape[2],
            places,
            places,
            0 if weights is None else len(weights) // 2,
            *moves.own(x.shape[2]),
            *map(float64_bits, numbers),
        ),
        LANES // 32,
        LANES=LANES,
        ROWS=ROWS_KEPT if record or follows else ROWS,
        ALL_PAIRS=all_pairs,
        SYMMETRIC=bool(symmetric),
        ONE=x.shape[2] == 1,
        RECURRENCE=int(moves.recurrence),
        ROOT=moves.root,
        BORDER=int(moves.border),
        LAST_COST=moves.last_cost,
        TABLE=table,
        RECORD=record,
        WINDOW=rules.window.kind,
        OPEN_BEGIN=rules.open_begin,
        OPEN_END=rules.open_end,
    )


def _finite(tensors: Tensors, values: Tensor) -> Tensor:
    """Return values if they and all frames are finite; otherwise raise an error. A minimum may ignore a NaN."""
    if not values.numel() or (values.is_cuda and torch.cuda.is_current_stream_capturing()):
        return values
    largest = [torch.linalg.vector_norm(t.detach(), torch.inf) for t in (tensors.x, tensors.y, values)]
    if not torch.stack(largest).isfinite().all():
        _check.finite("elastic", "x", tensors.x, tensors.x_lengths)
        _check.finite("elastic", "y", tensors.y, tensors.y_lengths)
        if not values.isfinite().all():
            pair = int((~values.flatten().isfinite()).nonzero()[0])
            _check.refuse("elastic", f"the value of pair {pair} is not finite: the costs overflow {values.dtype}")
    return values
