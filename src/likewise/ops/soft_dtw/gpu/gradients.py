"""Gradients of sequences from expected alignments."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.engine.columns import column_size
from likewise.ops.engine.diagonals import pair_lengths
from likewise.ops.engine.inputs import Inputs
from likewise.ops.engine.pairs import Pairs
from likewise.ops.engine.products import add_product
from likewise.ops.launch.arguments import ceil_div, power_of_2
from likewise.ops.launch.launcher import launch
from likewise.ops.launch.tape import find, record

OTHERS = 64  # steps of the other sequence that a program processes at a time
LONG = 512  # steps; longer pairs have more of their own steps in each program


def tile(pairs: Pairs) -> tuple[int, int, int]:
    """Steps and channels of a program, and its warps."""
    steps = 128 if min(pairs.steps) >= LONG else 64
    return steps, min(64, max(16, power_of_2(pairs.x.shape[2]))), steps // 16


@triton.jit
def add_products(weights, product, others, origin, expected, cost, n, m, own, plane, column, C, c, scale,
                 ROOT: tl.constexpr, FOR_Y: tl.constexpr, BLOCK: tl.constexpr, OTHERS: tl.constexpr):  # fmt: skip
    """Add a pair's sums to those of some rows i: sum_j weight(i, j) to weights, sum_j weight(i, j) other(j, c) to
    product; weight = scale 2 E, or scale E / cost for the Euclidean cost. FOR_Y: the same of columns.

    Others are relative to ``origin``.
    """
    mine = own + tl.arange(0, BLOCK)
    other_length = n if FOR_Y else m
    for start in range(0, tl.where(own < (m if FOR_Y else n), other_length, 0), OTHERS):
        k_other = start + tl.arange(0, OTHERS)
        i = k_other if FOR_Y else mine
        j = mine if FOR_Y else k_other
        inside = (j < m)[:, None] & (i < n)[None, :]
        cell = plane + j[:, None].to(tl.int64) * column + i[None, :]
        tile = tl.load(expected + cell, mask=inside, other=0.0)
        if ROOT:
            distance = tl.load(cost + cell, mask=inside, other=0.0)
            tile = tl.where(distance > 0, tile * scale / distance, 0.0)
        else:
            tile *= 2.0 * scale
        if not FOR_Y:
            tile = tl.trans(tile)
        other = tl.load(others + k_other[:, None].to(tl.int64) * C + c[None, :],
                        mask=(k_other < other_length)[:, None] & (c < C)[None, :], other=0.0)  # fmt: skip
        other = tl.where((k_other < other_length)[:, None], other - origin, 0.0)
        weights += tl.sum(tile, 1)
        product = add_product(tile, other, product)
    return weights, product


@triton.jit
def gradient_rows(x, y, expected, cost, grad, n, m, own, plane, column, x_steps, y_steps, C, ROOT: tl.constexpr,
                  FOR_Y: tl.constexpr, BLOCK: tl.constexpr, CHANNELS: tl.constexpr, OTHERS: tl.constexpr):  # fmt: skip
    """grad(i, c) = sum_j weight(i, j) (x(i, c) - y(j, c)), weight = 2 E, or E / cost for the Euclidean cost; FOR_Y: the
    same with the sequences exchanged.

    Computed by matrix products, with both sequences relative to one of their frames; a common offset then costs no
    digits.
    """
    k = own + tl.arange(0, BLOCK)
    c = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    length = m if FOR_Y else n
    others = x if FOR_Y else y
    at = k[:, None].to(tl.int64) * C + c[None, :]
    origin = tl.load(others + c, mask=c < C, other=0.0)[None, :]
    frames = tl.load((y if FOR_Y else x) + at, mask=(k < length)[:, None] & (c < C)[None, :], other=0.0) - origin
    weights = tl.zeros((BLOCK,), grad.dtype.element_ty)
    product = tl.zeros((BLOCK, CHANNELS), grad.dtype.element_ty)
    weights, product = add_products(weights, product, others, origin, expected, cost, n, m, own, plane, column, C, c,
                                    1.0, ROOT, FOR_Y, BLOCK, OTHERS)  # fmt: skip
    total = tl.where((k < length)[:, None], weights[:, None] * frames - product, 0.0)
    steps = y_steps if FOR_Y else x_steps
    tl.store(grad + at, total, mask=(k < steps)[:, None] & (c < C)[None, :])


@triton.jit(do_not_specialize=["first_pair", "first_grad", "columns", "x_blocks", "x_steps", "y_steps"])
def gradient_kernel(x, y, expected, cost, x_grad, y_grad, x_lengths, y_lengths, first_pair, first_grad, columns,
                    x_blocks, x_steps, y_steps, column, C, ALL_PAIRS: tl.constexpr, FULL: tl.constexpr,
                    ROOT: tl.constexpr, BLOCK: tl.constexpr, CHANNELS: tl.constexpr, OTHERS: tl.constexpr):  # fmt: skip
    """Gradients of each pair. Programs: (pairs, blocks of steps of x and then of y, blocks of channels)."""
    local = tl.program_id(0).to(tl.int64)
    pair = local + first_pair
    n, m = pair_lengths(pair, x_lengths, y_lengths, columns, x_steps, y_steps, ALL_PAIRS, FULL)
    x += (pair // columns if ALL_PAIRS else pair) * x_steps * C
    y += (pair % columns if ALL_PAIRS else pair) * y_steps * C
    x_grad += (local + first_grad) * x_steps * C
    y_grad += (local + first_grad) * y_steps * C
    plane = local * y_steps * column
    block = tl.program_id(1)
    if block < x_blocks:
        gradient_rows(x, y, expected, cost, x_grad, n, m, block * BLOCK, plane, column, x_steps, y_steps, C, ROOT,
                      False, BLOCK, CHANNELS, OTHERS)  # fmt: skip
    else:
        gradient_rows(x, y, expected, cost, y_grad, n, m, (block - x_blocks) * BLOCK, plane, column, x_steps, y_steps,
                      C, ROOT, True, BLOCK, CHANNELS, OTHERS)  # fmt: skip


@triton.jit(do_not_specialize=["first_row", "rows", "columns", "x_steps", "y_steps"])
def matrix_gradient_kernel(x, y, expected, cost, shares, grad, x_lengths, y_lengths, first_row, rows, columns, x_steps,
                           y_steps, column, C, FULL: tl.constexpr, ROOT: tl.constexpr, FOR_Y: tl.constexpr,
                           BLOCK: tl.constexpr, CHANNELS: tl.constexpr, OTHERS: tl.constexpr):  # fmt: skip
    """Add to the gradient of an item of x those of its pairs with all of y, each times its share (x items, y items).

    ``expected`` and ``cost`` have the pairs of `rows` items of x, from `first_row` on. FOR_Y: to that of an item of y,
    its pairs with those. Programs: (items, blocks of steps, blocks of channels).
    """
    item = tl.program_id(0).to(tl.int64)
    own = tl.program_id(1) * BLOCK
    k = own + tl.arange(0, BLOCK)
    c = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    steps = y_steps if FOR_Y else x_steps
    place = item if FOR_Y else item + first_row
    at = (place * steps + k[:, None]) * C + c[None, :]
    length = steps
    if not FULL:
        length = tl.load((y_lengths if FOR_Y else x_lengths) + place).to(tl.int32)
    real = (k < length)[:, None] & (c < C)[None, :]
    own_frames = y if FOR_Y else x
    origin = tl.load(own_frames + place * steps * C + c, mask=c < C, other=0.0)[None, :]
    frames = tl.load(own_frames + at, mask=real, other=0.0) - origin
    weights = tl.zeros((BLOCK,), grad.dtype.element_ty)
    product = tl.zeros((BLOCK, CHANNELS), grad.dtype.element_ty)
    for pair in range(rows if FOR_Y else columns):
        row = item * 0 + pair if FOR_Y else item
        other = item if FOR_Y else item * 0 + pair
        n = x_steps
        m = y_steps
        if not FULL:
            n = tl.load(x_lengths + first_row + row).to(tl.int32)
            m = tl.load(y_lengths + other).to(tl.int32)
        others = x + (first_row + row) * x_steps * C if FOR_Y else y + other * y_steps * C
        share = tl.load(shares + (first_row + row) * columns + other)
        weights, product = add_products(weights, product, others, origin, expected, cost, n, m, own,
                                        (row * columns + other) * y_steps * column, column, C, c, share, ROOT, FOR_Y,
                                        BLOCK, OTHERS)  # fmt: skip
    total = tl.load(grad + at, mask=real, other=0.0) + (weights[:, None] * frames - product)
    tl.store(grad + at, total, mask=real)


@triton.jit(do_not_specialize=["x_size", "y_size", "stride"])
def weighted_kernel(x, y, x_out, y_out, weights, x_size, y_size, stride, BLOCK: tl.constexpr):
    """Rows of x and y times the weight of their pair. Programs: (pairs, blocks of a row)."""
    pair = tl.program_id(0).to(tl.int64)
    weight = tl.load(weights + pair * stride)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x_at = pair * x_size + at
    tl.store(x_out + x_at, tl.load(x + x_at, mask=at < x_size, other=0.0) * weight, mask=at < x_size)
    y_at = pair * y_size + at
    tl.store(y_out + y_at, tl.load(y + y_at, mask=at < y_size, other=0.0) * weight, mask=at < y_size)


def write_gradients(
    inputs: Inputs,
    expected: Tensor,
    cost: Tensor | None,
    first: int,
    last: int,
    first_grad: int,
    x_grad: Tensor,
    y_grad: Tensor,
) -> None:
    """Write each pair's own gradients, those of pair ``first`` at place ``first_grad``; E and costs are by column."""
    pairs, (x_steps, y_steps), channels = inputs.pairs, inputs.pairs.steps, inputs.x.shape[2]
    block, wide, warps = tile(pairs)
    x_blocks = ceil_div(x_steps, block)
    launch(
        gradient_kernel,
        (last - first, x_blocks + ceil_div(y_steps, block), ceil_div(channels, wide)),
        (
            inputs.x,
            inputs.y,
            expected,
            expected if cost is None else cost,
            x_grad,
            y_grad,
            inputs.x_lengths,
            inputs.y_lengths,
        ),
        (first, first_grad, pairs.columns, x_blocks, x_steps, y_steps, column_size(x_steps), channels),
        warps,
        ALL_PAIRS=pairs.all_pairs,
        FULL=inputs.full,
        ROOT=pairs.root,
        BLOCK=block,
        CHANNELS=wide,
        OTHERS=OTHERS,
    )


