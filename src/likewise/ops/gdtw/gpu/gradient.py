"""The derivative of GDTW's values and warps: implicit differentiation at a solution, in float64.

``bends_kernel`` computes the slope and the curvature of each knot's loss, ``response_kernel`` solves for the response
of each knot and the forces on the limits, and two more gather the gradients of x and of y.

Knots joined by an active slope limit move as one, a group; those held by a bound, an end or a kink of y do not move.
The result is a chain of groups, each tied to its ground by its curvature and to its neighbours by springs, 2 reg /
Delta. All computations on such a chain are scans: no kernel processes the knots one after the other.
"""

import triton
import triton.language as tl

from likewise.ops.gdtw.gpu.limits import lengths_of
from likewise.ops.launch.arguments import float64_from

# Bits of kernel.h's Hold.
HELD = tl.constexpr(3)
LOWER = tl.constexpr(2)
UPPER = tl.constexpr(3)
TIED = tl.constexpr(12)
TIED_MAX = tl.constexpr(8)


@triton.jit
def place_of(warp, holds, times_y, times_x, i, m):
    """For knots i of one pair: the segment k of y, their share of the way through it, 1 / its width, their weight."""
    real = i < m
    k = tl.load(holds + 2 * i, mask=real, other=0)
    origin = tl.load(times_y)
    begin = tl.load(times_y + k) - origin
    inverse = 1.0 / (tl.load(times_y + k + 1) - origin - begin)
    share = (tl.load(warp + i, mask=real, other=0.0) - origin - begin) * inverse
    before = tl.load(times_x + tl.maximum(i - 1, 0), mask=real, other=0.0)
    after = tl.load(times_x + tl.minimum(i + 1, m - 1), mask=real, other=0.0)
    return k, share, inverse, (after - before) / 2


@triton.jit
def bend_of(y, x, k, i, c, share, inverse, real, C, huber, HUBER: tl.constexpr):
    """h'(u) / 2 of the residual u = y(phi) - x, the slope of y, and this slope times h''(u) / 2."""
    a = tl.load(y + k * C + c, mask=real, other=0.0).to(tl.float64)
    b = tl.load(y + (k + 1) * C + c, mask=real, other=0.0).to(tl.float64)
    residual = a + share * (b - a) - tl.load(x + i * C + c, mask=real, other=0.0).to(tl.float64)
    slope = (b - a) * inverse
    if HUBER:
        size = tl.abs(residual)
        beyond = tl.where(residual > 0.0, huber, -huber)
        return tl.where(size <= huber, residual, beyond), slope, tl.where(size <= huber, slope, 0.0)
    return residual, slope, slope


@triton.jit
def bends_kernel(y, x, warp, holds, y_lengths, x_lengths, times_y, times_x, slopes, curvatures, y_steps, x_steps, C,
                 huber_bits, HUBER: tl.constexpr, LENGTHS: tl.constexpr, CHANNELS: tl.constexpr):  # fmt: skip
    """w L'(phi) and w L''(phi), (B, Tx), one knot per program."""
    pair = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1)
    _, m = lengths_of(pair, y_lengths, x_lengths, y_steps, x_steps, LENGTHS)
    if i < m:
        row = pair * x_steps
        k, share, inverse, weight = place_of(warp + row, holds + 2 * row, times_y + pair * y_steps, times_x + row, i, m)
        y += pair * y_steps * C
        x += row * C
        slope = tl.zeros((CHANNELS,), tl.float64)
        curvature = tl.zeros((CHANNELS,), tl.float64)
        for start in range(0, C, CHANNELS):
            c = start + tl.arange(0, CHANNELS)
            pull, rise, bend = bend_of(y, x, k, i, c, share, inverse, c < C, C, float64_from(huber_bits), HUBER)
            slope += pull * rise
            curvature += bend * rise
        tl.store(slopes + row + i, 2 * weight * tl.sum(slope, 0))
        tl.store(curvatures + row + i, 2 * weight * tl.sum(curvature, 0))


@triton.jit
def any_before(same1, any1, same2, any2):
    """Whether any element of a run is set; a run continues where ``same``."""
    return same1 & same2, any2 | (any1 & same2)


