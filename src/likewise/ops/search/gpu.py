"""Windows on a GPU: their moments, Keogh's bounds of all, and copies of the remaining ones, normalised.

A block is a run of windows of one item. The bound of a window with a query takes about six operations per step, and a
GPU computes all bounds faster than it could select some. ``block_bounds`` keeps only the least bound of
each block, so the table of pairs is never stored. ``pair_bounds`` then computes both bounds of every window of the
blocks that may hold a match.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.launch.launcher import launch

BLOCK = 512  # windows whose least bound is kept
QUERIES, LANES = 8, 512  # the tile of bounds of a program
WIDTH = 128  # windows whose moments or copies a program computes
RUNNING_ERROR = 5e-5  # of a normalised sample, as in windows.h
SCALED_ERROR = 5e-7


@dataclass(frozen=True)
class Blocks:
    """Every window of some series, in blocks of consecutive ones.

    values: (N, T, C), contiguous. item, first, count: (blocks,) int64 each, the item, the start of the first window and
    the number of windows. middle: (blocks, C), the numbers that are subtracted from samples. scale, offset: (C, N, T)
    float32, which normalise the samples of the window that starts there: scale * (sample - middle) - offset; empty if
    windows are not normalised. unbounded: (N, T) uint8, windows for which float32 gives no bound.
    """

    values: Tensor
    item: Tensor
    first: Tensor
    count: Tensor
    middle: Tensor
    scale: Tensor
    offset: Tensor
    unbounded: Tensor
    length: int
    normalize: bool


@dataclass(frozen=True)
class Envelopes:
    """Envelopes for one length of the windows.

    upper, lower, query: (length, C, Q') float32, of the queries, and the queries themselves; Q' is Q padded to whole
    groups of QUERIES, with envelopes that contain everything. data_upper, data_lower: (N, T, C), of the items; empty if
    they are not used.
    """

    upper: Tensor
    lower: Tensor
    query: Tensor
    data_upper: Tensor
    data_lower: Tensor


def blocks_of(values: Tensor, lengths: Tensor, length: int, *, normalize: bool) -> Blocks:
    """The blocks of series (N, T, C) with lengths (N,) on the CPU, and the moments of all windows."""
    values = values.contiguous()
    items, steps, channels = values.shape
    rows = [
        (item, first, min(BLOCK, end - length + 1 - first))
        for item, end in enumerate(lengths.tolist())
        for first in range(0, end - length + 1, BLOCK)
    ]
    item, first, count = torch.tensor(rows, dtype=torch.int64, device=values.device).reshape(-1, 3).unbind(1)
    item, first, count = item.contiguous(), first.contiguous(), count.contiguous()
    middle = values[item, (first + count // 2 + length // 2).clamp(max=steps - 1)].contiguous()
    windows = (items, steps) if normalize else (0, 0)
    scale, offset = (torch.zeros(channels, *windows, dtype=torch.float32, device=values.device) for _ in range(2))
    unbounded = torch.zeros(items, steps, dtype=torch.uint8, device=values.device)
    found = Blocks(values, item, first, count, middle, scale, offset, unbounded, length, normalize)
    if normalize and len(rows):
        tensors = (values, item, first, count, middle, scale, offset, unbounded)
        launch(moments_kernel, (len(rows) * (BLOCK // WIDTH),), tensors, (items, steps, channels, length), 4,
               BLOCK=BLOCK, WIDTH=WIDTH, LIMIT=RUNNING_ERROR / 2)  # fmt: skip
    return found


def block_bounds(blocks: Blocks, part: slice, envelopes: Envelopes, *, root: bool) -> tuple[Tensor, Tensor]:
    """The least bound of each query in each block of ``part``, (Q', blocks), and the start of its window, int64."""
    queries, device = envelopes.upper.shape[2], blocks.values.device
    which = torch.arange(*part.indices(len(blocks.item)), device=device)
    least = torch.empty(queries, len(which), dtype=torch.float32, device=device)
    place = torch.empty(queries, len(which), dtype=torch.int64, device=device)
    if least.numel():
        grid = (len(which), queries // QUERIES)
        _launch_bounds(blocks, envelopes, which, which, least, place, grid, root, QUERIES, LANES, False)
    return least, place


def pair_bounds(blocks: Blocks, query: Tensor, block: Tensor, envelopes: Envelopes, *, root: bool) -> Tensor:
    """The bounds (pairs, BLOCK) of every window of these blocks with these queries; infinite beyond a block's end."""
    bounds = torch.empty(len(query), BLOCK, dtype=torch.float32, device=blocks.values.device)
    if len(query):
        _launch_bounds(blocks, envelopes, query, block, bounds, query, (len(query), 1), root, 1, BLOCK, True)
    return bounds


def windows(values: Tensor, item: Tensor, start: Tensor, length: int, *, normalize: bool) -> Tensor:
    """Windows (W, length, C) of series (N, T, C) that begin at these places, normalised as on the CPU."""
    _, steps, channels = values.shape
    laid_out = values.new_empty(length, channels, len(item))
    if len(item) and length:
        tensors = (values.contiguous(), item, start, laid_out)
        grid = (triton.cdiv(len(item), WIDTH), channels)
        launch(lay_out_kernel, grid, tensors, (len(item), steps, channels, length), 4, WIDTH=WIDTH, NORMALIZE=normalize)
    return laid_out.permute(2, 0, 1)


def _launch_bounds(
    blocks: Blocks, envelopes: Envelopes, query: Tensor, block: Tensor, bounds: Tensor, place: Tensor,
    grid: tuple[int, ...], root: bool, queries: int, lanes: int, listed: bool,
) -> None:  # fmt: skip
    items, steps, channels = blocks.values.shape
    tensors = (
        blocks.values, blocks.item, blocks.first, blocks.count, blocks.middle, blocks.scale, blocks.offset,
        blocks.unbounded, envelopes.upper, envelopes.lower, envelopes.query, envelopes.data_upper,
        envelopes.data_lower, query, block, bounds, place,
    )  # fmt: skip
    sizes = (items, steps, channels, blocks.length, envelopes.upper.shape[2], len(block))
    both = listed and envelopes.data_upper.numel() > 0
    launch(bounds_kernel, grid, tensors, sizes, 4, BLOCK=BLOCK, QUERIES=queries, LANES=lanes, ROOT=root,
           NORMALIZE=blocks.normalize, LISTED=listed, BOTH=both, SINGLE=channels == 1)  # fmt: skip


@triton.jit
def moments(x, steps, C, WIDTH: tl.constexpr, mask):
    """Mean and inverse deviation of windows at x, in float64: as Moments in bounds.h computes them."""
    origin = tl.load(x, mask=mask, other=0.0).to(tl.float64)
    largest = tl.zeros((WIDTH,), tl.float64)
    total = tl.zeros((WIDTH,), tl.float64)
    for t in range(steps):
        value = tl.load(x + t * C, mask=mask, other=0.0).to(tl.float64)
        total += value - origin
        largest = tl.maximum(largest, tl.abs(value))
    mean = origin + total / steps
    squares = tl.zeros((WIDTH,), tl.float64)
    for t in range(steps):
        centred = tl.load(x + t * C, mask=mask, other=0.0).to(tl.float64) - mean
        squares += centred * centred
    deviation = tl.sqrt(squares / steps)
    constant = deviation <= 1e-7 * largest
    return mean, tl.where(constant, 0.0, 1.0 / tl.where(constant, 1.0, deviation))


@triton.jit(do_not_specialize=["N", "T"])
def moments_kernel(values, item, first, count, middle, scale, offset, unbounded, N, T, C, length,
                   BLOCK: tl.constexpr, WIDTH: tl.constexpr, LIMIT: tl.constexpr):  # fmt: skip
    """Scale and offset of WIDTH windows of one block."""
    block = tl.program_id(0) // (BLOCK // WIDTH)
    w = (tl.program_id(0) % (BLOCK // WIDTH)) * WIDTH + tl.arange(0, WIDTH)
    there = w < tl.load(count + block)
    row = tl.load(item + block)
    window = row * T + tl.load(first + block) + w
    doubtful = w < 0
    for c in range(C):
        mean, inverse = moments(values + window * C + c, length, C, WIDTH, there)
        centre = mean - tl.load(middle + block * C + c).to(tl.float64)
        doubtful = doubtful | (inverse * tl.abs(centre) * 2.5e-7 > LIMIT)
        at = c * N.to(tl.int64) * T + window
        tl.store(scale + at, inverse.to(tl.float32), mask=there)
        tl.store(offset + at, (centre * inverse).to(tl.float32), mask=there)
    tl.store(unbounded + window, doubtful.to(tl.uint8), mask=there)


@triton.jit
def outside(x, upper, lower):
    """The distance of x from [lower, upper]."""
    return tl.maximum(tl.maximum(x - upper, lower - x), 0.0)


@triton.jit(do_not_specialize=["N", "T", "Q", "pairs"])
def bounds_kernel(values, item, first, count, middle, scale, offset, unbounded, upper, lower, query, data_upper,
                  data_lower, pair_query, pair_block, bounds, place, N, T, C, length, Q, pairs,
                  BLOCK: tl.constexpr, QUERIES: tl.constexpr, LANES: tl.constexpr, ROOT: tl.constexpr,
                  NORMALIZE: tl.constexpr, LISTED: tl.constexpr, BOTH: tl.constexpr, SINGLE: tl.constexpr):  # fmt: skip
    """Keogh's bounds of the windows of one block: with some queries, their least; or with one, all of them."""
    pair = tl.program_id(0).to(tl.int64)
    block = tl.load(pair_block + pair)
    if LISTED:
        q = tl.load(pair_query + pair) + tl.arange(0, QUERIES)
    else:
        q = tl.program_id(1) * QUERIES + tl.arange(0, QUERIES).to(tl.int64)
    found = tl.load(count + block)
    window = tl.load(item + block) * T + tl.load(first + block)
    least = tl.full((QUERIES,), float("inf"), tl.float32)
    where = tl.zeros((QUERIES,), tl.int64)
    for begin in range(0, BLOCK, LANES):
        w = begin + tl.arange(0, LANES)
        there = w < found
        at = window + w
        total = tl.zeros((QUERIES, LANES), tl.float32)
        other = tl.zeros((QUERIES, LANES), tl.float32)
        near = tl.load(middle + block * C)
        if NORMALIZE:
            size = tl.load(scale + at, mask=there, other=0.0)
            shift = tl.load(offset + at, mask=there, other=0.0)
        for t in range(length):
            squares = tl.zeros((QUERIES, LANES), tl.float32)
            squares_other = tl.zeros((QUERIES, LANES), tl.float32)
            for c in range(C):
                low = tl.load(lower + (t * C + c) * Q + q)[:, None]
                high = tl.load(upper + (t * C + c) * Q + q)[:, None]
                if not SINGLE:
                    near = tl.load(middle + block * C + c)
                    if NORMALIZE:
                        size = tl.load(scale + c * N.to(tl.int64) * T + at, mask=there, other=0.0)
                        shift = tl.load(offset + c * N.to(tl.int64) * T + at, mask=there, other=0.0)
                frame = (at + t) * C + c
                x = (tl.load(values + frame, mask=there, other=0.0) - near).to(tl.float32)
                if NORMALIZE:
                    x = x * size - shift
                else:
                    x += near.to(tl.float32)
                far = outside(x[None, :], high, low)
                squares += far * far
                if BOTH:
                    point = tl.load(query + (t * C + c) * Q + q)[:, None]
                    ends = (t == 0) | (t == length - 1)
                    above = (tl.load(data_upper + frame, mask=there, other=0.0) - near).to(tl.float32)
                    below = (tl.load(data_lower + frame, mask=there, other=0.0) - near).to(tl.float32)
                    if NORMALIZE:
                        above = above * size - shift
                        below = below * size - shift
                    else:
                        above += near.to(tl.float32)
                        below += near.to(tl.float32)
                    above = tl.where(ends, x, above)
                    below = tl.where(ends, x, below)
                    far = outside(point, above[None, :], below[None, :])
                    squares_other += far * far
            total += tl.sqrt(squares) if ROOT else squares
            if BOTH:
                other += tl.sqrt(squares_other) if ROOT else squares_other
        total = tl.maximum(total, other)
        doubtful = tl.load(unbounded + at, mask=there, other=0) != 0
        total = tl.where(doubtful[None, :], 0.0, total)
        total = tl.where(there[None, :], total, float("inf"))
        if LISTED:
            tl.store(bounds + pair * BLOCK + w[None, :] + q[:, None] * 0, total)
        else:
            best = tl.min(total, 1)
            here = tl.argmin(total, 1)
            where = tl.where(best < least, here.to(tl.int64) + begin, where)
            least = tl.minimum(least, best)
    if not LISTED:
        tl.store(bounds + q * pairs + pair, least)
        tl.store(place + q * pairs + pair, where + tl.load(first + block))


@triton.jit(do_not_specialize=["W", "T"])
def lay_out_kernel(values, item, start, laid_out, W, T, C, length, WIDTH: tl.constexpr, NORMALIZE: tl.constexpr):
    """One channel of WIDTH windows, normalised in float64."""
    w = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    c = tl.program_id(1)
    there = w < W
    frame = tl.load(item + w, mask=there, other=0) * T + tl.load(start + w, mask=there, other=0)
    x = values + frame * C + c
    to = laid_out + c.to(tl.int64) * W + w
    if NORMALIZE:
        mean, inverse = moments(x, length, C, WIDTH, there)
        for t in range(length):
            value = (tl.load(x + t * C, mask=there, other=0.0).to(tl.float64) - mean) * inverse
            tl.store(to + t * C * W.to(tl.int64), value.to(laid_out.dtype.element_ty), mask=there)
    else:
        for t in range(length):
            tl.store(to + t * C * W.to(tl.int64), tl.load(x + t * C, mask=there, other=0.0), mask=there)