def add_gradients(
    inputs: Inputs,
    expected: Tensor,
    cost: Tensor | None,
    first: int,
    last: int,
    weights: Tensor,
    x_grad: Tensor,
    y_grad: Tensor,
) -> None:
    """Add the gradients of pairs first..last-1 of all pairs, whole rows, times their weights (N, M)."""
    pairs, steps, channels = inputs.pairs, inputs.pairs.steps, inputs.x.shape[2]
    block, wide, warps = tile(pairs)
    row, rows = first // pairs.columns, (last - first) // pairs.columns
    for own, (items, grad) in enumerate(((rows, x_grad), (pairs.columns, y_grad))):
        launch(
            matrix_gradient_kernel,
            (items, ceil_div(steps[own], block), ceil_div(channels, wide)),
            (
                inputs.x,
                inputs.y,
                expected,
                expected if cost is None else cost,
                weights,
                grad,
                inputs.x_lengths,
                inputs.y_lengths,
            ),
            (row, rows, pairs.columns, *steps, column_size(steps[0]), channels),
            warps,
            FULL=inputs.full,
            ROOT=pairs.root,
            FOR_Y=own == 1,
            BLOCK=block,
            CHANNELS=wide,
            OTHERS=OTHERS,
        )


def weighted(x: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """weights (B,) * x (B, Tx, C), and the same of y, in one launch; x and y are contiguous."""
    x_out, y_out, device, at = torch.empty_like(x), torch.empty_like(y), x.get_device(), weights.data_ptr()
    if not x.shape[0]:
        return x_out, y_out
    key = ("weighted", x.shape, y.shape, x.dtype, device, weights.stride())
    tape = find(key)
    if tape is not None and not at & 15:
        if tape.run(device, (x.data_ptr(), y.data_ptr(), x_out.data_ptr(), y_out.data_ptr(), at)):
            return x_out, y_out

    def work() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, ...]]:
        x_size, y_size = x.shape[1] * x.shape[2], y.shape[1] * y.shape[2]
        grid = (x.shape[0], ceil_div(max(x_size, y_size), 1024))
        tensors = (x, y, x_out, y_out, weights)
        launch(weighted_kernel, grid, tensors, (x_size, y_size, weights.stride(0)), 4, BLOCK=1024)
        return (x_out, y_out), tensors

    return record(key, work)
