"""Elastic distances on a GPU: each lane holds one pair, and a few rows stay in registers while the columns go by.

The kernel computes the recurrences of ``moves.py`` from the same frames, gaps and numbers as the C++ kernels. Paths
walk back over the moves that it records, a byte a cell; derivatives are those of the costs along the paths.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise import _check
from likewise.ops.elastic.moves import Moves, Recurrence, Tensors, by_name
from likewise.ops.engine.windows import window_row
from likewise.ops.launch.arguments import float64_bits, float64_from
from likewise.ops.launch.launcher import launch
from likewise.ops.rules import Rules

LANES = 64  # pairs that one program holds
ROWS = 4
CELLS_AT_ONCE = 1 << 30  # moves kept at once, a byte each
ROWS_AT_ONCE = 1 << 26  # numbers in the rows of all pairs at work


@triton.jit
def elastic_kernel(x, y, x_gaps, y_gaps, x_reach, y_reach, weights, x_items, y_items, x_lengths, y_lengths, values,
                   ends, row_values, row_costs, last_values, moves, count, x_count, y_count, x_steps, y_steps, C,
                   longest, penalty_bits, slope_bits, hit_bits, miss_bits, size_bits, LANES: tl.constexpr,
                   ROWS: tl.constexpr, RECURRENCE: tl.constexpr, ROOT: tl.constexpr, BORDER: tl.constexpr,
                   LAST_COST: tl.constexpr, WEIGHTED: tl.constexpr, RECORD: tl.constexpr, WINDOW: tl.constexpr,
                   OPEN_BEGIN: tl.constexpr, OPEN_END: tl.constexpr):  # fmt: skip
    """x (x_steps, C, x_count), y (y_steps, C, y_count), gaps (steps, items); pairs (x_items[p], y_items[p])."""
    lane = tl.arange(0, LANES)
    pair = tl.program_id(0).to(tl.int64) * LANES + lane
    live = pair < count
    x_item = tl.load(x_items + pair, mask=live, other=0)
    y_item = tl.load(y_items + pair, mask=live, other=0)
    n = tl.load(x_lengths + x_item).to(tl.int32)
    m = tl.load(y_lengths + y_item).to(tl.int32)
    x_stride = x_item * 0 + x_count  # in 64 bits
    y_stride = y_item * 0 + y_count
    widest = tl.max(m, 0)
    dtype = x.dtype.element_ty
    far = tl.full((LANES,), float("inf"), dtype)
    nothing = tl.zeros((LANES,), dtype)
    penalty = float64_from(penalty_bits).to(dtype)
    slope = float64_from(slope_bits).to(dtype)
    hit = float64_from(hit_bits).to(dtype)
    miss = float64_from(miss_bits).to(dtype)
    size = float64_from(size_bits)
    within = nothing
    if RECURRENCE == 3:
        within = tl.maximum(tl.load(x_reach + x_item), tl.load(y_reach + y_item))
    slot = tl.program_id(0).to(tl.int64) * y_steps * LANES + lane  # of column 0 in the rows
    # Above the first row. A path of CARRY and BALL begins with a match: their borders lead nowhere else.
    above = nothing
    for j in range(widest):
        if BORDER == 1:
            above += tl.load(y_gaps + j * y_stride + y_item, mask=j < m, other=0.0)
        value = nothing if (OPEN_BEGIN or BORDER == 2) else (above if BORDER == 1 else far)
        tl.store(row_values + slot + j * LANES, far if RECURRENCE == 2 or RECURRENCE == 4 else value)
        tl.store(row_costs + slot + j * LANES, value)
    border = nothing if BORDER != 0 else far
    for top in range(0, tl.max(n, 0), ROWS):
        corner_value = border
        corner_cost = border
        if top == 0:
            corner_value = nothing
            corner_cost = nothing
        left_value = ()
        left_cost = ()
        x_gap = ()
        ends_here = ()
        for r in tl.static_range(ROWS):
            gap = nothing
            if RECURRENCE != 0:
                gap = tl.load(x_gaps + (top + r) * x_stride + x_item, mask=top + r < n, other=0.0)
            if BORDER == 1:
                border += gap
            x_gap = x_gap + (gap,)
            left_value = left_value + (far if RECURRENCE == 2 or RECURRENCE == 4 else border,)
            left_cost = left_cost + (border,)
            ends_here = ends_here + (top + r == n - 1,)
        # Where a cell carries another number, "value" is what gaps lead on from, and "cost" what a match does.
        diagonal_value = corner_value
        diagonal_cost = corner_cost
        for j in range(widest):
            up_value = tl.load(row_values + slot + j * LANES)
            up_cost = tl.load(row_costs + slot + j * LANES)
            next_value = up_value
            next_cost = up_cost
            y_gap = nothing
            if RECURRENCE != 0:
                y_gap = tl.load(y_gaps + j * y_stride + y_item, mask=j < m, other=0.0)
            column_value = ()
            column_cost = ()
            for r in tl.static_range(ROWS):
                i = top + r
                cost = nothing
                for c in range(C):
                    a = tl.load(x + (i * C + c) * x_stride + x_item, mask=i < n, other=0.0)
                    b = tl.load(y + (j * C + c) * y_stride + y_item, mask=j < m, other=0.0)
                    cost += (a - b) * (a - b)
                if ROOT:
                    cost = tl.sqrt(cost)
                distance = tl.abs(n * 0 + (i - j))
                if RECURRENCE == 0:
                    step = cost
                    if WEIGHTED:
                        at = tl.minimum(tl.maximum(2 * distance - tl.maximum(n, m) + longest, 0), 2 * longest)
                        step = cost * tl.load(weights + at)
                    diagonal = diagonal_value
                    up = up_value + penalty
                    left = left_value[r] + penalty
                    least = tl.minimum(diagonal, tl.minimum(up, left))
                    value = least + step
                    carried = value
                elif RECURRENCE == 4:
                    # up_cost and left_cost hold c; a match goes on from the value, which is apart in the borders.
                    split_x = tl.where(x_gap[r] + cost <= tl.abs(up_cost), 0.0, tl.minimum(x_gap[r], cost))
                    split_y = tl.where(y_gap + cost <= tl.abs(left_cost[r]), 0.0, tl.minimum(y_gap, cost))
                    from_border = (i == 0) | (j == 0)
                    diagonal = tl.where(from_border, diagonal_cost, diagonal_value) + cost
                    up = up_value + penalty + split_x
                    left = left_value[r] + penalty + split_y
                    least = tl.minimum(diagonal, tl.minimum(up, left))
                    value = least
                    carried = cost
                else:
                    if RECURRENCE == 1:
                        diagonal = diagonal_value + cost
                    elif RECURRENCE == 2:
                        diagonal = diagonal_cost + (cost + slope * distance.to(dtype))
                    else:
                        diagonal = diagonal_value + tl.where(cost < within, hit, miss)
                    up = up_value + x_gap[r]
                    left = left_value[r] + y_gap
                    least = tl.minimum(diagonal, tl.minimum(up, left))
                    value = least
                    carried = value + cost if RECURRENCE == 2 else value
                first, last = window_row(WINDOW, size, n, m, i)
                outside = (j < first) | (j > last) | (i >= n)
                if RECORD:
                    move = tl.where(tl.minimum(up, left) < diagonal, tl.where(left < up, 2, 1), 0)
                    place = moves + (pair * x_steps + i) * y_steps + j
                    tl.store(place, move.to(tl.int8), mask=live & (i < n) & (j < m))
                value = tl.where(outside, far, value)
                if RECURRENCE != 4:
                    carried = tl.where(outside, far, carried)
                result = carried if LAST_COST else value
                tl.store(last_values + slot + j * LANES, result, mask=ends_here[r])
                diagonal_value = left_value[r]
                diagonal_cost = left_cost[r]
                up_value = value
                up_cost = carried
                column_value = column_value + (value,)
                column_cost = column_cost + (carried,)
            left_value = column_value
            left_cost = column_cost
            tl.store(row_values + slot + j * LANES, up_value)
            tl.store(row_costs + slot + j * LANES, up_cost)
            diagonal_value = next_value
            diagonal_cost = next_cost
    value = tl.load(last_values + slot + (m - 1) * LANES)
    end = m - 1
    if OPEN_END:
        first, last = window_row(WINDOW, size, n, m, n - 1)
        for k in range(widest):
            j = widest - 1 - k
            found = tl.load(last_values + slot + j * LANES, mask=(j >= first) & (j <= last), other=float("inf"))
            better = found <= value
            value = tl.where(better, found, value)
            end = tl.where(better, j, end)
    tl.store(values + pair, value, mask=live)
    tl.store(ends + pair, end.to(tl.int64), mask=live)


@triton.jit
def trace_kernel(moves, ends_x, ends_y, steps, found, x_steps, y_steps, longest, BORDER: tl.constexpr,
                 OPEN_BEGIN: tl.constexpr):  # fmt: skip
    """Walk back from the last cell. Writes (i, j, move) of every step, the last first; in border cells i or j is -1."""
    pair = tl.program_id(0).to(tl.int64)
    moves += pair * x_steps * y_steps
    steps += pair * longest * 3
    i = tl.load(ends_x + pair)
    j = tl.load(ends_y + pair)
    count = i * 0
    while (i >= 0) & (j >= 0):
        move = tl.load(moves + i * y_steps + j).to(tl.int64)
        tl.store(steps + count * 3, i)
        tl.store(steps + count * 3 + 1, j)
        tl.store(steps + count * 3 + 2, move)
        count += 1
        i -= (move != 2).to(tl.int64)
        j -= (move != 1).to(tl.int64)
    if BORDER == 1:
        while i >= 0:
            tl.store(steps + count * 3, i)
            tl.store(steps + count * 3 + 1, i * 0 - 1)
            tl.store(steps + count * 3 + 2, i * 0 + 1)
            count += 1
            i -= 1
        if not OPEN_BEGIN:
            while j >= 0:
                tl.store(steps + count * 3, j * 0 - 1)
                tl.store(steps + count * 3 + 1, j)
                tl.store(steps + count * 3 + 2, j * 0 + 2)
                count += 1
                j -= 1
    tl.store(found + pair, count)


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
        tensors, moves, rules = by_name(arguments)
        items = torch.arange(len(tensors.x), device=tensors.x.device)
        return cls(tensors, moves, rules, items, items)

    @classmethod
    def all_pairs(cls, arguments: tuple[Any, ...]) -> "_Given":
        tensors, moves, rules = by_name(arguments)
        columns = max(1, len(tensors.y))
        pair = torch.arange(len(tensors.x) * len(tensors.y), device=tensors.x.device)
        return cls(tensors, moves, rules, pair // columns, pair % columns)

    def part(self, some: slice) -> "_Given":
        return replace(self, x_items=self.x_items[some], y_items=self.y_items[some])

    def lengths(self) -> tuple[Tensor, Tensor]:
        x, y, *_, x_lengths, y_lengths = self.tensors
        return _lengths("x_lengths", x, x_lengths), _lengths("y_lengths", y, y_lengths)


def _lengths(name: str, x: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return torch.full((len(x),), x.shape[1], dtype=torch.int64, device=x.device)
    _check.lengths_range("elastic", name, lengths, x.shape[1])
    return lengths.to(x.device)


def value(*arguments: Any) -> Tensor:
    """Values of pairs, (B,)."""
    return _run(_Given.paired(arguments))


def matrix(*inputs: Any) -> Tensor:
    """Values of all pairs, (N, M)."""
    *arguments, _ = inputs
    given = _Given.all_pairs(tuple(arguments))
    return _run(given).reshape(len(given.tensors.x), len(given.tensors.y))


def pairs(listed: Tensor, limits: Tensor | None, *arguments: Any) -> Tensor:
    """Values of listed pairs, (K,); nothing is given up early."""
    tensors, moves, rules = by_name(arguments)
    return _run(_Given(tensors, moves, rules, *listed.to(tensors.x.device).T.contiguous()))


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


def gradient(weight: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sum of weight * d value, along the paths."""
    given = _Given.all_pairs(arguments) if weight.ndim == 2 else _Given.paired(arguments)
    x, y, x_gaps, y_gaps, *_ = given.tensors
    leaves = [None if t is None else t.detach().requires_grad_() for t in (x, y, x_gaps, y_gaps)]
    sums = [None if t is None else torch.zeros_like(t) for t in leaves]
    chunk = max(1, CELLS_AT_ONCE // max(1, x.shape[1] * y.shape[1]))
    for first in range(0, len(given.x_items), chunk):
        part = slice(first, first + chunk)
        some = given.part(part)
        steps, found = _trace(some)
        with torch.enable_grad():
            total = (_along(some, leaves, steps, found) * weight.flatten()[part]).sum()
        wanted = [t for t in leaves if t is not None]
        slopes = iter(torch.autograd.grad(total, wanted, allow_unused=True))
        for k, leaf in enumerate(leaves):
            slope = None if leaf is None else next(slopes)
            if slope is not None:
                sums[k] = sums[k] + slope  # type: ignore[operator]
    nothing = x.new_zeros(0)
    a, b, c, d = (nothing if t is None else t for t in sums)
    return a, b, c, d


def _along(given: _Given, leaves: list[Tensor | None], steps: Tensor, found: Tensor) -> Tensor:
    """Costs (pairs,) of the paths, differentiable."""
    x, y, x_gaps, y_gaps = leaves
    assert x is not None
    assert y is not None
    moves, weights = given.moves, given.tensors.weights
    real = torch.arange(steps.shape[1], device=x.device) < found[:, None]  # (pairs, K)
    i, j, move = steps.unbind(-1)
    row, column = given.x_items[:, None], given.y_items[:, None]

    def cost(i: Tensor, j: Tensor, where: Tensor) -> Tensor:
        squared = (x[row, i.clamp(min=0)] - y[column, j.clamp(min=0)]).square().sum(-1)
        squared = torch.where(where & (squared > 0), squared, 1)
        return (squared.sqrt() if moves.root else squared) * (where & _apart(x, y, row, column, i, j))

    inside = real & (i >= 0) & (j >= 0)
    match = inside & (move == 0)
    if moves.recurrence == Recurrence.WARP:
        n, m = given.lengths()
        factor = 1.0
        if weights is not None:
            at = 2 * (i - j).abs() - torch.maximum(n[row], m[column]) + len(weights) // 2
            factor = weights[at.clamp(0, len(weights) - 1)]
        return (cost(i, j, inside) * factor).sum(1)
    assert x_gaps is not None
    assert y_gaps is not None
    up, left = real & (move == 1), real & (move == 2)
    u, v = x_gaps[row, i.clamp(min=0)], y_gaps[column, j.clamp(min=0)]
    if moves.recurrence == Recurrence.BALL:
        here = cost(i, j, inside)
        for gap, taken, before in ((u, up, cost(i - 1, j, up)), (v, left, cost(i, j - 1, left))):
            split = torch.where(gap + here <= before, 0, torch.minimum(gap, here))
            match_cost = torch.where(taken, split, 0)
            u = torch.where(taken, match_cost, u) if taken is up else u
            v = torch.where(taken, match_cost, v) if taken is left else v
    total = torch.where(up, u, 0).sum(1) + torch.where(left, v, 0).sum(1) + cost(i, j, match).sum(1)
    if moves.recurrence == Recurrence.CARRY:
        total = total + cost(i - 1, j - 1, match & (i > 0) & (j > 0)).sum(1)
        if moves.last_cost:
            total = total + cost(i[:, :1], j[:, :1], inside[:, :1]).sum(1)
    return total


def _apart(x: Tensor, y: Tensor, row: Tensor, column: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (x.detach()[row, i.clamp(min=0)] != y.detach()[column, j.clamp(min=0)]).any(-1)


def _run(given: _Given) -> Tensor:
    count, y_steps = len(given.x_items), given.tensors.y.shape[1]
    chunk = max(LANES, ROWS_AT_ONCE // max(1, y_steps))
    found = [_launch(given.part(slice(first, first + chunk)), None)[0] for first in range(0, count, chunk)]
    return _finite(given.tensors, torch.cat(found) if found else given.tensors.x.new_empty(0))


def _trace(given: _Given) -> tuple[Tensor, Tensor]:
    """Steps (pairs, Tx + Ty, 3) of the paths, the last first, and their numbers."""
    x, y = given.tensors.x, given.tensors.y
    (_, x_steps, _), (_, y_steps, _), count = x.shape, y.shape, len(given.x_items)
    steps = torch.full((count, x_steps + y_steps, 3), -1, dtype=torch.int64, device=x.device)
    found = torch.zeros(count, dtype=torch.int64, device=x.device)
    if count == 0:
        return steps, found
    moved = torch.zeros(count, x_steps, y_steps, dtype=torch.int8, device=x.device)
    values, ends = _launch(given, moved)
    _finite(given.tensors, values)
    last_rows = given.lengths()[0][given.x_items] - 1
    launch(
        trace_kernel,
        (count,),
        (moved, last_rows, ends, steps, found),
        (x_steps, y_steps, x_steps + y_steps),
        1,
        BORDER=int(given.moves.border),
        OPEN_BEGIN=given.rules.open_begin,
    )
    return steps, found


def _launch(given: _Given, moved: Tensor | None) -> tuple[Tensor, Tensor]:
    """Values of the pairs and the columns where they end; keeps the moves, if there is room for them."""
    x, y, x_gaps, y_gaps, x_reach, y_reach, weights, *_ = (None if t is None else t.detach() for t in given.tensors)
    moves, rules, count = given.moves, given.rules, len(given.x_items)
    values = x.new_empty(count)
    ends = torch.empty(count, dtype=torch.int64, device=x.device)
    programs = -(-count // LANES)
    rows = [x.new_empty(programs, y.shape[1], LANES) for _ in range(3)]
    nothing = x.new_zeros(1)
    lengths = given.lengths()
    x_lanes, y_lanes = (t.permute(1, 2, 0).contiguous() for t in (x, y))
    gaps = [nothing if t is None else t.T.contiguous() for t in (x_gaps, y_gaps)]
    others = [nothing if t is None else t.contiguous() for t in (x_reach, y_reach, weights)]
    items = (given.x_items.contiguous(), given.y_items.contiguous())
    longest = 0 if weights is None else len(weights) // 2
    numbers = (moves.penalty, moves.slope, moves.hit, moves.miss, rules.window.size)
    launch(
        elastic_kernel,
        (programs,),
        (x_lanes, y_lanes, *gaps, *others, *items, *lengths, values, ends, *rows, ends if moved is None else moved),
        (count, len(x), len(y), x.shape[1], y.shape[1], x.shape[2], longest, *map(float64_bits, numbers)),
        LANES // 32,
        LANES=LANES,
        ROWS=ROWS,
        RECURRENCE=int(moves.recurrence),
        ROOT=moves.root,
        BORDER=int(moves.border),
        LAST_COST=moves.last_cost,
        WEIGHTED=weights is not None,
        RECORD=moved is not None,
        WINDOW=rules.window.kind,
        OPEN_BEGIN=rules.open_begin,
        OPEN_END=rules.open_end,
    )
    return values, ends


def _finite(tensors: Tensors, values: Tensor) -> Tensor:
    """Return values if all are finite; otherwise say why not."""
    if values.is_cuda and torch.cuda.is_current_stream_capturing():
        return values
    if not values.isfinite().all():
        _check.finite("elastic", "x", tensors.x, tensors.x_lengths)
        _check.finite("elastic", "y", tensors.y, tensors.y_lengths)
        pair = int((~values.isfinite()).nonzero()[0])
        _check.refuse("elastic", f"the value of pair {pair} is not finite: the costs overflow {values.dtype}")
    return values
