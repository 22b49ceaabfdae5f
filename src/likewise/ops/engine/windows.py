"""Hard and soft minima, and the columns of a row inside a window, for all alignment kernels."""

import triton
import triton.language as tl

from likewise.ops.engine.powers import logarithm, power

UNREACHABLE = tl.constexpr(1e30)


@triton.jit
def softmin2(a, b, SOFT: tl.constexpr):
    least = tl.minimum(a, b)
    if SOFT:
        least -= logarithm(1.0 + power(-tl.abs(a - b)))
    return least


@triton.jit
def softmin3(a, b, c, SOFT: tl.constexpr):
    least = tl.minimum(tl.minimum(a, b), c)
    if SOFT:
        high = tl.maximum(a, b)  # of the three powers, that of the least is 1
        middle = tl.maximum(tl.minimum(a, b), tl.minimum(high, c))
        least -= logarithm(1.0 + (power(least - middle) + power(least - tl.maximum(high, c))))
    return least


@triton.jit
def window_row(WINDOW: tl.constexpr, size, n, m, i):
    """First and last column of row i, as in ``Window.row``; n and m may differ from lane to lane."""
    first = n * 0
    last = m - 1
    if WINDOW == 1 or WINDOW == 2:
        radius = size + (n * 0).to(tl.float64)
        if WINDOW == 2:
            radius = tl.floor(size * tl.minimum(n, m).to(tl.float64))
        r = tl.minimum(radius, (n + m).to(tl.float64)).to(tl.int32)
        first = tl.maximum(first, i - r + tl.minimum(m - n, 0))
        last = tl.minimum(last, i + r + tl.maximum(m - n, 0))
    if WINDOW == 3:
        first, last = parallelogram(size, n, m, i)
        before, reach = parallelogram(size, n, m, i - 1)
        first = tl.where(i > 0, tl.minimum(first, reach + 1), 0)
        last = tl.maximum(first, last)
    return first, last


@triton.jit
def parallelogram(size, n, m, i):
    line = (m - 1).to(tl.float64) / tl.maximum(n - 1, 1).to(tl.float64)
    line = tl.where(n > 1, line, 0.0)
    from_start = (i + n * 0).to(tl.float64)
    from_end = (n - 1 - i).to(tl.float64)
    end = (m - 1).to(tl.float64)
    first = tl.maximum(line / size * from_start, end - size * line * from_end)
    last = tl.minimum(size * line * from_start, end - line / size * from_end)
    last = tl.where(i < n - 1, tl.floor(last + 1e-9).to(tl.int32), m - 1)
    return tl.ceil(first - 1e-9).to(tl.int32), last
