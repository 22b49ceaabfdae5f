"""Backward and forward passes over the shares that the diagonals kernel recorded, by the same scheme."""

import triton
import triton.language as tl

from likewise.ops.engine.diagonals import SIZES, pair_lengths, report, take_number, wait_for


@triton.jit
def back_inputs(shares, left_shares, seeds, source, at, i, j, n, m, x_steps, SOURCE: tl.constexpr,
                OPEN_END: tl.constexpr):  # fmt: skip
    """The inputs of the step to cells (i, j): the shares that the cells to the right and below give it (lanes i and
    i + 1, on the next antidiagonal), and the values that enter there.
    """
    valid = (j >= 0) & (j < m) & (i < n)
    left_of_right = tl.load(left_shares + at + x_steps, mask=valid & (j + 1 < m), other=0.0)
    up_of_below = tl.load(shares + at + x_steps + 1, mask=valid & (i + 1 < n), other=0.0)
    left_of_below = tl.load(left_shares + at + x_steps + 1, mask=valid & (i + 1 < n), other=1.0)
    if SOURCE:
        enters = tl.load(source + at, mask=valid, other=0.0)
    elif OPEN_END:
        enters = tl.load(seeds + j, mask=valid & (i == n - 1), other=0.0)
    else:
        enters = tl.where((i == n - 1) & (j == m - 1), 1.0, 0.0).to(left_of_right.dtype)
    return left_of_right, up_of_below, left_of_below, enters


