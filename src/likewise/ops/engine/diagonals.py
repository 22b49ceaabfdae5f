"""Few, long pairs: each lane has one row of a pair, and an antidiagonal is one step.

A program has a block of LANES rows. It reads the row above its first from the program above, which writes the row to
`edges` and, now and then, its progress to `progress`: programs of one pair thus run side by side, a block's height
apart. Antidiagonals are processed STEPS at a time, and their inputs are loaded as many ahead.

Values are kept near zero in float32 and their base is summed in float64: differences stay exact for pairs of any
length.

Records of cells are stored by antidiagonal, cell (i, j) at (i + j) * Tx + i, so that lanes read and write neighbours.
``skewed`` makes such arrays; to torch they are ordinary (pairs, Tx, Ty) tensors with odd strides.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.engine.inputs import Inputs, unlooked
from likewise.ops.engine.pairs import Pairs
from likewise.ops.engine.windows import UNREACHABLE, window_row
from likewise.ops.launch.arguments import ceil_div, float64_bits, float64_from, power_of_2, processors
from likewise.ops.launch.launcher import launch

STEPS = 8  # antidiagonals processed at a time
FEW_CHANNELS = 16  # up to here a row's frame stays in registers


@triton.jit
def pair_lengths(pair, x_lengths, y_lengths, columns, x_steps, y_steps, ALL_PAIRS: tl.constexpr, FULL: tl.constexpr):
    n = x_steps
    m = y_steps
    if not FULL:
        n = tl.load(x_lengths + (pair // columns if ALL_PAIRS else pair)).to(tl.int32)
        m = tl.load(y_lengths + (pair % columns if ALL_PAIRS else pair)).to(tl.int32)
    return n, m


@triton.jit
def take_number(progress, BLOCKS: tl.constexpr):
    """Number programs in the order in which they start; a program then waits only for running ones."""
    if BLOCKS:
        return tl.atomic_add(progress, 1)
    return tl.program_id(0)


@triton.jit
def wait_for(progress, known, needed):
    """Wait until the neighbour has written `needed` columns; `known` were written at the last check."""
    while known < needed:
        known = tl.atomic_add(progress, 0, sem="acquire")
    return known


@triton.jit
def report(progress, columns):
    tl.debug_barrier()  # all warps have written theirs
    tl.atomic_max(progress, columns, sem="release")


@triton.jit
def diagonal_cost(frames, x, y, cost, i, j, d, m, n, x_steps, y_steps, C, scale, GIVEN: tl.constexpr,
                  ROOT: tl.constexpr, FEW: tl.constexpr):  # fmt: skip
    """Costs of cells (i, j), j = d - i. `frames` are the rows' frames if they have FEW channels."""
    valid = (j >= 0) & (j < m) & (i < n)
    if GIVEN:
        total = tl.load(cost + d.to(tl.int64) * x_steps + i, mask=valid, other=0.0)
    else:
        total = (i * 0).to(scale.dtype)
        if FEW > 0:
            for c in tl.static_range(FEW):
                e = tl.load(y + c * y_steps + j, mask=valid, other=0.0) - frames[c]
                total += e * e
        else:
            for c in range(C):
                x_c = tl.load(x + i * C + c, mask=valid, other=0.0)
                e = tl.load(y + c * y_steps + j, mask=valid, other=0.0) - x_c
                total += e * e
        if ROOT:
            total = tl.sqrt(total)
        total = tl.where(valid, total, 0.0)
    return total * scale


# Each thread has one row: sizes that are multiples of 16 would not change how it reads.
SIZES = ["count", "first_pair", "columns", "blocks", "x_steps", "y_steps", "C", "scale_bits", "size_bits"]


