"""Convolutions of packed pairs on a GPU, as products of matrices: a block of cells by the weights of each tap."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from likewise.ops.pair_convolution import Cells

BLOCK = 64  # cells that a program processes at a time
WARPS = 2
GRADIENT_WARPS = 4
PARTS = 256  # partial sums of the weights' gradient, which are added in a fixed order


@triton.jit
def cells_of_block(block_pairs, block_cells, first, n, m, number, BLOCK: tl.constexpr):
    """For each cell of a block: its pair's first cell and size, and its own number, row and column."""
    pair = tl.load(block_pairs + number)
    cell = tl.load(block_cells + number) + tl.arange(0, BLOCK)
    rows = tl.load(n + pair)
    columns = tl.load(m + pair)
    row = cell // columns
    return tl.load(first + pair), rows, columns, cell, row, cell - row * columns


@triton.jit
def convolve_kernel(h, weight, bias, gate, out, block_pairs, block_cells, first, n, m, K: tl.constexpr,
                    IN: tl.constexpr, OUT: tl.constexpr, RELU: tl.constexpr, GATED: tl.constexpr,
                    PRECISION: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """out(cell) = bias + sum over taps of h(cell moved by the tap) @ weight(tap), weight (K * K, IN, OUT).

    RELU: its positive part. GATED: zero where ``gate`` is, the ReLU's derivative.
    """
    start, rows, columns, cell, row, column = cells_of_block(
        block_pairs, block_cells, first, n, m, tl.program_id(0), BLOCK
    )
    i = tl.arange(0, IN)
    o = tl.arange(0, OUT)
    total = tl.zeros((BLOCK, OUT), tl.float32) + tl.load(bias + o)[None, :].to(tl.float32)
    for tap in range(K * K):
        down = tap // K - K // 2
        right = tap % K - K // 2
        there = (row + down >= 0) & (row + down < rows) & (column + right >= 0) & (column + right < columns)
        at = start + cell + down * columns + right
        values = tl.load(h + at[:, None] * IN + i[None, :], mask=there[:, None], other=0.0)
        taps = tl.load(weight + tap * IN * OUT + i[:, None] * OUT + o[None, :])
        total = tl.dot(values, taps, total, input_precision=PRECISION)
    inside = cell < rows * columns
    at = (start + cell)[:, None] * OUT + o[None, :]
    if RELU:
        total = tl.maximum(total, 0.0)
    if GATED:
        total = tl.where(tl.load(gate + at, mask=inside[:, None], other=0.0) > 0, total, 0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside[:, None])


@triton.jit
def weight_kernel(h, grad, parts, block_pairs, block_cells, first, n, m, blocks, K: tl.constexpr, IN: tl.constexpr,
                  OUT: tl.constexpr, PRECISION: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr):  # fmt: skip
    """parts(part, tap) = sum of h(cell moved by the tap)^T @ grad(cell) over every PARTS-th block of cells.

    A program has the K taps of one row.
    """
    part = tl.program_id(0)
    down = tl.program_id(1) - K // 2
    i = tl.arange(0, IN)
    o = tl.arange(0, OUT)
    totals = ()
    for _ in tl.static_range(K):
        totals = totals + (tl.zeros((IN, OUT), tl.float32),)
    for number in range(part, blocks, PARTS):
        start, rows, columns, cell, row, column = cells_of_block(block_pairs, block_cells, first, n, m, number, BLOCK)
        inside = cell < rows * columns
        grads = tl.load(grad + (start + cell)[:, None] * OUT + o[None, :], mask=inside[:, None], other=0.0)
        sums = ()
        for r in tl.static_range(K):
            right = r - K // 2
            there = (row + down >= 0) & (row + down < rows) & (column + right >= 0) & (column + right < columns)
            at = start + cell + down * columns + right
            values = tl.load(h + at[None, :] * IN + i[:, None], mask=there[None, :], other=0.0)  # (IN, BLOCK)
            sums = sums + (tl.dot(values, grads, totals[r], input_precision=PRECISION),)
        totals = sums
    for r in tl.static_range(K):
        tap = tl.program_id(1) * K + r
        tl.store(parts + ((part * K * K + tap) * IN + i[:, None]) * OUT + o[None, :], totals[r])


@dataclass(frozen=True)
class Blocks:
    """The cells of each pair in blocks, for the kernels."""

    places: tuple[Tensor, ...]  # pair and first cell of each block; first cell, rows and columns of each pair
    count: int

    @classmethod
    def of(cls, cells: Cells) -> "Blocks":
        """Cut every pair into blocks of BLOCK cells."""
        each = (cells.n * cells.m + BLOCK - 1) // BLOCK  # blocks of each pair
        pairs = torch.repeat_interleave(each)
        starts = torch.arange(len(pairs), device=pairs.device) - (each.cumsum(0) - each)[pairs]
        return cls((pairs, starts * BLOCK, cells.first, cells.n, cells.m), len(pairs))


def convolve(h: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], cells: Cells) -> Tensor:
    """h (cells, in), weights (out, in, k, k) -> (cells, out)."""
    return _Convolutions.apply(h, cells, len(weights), *weights, *biases)  # type: ignore[return-value]


