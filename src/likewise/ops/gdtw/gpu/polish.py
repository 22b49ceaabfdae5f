"""From GDTW's warp on a grid to a point of first-order optimality, on the GPU, in float64 and for the squared loss.

Within a segment of y the objective is quadratic. Given the segment of each knot, the knots that are held (at an end of
their segment) and the slope limits that are active, its minimum is one solution of the chain of ``gradient``. Then
all knots that have left their segment are held at its end, violated slope limits become active, and in each group of
knots that these join, the part that its forces pull away most is released. This is repeated until nothing changes (a
primal-dual active set). Settled pairs satisfy all conditions of first-order optimality; the others are left to the C++
kernel, as are pairs for which it must raise an error.
"""

import triton
import triton.language as tl

from likewise.ops.gdtw.gpu.gradient import LOWER, UPPER, any_before, give_way, neighbour, sum_of_run
from likewise.ops.gdtw.gpu.grid import STATE
from likewise.ops.gdtw.gpu.limits import envelope, lengths_of, limits_at, segment_of
from likewise.ops.gdtw.gpu.table import SPLIT, WIDE, loss_of

MOST_ROUNDS = tl.constexpr(40)  # 3 or 4 are usual; pairs that remain cycle


@triton.jit
def objective(table, first, times_y, n, k, phi, step, strength, stretch, room, i, m):
    loss, _slope, _curvature, _known = loss_of(table, first, times_y, n, i, k, phi, m)
    excess = tl.where(i + 1 < m, (neighbour(phi, room, i, 1, m) - phi) / step - stretch, 0.0)
    return tl.sum(tl.where(i < m, loss, 0.0), 0) + strength * tl.sum(excess * excess * step, 0)


@triton.jit
def total_force(slope, phi, step, twice, stretch, room, i, m):
    """The derivatives of the objective with respect to each knot, and of the regulariser to the move after it."""
    move = neighbour(phi, room, i, 1, m) - phi
    pull = tl.where(i + 1 < m, twice * (move / step - stretch), 0.0)
    return slope - pull + neighbour(pull, room, i, -1, m), pull, move


@triton.jit
def group(held, tie, room, i, m):
    """The limit that ties each knot to the one before, whether it moves with the one before and the one after, and
    whether its group has a held knot: up to the one before, up to it, from it on.

    A limit between two held groups is redundant.
    """
    tie_before = neighbour(tie.to(tl.float64), room, i, -1, m).to(tl.int32)
    tied = (tie_before > 0).to(tl.int32)
    _run, held_up_to = tl.associative_scan((tied, held), 0, any_before)
    held_before = neighbour(held_up_to.to(tl.float64), room, i, -1, m).to(tl.int32)
    same = tied & (1 - held * held_before)
    same_next = neighbour(same.to(tl.float64), room, i, 1, m).to(tl.int32)
    _run, held_from_on = tl.associative_scan((same_next, held), 0, any_before, reverse=True)
    return tie_before, same, same_next, held_before, held_up_to, held_from_on


@triton.jit
def sums_of(value, same, same_next, room, i, m):
    """Sums over each knot's group up to it, and beyond it."""
    _run, up_to = tl.associative_scan((same, value), 0, sum_of_run)
    _run, from_on = tl.associative_scan((same_next, value), 0, sum_of_run, reverse=True)
    return up_to, tl.where(same_next > 0, neighbour(from_on, room, i, 1, m), 0.0)


@triton.jit
def line_up(phi, held, stop, tie, least, most, same, same_next, held_from_on, room, i, m):
    """Place each group around its held knot, or its first: neighbours are as far apart as their limit says."""
    move = tl.where(tie == 1, least, tl.where(tie == 2, most, 0.0))
    before = tl.where(same > 0, neighbour(move, room, i, -1, m), 0.0)
    _run, apart = tl.associative_scan((same, before), 0, sum_of_run)
    leads = (same == 0) & (held_from_on == 0)
    start = tl.where(held > 0, stop - apart, tl.where(leads, phi, 0.0))
    up_to, beyond = sums_of(start, same, same_next, room, i, m)
    return up_to + beyond + apart