@triton.jit(do_not_specialize=SIZES)
def diagonals_kernel(x, y, cost, values, flags, shares, moves, last_rows, edges, progress, x_lengths, y_lengths, count,
                     first_pair, columns, blocks, x_steps, y_steps, C, scale_bits, size_bits,
                     ALL_PAIRS: tl.constexpr, FULL: tl.constexpr, GIVEN: tl.constexpr, ROOT: tl.constexpr,
                     SOFT: tl.constexpr, WINDOW: tl.constexpr, OPEN_BEGIN: tl.constexpr, OPEN_END: tl.constexpr,
                     RECORD: tl.constexpr, BLOCKS: tl.constexpr, FEW: tl.constexpr, LANES: tl.constexpr,
                     STEPS: tl.constexpr):  # fmt: skip
    """x (items, x_steps, C) and y (items, C, y_steps), or cost (pairs, x_steps, y_steps) skewed.

    RECORD writes, for every cell, its predecessor (hard), or the `shares` of the predecessors above and left (soft):
    first all shares above, then all shares left.
    `flags` (count, blocks) get NaN where a cost was not finite, else 0. Open at the end, the last row goes to
    `last_rows` (pairs, y_steps) float64, and the `values` (count,) are 0. With several
    BLOCKS of rows, `edges` (pairs, blocks, y_steps) float64 and `progress` (1 + pairs * blocks), zero at first, join
    them.
    """
    number = take_number(progress, BLOCKS)
    local = (number // blocks).to(tl.int64)
    block = number % blocks
    pair = local + first_pair
    n, m = pair_lengths(pair, x_lengths, y_lengths, columns, x_steps, y_steps, ALL_PAIRS, FULL)
    dtype = values.dtype.element_ty
    scale = float64_from(scale_bits).to(dtype)
    size = float64_from(size_bits)
    plane = local * (x_steps + y_steps - 1) * x_steps
    x += (pair // columns if ALL_PAIRS else pair) * x_steps * C
    y += (pair % columns if ALL_PAIRS else pair) * C * y_steps
    cost += plane
    left_shares = shares + count.to(tl.int64) * (x_steps + y_steps - 1) * x_steps
    edge_out = edges + number.to(tl.int64) * y_steps
    edge_in = edge_out - y_steps
    done_out = progress + 1 + number
    done_in = done_out - 1
    lane = tl.arange(0, LANES)
    top = block * LANES
    i = top + lane
    steps = tl.where(top < n, tl.minimum(n - top, LANES) + m - 1, 0)
    frames = ()
    for c in tl.static_range(FEW):
        frames = frames + (tl.load(x + i * C + c, mask=i < n, other=0.0),)
    first, last = window_row(WINDOW, size, n, m, i)
    # Open at the beginning, a path enters cell (0, j) once; each of the two neighbours above adds one half.
    corner = (1.0 if SOFT else 0.0) if OPEN_BEGIN else 0.0
    above_all = tl.full([], corner if OPEN_BEGIN else UNREACHABLE, tl.float64)
    left = tl.full((LANES,), UNREACHABLE, dtype)
    diagonal = tl.where((lane == 0) & (block == 0), corner, left)
    poison = tl.zeros((LANES,), dtype)
    base = tl.full([], 0.0, tl.float64)
    known = tl.full([], 0, tl.int32)
    if BLOCKS:
        if (block > 0) & (steps > 0):
            known = wait_for(done_in, known, tl.minimum(m, STEPS))
            above = tl.load(edge_in, cache_modifier=".cg")
            base = tl.where(above < 1e29, above, base)
    z_ahead = ()
    edge_ahead = ()
    for _ in tl.static_range(STEPS):
        z_ahead = z_ahead + (tl.zeros((LANES,), dtype),)
        edge_ahead = edge_ahead + (above_all,)
    # The iteration before the first only loads: writing these loads twice would take many times as long to compile.
    at = plane + (top - STEPS).to(tl.int64) * x_steps + i
    start = diagonal
    for chunk in range(tl.where(steps > 0, -1, 0), (steps + STEPS - 1) // STEPS):
        z_now = z_ahead
        edge_now = edge_ahead
        coming = (chunk + 1) * STEPS
        if BLOCKS:
            if block > 0:
                known = wait_for(done_in, known, tl.minimum(m, coming + STEPS))
        z_ahead = ()
        edge_ahead = ()
        for u in tl.static_range(STEPS):
            step = coming + u
            z_ahead = z_ahead + (diagonal_cost(frames, x, y, cost, i, step - lane, top + step, m, n, x_steps, y_steps,
                                               C, scale, GIVEN, ROOT, FEW),)  # fmt: skip
            above = above_all
            if BLOCKS:
                loaded = tl.load(edge_in + step, mask=(block > 0) & (step < m), other=UNREACHABLE, cache_modifier=".cg")
                above = tl.where(block > 0, loaded, above_all)
            edge_ahead = edge_ahead + (above,)
        for u in tl.static_range(STEPS):
            j = chunk * STEPS + u - lane
            valid = (j >= 0) & (j < m) & (i < n)
            z = z_now[u]
            poison += z * 0.0
            edge = tl.where(edge_now[u] < 1e29, edge_now[u] - base, UNREACHABLE).to(dtype)
            up = tl.where(lane == 0, edge, tl.gather(left, tl.maximum(lane - 1, 0), 0))
            least = tl.minimum(tl.minimum(up, left), diagonal)
            if SOFT:
                from_up = tl.exp2(least - up)
                from_left = tl.exp2(least - left)
                total = from_up + from_left + tl.exp2(least - diagonal)
                value = z + least - tl.log2(total)
                if RECORD:
                    tl.store(shares + at, from_up / total, mask=valid)
                    tl.store(left_shares + at, from_left / total, mask=valid)
            else:
                value = z + least
                if RECORD:
                    move = tl.where(tl.minimum(up, left) < diagonal, tl.where(left < up, 2, 1), 0)
                    tl.store(moves + at, move.to(tl.int8), mask=valid)
            if WINDOW != 0:
                value = tl.where((j < first) | (j > last), UNREACHABLE, value)
            at += x_steps
            if BLOCKS or OPEN_END:
                absolute = tl.where(value < 1e29, value.to(tl.float64) + base, UNREACHABLE)
                if BLOCKS:
                    tl.store(edge_out + j, absolute, mask=valid & (lane == LANES - 1))
                if OPEN_END:
                    tl.store(last_rows + local * y_steps + j, absolute, mask=valid & (i == n - 1))
            diagonal = up
            left = tl.where(valid, value, left)  # a row that has ended keeps its last value
        diagonal = tl.where(chunk < 0, start, diagonal)
        # Keep values near zero: subtract the least, and remember it in float64.
        shift = tl.min(tl.where(valid, value, UNREACHABLE), 0)
        shift = tl.where(shift < 1e29, shift, 0.0)
        left -= shift
        diagonal -= shift
        base += shift.to(tl.float64)
        if BLOCKS:
            if (chunk % 4 == 3) | (coming >= steps):
                report(done_out, coming - (LANES - 1))
    if (top < n) & (n <= top + LANES):
        best = tl.sum(tl.where(i == n - 1, left.to(tl.float64) + base, 0.0), 0)
        tl.store(values + local, 0.0 if OPEN_END else (best / scale.to(tl.float64)).to(dtype))
    tl.store(flags + local * blocks + block, tl.sum(poison, 0))


@dataclass(frozen=True)
class Record:
    """The results of the kernel: those of each cell, by antidiagonal, and the values. Unused fields are arbitrary."""

    shares: Tensor  # of the predecessors above and left, (2, pairs, Tx + Ty - 1, Tx)
    moves: Tensor  # 0: diagonal, 1: above, 2: left; int8, skewed (pairs, Tx, Ty)
    last_row: Tensor  # r of the last row, float64 (pairs, Ty), if open at the end
    values: Tensor  # (pairs,)
    flags: Tensor  # NaN where a cost was not finite, else 0

    @property
    def outcome(self) -> Tensor:
        """The results that are finite if the costs are."""
        return torch.cat((self.values, self.flags))

    @property
    def up(self) -> Tensor:
        """Share of the predecessor above, skewed (pairs, Tx, Ty)."""
        return _by_cell(self.shares[0])

    @property
    def left(self) -> Tensor:
        """Share of the predecessor left."""
        return _by_cell(self.shares[1])


def _by_cell(storage: Tensor) -> Tensor:
    """Storage (pairs, Tx + Ty - 1, Tx) as a tensor (pairs, Tx, Ty)."""
    count, diagonals, x_steps = storage.shape
    shape, strides = (count, x_steps, diagonals + 1 - x_steps), (diagonals * x_steps, x_steps + 1, x_steps)
    return storage.as_strided(shape, strides, storage.storage_offset())


def skewed(like: Tensor, pairs: int, x_steps: int, y_steps: int, *, zero: bool = False, dtype: Any = None) -> Tensor:
    """Return a tensor (pairs, Tx, Ty) that is stored by antidiagonal."""
    new = like.new_zeros if zero else like.new_empty
    return _by_cell(new((pairs, x_steps + y_steps - 1, x_steps), dtype=dtype or like.dtype))


def run_diagonals(
    pairs: Pairs,
    first: int,
    last: int,
    *,
    record: bool,
    inputs: Inputs | None = None,
    zero: bool = True,
) -> Record:
    """Align pairs first..last-1; scratch is O(Ty) per pair, and O(Tx Ty) with a record of the cells.

    ``inputs`` may be prepared, with y transposed unless costs are given. Without ``zero``, the padding of a record is
    not initialised.
    """
    (x_steps, y_steps), count = pairs.steps, last - first
    if inputs is None:
        inputs = unlooked(pairs, turn_y=pairs.y is not None)
    x, full, rules, cost = inputs.x, inputs.full, pairs.rules, None
    if pairs.y is None:
        cost = skewed(x, count, x_steps, y_steps).copy_(x[first:last])
    rows, blocks, edges, progress = row_blocks(inputs, count, torch.float64)
    shares, moves, last_row = x, x, x
    if record:  # padding is not written
        new = x.new_zeros if zero and not full else x.new_empty
        if pairs.soft:
            shares = new((2, count, x_steps + y_steps - 1, x_steps))
        else:
            moves = skewed(x, count, x_steps, y_steps, zero=zero and not full, dtype=torch.int8)
    if rules.open_end:
        last_row = x.new_full((count, y_steps), UNREACHABLE.value, dtype=torch.float64)
    values, flags = x.new_empty(count), x.new_empty(count * blocks)
    launch(
        diagonals_kernel,
        (count * blocks,),
        (
            x,
            inputs.y_turned,
            x if cost is None else cost,
            values,
            flags,
            shares,
            moves,
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
            blocks,
            x_steps,
            y_steps,
            x.shape[2],
            float64_bits(pairs.scale),
            float64_bits(rules.window.size),
        ),
        rows // 32,
        ALL_PAIRS=pairs.all_pairs,
        FULL=full,
        GIVEN=cost is not None,
        ROOT=pairs.root,
        SOFT=pairs.soft,
        WINDOW=rules.window.kind,
        OPEN_BEGIN=rules.open_begin,
        OPEN_END=rules.open_end,
        RECORD=record,
        BLOCKS=blocks > 1,
        FEW=x.shape[2] if cost is None and x.shape[2] <= FEW_CHANNELS else 0,
        LANES=rows,
        STEPS=STEPS,
    )
    if rules.open_end:
        best = last_row.amin(1)
        if pairs.soft:
            best = -torch.logsumexp(-last_row * math.log(2), 1) / math.log(2)
        values.add_((best / pairs.scale).to(x.dtype))
    return Record(shares, moves, last_row, values, flags)


def row_blocks(inputs: Inputs, count: int, dtype: torch.dtype) -> tuple[int, int, Tensor, Tensor]:
    """How pairs are cut for the diagonals kernels: rows per block, blocks per pair, and the tensors that join blocks:
    edges (count, blocks, Ty), and progress, zero.
    """
    x_steps, y_steps = inputs.pairs.steps
    rows, blocks = block_shape(count, x_steps, processors(inputs.x))
    if blocks == 1:
        return rows, blocks, inputs.x, inputs.x
    edges = inputs.x.new_empty((count, blocks, y_steps), dtype=dtype)
    return rows, blocks, edges, inputs.take_progress(places(inputs.pairs, count))


def places(pairs: Pairs, count: int) -> int:
    """The number of progress counters for the blocks of these pairs."""
    _, blocks = block_shape(count, pairs.steps[0], processors(pairs.x))
    return ceil_div(1 + count * blocks, 4) * 4 if blocks > 1 else 0  # each 16 bytes: launches like aligned tensors


def block_shape(count: int, steps: int, processors: int) -> tuple[int, int]:
    """Rows per block and blocks per pair: small enough blocks for every processor to have one."""
    rows = min(512, max(32, power_of_2(steps)))
    while rows > 128 and count * ceil_div(steps, rows) < processors:
        rows //= 2
    return rows, ceil_div(steps, rows)