class _Convolutions(torch.autograd.Function):
    """Channels are padded with zeros in memory, once for all convolutions."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, cells: Cells, count: int, *weights_then_biases: Tensor) -> Tensor:
        weights, biases = weights_then_biases[:count], weights_then_biases[count:]
        blocks = Blocks.of(cells)
        layers = [functional.pad(h, (0, _padded(h.shape[1]) - h.shape[1])).contiguous()]
        for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            layers.append(_convolved(layers[-1], weight, bias, blocks, relu=k + 1 < count))
        ctx.save_for_backward(*layers[:-1], *weights)
        ctx.blocks = blocks
        return layers[-1][:, : len(weights[-1])]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # read once: under torch.utils.checkpoint, they are gone afterwards
        count = len(saved) // 2
        layers, weights = saved[:count], saved[count:]
        h_wanted, _, _, *weight_wanted = ctx.needs_input_grad
        grad = functional.pad(grad, (0, _padded(grad.shape[1]) - grad.shape[1])).contiguous()
        to_weights: list[Tensor | None] = []
        to_biases: list[Tensor | None] = []
        for k in reversed(range(count)):
            weight = weights[k]
            to_weights.append(_weight_gradient(layers[k], grad, weight, ctx.blocks) if weight_wanted[k] else None)
            to_biases.append(grad.sum(0, dtype=torch.float32)[: len(weight)].to(weight.dtype))
            if k > 0 or h_wanted:  # every tap the other way
                turned = weight.flip(2, 3).transpose(0, 1)
                gate = layers[k] if k > 0 else None
                grad = _convolved(grad, turned, weight.new_zeros(len(turned)), ctx.blocks, gate=gate)
        return grad[:, : weights[0].shape[1]], None, None, *to_weights[::-1], *to_biases[::-1]


def _convolved(
    h: Tensor, weight: Tensor, bias: Tensor, blocks: Blocks, *, relu: bool = False, gate: Tensor | None = None
) -> Tensor:
    outs, ins, k, _ = weight.shape
    padded = _padded(outs)
    taps = h.new_zeros(k * k, h.shape[1], padded)  # (taps, in, out)
    taps[:, :ins, :outs] = weight.permute(2, 3, 1, 0).flatten(0, 1)
    offset = functional.pad(bias, (0, padded - outs))
    out = h.new_empty(len(h), padded)
    if blocks.count:
        convolve_kernel[(blocks.count,)](
            h, taps, offset, out if gate is None else gate, out, *blocks.places, K=k, IN=h.shape[1], OUT=padded,
            RELU=relu, GATED=gate is not None, PRECISION=_precision(), BLOCK=BLOCK, num_warps=WARPS,
        )  # fmt: skip
    return out


def _weight_gradient(h: Tensor, grad: Tensor, weight: Tensor, blocks: Blocks) -> Tensor:
    outs, ins, k, _ = weight.shape
    parts = h.new_zeros(PARTS, k * k, h.shape[1], grad.shape[1], dtype=torch.float32)
    if blocks.count:
        weight_kernel[(PARTS, k)](
            h, grad, parts, *blocks.places, blocks.count, K=k, IN=h.shape[1], OUT=grad.shape[1], PRECISION=_precision(),
            BLOCK=BLOCK, PARTS=PARTS, num_warps=GRADIENT_WARPS,
        )  # fmt: skip
    total = parts.sum(0)[:, :ins, :outs]  # (taps, in, out)
    return total.unflatten(0, (k, k)).permute(3, 2, 0, 1).to(weight.dtype)


def _padded(channels: int) -> int:
    """The number of channels for the matrix units: a power of two, at least 16."""
    return max(16, triton.next_power_of_2(channels))


def _precision() -> str:
    return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"