@triton.jit
def guess(phi, k, fixed, floor, ceiling, least, most, span, table, first, times_y, n, room, i, m):
    """The initial active set: limits, bounds and kinks close to the grid's solution.

    A wrong guess costs rounds, but a missing one lets knots leave the basin. Knots tied by a limit are
    held as one: by the first at a bound, otherwise at a kink if their joint loss has one.
    """
    origin = tl.load(times_y)
    move = neighbour(phi, room, i, 1, m) - phi
    near = span / (32.0 * tl.maximum(n, m).to(tl.float64))
    tie = tl.where(i + 1 < m, tl.where(move < least + near, 1, tl.where(move > most - near, 2, 0)), 0)
    free = (i < m) & (fixed == 0)
    near = span / (32.0 * (n - 1).to(tl.float64))
    begin = tl.load(times_y + k) - origin
    end = tl.load(times_y + k + 1) - origin
    at_floor = free & (phi - floor < near)
    at_ceiling = free & (ceiling - phi < near) & (at_floor == 0)
    ends = end - phi < phi - begin
    time = tl.where(ends, end, begin)
    beyond = tl.where(ends, k + 1, k)
    _value, left, _bend, known_left = loss_of(table, first, times_y, n, i, beyond - 1, time, m)
    _value, right, _bend, known_right = loss_of(table, first, times_y, n, i, beyond, time, m)
    on_kink = free & (tl.abs(time - phi) < near) & (time > floor) & (time < ceiling)
    on_kink = on_kink & known_left & known_right & (at_floor == 0) & (at_ceiling == 0)
    bend = tl.where(on_kink, right - left, 0.0)

    at_bound = (at_floor | at_ceiling).to(tl.float64)
    kinks = on_kink.to(tl.float64)
    same = (neighbour(tie.to(tl.float64), room, i, -1, m) > 0.0).to(tl.int32)
    same_next = (tie > 0).to(tl.int32)
    _run, bend_up, bounds_up, kinks_up, fixed_up = tl.associative_scan(
        (same, bend, at_bound, kinks, fixed), 0, forces_of_run
    )
    _run, bend_on, bounds_on, _kinks_on, fixed_on = tl.associative_scan(
        (same_next, bend, at_bound, kinks, fixed), 0, forces_of_run, reverse=True
    )
    open_to_all = fixed_up + fixed_on == 0
    bounded = bounds_up + bounds_on > 0.0
    by_bound = open_to_all & (at_bound > 0.0) & (bounds_up == 1.0)
    bends = open_to_all & (bounded == 0) & on_kink & (bend_up + bend_on - bend > 0.0)
    by_kink = bends & (kinks_up == 1.0)
    stop = tl.where(by_bound, tl.where(at_floor, floor, ceiling), tl.where(by_kink, time, phi))
    stop = tl.where(fixed > 0, floor, stop)
    held = (by_kink | by_bound | (fixed > 0)).to(tl.int32)
    down = by_bound & at_floor & (floor < begin)
    up = by_bound & at_ceiling & (ceiling > end)
    return tl.where(bends, beyond, tl.where(down, k - 1, tl.where(up, k + 1, k))), held, stop, tie


@triton.jit
def forces_of_run(same1, force1, left1, right1, may1, same2, force2, left2, right2, may2):
    on = same2 > 0
    return (same1 & same2, force2 + tl.where(on, force1, 0.0), left2 + tl.where(on, left1, 0.0),
            right2 + tl.where(on, right1, 0.0), may2 + tl.where(on, may1, 0))  # fmt: skip


@triton.jit
def strongest(same1, up1, down1, code1, same2, up2, down2, code2):
    """The greatest values of a run for both quantities, and the code of the second."""
    on = same2 > 0
    earlier = on & (down1 > down2)
    return (same1 & same2, tl.where(on, tl.maximum(up1, up2), up2), tl.where(earlier, down1, down2),
            tl.where(earlier, code1, code2))  # fmt: skip