@triton.jit
def sum_of_run(same1, sum1, same2, sum2):
    return same1 & same2, sum2 + tl.where(same2 > 0, sum1, 0.0)


@triton.jit
def passed_on(share1, push1, share2, push2):
    """push <- push2 + share2 push, a linear recurrence."""
    return share1 * share2, push2 + share2 * push1


@triton.jit
def in_series(p1, q1, r1, p2, q2, r2):
    """Two maps e -> (p e + q) / (r e + 1), the second after the first. All terms are positive, so nothing cancels."""
    scale = 1.0 / (r2 * q1 + 1.0)
    return (p2 * p1 + q2 * r1) * scale, (p2 * q1 + q2) * scale, (r2 * p1 + r1) * scale


@triton.jit
def neighbour(value, room, i, by: tl.constexpr, m):
    """The value of knot i + by, 0 beyond the ends; lanes exchange values through room (Tx,)."""
    tl.debug_barrier()
    tl.store(room + i, value, mask=i < m)
    tl.debug_barrier()
    return tl.load(room + i + by, mask=(i + by >= 0) & (i + by < m), other=0.0)


@triton.jit
def give_way(force, curvature, before, after, same, same_next, held_before, held, room, i, m):
    """u = N (N'HN)^-1 N' force, the response of each knot; before and after: the springs beside it.

    The stiffness e of a group seen from the left is its own curvature and that of the group before, through their
    spring: e = c + 1 / (1 / before + 1 / e'). A force on a group passes the share before / (e' + before) to the next.
    """
    free = (same == 0) & (held_before == 0) & (before > 0.0)
    spring = tl.where(free, before, 1.0)
    compliance = tl.where(free, 1.0 / spring, 0.0)
    through = free | (same > 0)
    ground = tl.where((same == 0) & (held_before > 0), curvature + before, curvature)
    _, stiffness, _ = tl.associative_scan(
        (tl.where(through, 1.0 + curvature * compliance, 0.0), ground, compliance), 0, in_series
    )
    share = tl.where(free, spring / (neighbour(stiffness, room, i, -1, m) + spring), same.to(tl.float64))
    _, push = tl.associative_scan((share, force), 0, passed_on)
    # Backwards: the last knot of a group moves by (push + after u') / (e + after), and the others with it.
    whole = stiffness + after
    inverse = tl.where((held == 0) & (whole > 0.0), 1.0 / tl.where(whole > 0.0, whole, 1.0), 0.0)
    share = tl.where(same_next > 0, 1.0, after * inverse)
    _, way = tl.associative_scan((share, tl.where(same_next > 0, 0.0, push * inverse)), 0, passed_on, reverse=True)
    return way


