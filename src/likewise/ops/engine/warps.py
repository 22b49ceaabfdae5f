"""A warp aligns a pair: each lane has ROWS neighbouring rows in registers, one column behind the lane above it.

A step moves every lane one column further, and passes the value of its last row to the lane below by a shuffle: within
a strip, nothing goes through memory. The row above a strip comes from `edges`. If there are many pairs, one program
computes the strips of a pair in turn (``WAITS`` is false); if there are few, each strip has its own program, which
waits at `progress` for the one above.
"""

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.engine.columns import column_size
from likewise.ops.engine.diagonals import take_number
from likewise.ops.engine.inputs import Inputs
from likewise.ops.engine.pairs import Pairs
from likewise.ops.engine.strips import run_strip
from likewise.ops.engine.windows import UNREACHABLE
from likewise.ops.launch.arguments import ceil_div, float64_bits, float64_from, power_of_2, processors
from likewise.ops.launch.launcher import launch

LANES = 32  # lanes of a warp
MOST_ROWS = 8  # the most rows of a lane
LEAST_ROWS = 4  # and the least in a long pair: each strip begins a hundred steps after the one above
REPORT = 4  # times that many columns between reports
WARPS = 8  # warps that keep a multiprocessor busy
PROGRAMS = 32  # programs that a multiprocessor can run at once
BASED_STEPS = 4096  # longer pairs keep their values near zero


@triton.jit
def pair_items(pair, columns, ALL_PAIRS: tl.constexpr, SYMMETRIC: tl.constexpr):
    """Item of x and item of y. SYMMETRIC: rows a and N - 1 - a of the upper triangle form a row of N + 1 pairs."""
    item = pair
    other = pair
    if SYMMETRIC:
        row = pair // (columns + 1)
        place = pair % (columns + 1)
        folded = place >= columns - row
        item = tl.where(folded, columns - 1 - row, row)
        other = tl.where(folded, place - 1, row + place)
    elif ALL_PAIRS:
        item = pair // columns
        other = pair % columns
    return item, other


# Sizes differ from call to call; only the size of a column changes how a kernel reads, and it is always aligned.
SIZES = ["count", "first_pair", "columns", "strips", "x_steps", "y_steps", "C"]
BITS = ["scale_bits", "size_bits", "beyond_bits"]