@triton.jit
def let_go(force, left, right, may, tie, tie_before, same, same_next, held_up_to, held_from_on, tiny, m, i):
    """Find the part of each group that is pulled away most, if any: which knots move, and whether to the left.

    A part ends, or begins, at a limit that ties the group, and can only move away from it. A part with the held knot
    may move only as ``may`` says (1: left, 2: right). Knots on times of y feel the slopes on that side, ``left`` and
    ``right`` more than ``force``. Also returned: whether the group has a kink, plus 2 if it is pulled up.
    """
    anchored = (held_up_to | held_from_on) > 0
    _run, up, left_up, right_up, may_up = tl.associative_scan((same, force, left, right, may), 0, forces_of_run)
    _run, on, left_on, right_on, may_on = tl.associative_scan(
        (same_next, force, left, right, may), 0, forces_of_run, reverse=True
    )
    may = may_up + may_on - may
    may_left = (may & 1) > 0
    may_right = (may & 2) > 0
    infinite = float("inf")

    # Up to a knot: to the left, away from a least slope, or to the right.
    is_left = (tie == 1) | (same_next == 0)
    may_go = tl.where(held_up_to > 0, (is_left & may_left) | ((is_left == 0) & may_right), same_next > 0)
    pull_up_to = tl.where((i < m) & may_go, tl.where(is_left, up + left_up, -up - right_up), -infinite)
    left_code = is_left.to(tl.int32)
    # From a knot on: to the right, or to the left. A group without a held knot is only split, once.
    is_right = (tie_before == 1) | (same == 0)
    may_go = tl.where(held_from_on > 0, (is_right & may_right) | ((is_right == 0) & may_left), anchored & (same > 0))
    pull_from_on = tl.where((i < m) & may_go, tl.where(is_right, -on - right_on, on + left_on), -infinite)
    _run, before1, before2, code_before = tl.associative_scan(
        (same, pull_up_to, pull_from_on, (is_right == 0).to(tl.int32)), 0, strongest
    )
    _run, later2, later1, code_later = tl.associative_scan(
        (same_next, pull_from_on, pull_up_to, left_code), 0, strongest, reverse=True
    )
    most_up_to = tl.maximum(before1, later1)
    most_from_on = tl.maximum(before2, later2)
    first_part = (most_up_to > tiny) & (most_up_to >= most_from_on) & (later1 == most_up_to)
    last_part = (most_from_on > tiny) & (most_from_on > most_up_to) & (before2 == most_from_on)
    to_left = tl.where(first_part, code_later, code_before) > 0
    kink = right_up + right_on - right - (left_up + left_on - left) > tiny
    nature = kink.to(tl.int32) + 2 * (up + on - force < 0.0).to(tl.int32)
    return first_part | last_part, to_left, nature


@triton.jit
def sides_of(table, first, times_y, n, i, k, phi, slope, m):
    """The segments to the left and right of each knot, which differ for a knot on one of y's times; how much the slope
    of its loss differs there; and whether the table has them.
    """
    origin = tl.load(times_y)
    k_left = tl.where(phi > tl.load(times_y + k) - origin, k, tl.maximum(k - 1, 0))
    k_right = tl.where(phi < tl.load(times_y + k + 1) - origin, k, tl.minimum(k + 1, n - 2))
    _value, left, _bend, known_left = loss_of(table, first, times_y, n, i, k_left, phi, m)
    _value, right, _bend, known_right = loss_of(table, first, times_y, n, i, k_right, phi, m)
    return k_left, k_right, left - slope, right - slope, known_left & known_right