@triton.jit
def response_kernel(value_grad, warp_grad, warp, holds, slopes, curvatures, y_lengths, x_lengths, times_y, times_x, reg,
                    room, response, reg_grad, lower_grad, upper_grad, slope_min_grad, slope_max_grad, y_steps, x_steps,
                    SUBSEQUENCE: tl.constexpr, LENGTHS: tl.constexpr, BAND: tl.constexpr, SLOPES: tl.constexpr,
                    LANES: tl.constexpr):  # fmt: skip
    """The response of the knots to warp_grad, (B, Tx), and the gradients of reg and of the limits.

    A bound moves the group that it anchors; a slope limit moves the part of its group beyond it. Both feel the
    remaining forces, warp_grad - H u + value_grad f', summed over the knots that they move.
    """
    pair = tl.program_id(0).to(tl.int64)
    n, m = lengths_of(pair, y_lengths, x_lengths, y_steps, x_steps, LENGTHS)
    i = tl.arange(0, LANES)
    real = i < m
    inner = i + 1 < m
    at = pair * x_steps + i
    room += pair * x_steps
    origin = tl.load(times_y + pair * y_steps)
    scale = tl.load(value_grad + pair)
    twice = 2.0 * tl.load(reg + pair)
    time = tl.load(times_x + at, mask=real, other=0.0)
    step = tl.where(inner, tl.load(times_x + at + 1, mask=inner, other=0.0) - time, 1.0)
    after = tl.where(inner, twice / step, 0.0)
    before = neighbour(after, room, i, -1, m)
    phi = tl.load(warp + at, mask=real, other=0.0) - origin
    stretch = 1.0
    if not SUBSEQUENCE:
        span = tl.load(times_y + pair * y_steps + n - 1) - origin
        stretch = span / (tl.load(times_x + pair * x_steps + m - 1) - tl.load(times_x + pair * x_steps))
    excess = tl.where(inner, (neighbour(phi, room, i, 1, m) - phi) / step - stretch, 0.0)
    curvature = tl.load(curvatures + at, mask=real, other=0.0)
    force = tl.load(warp_grad + at, mask=real, other=0.0)

    # Groups. A limit between two held groups is redundant: it would make the system singular.
    flags = tl.load(holds + 2 * at + 1, mask=real, other=0)
    flags_before = tl.load(holds + 2 * at - 1, mask=real & (i > 0), other=0)
    flags_after = tl.load(holds + 2 * at + 3, mask=inner, other=0)
    is_held = ((flags & HELD) != 0).to(tl.int32)
    tied = ((flags_before & TIED) != 0).to(tl.int32)
    _, held = tl.associative_scan((tied, is_held), 0, any_before)
    held_before = neighbour(held.to(tl.float64), room, i, -1, m).to(tl.int32)
    same = tied & (1 - is_held * held_before)
    tied_next = inner & ((flags & TIED) != 0)
    same_next = (tied_next & (((flags_after & HELD) == 0) | (held == 0))).to(tl.int32)

    # If y is flat under every knot and the warp is unconstrained, it slides freely: sliding is left out.
    stiffest = tl.max(curvature + tl.where(same > 0, 0.0, before) + tl.where(same_next > 0, 0.0, after), 0)
    slides = (tl.max(is_held, 0) == 0) & (tl.sum(curvature, 0) <= 1e-13 * stiffest)
    pushed = tl.where(real & slides, force - tl.sum(force, 0) / m, force)
    still = tl.where(slides & (i == m - 1), 1, held)
    way = give_way(pushed, curvature, before, after, same, same_next, held_before, still, room, i, m)
    way = tl.where(real, way, 0.0)
    way = tl.where(real & slides, way - tl.sum(way, 0) / m, way)
    ahead = neighbour(way, room, i, 1, m) - way
    tl.store(response + at, way, mask=i < x_steps)
    tl.store(reg_grad + pair, tl.sum(tl.where(inner, scale * excess * excess * step - 2.0 * excess * ahead, 0.0), 0))

    slope = tl.load(slopes + at, mask=real, other=0.0) - twice * excess + twice * neighbour(excess, room, i, -1, m)
    pull = after * tl.where(inner, ahead, 0.0)
    rest = force - curvature * way + pull - neighbour(pull, room, i, -1, m) + scale * slope
    rest = tl.where(real, rest, 0.0)
    if BAND or SLOPES:
        _, up_to = tl.associative_scan((same, rest), 0, sum_of_run)
        _, from_on = tl.associative_scan((same_next, rest), 0, sum_of_run, reverse=True)
        beyond = tl.where(same_next > 0, neighbour(from_on, room, i, 1, m), 0.0)
        if BAND:
            tl.store(lower_grad + at, tl.where((flags & HELD) == LOWER, up_to + beyond, 0.0), mask=i < x_steps)
            tl.store(upper_grad + at, tl.where((flags & HELD) == UPPER, up_to + beyond, 0.0), mask=i < x_steps)
        if SLOPES:
            _, held_later = tl.associative_scan((same_next, is_held), 0, any_before, reverse=True)
            anchor_ahead = neighbour(held_later.to(tl.float64), room, i, 1, m) > 0.0
            limit = tl.where(same_next > 0, step * tl.where(anchor_ahead, -up_to, beyond), 0.0)
            most = (flags & TIED_MAX) != 0
            between = pair * (x_steps - 1) + i
            tl.store(slope_min_grad + between, tl.where(most, 0.0, limit), mask=i + 1 < x_steps)
            tl.store(slope_max_grad + between, tl.where(most, limit, 0.0), mask=i + 1 < x_steps)


