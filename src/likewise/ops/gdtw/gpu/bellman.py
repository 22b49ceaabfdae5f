"""Bellman's recursion of GDTW over the rows of a grid, and the best path through them.

A row is min_j V(j) + edge(j, k), where the edge is the square of offset + k ahead - j scale and j is between limits
that do not fall as k grows. So neither does the best j: once it is known for the last node of each group of GROUP
nodes, those of the other nodes lie between. Instead of all pairs (j, k), a row takes M^2 / GROUP of them, and then a
few for each node. The lower envelope of parabolas needs fewer operations, but in sequence.
"""

import triton
import triton.language as tl

from likewise.ops.gdtw.gpu.grid import PLAN, STATE, load_plan, node_count
from likewise.ops.gdtw.gpu.limits import lengths_of

NONE = tl.constexpr(1 << 30)  # no node


@triton.jit
def steps_of(pair, side, state, m):
    """The middle knot, and the number of steps to it: 0 for a pair that is done."""
    middle = (m - 1) // 2
    done = tl.load(state + pair * STATE + 3) > 0.0
    return middle, tl.where(done, 0, tl.where(side == 0, middle, m - 1 - middle))


@triton.jit(do_not_specialize=["number"])
def bellman_kernel(rows, origins, plan, state, y_lengths, x_lengths, y_steps, x_steps, stride, nodes, number,
                   LENGTHS: tl.constexpr, GROUPS: tl.constexpr, GROUP: tl.constexpr, UNROLL: tl.constexpr):  # fmt: skip
    """The least sums up to each node; they replace the losses in rows (B, Tx + 1, stride). ``origins``, of the same
    shape, gets the nodes that they come from.

    The sums on the way down to the middle, without the middle's own losses, go to the last row. Losses and the data of
    a knot are loaded one knot ahead. A row has at most GROUPS GROUP nodes.
    """
    pair = tl.program_id(0).to(tl.int64)
    side = tl.program_id(1)
    n, m = lengths_of(pair, y_lengths, x_lengths, y_steps, x_steps, LENGTHS)
    middle, steps = steps_of(pair, side, state, m)
    count = node_count(n, nodes, number)
    rows += pair * (x_steps + 1) * stride
    origins += pair * (x_steps + 1) * stride
    plan += pair * x_steps * PLAN
    first = tl.where(side == 0, 1, m - 1)
    way = 1 - 2 * side
    k = tl.arange(0, GROUPS)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    coming = load_plan(plan, tl.minimum(first, m - 1))
    own = tl.load(rows + tl.minimum(first - side, m - 1) * stride + k, mask=k < count, other=float("inf"))
    for step in range(steps):
        i = first + step * way
        row = coming
        coming = load_plan(plan, tl.minimum(i + way, m - 1))
        meets = (side == 1) & (i - 1 == middle)
        target = i - side
        bare = tl.where(meets, 0.0, own)
        beyond = tl.minimum(tl.maximum(target + way, 0), m - 1)
        own = tl.load(rows + beyond * stride + k, mask=k < count, other=float("inf"))
        least, best = advance(rows + (i - 1 + side) * stride, row, count, k, GROUPS, GROUP, UNROLL)
        into = tl.where(meets, x_steps, target) * stride + k
        tl.store(rows + into, bare + least, mask=k < count)
        tl.store(origins + into, best, mask=k < count)
        tl.debug_barrier()


@triton.jit
def advance(source, row, count, k, GROUPS: tl.constexpr, GROUP: tl.constexpr, UNROLL: tl.constexpr):
    """min_j source(j) + edge(j, k) of one row, (GROUPS, GROUP), and a j of each."""
    c = tl.arange(0, GROUPS)
    g = tl.zeros_like(k) + tl.arange(0, GROUP)[None, :]
    ends = (c * GROUP + GROUP - 1)[:, None]
    # The lanes of a group share the sources of its last node. Beyond the last source, losses are infinite.
    least, best = sweep(source, row, ends, g, count, count, GROUP, UNROLL)
    value = tl.min(least, 1)
    best = tl.min(tl.where(least == value[:, None], best, NONE), 1)
    known = value < float("inf")
    last = tl.where(known, best, count - 1)
    first = tl.gather(tl.where(known, best, 0), tl.maximum(c - 1, 0), 0)
    first = tl.where(c == 0, 0, first)
    low = tl.minimum(first, last)  # rounding may exchange them
    span = tl.maximum(first, last) - low + 1
    return sweep(source, row, k, tl.zeros_like(k) + low[:, None], tl.max(span, 0), span[:, None], 1, UNROLL)


@triton.jit
def sweep(source, row, k, j, reach, span, STEP: tl.constexpr, UNROLL: tl.constexpr):
    """The least candidate of each target k and its source, among j + at for at = 0, STEP, ... before reach and span."""
    dtype = source.dtype.element_ty
    offset, ahead, scale, _pace, high, low = row
    single = scale == 0.0  # from which all nodes may come
    lowest = tl.where(single, -float("inf"), offset - high * scale).to(dtype)
    highest = tl.where(single, float("inf"), offset - low * scale).to(dtype)
    center = offset.to(dtype) + k * ahead.to(dtype)
    scale = scale.to(dtype)
    place = j.to(dtype)
    least = tl.full(j.shape, float("inf"), dtype)
    best = tl.zeros_like(j)
    source += j
    for start in range(0, reach, STEP * UNROLL):
        for u in tl.static_range(UNROLL):
            at = start + u * STEP
            values = tl.load(source + at)
            distance = center - (place + at) * scale
            candidate = distance * distance + values
            closer = (candidate < least) & (distance >= lowest) & (distance <= highest)
            if STEP == 1:
                closer = closer & (at < span)
            least = tl.where(closer, candidate, least)
            best = tl.where(closer, at, best)
    return least, j + best


@triton.jit(do_not_specialize=["number"])
def path_kernel(rows, origins, plan, state, found, totals, y_lengths, x_lengths, y_steps, x_steps, stride, nodes,
                number, LENGTHS: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    """The nodes of the best path, found (B, Tx), and its objective, totals (B,); at most WIDTH nodes in a row."""
    pair = tl.program_id(0).to(tl.int64)
    n, m = lengths_of(pair, y_lengths, x_lengths, y_steps, x_steps, LENGTHS)
    middle, steps = steps_of(pair, 1, state, m)
    count = node_count(n, nodes, number)
    rows += pair * (x_steps + 1) * stride
    origins += pair * (x_steps + 1) * stride
    found += pair * x_steps
    j = tl.arange(0, WIDTH)
    up = tl.load(rows + middle * stride + j, mask=j < count, other=float("inf"))
    down = tl.load(rows + x_steps * stride + j, mask=j < count, other=float("inf"))
    total, k = tl.min(up + down, 0, return_indices=True)
    if tl.load(state + pair * STATE + 3) == 0.0:
        tl.store(totals + pair, total.to(tl.float64))
        tl.store(found + middle, k.to(tl.float64))
    # Both ways at once; the way up has as many steps, or one fewer.
    before, after = k, k
    for step in range(steps):
        below = middle - step
        before = tl.load(origins + below * stride + before, mask=below > 0, other=0)
        tl.store(found + below - 1, before.to(tl.float64), mask=below > 0)
        beyond = middle + step
        row = tl.where(step == 0, x_steps, beyond)
        after = tl.load(origins + row * stride + after)
        tl.store(found + beyond + 1, after.to(tl.float64))
