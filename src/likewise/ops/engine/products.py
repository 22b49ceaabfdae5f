"""Costs of frames with many channels, computed by matrix products and stored by column.

|x - y|^2 = |x|^2 + |y|^2 - 2 <x, y>, for frames relative to a nearby frame. If x and y are close, digits cancel: a tile
with such a cell, whose cost is below NEAR (|x|^2 + |y|^2), is computed again from differences. The product uses TF32 in
three passes, whose error is about 2^-22 of |x| |y|: the relative error of each cost is at most 1e-5, mostly 1e-6.
"""

import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.engine.columns import by_column, column_size
from likewise.ops.engine.inputs import Inputs
from likewise.ops.engine.warps import pair_items
from likewise.ops.launch.arguments import ceil_div, power_of_2, processors
from likewise.ops.launch.launcher import launch

NEAR = tl.constexpr(0.125)
TILE = 64  # side of a program's tile
WARPS = 4
SPAN = 8  # the most tiles of y that a program processes in turn
PROGRAMS = 8  # the least programs per multiprocessor before a program takes several tiles


@triton.jit
def leading(x):
    """The leading bits of float32, as many as TF32 has."""
    return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def add_product(a, b, total):
    """total + a b. Triton's own three passes of TF32 also look for infinities, which takes a third of the time."""
    if total.dtype == tl.float32:
        a_high = leading(a)
        b_high = leading(b)
        total = tl.dot(a - a_high, b_high, total, input_precision="tf32")
        total = tl.dot(a_high, b - b_high, total, input_precision="tf32")
        return tl.dot(a_high, b_high, total, input_precision="tf32")
    return tl.dot(a, b, total, input_precision="ieee", out_dtype=total.dtype)


@triton.jit
def frames_of(base, k, length, origin, c, C):
    """Frames k relative to `origin`, for some channels; 0 from `length` on."""
    real = (k < length)[:, None]
    tile = tl.load(base + k[:, None].to(tl.int64) * C + c[None, :], mask=real & (c < C)[None, :], other=0.0)
    return tl.where(real, tile - origin, 0.0)


@triton.jit
def difference_costs(x, y, i, j, n, m, x_steps, y_steps, C, total):
    """Costs (j, i) by differences, of x (C, x_steps) and y (C, y_steps)."""
    total *= 0.0
    for c in range(C):
        x_c = tl.load(x + c * x_steps + i, mask=i < n, other=0.0)
        y_c = tl.load(y + c * y_steps + j, mask=j < m, other=0.0)
        e = x_c[None, :] - y_c[:, None]
        total += e * e
    return total


@triton.jit(do_not_specialize=["first_pair", "columns", "x_steps", "y_steps", "span"])
def product_kernel(x, y, x_turned, y_turned, cost, x_lengths, y_lengths, first_pair, columns, x_steps, y_steps, span,
                   column, C, ALL_PAIRS: tl.constexpr, SYMMETRIC: tl.constexpr, FULL: tl.constexpr,
                   ROOT: tl.constexpr, TILE: tl.constexpr, CHANNELS: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """Costs (pairs, y_steps, column) of x (items, x_steps, C) and y (items, y_steps, C): TILE rows of x and `span` of y
    per program. Cells beyond the lengths of a pair get arbitrary numbers, or none.
    """
    local = tl.program_id(0).to(tl.int64)
    item, other = pair_items(local + first_pair, columns, ALL_PAIRS, SYMMETRIC)
    n = x_steps
    m = y_steps
    if not FULL:
        n = tl.load(x_lengths + item).to(tl.int32)
        m = tl.load(y_lengths + other).to(tl.int32)
    top = tl.program_id(1) * TILE
    begin = tl.program_id(2) * span
    end = tl.where(top < n, tl.minimum(m, begin + span), 0)
    x += item * x_steps * C
    y += other * y_steps * C
    x_turned += item * x_steps * C
    y_turned += other * y_steps * C
    dtype = cost.dtype.element_ty
    i = top + tl.arange(0, TILE)
    c = tl.arange(0, CHANNELS)
    origin = tl.load(x + top.to(tl.int64) * C + c, mask=c < C, other=0.0)[None, :]
    x_part = tl.trans(frames_of(x, i, n, origin, c, C))
    x_square = tl.sum(x_part * x_part, 0)
    for start in range(begin, end, TILE):
        j = start + tl.arange(0, TILE)
        y_part = frames_of(y, j, m, origin, c, C)
        y_square = tl.sum(y_part * y_part, 1)
        both = x_square[None, :] + y_square[:, None]
        product = add_product(y_part, x_part, tl.zeros((TILE, TILE), dtype))
        for first in tl.static_range(CHANNELS, WIDE, CHANNELS):
            more = first + tl.arange(0, CHANNELS)
            centre = tl.load(x + top.to(tl.int64) * C + more, mask=more < C, other=0.0)[None, :]
            x_more = tl.trans(frames_of(x, i, n, centre, more, C))
            y_more = frames_of(y, j, m, centre, more, C)
            both += tl.sum(x_more * x_more, 0)[None, :] + tl.sum(y_more * y_more, 1)[:, None]
            product = add_product(y_more, x_more, product)
        total = both - 2.0 * product
        if tl.min(tl.min(total - NEAR * both, 1), 0) < 0:  # cells outside have frames of 0, and are not near
            total = difference_costs(x_turned, y_turned, i, j, n, m, x_steps, y_steps, C, total)
        if ROOT:
            total = tl.sqrt(total)
        at = (local * y_steps + j[:, None]) * column + i[None, :]
        tl.store(cost + at, total, mask=(j < m)[:, None] & (i < column)[None, :])


def product_costs(inputs: Inputs, first: int, last: int) -> Tensor:
    """Unscaled costs of pairs first..last-1, by column; both x and y must have been transposed."""
    pairs, channels, count = inputs.pairs, inputs.x.shape[2], last - first
    x_steps, y_steps = pairs.steps
    cost = by_column(inputs.x, count, x_steps, y_steps)
    part = min(64, max(16, power_of_2(channels)))
    tiles, tops = ceil_div(y_steps, TILE), ceil_div(x_steps, TILE)
    busy = ceil_div(count * tops * tiles, PROGRAMS * processors(inputs.x))  # tiles for each program
    span = min(tiles, SPAN, max(1, busy))
    launch(
        product_kernel,
        (count, tops, ceil_div(tiles, span)),
        (inputs.x, inputs.y, inputs.x_turned, inputs.y_turned, cost, inputs.x_lengths, inputs.y_lengths),
        (first, pairs.columns, x_steps, y_steps, span * TILE, column_size(x_steps), channels),
        WARPS,
        ALL_PAIRS=pairs.all_pairs,
        SYMMETRIC=pairs.symmetric,
        FULL=inputs.full,
        ROOT=pairs.root,
        TILE=TILE,
        CHANNELS=part,
        WIDE=ceil_div(channels, part) * part,
    )
    return cost
