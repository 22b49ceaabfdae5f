"""Inputs for polishing GDTW's warps: the valid pairs, and the losses of the segments around each knot."""

import triton
import triton.language as tl

from likewise.ops.gdtw.gpu.limits import lengths_of, segment_of

WIDE = tl.constexpr(5)  # segments that a knot can reach, with its initial one in the middle
SPLIT = tl.constexpr(3)  # numbers of a segment in the table


@triton.jit
def look_kernel(y, x, y_lengths, x_lengths, times_y, times_x, lower, upper, slope_min, slope_max, unsound, turned,
                y_steps, x_steps, C, LENGTHS: tl.constexpr, BAND: tl.constexpr, SLOPES: tl.constexpr,
                CHANNELS: tl.constexpr):  # fmt: skip
    """Mark invalid pairs, one step of both signals per program; transpose y to (B, C, Ty)."""
    pair = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1)
    n, m = lengths_of(pair, y_lengths, x_lengths, y_steps, x_steps, LENGTHS)
    infinite = float("inf")
    sound = i >= 0
    if i < n:
        sound = sound & turn(y + (pair * y_steps + i) * C, turned + pair * C * y_steps + i, y_steps, C, CHANNELS)
        time = tl.load(times_y + pair * y_steps + i)
        before = tl.load(times_y + pair * y_steps + tl.maximum(i - 1, 0))
        sound = sound & (tl.abs(time) < infinite) & ((time > before) | (i == 0))
    if i < m:
        at = pair * x_steps + i
        sound = sound & frame_is_finite(x + at * C, C, CHANNELS)
        time = tl.load(times_x + at)
        before = tl.load(times_x + at - tl.where(i > 0, 1, 0))
        sound = sound & (tl.abs(time) < infinite) & ((time > before) | (i == 0))
        if BAND:
            sound = sound & (tl.load(lower + at) <= tl.load(upper + at))
    if SLOPES:
        if i + 1 < m:
            low = tl.load(slope_min + pair * (x_steps - 1) + i)
            sound = sound & (low >= 0.0) & (low < infinite) & (low <= tl.load(slope_max + pair * (x_steps - 1) + i))
    if sound == 0:
        tl.store(unsound + pair, 1)


@triton.jit
def turn(frame, turned, stride, C, CHANNELS: tl.constexpr):
    """Copy a frame into the transposed array; return whether it is finite."""
    total = tl.zeros((CHANNELS,), tl.int32)
    for start in range(0, C, CHANNELS):
        c = start + tl.arange(0, CHANNELS)
        value = tl.load(frame + c, mask=c < C, other=0.0)
        tl.store(turned + c * stride, value, mask=c < C)
        total += (tl.abs(value) < float("inf")).to(tl.int32)
    return tl.min(total, 0) == (C + CHANNELS - 1) // CHANNELS


@triton.jit
def frame_is_finite(frame, C, CHANNELS: tl.constexpr):
    total = tl.zeros((CHANNELS,), tl.int32)
    for start in range(0, C, CHANNELS):
        c = start + tl.arange(0, CHANNELS)
        value = tl.load(frame + c, mask=c < C, other=0.0)
        total += (tl.abs(value) < float("inf")).to(tl.int32)
    return tl.min(total, 0) == (C + CHANNELS - 1) // CHANNELS


@triton.jit
def table_kernel(y, x, best, y_lengths, x_lengths, times_y, times_x, table, firsts, y_steps, x_steps, C, halvings,
                 LENGTHS: tl.constexpr, CHANNELS: tl.constexpr):  # fmt: skip
    """For WIDE segments around each knot: w L and w L' at their starts, and w L''; firsts (B, Tx), the first one."""
    pair = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1)
    n, m = lengths_of(pair, y_lengths, x_lengths, y_steps, x_steps, LENGTHS)
    if (i < m) & (n > 1):
        row = pair * x_steps
        times_y += pair * y_steps
        origin = tl.load(times_y)
        y += pair * y_steps * C
        x += (row + i) * C
        before = tl.load(times_x + row + tl.maximum(i - 1, 0))
        weight = (tl.load(times_x + row + tl.minimum(i + 1, m - 1)) - before) / 2
        middle = segment_of(times_y, origin, n, tl.load(best + row + i) - origin, halvings)
        first = tl.maximum(tl.minimum(middle - WIDE // 2, n - 1 - WIDE), 0)
        tl.store(firsts + row + i, first)
        for u in range(WIDE):
            k = tl.minimum(first + u, n - 2)
            inverse = 1.0 / (tl.load(times_y + k + 1) - origin - (tl.load(times_y + k) - origin))
            value = tl.zeros((CHANNELS,), tl.float64)
            slope = tl.zeros((CHANNELS,), tl.float64)
            curvature = tl.zeros((CHANNELS,), tl.float64)
            for start in range(0, C, CHANNELS):
                c = start + tl.arange(0, CHANNELS)
                a = tl.load(y + k * C + c, mask=c < C, other=0.0).to(tl.float64)
                rise = tl.load(y + (k + 1) * C + c, mask=c < C, other=0.0).to(tl.float64) - a
                residual = a - tl.load(x + c, mask=c < C, other=0.0).to(tl.float64)
                value += residual * residual
                slope += residual * rise
                curvature += rise * rise
            entry = table + ((row + i) * WIDE + u) * SPLIT
            tl.store(entry, weight * tl.sum(value, 0))
            tl.store(entry + 1, 2 * weight * inverse * tl.sum(slope, 0))
            tl.store(entry + 2, 2 * weight * inverse * inverse * tl.sum(curvature, 0))


@triton.jit
def loss_of(table, first, times_y, n, i, k, phi, m):
    """w L, w L' and w L'' of knots i at phi, each in its segment k, and whether the table has it."""
    known = (k >= first) & (k < first + WIDE) & (k <= n - 2)
    place = tl.minimum(tl.maximum(k - first, 0), WIDE - 1)
    begin = tl.load(times_y + tl.minimum(tl.maximum(k, 0), n - 2)) - tl.load(times_y)
    entry = table + (i * WIDE + place) * SPLIT
    value = tl.load(entry, mask=i < m, other=0.0)
    slope = tl.load(entry + 1, mask=i < m, other=0.0)
    curvature = tl.load(entry + 2, mask=i < m, other=0.0)
    way = phi - begin
    return value + way * (slope + way * curvature / 2), slope + way * curvature, curvature, known
