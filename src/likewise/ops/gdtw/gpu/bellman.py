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

PARTS = tl.constexpr(8)  # of each way from the middle knot, in path_kernel
NONE = tl.constexpr(1e9)  # more than any node


@triton.jit
def steps_of(pair, side, state, m):
    """The middle knot, and the number of steps to it: 0 for a pair that is done."""
    middle = (m - 1) // 2
    done = tl.load(state + pair * STATE + 3) > 0.0
    return middle, tl.where(done, 0, tl.where(side == 0, middle, m - 1 - middle))


@triton.jit(do_not_specialize=["number"])
def bellman_kernel(rows, origins, plan, state, y_lengths, x_lengths, y_steps, x_steps, stride, nodes, number,
                   LENGTHS: tl.constexpr, GROUPS: tl.constexpr, GROUP: tl.constexpr, SHARE: tl.constexpr):  # fmt: skip
    """The least sums up to each node; they replace the losses in rows (B, Tx + 1, stride). ``origins``, of the same
    shape, gets the nodes that they come from.

    The sums on the way down to the middle, without the middle's own losses, go to the last row. Losses and the data of
    a knot are loaded one knot ahead. A row has at most GROUPS GROUP nodes; SHARE lanes share a node.
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
        least, best = advance(rows + (i - 1 + side) * stride, row, count, GROUPS, GROUP, SHARE)
        into = tl.where(meets, x_steps, target) * stride + k
        tl.store(rows + into, bare + least, mask=k < count)
        tl.store(origins + into, best.to(tl.int32), mask=k < count)
        tl.debug_barrier()


@triton.jit
def advance(source, row, count, GROUPS: tl.constexpr, GROUP: tl.constexpr, SHARE: tl.constexpr):
    """min_j source(j) + edge(j, k) of one row, (GROUPS, GROUP), and a j of each."""
    LANES: tl.constexpr = GROUP * SHARE
    c = tl.arange(0, GROUPS)
    lane = tl.arange(0, LANES)[None, :]
    nothing = tl.zeros((GROUPS, LANES), tl.int32)
    # The lanes of a group share the sources of its last node. Beyond the last source, losses are infinite.
    ends = (c * GROUP + GROUP - 1)[:, None]
    least, best = sweep(source, row, ends, nothing + lane, nothing + count, count, LANES)
    value = tl.min(least, 1)
    best = tl.min(tl.where(least == value[:, None], best, NONE), 1).to(tl.int32)
    known = value < float("inf")
    last = tl.where(known, best, count - 1)
    first = tl.gather(tl.where(known, best, 0), tl.maximum(c - 1, 0), 0)
    first = tl.where(c == 0, 0, first)
    low = tl.minimum(first, last)  # rounding may exchange them
    high = tl.maximum(first, last)
    k = (c * GROUP)[:, None] + lane // SHARE
    least, best = sweep(source, row, k, nothing + low[:, None] + lane % SHARE, nothing + high[:, None],
                        tl.max(high - low, 0) + 1, SHARE)  # fmt: skip
    if SHARE == 1:
        return least, best
    least = tl.reshape(least, (GROUPS, GROUP, SHARE))
    best = tl.reshape(best, (GROUPS, GROUP, SHARE))
    value = tl.min(least, 2)
    return value, tl.min(tl.where(least == value[:, :, None], best, NONE), 2)


@triton.jit
def sweep(source, row, k, j, last, reach, STEP: tl.constexpr):
    """The least candidate of each target k and its source, of j, j + STEP, ... up to the last, in less than reach.

    Four sources at a time, for four results that do not wait for each other; the next four are loaded meanwhile.
    """
    dtype = source.dtype.element_ty
    offset, ahead, scale, _pace, high, low = row
    single = scale == 0.0  # from which all nodes may come
    lowest = tl.where(single, -float("inf"), offset - high * scale).to(dtype)
    highest = tl.where(single, float("inf"), offset - low * scale).to(dtype)
    center = offset.to(dtype) + k * ahead.to(dtype)
    edge = center, scale.to(dtype), lowest, highest, last.to(dtype)
    place = j.to(dtype)
    source += j
    value0 = tl.load(source)
    value1 = tl.load(source + STEP)
    value2 = tl.load(source + 2 * STEP)
    value3 = tl.load(source + 3 * STEP)
    least0 = tl.full(j.shape, float("inf"), dtype)
    least1, least2, least3 = least0, least0, least0
    best0, best1, best2, best3 = place, place, place, place
    for _ in range(0, reach, 4 * STEP):
        source += 4 * STEP
        next0 = tl.load(source)
        next1 = tl.load(source + STEP)
        next2 = tl.load(source + 2 * STEP)
        next3 = tl.load(source + 3 * STEP)
        least0, best0 = closer(least0, best0, value0, place, edge)
        least1, best1 = closer(least1, best1, value1, place + STEP, edge)
        least2, best2 = closer(least2, best2, value2, place + 2 * STEP, edge)
        least3, best3 = closer(least3, best3, value3, place + 3 * STEP, edge)
        value0, value1, value2, value3 = next0, next1, next2, next3
        place += 4 * STEP
    least0, best0 = lesser(least0, best0, least1, best1)
    least2, best2 = lesser(least2, best2, least3, best3)
    return lesser(least0, best0, least2, best2)


@triton.jit
def closer(least, best, value, place, edge):
    center, scale, lowest, highest, last = edge
    distance = center - place * scale
    candidate = distance * distance + value
    better = (distance >= lowest) & (distance <= highest) & (place <= last) & (candidate < least)
    return tl.where(better, candidate, least), tl.where(better, place, best)


@triton.jit
def lesser(least, best, other, at):
    better = other < least
    return tl.where(better, other, least), tl.where(better, at, best)


@triton.jit(do_not_specialize=["number"])
def path_kernel(rows, origins, maps, plan, state, found, totals, y_lengths, x_lengths, y_steps, x_steps, stride, nodes,
                number, LENGTHS: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    """The nodes of the best path, found (B, Tx), and its objective, totals (B,); at most WIDTH nodes in a row.

    Both ways from the middle are cut into PARTS. For each node at which a part may begin, ``maps`` (B, 2 PARTS, WIDTH)
    gets the node at which it then ends, for all parts at once; so it is known where the path enters each part, and all
    parts are followed at once.
    """
    pair = tl.program_id(0).to(tl.int64)
    n, m = lengths_of(pair, y_lengths, x_lengths, y_steps, x_steps, LENGTHS)
    middle, steps = steps_of(pair, 1, state, m)
    count = node_count(n, nodes, number)
    rows += pair * (x_steps + 1) * stride
    origins += pair * (x_steps + 1) * stride
    maps += pair * 2 * PARTS * WIDTH
    found += pair * x_steps
    j = tl.arange(0, WIDTH)
    up = tl.load(rows + middle * stride + j, mask=j < count, other=float("inf"))
    down = tl.load(rows + x_steps * stride + j, mask=j < count, other=float("inf"))
    total, best = tl.min(up + down, 0, return_indices=True)
    if tl.load(state + pair * STATE + 3) == 0.0:
        tl.store(totals + pair, total.to(tl.float64))
        tl.store(found + middle, best.to(tl.float64))
    part = tl.arange(0, 2 * PARTS)
    way = tl.where(part < PARTS, -1, 1)
    last = tl.where(part < PARTS, tl.minimum(middle, steps), steps)  # steps from the middle to the end
    size = (steps + PARTS - 1) // PARTS
    begin = part % PARTS * size
    here = tl.zeros((2 * PARTS, WIDTH), tl.int32) + j[None, :]
    for step in range(size):
        at = begin + step
        row = origins + tl.where((way > 0) & (at == 0), x_steps, middle + way * at) * stride
        here = tl.load(row[:, None] + here, mask=(at < last)[:, None] & (j < count)[None, :], other=0) + tl.where(
            (at < last)[:, None], 0, here
        )
    tl.store(maps + part[:, None] * WIDTH + j[None, :], here)
    tl.debug_barrier()
    node = tl.zeros_like(part) + best.to(tl.int32)
    first = node
    for before in range(PARTS):
        first = tl.where(part % PARTS == before, node, first)
        node = tl.load(maps + (part // PARTS * PARTS + before) * WIDTH + node)
    node = first
    for step in range(size):
        at = begin + step
        row = origins + tl.where((way > 0) & (at == 0), x_steps, middle + way * at) * stride
        node = tl.where(at < last, tl.load(row + node, mask=at < last, other=0), node)
        tl.store(found + middle + way * (at + 1), node.to(tl.float64), mask=at < last)