@triton.jit(do_not_specialize=SIZES + BITS)
def warps_kernel(x, y, cost, values, flags, up_shares, left_shares, last_rows, edges, progress, x_lengths, y_lengths,
                 count, first_pair, columns, strips, x_steps, y_steps, column, C, scale_bits, size_bits, beyond_bits,
                 ALL_PAIRS: tl.constexpr, SYMMETRIC: tl.constexpr, FULL: tl.constexpr, ROOT: tl.constexpr,
                 SOFT: tl.constexpr, WINDOW: tl.constexpr, OPEN_BEGIN: tl.constexpr, OPEN_END: tl.constexpr,
                 RECORD: tl.constexpr, WAITS: tl.constexpr, BASED: tl.constexpr, LINKED: tl.constexpr,
                 POSITIVE: tl.constexpr, POISON: tl.constexpr, FEW: tl.constexpr,
                 ROWS: tl.constexpr, LANES: tl.constexpr, STEPS: tl.constexpr, REPORT: tl.constexpr):  # fmt: skip
    """x (items, x_steps, C) and y (items, C, y_steps), or costs of `count` pairs by column.

    `values` are those of all pairs; if SYMMETRIC, on both sides of the diagonal. `flags` get NaN if a cost was not
    finite, else 0: one for each pair or, if it WAITS, for each strip. RECORD writes the shares of the predecessors
    above and left of every cell, (count, strips, y_steps + LANES - 1, LANES, ROWS) in the order of the steps, and, open
    at the end, `last_rows` (count, y_steps) float64.
    """
    program = take_number(progress, WAITS)
    dtype = values.dtype.element_ty
    scale = float64_from(scale_bits).to(dtype)
    size = float64_from(size_bits)
    beyond = float64_from(beyond_bits).to(dtype)
    first_task = program // strips if WAITS else program
    last_task = first_task + 1 if WAITS else count
    for task in range(first_task, last_task, tl.num_programs(0)):
        local = program.to(tl.int64) * 0 + task
        pair = local + first_pair
        item, other = pair_items(pair, columns, ALL_PAIRS, SYMMETRIC)
        n = x_steps
        m = y_steps
        if not FULL:
            n = tl.load(x_lengths + item).to(tl.int32)
            m = tl.load(y_lengths + other).to(tl.int32)
        plane = local * y_steps * column
        edge = edges + program.to(tl.int64) * y_steps
        edge_in = edge - y_steps if WAITS else edge
        first_strip = program % strips if WAITS else 0
        last_strip = (n + LANES * ROWS - 1) // (LANES * ROWS)
        if WAITS:
            last_strip = tl.minimum(last_strip, first_strip + 1)
        value = tl.full([], 0.0, dtype)
        base = tl.full([], 0.0, edges.dtype.element_ty)
        poison = tl.zeros((LANES,), dtype)
        for strip in range(first_strip, last_strip):
            tl.debug_barrier()  # the row above has been written
            share = (local * strips + strip) * (y_steps + LANES - 1) * (ROWS * LANES)
            value, base, found = run_strip(
                x + item * x_steps * C, y + other * C * y_steps, cost + plane, up_shares + share, left_shares + share,
                last_rows + local * y_steps, edge_in, edge, progress + program, progress + 1 + program,
                program * 0 + strip * (LANES * ROWS), n, m, C, y_steps, column, scale, size, beyond, ROOT, SOFT, WINDOW,
                OPEN_BEGIN, OPEN_END, RECORD, WAITS, BASED, LINKED, POSITIVE, POISON, FEW, ROWS, LANES,
                STEPS, REPORT)  # fmt: skip
            poison += found
        if POISON:
            tl.store(flags + (program if WAITS else task), tl.sum(poison, 0))
        if (first_strip < last_strip) & (last_strip * (LANES * ROWS) >= n):
            if BASED:
                value = ((value.to(tl.float64) + base) / scale.to(tl.float64)).to(dtype)
            elif SOFT:
                value = value / scale
            if SYMMETRIC:
                tl.store(values + item * columns + other, value)
                tl.store(values + other * columns + item, value)
            else:
                tl.store(values + pair, value)


@dataclass(frozen=True)
class Found:
    """The results of the kernel; unused fields are arbitrary."""

    values: Tensor  # (pairs,)
    flags: Tensor  # NaN where a cost was not finite, else 0
    shares: tuple[Tensor, ...]  # of the predecessors above and left, in the order of the steps
    last_row: Tensor  # r of the last row, float64 (pairs, Ty), if open at the end

    @property
    def outcome(self) -> Tensor:
        """The results that are finite if the costs are."""
        return torch.cat((self.values.flatten(), self.flags))


@dataclass(frozen=True)
class Shape:
    """How pairs are cut into strips."""

    rows: int  # rows of a lane
    waits: bool  # each strip has its own program
    steps: int = 4  # columns processed at a time

    def strips(self, x_steps: int) -> int:
        """Strips of a pair."""
        return ceil_div(x_steps, LANES * self.rows)

    def places(self, x_steps: int, count: int) -> int:
        """The number of progress counters: a multiple of 16 bytes, since quick launches need aligned tensors."""
        return ceil_div(1 + count * self.strips(x_steps), 4) * 4 if self.waits else 0


