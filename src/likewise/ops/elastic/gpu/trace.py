"""Trace back the moves that sweep.py recorded: paths, and derivatives along them."""

import triton
import triton.language as tl

from likewise.ops.elastic.gpu.sweep import BALL, CARRY, EDIT, FOLLOW, GAPS, WARP, frame_cost, table_entry


@triton.jit(do_not_specialize=["count", "x_steps", "y_steps", "strips_kept", "longest"])
def trace_kernel(moves, x_lengths, ends, steps, found, count, strips_kept, x_steps, y_steps, longest, places,
                 LANES: tl.constexpr, ROWS: tl.constexpr, BORDER: tl.constexpr, OPEN_BEGIN: tl.constexpr):  # fmt: skip
    """Trace back from the last cell. `steps` (3, longest, places) get i, j and the move of every step, from the last to
    the first; in border cells i or j is -1. `found` (places,) get the numbers of steps.
    """
    block = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    pair = block * LANES + lane
    n = tl.load(x_lengths + pair).to(tl.int32)
    i = n - 1
    j = tl.load(ends + pair)
    tallest = tl.max(n, 0)
    shift = (tallest + ROWS - 1) // ROWS * ROWS - n  # rows above the first
    plane = (longest + block * 0) * places
    moves += block * strips_kept * y_steps * LANES + lane
    steps += pair
    taken = lane * 0
    inside = (i >= 0) & (j >= 0)
    while tl.max(inside.to(tl.int32), 0) > 0:
        at = ((i + shift) // ROWS).to(tl.int64) * y_steps + j
        word = tl.load(moves + at * LANES, mask=inside, other=0).to(tl.int32)
        move = (word >> (2 * ((i + shift) % ROWS))) & 3
        place = taken.to(tl.int64) * places
        tl.store(steps + place, i, mask=inside)
        tl.store(steps + plane + place, j, mask=inside)
        tl.store(steps + 2 * plane + place, move, mask=inside)
        taken += inside.to(tl.int32)
        i -= tl.where(inside & (move != 2), 1, 0)
        j -= tl.where(inside & (move != 1), 1, 0)
        inside = (i >= 0) & (j >= 0)
    if BORDER == GAPS:
        rest = tl.where(i >= 0, i + 1, j + 1)
        if OPEN_BEGIN:
            rest = tl.where(i >= 0, rest, 0)
        above = tl.where(i >= 0, 1, 2)
        for k in range(tl.max(rest, 0)):
            going = k < rest
            place = taken.to(tl.int64) * places
            tl.store(steps + place, i, mask=going)
            tl.store(steps + plane + place, j, mask=going)
            tl.store(steps + 2 * plane + place, above, mask=going)
            taken += going.to(tl.int32)
            i -= tl.where(going & (above == 1), 1, 0)
            j -= tl.where(going & (above == 2), 1, 0)
    tl.store(found + pair, taken)


@triton.jit
def add(at, amount, mask):
    """Add to numbers that no other lane changes."""
    tl.store(at, tl.load(at, mask=mask, other=0.0) + amount, mask=mask)


@triton.jit
def add_cost(x, y, x_grad, y_grad, i, j, share, mask, C, x_step, y_step, first, count, ONE: tl.constexpr,
             ROOT: tl.constexpr):  # fmt: skip
    """Add share * d c(i, j), of the channels first..first+count-1."""
    x_at = i.to(tl.int64) * C * x_step
    y_at = j.to(tl.int64) * C * y_step
    factor = 2 * share
    if ROOT:
        distance = frame_cost(x + x_at, y + y_at, mask, C, x_step, y_step, ONE, ROOT)
        factor = tl.where(distance > 0, share / tl.where(distance > 0, distance, 1.0), 0.0)
    for c in range(first, first + count):
        d = tl.load(x + x_at + c * x_step, mask=mask, other=0.0) - tl.load(y + y_at + c * y_step, mask=mask, other=0.0)
        add(x_grad + x_at + c * x_step, factor * d, mask)
        add(y_grad + y_at + c * y_step, -factor * d, mask)


@triton.jit(do_not_specialize=["strips_kept", "x_steps", "y_steps", "longest", "first", "count"])
def slope_kernel(x, y, x_gaps, y_gaps, weights, x_lengths, y_lengths, moves, ends, x_grad, y_grad, x_gaps_grad,
                 y_gaps_grad, strips_kept, x_steps, y_steps, C, places, longest, first, count, LANES: tl.constexpr,
                 ROWS: tl.constexpr, ONE: tl.constexpr, RECURRENCE: tl.constexpr, ROOT: tl.constexpr,
                 BORDER: tl.constexpr, LAST_COST: tl.constexpr, WEIGHTED: tl.constexpr,
                 OPEN_BEGIN: tl.constexpr):  # fmt: skip
    """Add the derivatives of each pair's value to the gradients, in the layout of the inputs: frames
    (steps, C, places), gaps (steps, places).
    """
    block = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    pair = block * LANES + lane
    step = (places + block * 0).to(tl.int64)
    n = tl.load(x_lengths + pair).to(tl.int32)
    m = tl.load(y_lengths + pair).to(tl.int32)
    i = n - 1
    j = tl.load(ends + pair)
    shift = (tl.max(n, 0) + ROWS - 1) // ROWS * ROWS - n  # rows above the first
    moves += block * strips_kept * y_steps * LANES + lane
    x += pair
    y += pair
    x_grad += pair
    y_grad += pair
    one = tl.full((LANES,), 1.0, x.dtype.element_ty)
    inside = (i >= 0) & (j >= 0)
    if LAST_COST:
        add_cost(x, y, x_grad, y_grad, i, j, one, inside, C, step, step, first, count, ONE, ROOT)
    while tl.max(inside.to(tl.int32), 0) > 0:
        at = ((i + shift) // ROWS).to(tl.int64) * y_steps + j
        word = tl.load(moves + at * LANES, mask=inside, other=0).to(tl.int32)
        move = (word >> (2 * ((i + shift) % ROWS))) & 3
        matched = inside & (move == 0)
        up = inside & (move == 1)
        left = inside & (move == 2)
        x_gap_at = i.to(tl.int64) * step + pair
        y_gap_at = j.to(tl.int64) * step + pair
        share = one
        if RECURRENCE == WARP or RECURRENCE == FOLLOW:
            matched = inside
            if WEIGHTED:
                share = table_entry(weights, i - j, tl.maximum(n, m), longest, one, RECURRENCE)
        if RECURRENCE == CARRY:
            both = matched & (i > 0) & (j > 0)
            add_cost(x, y, x_grad, y_grad, i - 1, j - 1, one, both, C, step, step, first, count, ONE, ROOT)
        if RECURRENCE == BALL:
            before_i = i - up.to(tl.int32)
            before_j = j - left.to(tl.int32)
            here = frame_cost(x + i.to(tl.int64) * C * step, y + j.to(tl.int64) * C * step, inside, C, step, step, ONE,
                              ROOT)  # fmt: skip
            across = frame_cost(x + before_i.to(tl.int64) * C * step, y + before_j.to(tl.int64) * C * step,
                                inside & (before_i >= 0) & (before_j >= 0), C, step, step, ONE, ROOT)  # fmt: skip
            gap = tl.load(x_gaps + x_gap_at, mask=up, other=0.0) + tl.load(y_gaps + y_gap_at, mask=left, other=0.0)
            split = (up | left) & (gap + here > across)
            matched = matched | (split & (gap >= here))
            up = up & split & (gap < here)
            left = left & split & (gap < here)
        add_cost(x, y, x_grad, y_grad, i, j, share, matched, C, step, step, first, count, ONE, ROOT)
        if RECURRENCE == EDIT or RECURRENCE == CARRY or RECURRENCE == BALL:
            add(x_gaps_grad + x_gap_at, one, up)
            add(y_gaps_grad + y_gap_at, one, left)
        i -= tl.where(inside & (move != 2), 1, 0)
        j -= tl.where(inside & (move != 1), 1, 0)
        inside = (i >= 0) & (j >= 0)
    if BORDER == GAPS:
        for k in range(tl.max(i, 0) + 1):
            add(x_gaps_grad + k * step + pair, one, k <= i)
        if not OPEN_BEGIN:
            for k in range(tl.max(j, 0) + 1):
                add(y_gaps_grad + k * step + pair, one, k <= j)