@triton.jit
def settle(phi, k, held, stop, tie, first, fixed, floor, ceiling, least, most, step, twice, stretch, table, times_y, n,
           room, i, m):  # fmt: skip
    """One round: the minimum for the held and tied knots, those to hold and tie next, and how much has changed."""
    real = i < m
    tie_before, same, same_next, held_before, held_up_to, held_from_on = group(held, tie, room, i, m)
    phi = line_up(phi, held, stop, tie, least, most, same, same_next, held_from_on, room, i, m)
    _value, slope, curvature, known = loss_of(table, first, times_y, n, i, k, phi, m)
    force, pull, move = total_force(slope, phi, step, twice, stretch, room, i, m)
    after = tl.where(i + 1 < m, twice / step, 0.0)
    before = neighbour(after, room, i, -1, m)
    way = give_way(force, curvature, before, after, same, same_next, held_before, held_up_to, room, i, m)
    phi = tl.where(real, phi - way, 0.0)
    slope -= curvature * way
    force, pull, move = total_force(slope, phi, step, twice, stretch, room, i, m)
    tiny = 1e-12 * (tl.max(tl.abs(slope), 0) + tl.max(tl.abs(pull), 0))

    # Parts that are pulled away are released, towards the side to which they are pulled.
    k_left, k_right, left, right, known_sides = sides_of(table, first, times_y, n, i, k, phi, slope, m)
    anchored = (held_up_to | held_from_on) > 0
    beside = real & anchored
    may = tl.where((held > 0) & (fixed == 0), (phi > floor).to(tl.int32) + 2 * (phi < ceiling).to(tl.int32), 0)
    goes, to_left, nature = let_go(
        tl.where(real, force, 0.0), tl.where(beside, left, 0.0), tl.where(beside, right, 0.0), may, tie, tie_before,
        same, same_next, held_up_to, held_from_on, tiny, m, i,
    )  # fmt: skip
    lost = real & ((known == 0) | (anchored & (known_sides == 0)))
    goes_before = neighbour(goes.to(tl.float64), room, i, -1, m) > 0.0
    goes_next = neighbour(goes.to(tl.float64), room, i, 1, m) > 0.0
    together = same_next > 0
    loose = together & (goes != goes_next)
    # A released part may have held the rest: the next knot then holds it, if it is on one of y's times.
    held_next = neighbour(held_from_on.to(tl.float64), room, i, 1, m) > 0.0
    deserted = ((same > 0) & goes_before & (held_before > 0)) | (together & goes_next & held_next)
    takes_over = real & deserted & (goes == 0) & (k_left != k_right)
    leaves = goes & anchored
    nature += 4 * (beside & (right - left > tiny)).to(tl.int32)  # at a kink itself

    # Knots beyond their segment or bounds: the first of a group is held, or moves on if the group is held.
    lowest = tl.maximum(tl.load(times_y + k) - tl.load(times_y), floor)
    highest = tl.minimum(tl.load(times_y + k + 1) - tl.load(times_y), ceiling)
    below = real & (held == 0) & (phi < lowest)
    above = real & (held == 0) & (phi > highest)
    outside = (below | above).to(tl.int32)
    _run, outside_up_to = tl.associative_scan((same, outside), 0, any_before)
    earlier = (same > 0) & (neighbour(outside_up_to.to(tl.float64), room, i, -1, m) > 0.0)
    bound = (below & (lowest == floor)) | (above & (highest == ceiling))
    stops = (outside > 0) & tl.where(anchored, bound, earlier == 0)
    crosses = (outside > 0) & anchored & (bound == 0)

    # Violated slope limits.
    apart = (i + 1 < m) & (together == 0)
    short = apart & (move < least)
    long = apart & (move > most)
    # Two held knots too close together or too far apart: the second is released, and tied to the first.
    clash = (short | long) & (held > 0)
    yields = (neighbour(clash.to(tl.float64), room, i, -1, m) > 0.0) & (fixed == 0)

    changes = stops | crosses | goes | short | long
    k = tl.where(leaves, tl.where(to_left, k_left, k_right), k)
    k = tl.where(crosses, tl.where(below, k - 1, k + 1), k)
    stop = tl.where(stops, tl.where(below, lowest, highest), tl.where(takes_over, phi, stop))
    held = tl.where(stops | takes_over, 1, tl.where(leaves | yields, 0, held))
    tie = tl.where(together, tl.where(loose, 0, tie), tl.where(short, 1, tl.where(long, 2, 0)))
    return phi, k, held, stop, tie, nature, tl.sum(changes.to(tl.int32), 0), tl.sum(lost.to(tl.int32), 0)


