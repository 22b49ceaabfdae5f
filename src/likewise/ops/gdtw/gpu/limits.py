"""A pair in GDTW's kernels: its lengths, the segments of y, and the limits of a warp at each knot.

LENGTHS, BAND, SLOPES: whether there are lengths, bounds (lower, upper) and slope limits. Absent tensors are not read.
"""

import triton
import triton.language as tl


@triton.jit
def lengths_of(pair, y_lengths, x_lengths, y_steps, x_steps, LENGTHS: tl.constexpr):
    """Lengths clipped to the tensors; the polish reports wrong ones."""
    n = pair.to(tl.int32) * 0 + y_steps
    m = pair.to(tl.int32) * 0 + x_steps
    if LENGTHS:
        n = tl.maximum(tl.minimum(tl.load(y_lengths + pair).to(tl.int32), n), 1)
        m = tl.maximum(tl.minimum(tl.load(x_lengths + pair).to(tl.int32), m), 1)
    return n, m


@triton.jit
def segment_of(times, origin, n, at, halvings):
    """The segment of y that contains each time; ties go to the right."""
    first = (at > 0.0).to(tl.int32) * 0  # NaN also gets a segment
    last = first + tl.maximum(n - 2, 0)
    for _ in range(halvings):
        middle = (first + last + 1) // 2
        right = tl.load(times + middle) - origin <= at
        first = tl.where(right, middle, first)
        last = tl.where(right, last, middle - 1)
    return first


@triton.jit
def greatest(a, b):
    return tl.maximum(a, b)


@triton.jit
def smallest(a, b):
    return tl.minimum(a, b)


@triton.jit
def envelope(low, high, least, most):
    """The least and the greatest value that a warp within the bounds can take at each knot, if low <= high.

    low_i+1 = max(low_i+1, low_i + least_i) and the like, forwards and backwards, as running maxima.
    """
    up = tl.cumsum(least, 0) - least
    across = tl.cumsum(most, 0) - most
    forward_low = tl.maximum(low, tl.associative_scan(low - up, 0, greatest) + up)
    forward_high = tl.minimum(high, tl.associative_scan(high - across, 0, smallest) + across)
    back_low = tl.associative_scan(forward_low - across, 0, greatest, reverse=True) + across
    back_high = tl.associative_scan(forward_high - up, 0, smallest, reverse=True) + up
    return tl.maximum(forward_low, back_low), tl.minimum(forward_high, back_high)


@triton.jit
def limits_at(pair, i, n, m, times_y, times_x, lower, upper, slope_min, slope_max, y_steps, x_steps,
              SUBSEQUENCE: tl.constexpr, BAND: tl.constexpr, SLOPES: tl.constexpr):  # fmt: skip
    """For knots i: the beginning and span of y; their time, the step to the next, its least and greatest move; floor
    and ceiling, counted from the beginning of y; the slope without a penalty.
    """
    at = pair * x_steps + i
    real = i < m
    inner = i + 1 < m
    origin = tl.load(times_y + pair * y_steps)
    span = tl.load(times_y + pair * y_steps + tl.maximum(n - 1, 0)) - origin
    time = tl.load(times_x + at, mask=real, other=0.0)
    step = tl.load(times_x + at + 1, mask=inner, other=0.0) - time
    least = tl.zeros_like(step)
    most = tl.where(inner, span, 0.0)
    if SLOPES:
        between = pair * (x_steps - 1) + i
        least = tl.where(inner, tl.load(slope_min + between, mask=inner, other=0.0) * step, 0.0)
        most = tl.where(inner, tl.minimum(tl.load(slope_max + between, mask=inner, other=0.0) * step, span), 0.0)
    floor = tl.zeros_like(step)
    ceiling = floor + span
    if BAND:
        floor = tl.maximum(tl.load(lower + at, mask=real, other=-float("inf")) - origin, 0.0)
        ceiling = tl.minimum(tl.load(upper + at, mask=real, other=float("inf")) - origin, span)
    stretch = span * 0.0 + 1.0
    if not SUBSEQUENCE:
        floor = tl.where(i == 0, 0.0, tl.where(i == m - 1, span, floor))
        ceiling = tl.where(i == 0, 0.0, tl.where(i == m - 1, span, ceiling))
        first_time = tl.load(times_x + pair * x_steps)
        last_time = tl.load(times_x + pair * x_steps + tl.maximum(m - 1, 0))
        stretch = span / (last_time - first_time)
    return origin, span, time, step, least, most, floor, ceiling, stretch