@triton.jit
def forces_of(y, x, k, i, c, share, inverse, weight, way, scale, real, C, huber, HUBER: tl.constexpr):
    """The gradient of a knot's channel: ``both`` from the value y(phi), ``across`` from the slope of y."""
    pull, _, bend = bend_of(y, x, k, i, c, share, inverse, real, C, huber, HUBER)
    return 2 * weight * (scale * pull - way * bend), 2 * weight * way * pull * inverse


@triton.jit
def x_gradient_kernel(y, x, warp, holds, value_grad, response, y_lengths, x_lengths, times_y, times_x, x_grad, y_steps,
                      x_steps, C, huber_bits, HUBER: tl.constexpr, LENGTHS: tl.constexpr,
                      CHANNELS: tl.constexpr):  # fmt: skip
    """One knot per program."""
    pair = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1)
    _, m = lengths_of(pair, y_lengths, x_lengths, y_steps, x_steps, LENGTHS)
    row = pair * x_steps
    inside = tl.minimum(i, m - 1)
    k, share, inverse, weight = place_of(
        warp + row, holds + 2 * row, times_y + pair * y_steps, times_x + row, inside, m
    )
    scale = tl.load(value_grad + pair)
    way = tl.load(response + row + inside)
    y += pair * y_steps * C
    x += row * C
    x_grad += row * C
    for start in range(0, C, CHANNELS):
        c = start + tl.arange(0, CHANNELS)
        both, across = forces_of(y, x, k, inside, c, share, inverse, weight, way, scale, c < C, C,
                            float64_from(huber_bits), HUBER)  # fmt: skip
        tl.store(x_grad + i * C + c, tl.where(i < m, -both, 0.0), mask=c < C)


@triton.jit
def y_gradient_kernel(y, x, warp, holds, value_grad, response, y_lengths, x_lengths, times_y, times_x, y_grad, y_steps,
                      x_steps, C, huber_bits, HUBER: tl.constexpr, LENGTHS: tl.constexpr, KNOTS: tl.constexpr,
                      CHANNELS: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """One frame of y per program: the sum over the knots in the segments on its two sides."""
    pair = tl.program_id(0).to(tl.int64)
    frame = tl.program_id(1)
    _, m = lengths_of(pair, y_lengths, x_lengths, y_steps, x_steps, LENGTHS)
    row = pair * x_steps
    lane = tl.arange(0, LANES)
    segment = tl.load(holds + 2 * (row + lane), mask=lane < m, other=-2)
    touches = (segment == frame) | (segment + 1 == frame)
    first = tl.min(tl.where(touches, lane, LANES), 0)
    end = tl.max(tl.where(touches, lane + 1, 0), 0)
    scale = tl.load(value_grad + pair)
    y += pair * y_steps * C
    y_grad += pair * y_steps * C + frame * C
    for start in range(0, C, CHANNELS):
        c = start + tl.arange(0, CHANNELS)[None, :]
        total = tl.zeros((KNOTS, CHANNELS), tl.float64)
        for knot in range(first, end, KNOTS):
            i = knot + tl.arange(0, KNOTS)
            k, share, inverse, weight = place_of(
                warp + row, holds + 2 * row, times_y + pair * y_steps, times_x + row, i, m
            )
            way = tl.load(response + row + i, mask=i < m, other=0.0)
            real = (i < m)[:, None] & (c < C)
            both, across = forces_of(y, x + row * C, k[:, None], i[:, None], c, share[:, None], inverse[:, None],
                                     weight[:, None], way[:, None], scale, real, C, float64_from(huber_bits),
                                     HUBER)  # fmt: skip
            on_the_right = real & (k == frame)[:, None]
            on_the_left = real & (k + 1 == frame)[:, None]
            total += tl.where(on_the_right, (1.0 - share)[:, None] * both + across, 0.0)
            total += tl.where(on_the_left, share[:, None] * both - across, 0.0)
        tl.store(y_grad + c, tl.sum(total, 0)[None, :], mask=c < C)