@triton.jit(do_not_specialize=SIZES)
def back_kernel(shares, seeds, source, expected, edges, progress, x_lengths, y_lengths, count, first_pair, columns,
                blocks, x_steps, y_steps, ALL_PAIRS: tl.constexpr, FULL: tl.constexpr, SOURCE: tl.constexpr,
                OPEN_END: tl.constexpr, BLOCKS: tl.constexpr, LANES: tl.constexpr, STEPS: tl.constexpr):  # fmt: skip
    """E(i, j) = left(i, j+1) E(i, j+1) + up(i+1, j) E(i+1, j) + diagonal(i+1, j+1) E(i+1, j+1) + source(i, j).

    This is diagonals_kernel's scheme backwards: from the last antidiagonal to the first, where each block of rows reads
    the row below its last from the block below. Without SOURCE, 1 enters at the last cell or, open at the end, `seeds`
    (pairs, y_steps) enter the last row.
    """
    number = take_number(progress, BLOCKS)
    local = (number // blocks).to(tl.int64)
    block = blocks - 1 - number % blocks
    n, m = pair_lengths(local + first_pair, x_lengths, y_lengths, columns, x_steps, y_steps, ALL_PAIRS, FULL)
    plane = local * (x_steps + y_steps - 1) * x_steps
    left_shares = shares + count.to(tl.int64) * (x_steps + y_steps - 1) * x_steps
    seeds += local * y_steps
    edge_out = edges + number.to(tl.int64) * y_steps
    edge_in = edge_out - y_steps
    done_out = progress + 1 + number
    done_in = done_out - 1
    dtype = expected.dtype.element_ty
    lane = tl.arange(0, LANES)
    top = block * LANES
    i = top + lane
    steps = tl.where(top < n, tl.minimum(n - top, LANES) + m - 1, 0)
    follows = top + LANES < n  # there is a block below
    right = tl.zeros((LANES,), dtype)
    below_next = right  # E of the row below, one column further, and the share that its diagonal gave
    share_next = right
    known = tl.full([], 0, tl.int32)
    # The iteration before the first only loads, as in diagonals_kernel.
    at = plane + (top + steps - 1 + STEPS).to(tl.int64) * x_steps + i
    ahead = ()
    edge_ahead = ()
    for _ in tl.static_range(STEPS):
        ahead = ahead + ((right, right, right, right),)
        edge_ahead = edge_ahead + (tl.full([], 0.0, dtype),)
    for chunk in range(tl.where(steps > 0, -1, 0), (steps + STEPS - 1) // STEPS):
        now = ahead
        edge_now = edge_ahead
        coming = (chunk + 1) * STEPS
        if BLOCKS:
            if follows:
                known = wait_for(done_in, known, tl.minimum(m, coming + STEPS))
        ahead = ()
        edge_ahead = ()
        for u in tl.static_range(STEPS):
            j = steps - 1 - coming - u - lane
            ahead = ahead + (back_inputs(shares, left_shares, seeds, source, at - (STEPS + u) * x_steps, i, j, n, m,
                                         x_steps, SOURCE, OPEN_END),)  # fmt: skip
            edge = tl.full([], 0.0, dtype)
            if BLOCKS:
                column = steps - 1 - coming - u - (LANES - 1)
                edge = tl.load(edge_in + column, mask=follows & (column >= 0), other=0.0, cache_modifier=".cg")
            edge_ahead = edge_ahead + (edge,)
        for u in tl.static_range(STEPS):
            j = steps - 1 - chunk * STEPS - u - lane
            valid = (j >= 0) & (j < m) & (i < n)
            left_of_right, up_of_below, left_of_below, value = now[u]
            below = tl.gather(right, tl.minimum(lane + 1, LANES - 1), 0)
            below = tl.where(lane == LANES - 1, edge_now[u], below)
            value += left_of_right * right + up_of_below * below + share_next * below_next
            value = tl.where(valid, value, 0.0)
            tl.store(expected + at, value, mask=valid)
            if BLOCKS:
                tl.store(edge_out + j, value, mask=valid & (lane == 0))
            right = value
            below_next = below
            share_next = tl.maximum(1.0 - up_of_below - left_of_below, 0.0)
            at -= x_steps
        if BLOCKS:
            if (chunk % 4 == 3) | (coming >= steps):
                # Lane 0, which the block above reads, is the last to begin.
                report(done_out, coming - (tl.minimum(n - top, LANES) - 1))


@triton.jit(do_not_specialize=SIZES)
def tangent_kernel(shares, tangent, result, mean, edges, progress, x_lengths, y_lengths, count, first_pair, columns,
                   blocks, x_steps, y_steps, ALL_PAIRS: tl.constexpr, FULL: tl.constexpr,
                   BLOCKS: tl.constexpr, LANES: tl.constexpr, STEPS: tl.constexpr):  # fmt: skip
    """mean(i, j) = up(i, j) r(i-1, j) + left(i, j) r(i, j-1) + diagonal(i, j) r(i-1, j-1); r = tangent + mean."""
    number = take_number(progress, BLOCKS)
    local = (number // blocks).to(tl.int64)
    block = number % blocks
    n, m = pair_lengths(local + first_pair, x_lengths, y_lengths, columns, x_steps, y_steps, ALL_PAIRS, FULL)
    plane = local * (x_steps + y_steps - 1) * x_steps
    left_shares = shares + count.to(tl.int64) * (x_steps + y_steps - 1) * x_steps
    edge_out = edges + number.to(tl.int64) * y_steps
    edge_in = edge_out - y_steps
    done_out = progress + 1 + number
    done_in = done_out - 1
    dtype = result.dtype.element_ty
    lane = tl.arange(0, LANES)
    top = block * LANES
    i = top + lane
    steps = tl.where(top < n, tl.minimum(n - top, LANES) + m - 1, 0)
    before = tl.zeros((LANES,), dtype)
    above_before = before
    known = tl.full([], 0, tl.int32)
    at = plane + top.to(tl.int64) * x_steps + i
    for step in range(steps):
        j = step - lane
        valid = (j >= 0) & (j < m) & (i < n)
        up = tl.load(shares + at, mask=valid, other=0.0)
        left = tl.load(left_shares + at, mask=valid, other=0.0)
        v = tl.load(tangent + at, mask=valid, other=0.0)
        edge = tl.full([], 0.0, dtype)
        if BLOCKS:
            if block > 0:
                known = wait_for(done_in, known, tl.minimum(m, step + 1))
                edge = tl.load(edge_in + step, mask=step < m, other=0.0, cache_modifier=".cg")
        above = tl.where(lane == 0, edge, tl.gather(before, tl.maximum(lane - 1, 0), 0))
        average = up * above + left * before + (1.0 - up - left) * above_before
        tl.store(mean + at, average, mask=valid)
        tl.store(result + at, average + v, mask=valid)
        if BLOCKS:
            tl.store(edge_out + j, average + v, mask=valid & (lane == LANES - 1))
            if (step % STEPS == STEPS - 1) | (step == steps - 1):
                report(done_out, step + 1 - (LANES - 1))
        before = tl.where(valid, average + v, 0.0)
        above_before = above
        at += x_steps
