"""Losses of the nodes of GDTW's grid: squared distances of x from y, which is linear between its times."""

import triton
import triton.language as tl

from likewise.ops.gdtw.gpu.grid import PLAN, STATE, node_count
from likewise.ops.gdtw.gpu.limits import lengths_of, segment_of
from likewise.ops.launch.arguments import float64_from

ROWS, COLUMNS = tl.constexpr(16), tl.constexpr(64)  # of a tile of distances
UNROLL = tl.constexpr(8)  # channels loaded at once


@triton.jit
def distances_kernel(y, x, y_lengths, x_lengths, distances, moves, y_steps, x_steps, C, LENGTHS: tl.constexpr):
    """Squared distances (B, Tx, Ty) of the frames of x and y, and of each frame of y from the next one, (B, Ty)."""
    pair = tl.program_id(2).to(tl.int64)
    n, m = lengths_of(pair, y_lengths, x_lengths, y_steps, x_steps, LENGTHS)
    i = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    k = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    x += pair * x_steps * C
    y += pair * C * y_steps
    total = tl.zeros((ROWS, COLUMNS), y.dtype.element_ty)
    move = tl.zeros((COLUMNS,), y.dtype.element_ty)
    whole = C - C % UNROLL
    for start in range(0, whole, UNROLL):
        for u in tl.static_range(UNROLL):  # their loads do not wait for one another
            total += squares(y, x, i, k, start + u, y_steps, C, n, m)
    for c in range(whole, C):
        total += squares(y, x, i, k, c, y_steps, C, n, m)
    inside = (i < m)[:, None] & (k < n)[None, :]
    tl.store(distances + (pair * x_steps + i[:, None]) * y_steps + k[None, :], total, mask=inside)
    if tl.program_id(1) == 0:
        for c in range(C):
            step = tl.load(y + c * y_steps + k + 1, mask=k + 1 < n, other=0.0)
            step -= tl.load(y + c * y_steps + k, mask=k + 1 < n, other=0.0)
            move += step * step
        tl.store(moves + pair * y_steps + k, move, mask=k < n)


@triton.jit
def squares(y, x, i, k, c, y_steps, C, n, m):
    here = tl.load(y + c * y_steps + k, mask=k < n, other=0.0)
    away = here[None, :] - tl.load(x + i * C + c, mask=i < m, other=0.0)[:, None]
    return away * away


@triton.jit(do_not_specialize=["number", "halvings"])
def nodes_kernel(y, x, distances, moves, y_lengths, x_lengths, times_y, times_x, plan, state, rows, y_steps, x_steps,
                 C, stride, nodes, number, halvings, huber_bits, SHARED: tl.constexpr, HUBER: tl.constexpr,
                 LENGTHS: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """Weighted losses w L of a tile of nodes, infinite beyond the last node; y (B, C, Ty).

    SHARED: from the ``distances`` of frames. Between two frames of y, the squared distance from a frame of x is
    (1 - s) D_k + s D_k+1 - s (1 - s) |y_k+1 - y_k|^2.
    """
    pair = tl.program_id(2).to(tl.int64)
    i = tl.program_id(1)
    n, m = lengths_of(pair, y_lengths, x_lengths, y_steps, x_steps, LENGTHS)
    count = node_count(n, nodes, number)
    k = tl.program_id(0) * LANES + tl.arange(0, LANES)
    done = tl.load(state + pair * STATE + 3) > 0.0
    if (i < m) & (tl.program_id(0) * LANES < count) & (done == 0):
        y += pair * C * y_steps
        x += (pair * x_steps + i) * C
        times_y += pair * y_steps
        times_x += pair * x_steps + i
        plan += (pair * x_steps + i) * PLAN
        before = tl.load(times_x - tl.where(i > 0, 1, 0))
        after = tl.load(times_x + tl.where(i + 1 < m, 1, 0))
        spacing = tl.load(plan + 1)
        at = tl.load(plan) + k * spacing
        origin = tl.load(times_y)
        segment = segment_of(times_y, origin, n, at, halvings)
        begin = tl.load(times_y + segment) - origin
        end = tl.load(times_y + tl.minimum(segment + 1, n - 1)) - origin
        dtype = y.dtype.element_ty
        share = ((at - begin) / (end - begin)).to(dtype)
        if SHARED:
            row = distances + (pair * x_steps + i) * y_steps
            a = tl.load(row + segment)
            b = tl.load(row + tl.minimum(segment + 1, n - 1))
            total = a + share * (b - a - (1 - share) * tl.load(moves + pair * y_steps + segment))
            # Rounding may make it negative, and overflow NaN.
            total = tl.where(total > 0, total, tl.where(total <= 0, 0.0, float("inf")))
        else:
            huber = float64_from(huber_bits).to(dtype)
            total = tl.zeros((LANES,), dtype)
            left = y + segment
            right = y + tl.minimum(segment + 1, n - 1)
            for c in range(C):
                a = tl.load(left + c * y_steps)
                b = tl.load(right + c * y_steps)
                residual = a + share * (b - a) - tl.load(x + c)
                if HUBER:
                    size = tl.abs(residual)
                    total += tl.where(size <= huber, residual * residual, huber * (2 * size - huber))
                else:
                    total += residual * residual
        total *= ((after - before) / 2).to(dtype)
        real = k < tl.where(spacing > 0.0, count, 1)
        tl.store(rows + (pair * (x_steps + 1) + i) * stride + k, tl.where(real, total, float("inf")), mask=k < stride)