@triton.jit
def polish_kernel(best, table, firsts, state, unsound, y_lengths, x_lengths, times_y, times_x, reg, lower, upper,
                  slope_min, slope_max, room, values, warps, holds, outcomes, y_steps, x_steps, halvings,
                  SUBSEQUENCE: tl.constexpr, LARGEST: tl.constexpr, LENGTHS: tl.constexpr, BAND: tl.constexpr,
                  SLOPES: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """Values (B,), warps (B, Tx) and holds (B, Tx, 2) as from the C++ kernel.

    Outcomes (B,): 1 for settled pairs, 0 for those left to the C++ kernel, as are values above LARGEST, 2 if the search
    is not done.
    """
    pair = tl.program_id(0).to(tl.int64)
    n, m = lengths_of(pair, y_lengths, x_lengths, y_steps, x_steps, LENGTHS)
    i = tl.arange(0, LANES)
    real = i < m
    at = pair * x_steps + i
    room += pair * x_steps
    table += pair * x_steps * WIDE * SPLIT
    origin, span, time, step, least, most, floor, ceiling, stretch = limits_at(
        pair, i, n, m, times_y, times_x, lower, upper, slope_min, slope_max, y_steps, x_steps, SUBSEQUENCE, BAND, SLOPES
    )
    times_y += pair * y_steps
    strength = tl.load(reg + pair)
    step = tl.where(i + 1 < m, step, 1.0)
    searched = tl.load(state + pair * STATE + 3) > 0.0
    fine = searched & (tl.load(unsound + pair) == 0)
    fine = fine & (strength > 0.0) & (strength < float("inf"))
    fine = fine & (n > 1) & (m > 1)
    if LENGTHS:
        fine = fine & (tl.load(y_lengths + pair) == n) & (tl.load(x_lengths + pair) == m)
    inside = admits_a_warp(floor, ceiling, least, most, span, origin, real)
    if BAND and not SUBSEQUENCE:
        inside = inside & ends_are_within(lower, upper, origin, span, pair * x_steps, m)
    phi = tl.load(best + at, mask=real, other=0.0) - origin
    known = tl.sum(tl.where(real, phi, 0.0), 0)  # NaN where the losses overflow
    first = tl.load(firsts + at, mask=real, other=0)
    k = tl.where(real, segment_of(times_y, origin, n, phi, halvings), 0)
    begun = phi
    value_before = objective(table, first, times_y, n, k, phi, step, strength, stretch, room, i, m)
    fixed = (real & (floor == ceiling)).to(tl.int32)
    k, held, stop, tie = guess(phi, k, fixed, floor, ceiling, least, most, span, table, first, times_y, n, room, i, m)
    changes = tl.where(fine & inside & (known == known), 1, 0)
    gone = 1 - changes
    nature = tie
    rounds = changes * 0
    while (changes > 0) & (gone == 0) & (rounds < MOST_ROUNDS):
        phi, k, held, stop, tie, nature, changes, gone = settle(
            phi, k, held, stop, tie, first, fixed, floor, ceiling, least, most, step, 2.0 * strength, stretch, table,
            times_y, n, room, i, m,
        )  # fmt: skip
        rounds += 1
    value = objective(table, first, times_y, n, k, phi, step, strength, stretch, room, i, m)
    # It must be in the basin that the grid found: not higher, and near. The grid's slack is for rounding.
    far = tl.max(tl.where(real, tl.abs(phi - begun), 0.0), 0) * (n - 1) > 0.25 * span
    rounding = 1e-14 * strength * stretch * span
    same_basin = (value <= (1.0 + 1e-6) * value_before + rounding) & (far == 0)
    outcome = tl.where((changes == 0) & (gone == 0) & same_basin & (value <= LARGEST), 1, 0)
    tl.store(outcomes + pair, tl.where(searched, outcome, 2))
    tl.store(values + pair, value)
    tl.store(warps + at, tl.where(real, phi + origin, float("nan")), mask=i < x_steps)
    # One of y's times holds a group only if its loss has a kink there; then it holds each knot with a kink.
    held = tl.where((phi == floor) | (phi == ceiling) | ((nature & 1) > 0), held, 0)
    held = tl.where(real & ((nature & 4) > 0), 1, held)
    flags = tl.where(held > 0, 1, 0)
    if BAND:
        pulled_up = (phi == ceiling) & ((nature & 2) > 0)
        by_lower = (phi == floor) & (pulled_up == 0) & (tl.load(lower + at, mask=real, other=0.0) - origin > 0.0)
        by_upper = (phi == ceiling) & (tl.load(upper + at, mask=real, other=0.0) - origin < span)
        if not SUBSEQUENCE:
            by_lower = by_lower & (i > 0) & (i < m - 1)
            by_upper = by_upper & (i > 0) & (i < m - 1)
        flags = tl.where(held > 0, tl.where(by_lower, LOWER, tl.where(by_upper, UPPER, 1)), 0)
    flags += 4 * tie
    segment = segment_of(times_y, origin, n, phi, halvings)
    tl.store(holds + 2 * at, tl.where(real, segment, 0), mask=i < x_steps)
    tl.store(holds + 2 * at + 1, tl.where(real, flags, 0), mask=i < x_steps)


@triton.jit
def admits_a_warp(floor, ceiling, least, most, span, origin, real):
    infinite = float("inf")
    low, high = envelope(tl.where(real, floor, -infinite), tl.where(real, ceiling, infinite), least, most)
    slack = 1e-12 * (span + tl.abs(origin))
    return tl.sum((real & (low > high + slack)).to(tl.int32), 0) == 0


@triton.jit
def ends_are_within(lower, upper, origin, span, first, m):
    """Whether the bounds admit y's ends at the first and the last knot."""
    at_first = (tl.load(lower + first) <= origin) & (tl.load(upper + first) >= origin)
    last = first + m - 1
    return at_first & (tl.load(lower + last) - origin <= span) & (tl.load(upper + last) - origin >= span)
