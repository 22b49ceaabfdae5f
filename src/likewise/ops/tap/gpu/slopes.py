"""Gradients of TAP's distances on a GPU: products in float16 with float32 sums, the rest in float32.

The forward pass is recomputed, on lines of cells as in ``__init__.py``, except that every pair has only as many rows as
it needs: a table describes each row of a line (see ``lines.py``). Then, for a loss L with the slopes c = dL/dd / n:

``attend_slopes``: dL/dg = -c A (D - sum_j A D), and the slope of D without the network, c A - c A (D - sum_j A D).
``last_slopes`` and ``middle_kernel`` with reversed taps: slopes of each ReLU's output, times the slope of the ReLU.
``weight_slopes``, ``first_weight_slopes``: slopes of the weights, as products of matrices, summed over blocks of cells.
``frame_weights``: the total slope of D, divided by D; ``frame_slopes``: the frames' slopes from it.

Slopes are scaled by a power of two to fit into float16. If they do not fit, the result is not finite.
"""

import triton
import triton.language as tl

from likewise.ops.tap.network import LARGEST_HALF as LARGEST

LARGEST_HALF = tl.constexpr(LARGEST)
LOWEST = tl.constexpr(-1e30)


@triton.jit(do_not_specialize=["x_items", "y_items", "rows", "pairs"])
def pairs_kernel(lengths, ascending, before_item, order, items, others, before, frames, x_items, y_items, rows, pairs,
                 BLOCK: tl.constexpr):  # fmt: skip
    """All pairs, for one y after the other: their places among x times y, their items, rows before them, x's frames."""
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = pair < pairs
    which = (pair // x_items).to(tl.int64)
    item = (pair % x_items).to(tl.int64)
    other = tl.load(ascending + which, mask=here, other=0)
    tl.store(order + pair, item * y_items + other, mask=here)
    tl.store(items + pair, item, mask=here)
    tl.store(others + pair, other, mask=here)
    tl.store(before + pair, which * rows + tl.load(before_item + item, mask=here, other=0), mask=here)
    tl.store(frames + pair, tl.load(lengths + item, mask=here, other=1).to(tl.float32), mask=here)


@triton.jit
def table_kernel(items, others, before, lengths, table, BLOCK: tl.constexpr):
    """Write the rows of each pair: pair, its two items, and the frame of x; -1 in its halo."""
    pair = tl.program_id(0)
    item = tl.load(items + pair)
    other = tl.load(others + pair)
    n = tl.load(lengths + item).to(tl.int32)
    at = table + 4 * tl.load(before + pair)
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        here = i < n
        tl.store(at + 4 * i, (pair + tl.zeros_like(i)).to(tl.int32), mask=here)
        tl.store(at + 4 * i + 1, (item + tl.zeros_like(i)).to(tl.int32), mask=here)
        tl.store(at + 4 * i + 2, (other + tl.zeros_like(i)).to(tl.int32), mask=here)
        tl.store(at + 4 * i + 3, i, mask=here)


@triton.jit(do_not_specialize=["stride", "channels", "x_frames", "y_frames"])
def line_kernel(x, y, x_lengths, y_lengths, given, table, distances, inputs, stride, channels, x_frames, y_frames,
                GIVEN: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """``distances_kernel`` for a line: x (items, channels, x_frames), or distances (pairs, x_frames, y_frames)."""
    cell = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = cell // stride
    j = cell - row * stride
    pair = tl.load(table + 4 * row).to(tl.int64)
    item_x = tl.load(table + 4 * row + 1).to(tl.int64)
    item_y = tl.load(table + 4 * row + 2).to(tl.int64)
    i = tl.load(table + 4 * row + 3)
    n = tl.load(x_lengths + item_x, mask=pair >= 0, other=1)
    m = tl.load(y_lengths + item_y, mask=pair >= 0, other=1)
    inside = (pair >= 0) & (j < m)
    if GIVEN:
        D = tl.load(given + (pair * x_frames + i) * y_frames + j, mask=inside, other=0.0)
    else:
        x_at = x + item_x * channels * x_frames + i
        y_at = y + item_y * channels * y_frames + j
        total = tl.zeros((BLOCK,), tl.float32)
        for c in range(channels):
            x_here = tl.load(x_at + c * x_frames, mask=inside, other=0.0)
            y_here = tl.load(y_at + c * y_frames, mask=inside, other=0.0)
            total += (x_here - y_here) * (x_here - y_here)
        D = tl.sqrt_rn(total)
    time = tl.abs((i + 1).to(tl.float32) / n.to(tl.float32) - (j + 1).to(tl.float32) / m.to(tl.float32))
    tl.store(distances + cell, tl.where(inside, D, -1.0))
    half = tl.where(D > LARGEST_HALF, float("nan"), D)
    tl.store(inputs + 2 * cell, tl.where(inside, half, 0.0).to(tl.float16))
    tl.store(inputs + 2 * cell + 1, tl.where(inside, time, 0.0).to(tl.float16))


@triton.jit
def scores(distances, products, constant, row, column, stride, plane, K: tl.constexpr):
    """D, a mask of the real cells, and scores -(D + g), lowest elsewhere, for rows and columns of a line."""
    cell = row.to(tl.int64)[:, None] * stride + column[None, :]
    D = tl.load(distances + cell, mask=(column < stride)[None, :], other=-1.0)
    inside = D >= 0
    g = tl.zeros_like(D) + constant
    for tap in tl.static_range(K * K):
        shift = (tap // K - K // 2) * stride + tap % K - K // 2
        g += tl.load(products + (tap * plane + shift) + cell, mask=inside, other=0.0)
    return D, inside, tl.where(inside, -(D + g), LOWEST)


@triton.jit(do_not_specialize=["stride", "plane"])
def attend_values(distances, products, bias, starts, items, lengths, sums, stride, plane, K: tl.constexpr,
                  ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    """Sums (pairs, blocks of rows) of A D."""
    pair = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    n = tl.load(lengths + tl.load(items + pair)).to(tl.int32)
    distances += tl.load(starts + pair)
    products += tl.load(starts + pair)
    plane = plane.to(tl.int64)
    constant = tl.load(bias)
    largest = tl.full((ROWS,), LOWEST, tl.float32)
    shares = tl.zeros((ROWS,), tl.float32)
    weighted = tl.zeros((ROWS,), tl.float32)
    for first in range(0, stride, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        real = tl.minimum(row, n - 1)  # rows beyond the last repeat it
        D, inside, score = scores(distances, products, constant, real, column, stride, plane, K)
        before = largest
        largest = tl.maximum(largest, tl.max(score, 1))
        share = tl.where(inside, tl.exp(score - largest[:, None]), 0.0)
        shrunk = tl.exp(before - largest)
        shares = shares * shrunk + tl.sum(share, 1)
        weighted = weighted * shrunk + tl.sum(tl.where(inside, share * D, 0.0), 1)
    found = tl.where(row < n, weighted / shares, 0.0)
    tl.store(sums + pair * tl.num_programs(1) + tl.program_id(1), tl.sum(found, 0))


@triton.jit(do_not_specialize=["stride", "plane", "rows"])
def attend_slopes(distances, products, bias, slopes, table, to_g, to_D, stride, plane, rows, K: tl.constexpr,
                  ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    """Slopes of g and of D, zero outside of the pairs, from those (pairs,) of the sums over i and j of A D."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    exists = row < rows
    pair = tl.load(table + 4 * row, mask=exists, other=-1)
    slope = tl.load(slopes + pair, mask=pair >= 0, other=0.0)
    plane = plane.to(tl.int64)
    constant = tl.load(bias)
    largest = tl.full((ROWS,), LOWEST, tl.float32)
    shares = tl.zeros((ROWS,), tl.float32)
    weighted = tl.zeros((ROWS,), tl.float32)
    row = tl.where(exists, row, rows - 1)  # rows beyond the last repeat it, with the same result
    for first in range(0, stride, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        D, inside, score = scores(distances, products, constant, row, column, stride, plane, K)
        before = largest
        largest = tl.maximum(largest, tl.max(score, 1))
        share = tl.where(inside, tl.exp(score - largest[:, None]), 0.0)
        shrunk = tl.exp(before - largest)
        shares = shares * shrunk + tl.sum(share, 1)
        weighted = weighted * shrunk + tl.sum(tl.where(inside, share * D, 0.0), 1)
    shares = tl.where(shares > 0, shares, 1.0)
    value = weighted / shares
    for first in range(0, stride, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        D, inside, score = scores(distances, products, constant, row, column, stride, plane, K)
        share = tl.where(inside, tl.exp(score - largest[:, None]) / shares[:, None] * slope[:, None], 0.0)
        found = tl.where(inside, share * (D - value[:, None]), 0.0)
        cell = row.to(tl.int64)[:, None] * stride + column[None, :]
        here = exists[:, None] & (column < stride)[None, :]
        tl.store(to_g + cell, -found, mask=here)
        tl.store(to_D + cell, share - found, mask=here)


@triton.jit(do_not_specialize=["stride", "blocks"])
def last_slopes(to_g, scale, hidden, last, out, parts, sums, stride, blocks, K: tl.constexpr,
                TAPS_PADDED: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Slopes of the last convolution's input, times its ReLU's, and parts (WIDTH, taps) of those of its weights.

    last: (taps, WIDTH). sums: parts (WIDTH,) of the slopes' sum over all cells.
    """
    part = tl.program_id(0)
    cell = tl.arange(0, BLOCK)
    channel = tl.arange(0, WIDTH)
    tap = tl.arange(0, TAPS_PADDED)
    shift = (tap // K - K // 2) * stride + tap % K - K // 2
    w = tl.load(last + tap[:, None] * WIDTH + channel[None, :])
    s = tl.load(scale)
    total = tl.zeros((WIDTH, TAPS_PADDED), tl.float32)
    summed = tl.zeros((BLOCK, WIDTH), tl.float32)
    for number in range(part, blocks, PARTS):
        start = tl.cast(number, tl.int64) * BLOCK
        at = to_g + start + cell[:, None] - shift[None, :]
        g = (s * tl.load(at, mask=(tap < K * K)[None, :], other=0.0)).to(tl.float16)
        numbers = start * WIDTH + cell[:, None] * WIDTH + channel[None, :]
        h = tl.load(hidden + numbers)
        slope = tl.where(h > 0, tl.dot(g, w), 0.0)
        tl.store(out + numbers, slope.to(tl.float16))
        total = tl.dot(tl.trans(h), g, total)
        summed += slope
    tl.store(sums + part * WIDTH + channel, tl.sum(summed, 0))
    tl.store(parts + (part * WIDTH + channel[:, None]) * TAPS_PADDED + tap[None, :], total)


@triton.jit(do_not_specialize=["stride", "blocks"])
def weight_slopes(hidden, slopes, parts, stride, blocks, K: tl.constexpr, GROUP: tl.constexpr, CHUNK: tl.constexpr,
                  WIDTH: tl.constexpr, STAGES: tl.constexpr, CACHE: tl.constexpr, PARTS: tl.constexpr,
                  BLOCK: tl.constexpr):  # fmt: skip
    """Parts (K, chunks, CHUNK, GROUP WIDTH) of the slopes of a banded matrix."""
    WHOLE: tl.constexpr = GROUP * WIDTH
    part = tl.program_id(0)
    down = tl.program_id(1)
    chunk = tl.program_id(2)
    group = tl.arange(0, BLOCK // GROUP)
    inner = tl.arange(0, CHUNK)
    outer = tl.arange(0, WHOLE)
    h_at = hidden + (((down - K // 2) * stride - K // 2) * WIDTH + chunk * CHUNK)
    h_at += group[:, None] * WHOLE + inner[None, :]
    slopes_at = slopes + group[:, None] * WHOLE + outer[None, :]
    total = tl.zeros((CHUNK, WHOLE), tl.float32)
    for number in tl.range(part, blocks, PARTS, num_stages=STAGES):
        start = tl.cast(number, tl.int64) * (BLOCK * WIDTH)
        h = tl.load(h_at + start, cache_modifier=CACHE)
        total = tl.dot(tl.trans(h), tl.load(slopes_at + start, cache_modifier=CACHE), total)
    at = ((part * K + down) * tl.num_programs(2) + chunk) * CHUNK
    tl.store(parts + (at + inner[:, None]).to(tl.int64) * WHOLE + outer[None, :], total)


@triton.jit(do_not_specialize=["stride", "blocks"])
def first_weight_slopes(inputs, slopes, parts, stride, blocks, K: tl.constexpr, WINDOW: tl.constexpr,
                        WIDTH: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Parts (K, WINDOW, WIDTH) of the slopes of the first convolution's matrices; the last row is for the biases."""
    part = tl.program_id(0)
    cell = tl.arange(0, BLOCK)
    channel = tl.arange(0, WIDTH)
    window = tl.arange(0, WINDOW)
    totals = ()
    for _ in tl.static_range(K):
        totals = totals + (tl.zeros((WINDOW, WIDTH), tl.float32),)
    for number in range(part, blocks, PARTS):
        start = tl.cast(number, tl.int64) * BLOCK
        slope = tl.load(slopes + start * WIDTH + cell[:, None] * WIDTH + channel[None, :])
        at = inputs + 2 * (start - (K // 2) * stride - K // 2) + 2 * cell[:, None] + window[None, :]
        sums = ()
        for row in tl.static_range(K):
            h = tl.load(at + 2 * row * stride)
            h = tl.where((window == WINDOW - 1)[None, :], 1.0, h).to(tl.float16)
            sums = sums + (tl.dot(tl.trans(h), slope, totals[row]),)
        totals = sums
    for row in tl.static_range(K):
        at = ((part * K + row) * WINDOW + window[:, None]) * WIDTH + channel[None, :]
        tl.store(parts + at, totals[row])


@triton.jit(do_not_specialize=["stride", "plane"])
def frame_weights(products, scale, distances, to_D, stride, plane, K: tl.constexpr, BLOCK: tl.constexpr):
    """Replace to_D by the total slope of D, divided by D; zero where D is zero."""
    cell = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    D = tl.load(distances + cell)
    inside = D > 0
    total = tl.zeros((BLOCK,), tl.float32)
    plane = plane.to(tl.int64)
    for tap in tl.static_range(K * K):
        shift = (tap // K - K // 2) * stride + tap % K - K // 2
        total += tl.load(products + (tap * plane - shift) + cell, mask=inside, other=0.0)
    total = total / tl.load(scale) + tl.load(to_D + cell, mask=inside, other=0.0)
    tl.store(to_D + cell, tl.where(inside, total / tl.where(inside, D, 1.0), 0.0))


@triton.jit(do_not_specialize=["down", "right", "channels", "steps", "other_steps"])
def frame_slopes(weights, own, other, starts, items, others, lengths, other_lengths, out, down, right, channels, steps,
                 other_steps, OWN: tl.constexpr, OTHER: tl.constexpr, CHANNELS: tl.constexpr):  # fmt: skip
    """sum_j w_ij (x_i - y_j), (pairs, channels, steps), for w from ``starts`` on; i has stride ``down``, j ``right``.

    own: (items, channels, steps), and other in the same layout. The difference of the two sums is as exact as the
    difference of the frames, which are float32.
    """
    pair = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * OWN + tl.arange(0, OWN)
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    item = tl.load(items + pair)
    item_other = tl.load(others + pair)
    n = tl.load(lengths + item).to(tl.int32)
    m = tl.load(other_lengths + item_other).to(tl.int32)
    real = channel < channels
    at = weights + tl.load(starts + pair) + i[:, None] * down
    total = tl.zeros((OWN, CHANNELS), tl.float32)
    shares = tl.zeros((OWN,), tl.float32)
    for first in range(0, m, OTHER):
        j = first + tl.arange(0, OTHER)
        w = tl.load(at + j[None, :] * right, mask=(i < n)[:, None] & (j < m)[None, :], other=0.0)
        y_at = other + (item_other * channels + channel[None, :]) * other_steps + j[:, None]
        y = tl.load(y_at, mask=(j < m)[:, None] & real[None, :], other=0.0)
        total = tl.dot(w, y, total, input_precision="tf32x3")
        shares += tl.sum(w, 1)
    number = (channel * steps)[None, :] + i[:, None]
    x = tl.load(own + item * channels * steps + number, mask=(i < n)[:, None] & real[None, :], other=0.0)
    here = (i < steps)[:, None] & real[None, :]
    tl.store(out + pair * channels * steps + number, shares[:, None] * x - total, mask=here)