def shape(pairs: Pairs, count: int, *, given: bool, record: bool) -> Shape:
    """The fastest shape for this number of pairs, as measured on an H200.

    More rows per lane mean fewer shuffles and loads per cell, but more idle lanes and fewer strips to run side by side.
    Records are written to memory for all rows of a lane at a time. Few pairs wait for memory, and load further ahead;
    with costs of many channels, there are no registers for that.
    """
    channels, x_steps = pairs.x.shape[2], pairs.steps[0]
    busy = WARPS * processors(pairs.x)
    if given or record:
        rows = min(4 if record or 4 * count * ceil_div(x_steps, LANES * MOST_ROWS) < busy else MOST_ROWS,
                   power_of_2(ceil_div(x_steps, LANES)))  # fmt: skip
        waits = (record or count < busy) and x_steps > LANES * rows
        return Shape(rows, waits, 8 if rows <= 4 and (given or channels <= 4) else 4 if given or waits else 2)
    strips = ceil_div(x_steps, LANES * MOST_ROWS)
    rows = ceil_div(x_steps, LANES * strips)
    if count >= busy:
        return Shape(rows, False, 4 if channels <= 12 else 2)
    while rows > LEAST_ROWS and 2 * count * ceil_div(x_steps, LANES * rows) < busy:
        rows = max(LEAST_ROWS, ceil_div(rows, 2))
    return Shape(rows, x_steps > LANES * rows, 8 if channels <= 4 else 4)


def run_warps(
    inputs: Inputs,
    how: Shape,
    first: int,
    last: int,
    values: Tensor,
    *,
    cost: Tensor | None = None,
    record: bool = False,
    poison: bool = True,
) -> Found:
    """Align pairs first..last-1; scratch is O(Ty) per program, and O(Tx Ty) per pair with a record of the cells.

    ``cost``, by column, replaces the costs of x and y if it is given. ``values`` (pairs,) are those of all pairs.
    Without ``poison``, costs are known to be finite.
    """
    pairs, rules, x, count = inputs.pairs, inputs.pairs.rules, inputs.x, last - first
    x_steps, y_steps = pairs.steps
    strips = how.strips(x_steps)
    based = record or x_steps + y_steps > BASED_STEPS
    programs = count * strips if how.waits else min(count, PROGRAMS * processors(x))
    edges = x.new_empty((programs, y_steps), dtype=torch.float64 if based else x.dtype)
    progress = inputs.take_progress(how.places(x_steps, count)) if how.waits else x
    flags = x.new_empty(programs if how.waits else count) if poison else x.new_zeros(1)
    up_shares = left_shares = last_row = x
    if record:
        up_shares, left_shares = x.new_empty(2, count * strips * (y_steps + LANES - 1) * how.rows * LANES)
        if rules.open_end:
            last_row = x.new_full((count, y_steps), UNREACHABLE.value, dtype=torch.float64)
    launch(
        warps_kernel,
        (programs,),
        (
            x,
            inputs.y_turned,
            x if cost is None else cost,
            values,
            flags,
            up_shares,
            left_shares,
            last_row,
            edges,
            progress,
            inputs.x_lengths,
            inputs.y_lengths,
        ),
        (
            count,
            first,
            pairs.columns,
            strips,
            x_steps,
            y_steps,
            column_size(x_steps),
            x.shape[2],
            float64_bits(pairs.scale),
            float64_bits(rules.window.size),
            float64_bits(math.sqrt(UNREACHABLE.value)),
        ),
        1,
        ALL_PAIRS=pairs.all_pairs,
        SYMMETRIC=pairs.symmetric,
        FULL=inputs.full,
        ROOT=pairs.root,
        SOFT=pairs.soft,
        WINDOW=rules.window.kind,
        OPEN_BEGIN=rules.open_begin,
        OPEN_END=rules.open_end,
        RECORD=record,
        WAITS=how.waits,
        BASED=based,
        LINKED=strips > 1,
        POSITIVE=pairs.y is not None,
        POISON=poison,
        FEW=0 if cost is not None else x.shape[2],
        ROWS=how.rows,
        LANES=LANES,
        STEPS=min(how.steps, LANES),  # a lane holds the edge of each column
        REPORT=REPORT,
    )
    return Found(values, flags, (up_shares, left_shares), last_row)
