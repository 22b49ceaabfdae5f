"""Paths and moments of turned pairs in Triton: a warp aligns a pair, and traces its path back at once.

Each lane has ROWS neighbouring rows in registers, one column behind the lane above it, and keeps two bits of every
cell: where it comes from. y is turned on the fly.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.engine.warps import LANES
from likewise.ops.engine.windows import window_row
from likewise.ops.launch.arguments import ceil_div, float64_bits, float64_from, power_of_2, processors
from likewise.ops.launch.launcher import launch
from likewise.ops.rules import Rules

FEW = 4  # the most channels of each side whose frames stay in registers
ROWS = 8  # the most rows of a lane: the moves of a column are 16 bits
PROGRAMS = 64  # programs for each multiprocessor: it runs 21 at once, and waits less for the last of many
BYTES = 1 << 31  # of moves at once


@triton.jit
def turned_strip(x, y, turn, offset, edge, moves, top, n, m, x_steps, y_steps, size, CX: tl.constexpr,
                 CY: tl.constexpr, WINDOW: tl.constexpr, OPEN_BEGIN: tl.constexpr, OPEN_END: tl.constexpr,
                 LINKED: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """Compute the strip of rows from `top` on, and keep its moves; return the value of its last cell, and its column.

    `edge` has the values above the strip, and receives those of its last row.
    """
    dtype = x.dtype.element_ty
    lane = tl.arange(0, LANES)
    first_row = top + lane * ROWS
    far = tl.full((LANES,), float("inf"), dtype)
    rows = tl.minimum(n - top, LANES * ROWS)
    sender = tl.where(top + LANES * ROWS < n, LANES - 1, -1)  # the lane that writes what the strip below reads
    begin = m * 0
    end = m
    above_first = begin
    above_last = m - 1
    firsts = ()
    lasts = ()
    if WINDOW != 0:
        above_first, above_last = window_row(WINDOW, size, n, m, top - 1)
        begin, unused = window_row(WINDOW, size, n, m, top)
        unused, end = window_row(WINDOW, size, n, m, top + rows - 1)
        end += 1
    frames = ()
    left = ()
    for r in tl.static_range(ROWS):
        i = first_row + r
        for c in tl.static_range(CX):
            frames = frames + (tl.load(x + c * x_steps + i, mask=i < n, other=0.0),)
        left = left + (far,)
        if WINDOW != 0:
            first, last = window_row(WINDOW, size, n, m, i)
            firsts = firsts + (first,)
            lasts = lasts + (last,)
    if OPEN_BEGIN:
        diagonal = tl.where(first_row == 0, 0.0, far)
    else:
        diagonal = tl.where((first_row == 0) & (begin == 0), 0.0, far)
    if LINKED:
        reached = (top > 0) & (begin - 1 >= above_first) & (begin - 1 <= above_last) & (begin > 0)
        corner = tl.load(edge + begin - 1, mask=reached, other=float("inf"))
        diagonal = tl.where((lane == 0) & reached, corner, diagonal)
    best = far
    best_at = lane * 0
    before = tl.maximum(lane - 1, 0)
    for at in range(begin, end + (rows - 1) // ROWS):
        j = at - lane
        inside = (j >= begin) & (j < end)
        edge_value = tl.zeros((LANES,), dtype) if OPEN_BEGIN else far
        if LINKED:
            known = (top > 0) & (at >= above_first) & (at <= above_last)
            edge_value = tl.where(top > 0, tl.load(edge + at, mask=known, other=float("inf")), edge_value)
        up = tl.where(lane == 0, edge_value, tl.gather(left[ROWS - 1], before, 0))
        cost = ()
        for c in tl.static_range(CX):
            turned = tl.zeros((LANES,), dtype)
            for k in tl.static_range(CY):
                turned += turn[c * CY + k] * tl.load(y + k * y_steps + j, mask=inside, other=0.0)
            turned += offset[c]
            summed = ()
            for r in tl.static_range(ROWS):
                d = frames[r * CX + c] - turned
                summed = summed + ((cost[r] + d * d) if c > 0 else (d * d),)
            cost = summed
        row_above = up
        column = ()
        word = lane * 0
        for r in tl.static_range(ROWS):
            by_left = left[r] < up
            gap = tl.where(by_left, left[r], up)
            by_gap = gap < diagonal
            word += tl.where(by_gap, tl.where(by_left, 2 << (2 * r), 1 << (2 * r)), 0)
            value = tl.where(by_gap, gap, diagonal) + cost[r]
            if WINDOW != 0:
                value = tl.where((j < firsts[r]) | (j > lasts[r]), float("inf"), value)
            diagonal = left[r]
            up = value
            column = column + (value,)
        left = column
        diagonal = row_above
        tl.store(moves + at * LANES + lane, word.to(tl.int16), mask=inside)
        if OPEN_END:
            for r in tl.static_range(ROWS):
                better = (first_row + r == n - 1) & (left[r] < best)
                best = tl.where(better, left[r], best)
                best_at = tl.where(better, j, best_at)
        if LINKED:
            tl.store(edge + j, left[ROWS - 1], mask=inside & (lane == sender))
    if not OPEN_END:
        for r in tl.static_range(ROWS):
            best = tl.where(first_row + r == n - 1, left[r], best)
        best_at += m - 1
    ended = lane == (rows - 1) // ROWS
    return tl.sum(tl.where(ended, best, 0.0), 0), tl.sum(tl.where(ended, best_at, 0), 0)


SIZES = ["count", "columns", "x_steps", "y_steps", "strips", "size_bits"]


@triton.jit(do_not_specialize=SIZES)
def turns_kernel(x, y, turns, offsets, x_means, y_means, values, sums, edges, moves, pairs, x_lengths, y_lengths, count,
                 columns, x_steps, y_steps, strips, size_bits, ALL_PAIRS: tl.constexpr, CX: tl.constexpr,
                 CY: tl.constexpr, NUMBERS: tl.constexpr, WINDOW: tl.constexpr, OPEN_BEGIN: tl.constexpr,
                 OPEN_END: tl.constexpr, LINKED: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """Values of the listed pairs of x (items, CX, x_steps) and y (items, CY, y_steps), turned by `turns` (all pairs,
    CX, CY) and `offsets` (all pairs, CX), and the moments of their paths about the means, `sums` (all pairs, CX, CY).
    """
    program = tl.program_id(0)
    size = float64_from(size_bits)
    width = y_steps + LANES
    edge = edges + program.to(tl.int64) * y_steps
    moved = moves + program.to(tl.int64) * strips * width * LANES
    place = tl.arange(0, NUMBERS)
    real = place < CX * CY
    of_x = place // CY
    of_y = place % CY
    for task in range(program, count, tl.num_programs(0)):
        pair = tl.load(pairs + task)
        item = pair
        other = pair
        if ALL_PAIRS:
            item = pair // columns
            other = pair % columns
        n = tl.load(x_lengths + item).to(tl.int32)
        m = tl.load(y_lengths + other).to(tl.int32)
        x_item = x + item * CX * x_steps
        y_item = y + other * CY * y_steps
        turn = ()
        offset = ()
        for c in tl.static_range(CX):
            for k in tl.static_range(CY):
                turn = turn + (tl.load(turns + (pair * CX + c) * CY + k),)
            offset = offset + (tl.load(offsets + pair * CX + c),)
        value = tl.full([], 0.0, x.dtype.element_ty)
        j = m * 0
        strip = m * 0
        for top in range(0, n, LANES * ROWS):
            tl.debug_barrier()  # the row above has been written, and the path before has been read
            value, j = turned_strip(x_item, y_item, turn, offset, edge, moved + strip * width * LANES, top, n, m,
                                    x_steps, y_steps, size, CX, CY, WINDOW, OPEN_BEGIN, OPEN_END, LINKED, ROWS,
                                    LANES)  # fmt: skip
            strip += 1
        tl.debug_barrier()  # moves have been written
        tl.store(values + pair, value)
        x_mean = tl.load(x_means + item * CX + of_x, mask=real, other=0.0)
        y_mean = tl.load(y_means + other * CY + of_y, mask=real, other=0.0)
        total = tl.zeros((NUMBERS,), tl.float64)
        i = n - 1
        while (i >= 0) & (j >= 0):  # without a path, where costs overflow, anything may be in the moves
            row = i.to(tl.uint32)  # whose quotients are shifts
            lane = (row // ROWS % LANES).to(tl.int32)
            begin = (row // (LANES * ROWS)).to(tl.int32) * width if LINKED else 0
            word = tl.load(moved + (begin + j + lane) * LANES + lane).to(tl.int32)
            a = tl.load(x_item + of_x * x_steps + i, mask=real, other=0.0).to(tl.float64) - x_mean
            b = tl.load(y_item + of_y * y_steps + j, mask=real, other=0.0).to(tl.float64) - y_mean
            total += a * b
            move = (word >> (2 * (row % ROWS)).to(tl.int32)) & 3
            i -= (move != 2).to(tl.int32)
            j -= (move != 1).to(tl.int32)
        tl.store(sums + pair * CX * CY + place, total, mask=real)


def run_turns(
    x: Tensor,
    y: Tensor,
    lengths: tuple[Tensor, Tensor],
    means: tuple[Tensor, Tensor],
    turns: Tensor,
    offsets: Tensor,
    pairs: Tensor,
    rules: Rules,
    values: Tensor,
    sums: Tensor,
    *,
    all_pairs: bool,
) -> None:
    """Write the values and moments of the listed pairs of x (N, CX, Tx) and y (M, CY, Ty)."""
    (_, x_channels, x_steps), (columns, y_channels, y_steps) = x.shape, y.shape
    rows = min(ROWS, power_of_2(ceil_div(x_steps, LANES)))
    strips = ceil_div(x_steps, LANES * rows)
    each = strips * (y_steps + LANES) * LANES
    programs = max(1, min(len(pairs), PROGRAMS * processors(x), BYTES // (2 * each)))
    launch(
        turns_kernel,
        (programs,),
        (x, y, turns, offsets, *means, values, sums, x.new_empty(programs, y_steps),
         x.new_empty(programs * each, dtype=torch.int16), pairs, *lengths),
        (len(pairs), columns, x_steps, y_steps, strips, float64_bits(rules.window.size)),
        1,
        ALL_PAIRS=all_pairs,
        CX=x_channels,
        CY=y_channels,
        NUMBERS=power_of_2(x_channels * y_channels),
        WINDOW=rules.window.kind,
        OPEN_BEGIN=rules.open_begin,
        OPEN_END=rules.open_end,
        LINKED=strips > 1,
        ROWS=rows,
        LANES=LANES,
    )  # fmt: skip
