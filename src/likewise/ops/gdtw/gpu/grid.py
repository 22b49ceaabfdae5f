"""GDTW's search for the best warp on a grid: a pass consists of four kernels.

``nodes_kernel`` (losses.py) computes the losses of all nodes at once, ``bellman_kernel`` (bellman.py) takes the knots
one after the other, ``path_kernel`` follows the best path back, and ``refine_kernel`` keeps the best pass and defines
the next grid.

Two programs share a pair: one goes from the first knot up to the middle one, the other from the last knot down to it.
The best path has the smallest sum of both. "Source" and "target" are the rows that a step leads from and to.
"""

import triton
import triton.language as tl

from likewise.ops.gdtw.gpu.limits import envelope, lengths_of, limits_at

TILE = tl.constexpr(128)  # nodes whose losses a program computes at once; the rows of a batch are whole tiles
PLAN = tl.constexpr(8)  # numbers that describe a row: see refine_kernel
STATE = tl.constexpr(4)  # per pair: its least objective, level, share of the first grid's width, whether it is done


@triton.jit
def node_count(n, nodes, number):
    """Nodes of a row: odd, by default those of reference.default_nodes; half as many after pass number 0."""
    usual = tl.where(n >= 64, n, tl.maximum(tl.minimum(3 * n, 128), 50))
    count = tl.where(nodes > 0, nodes, usual) | 1
    count = tl.where(number > 0, tl.minimum(count, tl.maximum(count // 2, 50) | 1), count)
    # With one node more than a tile, another tile would be needed.
    return tl.where((count > TILE) & (count % TILE == 1), count - 2, count)


@triton.jit
def load_plan(plan, i):
    """Offset, ahead, scale, pace, high and low of row i."""
    row = plan + i * PLAN
    return (tl.load(row + 2), tl.load(row + 3), tl.load(row + 4), tl.load(row + 5), tl.load(row + 6),
            tl.load(row + 7))  # fmt: skip


@triton.jit(do_not_specialize=["number", "refinements"])
def refine_kernel(found, totals, state, best, lows, highs, wide, plan, unsound, y_lengths, x_lengths, times_y, times_x,
                  reg, lower, upper, slope_min, slope_max, y_steps, x_steps, nodes, refinements, number,
                  FIRST: tl.constexpr, SUBSEQUENCE: tl.constexpr, ROUNDING: tl.constexpr, LENGTHS: tl.constexpr,
                  BAND: tl.constexpr, SLOPES: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """Keep the better of the path found and the best, and lay out the grid of the next pass, whose number is given.

    The plan of knot i (Tx, 8): its least value and the spacing of its nodes; then, for the step between it and the knot
    before, offset, ahead and scale, such that the edge from node j of the source to node k of the target is
    (offset + k ahead - j scale)^2; pace, high and low of ``window``. ROUNDING: the relative rounding error of the
    search. Everything but ``best`` is relative to the beginning of y. The first also zeroes ``unsound`` (B,), which
    others mark.
    """
    pair = tl.program_id(0).to(tl.int64)
    n, m = lengths_of(pair, y_lengths, x_lengths, y_steps, x_steps, LENGTHS)
    i = tl.arange(0, LANES)
    at = pair * x_steps + i
    real = i < m
    infinite = float("inf")
    origin, span, time, step, least, most, floor, ceiling, stretch = limits_at(
        pair, i, n, m, times_y, times_x, lower, upper, slope_min, slope_max, y_steps, x_steps, SUBSEQUENCE, BAND, SLOPES
    )
    low = floor
    high = ceiling
    finished = False
    if not FIRST:
        before = node_count(n, nodes, number - 1)
        least_value = tl.load(state + pair * STATE)
        level = tl.load(state + pair * STATE + 1)
        share = tl.load(state + pair * STATE + 2)
        finished = tl.load(state + pair * STATE + 3) > 0.0
        value = tl.load(totals + pair)
        old_low = tl.load(lows + at, mask=real, other=0.0)
        old_high = tl.load(highs + at, mask=real, other=0.0)
        node = tl.load(found + at, mask=real, other=0.0)
        path = old_low + node * tl.load(plan + at * PLAN + 1, mask=real, other=0.0)
        better = value < least_value
        previous = tl.load(best + at, mask=real, other=0.0) - origin
        center = tl.where(better, path, previous)
        whole = tl.load(wide + at, mask=real, other=0.0)
        # The solution may be beyond the edge of its grid: the next grid is centred there, with the same width.
        near = 1.5 * (old_high - old_low) / (before - 1).to(tl.float64)
        rim = ((path < old_low + near) & (old_low > floor)) | ((path > old_high - near) & (old_high < ceiling))
        rim = rim & real & (old_high - old_low > 1e-11 * span)
        stays = better & (level > 0.0) & (tl.max(rim.to(tl.int32), 0) > 0)
        # A grid that is coarser than y must always be refined.
        coarse = 2.0 * (node_count(n, nodes, 0) - 1).to(tl.float64) * span / tl.maximum(n - 1, 1).to(tl.float64)
        enough = (level >= refinements.to(tl.float64)) & (share * tl.max(whole, 0) <= coarse)
        ends = ((stays == 0) & enough) | ((value < infinite) == 0)
        finer = (stays == 0) & (ends == 0)
        # The second grid is an eighth as wide as the first, at least 10 steps of y; each later one is a quarter.
        narrow = tl.minimum(tl.maximum(10.0 / tl.maximum(n - 1, 1).to(tl.float64), 0.125), 0.5)
        share = tl.where(finer, tl.where(level == 0.0, narrow, share * 0.25), share)
        tl.debug_barrier()  # wait until every warp has read the state
        if finished == 0:
            tl.store(state + pair * STATE, tl.minimum(value, least_value))
            tl.store(state + pair * STATE + 1, tl.where(finer, level + 1.0, level))
            tl.store(state + pair * STATE + 2, share)
            tl.store(state + pair * STATE + 3, tl.where(ends, 1.0, 0.0))
            # Losses that overflow leave no path: NaN tells the polish.
            tl.store(best + at, tl.where(value < infinite, center + origin, float("nan")), mask=real)
        finished = finished | ends
        low = tl.maximum(center - share * whole / 2.0, floor)
        high = tl.minimum(center + share * whole / 2.0, ceiling)
    if finished == 0:
        low, high = envelope(tl.where(real, low, -infinite), tl.where(real, high, infinite), least, most)
        low = tl.minimum(low, high)
        room = high - low
        if FIRST:
            tl.store(unsound + pair, 0)
            tl.store(wide + at, room, mask=real)
            tl.store(state + pair * STATE, infinite)
            tl.store(state + pair * STATE + 1, 0.0)
            tl.store(state + pair * STATE + 2, 1.0)
            tl.store(state + pair * STATE + 3, 0.0)
        tl.debug_barrier()  # lows, highs and plan of the pass before have been read
        tl.store(lows + at, low, mask=real)
        tl.store(highs + at, high, mask=real)
        tl.debug_barrier()
        count = (node_count(n, nodes, number) - 1).to(tl.float64)
        later = real & (i > 0)
        last_low = tl.load(lows + at - 1, mask=later, other=0.0)
        last_room = tl.load(highs + at - 1, mask=later, other=0.0) - last_low
        spacing = tl.where(room > 1e-11 * span, room / count, 0.0)
        last_spacing = tl.where(last_room > 1e-11 * span, last_room / count, 0.0)
        wait = time - tl.load(times_x + at - 1, mask=later, other=0.0)
        wait = tl.where(later, wait, 1.0)
        minimum = tl.zeros_like(wait)
        maximum = tl.where(later, infinite, 0.0)
        if SLOPES:
            between = pair * (x_steps - 1) + i - 1
            minimum = wait * tl.load(slope_min + between, mask=later, other=0.0)
            maximum = wait * tl.load(slope_max + between, mask=later, other=0.0)
        stiff = tl.sqrt(tl.load(reg + pair) / wait)
        # Beyond the middle, steps lead from knot i to the one before, with moves of the opposite sign.
        back = i > (m - 1) // 2
        drift = stretch * wait
        drift, least, most = (tl.where(back, -drift, drift), tl.where(back, -maximum, minimum),
                              tl.where(back, -minimum, maximum))  # fmt: skip
        source = tl.where(back, low, last_low)
        target = tl.where(back, last_low, low)
        source_spacing = tl.where(back, spacing, last_spacing)
        target_spacing = tl.where(back, last_spacing, spacing)
        single = source_spacing == 0.0
        inverse = 1.0 / tl.where(single, 1.0, source_spacing)
        # Convex combinations of the envelope's ends run from node j to node j: rounding must not exclude them.
        slack = 1e-5 + ROUNDING * count
        row = plan + at * PLAN
        tl.store(row, low, mask=real)
        tl.store(row + 1, spacing, mask=real)
        tl.store(row + 2, (target - source - drift) * stiff, mask=real)
        tl.store(row + 3, target_spacing * stiff, mask=real)
        tl.store(row + 4, source_spacing * stiff, mask=real)
        tl.store(row + 5, tl.where(single, 0.0, target_spacing * inverse), mask=real)
        tl.store(row + 6, tl.where(single, 0.0, (target - least - source) * inverse + slack), mask=real)
        tl.store(row + 7, tl.where(single, 0.0, (target - most - source) * inverse - slack), mask=real)
