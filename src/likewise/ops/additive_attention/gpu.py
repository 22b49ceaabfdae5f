"""Additive attention of small maps on a GPU: one launch for each map, and one for its derivative.

A program handles one item, tile by tile, and keeps W1 and W2 in registers. The softmax is computed as in flash
attention: sums are rescaled whenever a larger score is found.
"""

import itertools
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.additive_attention.layer import Layer
from likewise.ops.launch.arguments import power_of_2, processors
from likewise.ops.launch.launcher import launch
from likewise.ops.launch.tape import repeat

LEAST = 16  # the smallest dimension of a product
TILE = 4096  # numbers of a map that a program processes at a time
MOST_POSITIONS = 64  # the most positions of a tile
WARPS = 4
# One kernel for all sizes.
SIZES = ["channels", "positions", "width", "rows", "by_item", "by_channel", "by_position", "all_channels", "offset"]
LOWEST = tl.constexpr(-3e38)  # below every score


@triton.jit
def matrix(x, row, column, rows, columns):
    """A matrix (rows, columns), padded with zeros."""
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    return tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0)


@triton.jit
def vector(x, item, at, count):
    """One row of a matrix, padded with zeros."""
    return tl.load(x + item * count + at, mask=at < count, other=0.0)


@triton.jit
def add_row(x, item, at, count, row, ADD: tl.constexpr):
    """Write, or add to, one row of a matrix."""
    if ADD:
        row += vector(x, item, at, count)
    tl.store(x + item * count + at, row, mask=at < count)


@triton.jit
def added(u, second, item, r, w, rows, width, ACROSS: tl.constexpr):
    """W2 u, or u."""
    if ACROSS:
        return tl.sum(second * vector(u, item, w, width)[None, :], 1)
    return vector(u, item, r, rows)


@triton.jit
def tile_of(values, mask, item, p, c, channels, positions, by_item, by_channel, by_position, MASKED: tl.constexpr):
    """A mask (P,) of the real positions, and their values (C, P), 0 elsewhere."""
    real = p < positions
    if MASKED:
        real = tl.load(mask + item * positions + p, mask=real, other=0) != 0
    at = values + item * by_item + c[:, None].to(tl.int64) * by_channel + p[None, :] * by_position
    return real, tl.load(at, mask=(c < channels)[:, None] & real[None, :], other=0.0)


@triton.jit
def hidden_of(first, q, wanted):
    """tanh(W1 q + W2 u) (R, P)."""
    before = tl.dot(first, q, input_precision="ieee") + wanted[:, None]
    decay = tl.exp(-2.0 * tl.abs(before))
    tanh = (1.0 - decay) / (1.0 + decay)
    return tl.where(before < 0, -tanh, tanh)


@triton.jit(do_not_specialize=SIZES)
def attend_kernel(values, mask, inward, u, across, outward, features, weights, channels, positions, width, rows,
                  by_item, by_channel, by_position, all_channels, offset, MASKED: tl.constexpr, ACROSS: tl.constexpr,
                  R: tl.constexpr, C: tl.constexpr, W: tl.constexpr, P: tl.constexpr):  # fmt: skip
    item = tl.program_id(0).to(tl.int64)
    r = tl.arange(0, R)
    c = tl.arange(0, C)
    w = tl.arange(0, W)
    first = matrix(inward, r, c, rows, channels)
    second = matrix(across, r, w, rows, width) if ACROSS else first
    out = tl.load(outward + r, mask=r < rows, other=0.0)
    wanted = added(u, second, item, r, w, rows, width, ACROSS)
    highest = tl.full((), LOWEST, tl.float32)
    total = tl.zeros((), tl.float32)
    sums = tl.zeros((C,), tl.float32)
    scores = weights + item * positions
    for start in range(0, positions, P):
        p = start + tl.arange(0, P)
        real, q = tile_of(values, mask, item, p, c, channels, positions, by_item, by_channel, by_position, MASKED)
        score = tl.where(real, tl.sum(out[:, None] * hidden_of(first, q, wanted), 0), -float("inf"))
        tl.store(scores + p, score, mask=p < positions)
        higher = tl.maximum(highest, tl.max(score, 0))
        part = tl.exp(score - higher)
        keep = tl.exp(highest - higher)
        total = total * keep + tl.sum(part, 0)
        sums = sums * keep + tl.sum(q * part[None, :], 1)
        highest = higher
    tl.store(features + item * all_channels + offset + c, sums / total, mask=c < channels)
    tl.debug_barrier()  # wait for the scores of other threads
    for start in range(0, positions, P):
        p = start + tl.arange(0, P)
        score = tl.load(scores + p, mask=p < positions, other=-float("inf"))
        tl.store(scores + p, tl.exp(score - highest) / total, mask=p < positions)


@triton.jit(do_not_specialize=[*SIZES, "items", "to_item", "to_channel", "to_position", "all_weights", "place"])
def gradient_kernel(by_features, values, mask, inward, u, across, outward, weights, by_values, by_u, parts,
                    channels, positions, width, rows, by_item, by_channel, by_position, all_channels, offset, items,
                    to_item, to_channel, to_position, all_weights, place, MASKED: tl.constexpr, ACROSS: tl.constexpr,
                    ADD: tl.constexpr, R: tl.constexpr, C: tl.constexpr, W: tl.constexpr,
                    P: tl.constexpr):  # fmt: skip
    """A program sums the gradients of its items in its part: W1's (rows, channels), w's (rows,), W2's (rows, width).

    ADD: add to the values in by_u.
    """
    r = tl.arange(0, R)
    c = tl.arange(0, C)
    w = tl.arange(0, W)
    first = matrix(inward, r, c, rows, channels)
    second = matrix(across, r, w, rows, width) if ACROSS else first
    out = tl.load(outward + r, mask=r < rows, other=0.0)
    by_first = tl.zeros((R, C), tl.float32)
    by_second = tl.zeros((R, W), tl.float32)
    by_out = tl.zeros((R,), tl.float32)
    item = tl.program_id(0).to(tl.int64)
    while item < items:
        wanted = added(u, second, item, r, w, rows, width, ACROSS)
        slope_c = tl.load(by_features + item * all_channels + offset + c, mask=c < channels, other=0.0)
        mean = tl.zeros((), tl.float32)  # the weighted slopes, summed as below, so that equal terms cancel
        for start in range(0, positions, P):
            p = start + tl.arange(0, P)
            real, q = tile_of(values, mask, item, p, c, channels, positions, by_item, by_channel, by_position, MASKED)
            mean += tl.sum(vector(weights, item, p, positions) * tl.sum(slope_c[:, None] * q, 0), 0)
        by_wanted = tl.zeros((R,), tl.float32)
        for start in range(0, positions, P):
            p = start + tl.arange(0, P)
            real, q = tile_of(values, mask, item, p, c, channels, positions, by_item, by_channel, by_position, MASKED)
            hidden = hidden_of(first, q, wanted)
            weight = vector(weights, item, p, positions)
            slope = weight * (tl.sum(slope_c[:, None] * q, 0) - mean)  # by the scores
            before = out[:, None] * slope[None, :] * (1.0 - hidden * hidden)
            by_q = slope_c[:, None] * weight[None, :] + tl.dot(tl.trans(first), before, input_precision="ieee")
            to = by_values + item * to_item + c[:, None].to(tl.int64) * to_channel + p[None, :] * to_position
            tl.store(to, by_q, mask=(c < channels)[:, None] & (p < positions)[None, :])
            by_first += tl.dot(before, tl.trans(q), input_precision="ieee")
            by_wanted += tl.sum(before, 1)
            by_out += tl.sum(slope[None, :] * hidden, 1)
        if ACROSS:
            by_second += by_wanted[:, None] * vector(u, item, w, width)[None, :]
            add_row(by_u, item, w, width, tl.sum(second * by_wanted[:, None], 0), ADD)
        else:
            add_row(by_u, item, r, rows, by_wanted, ADD)
        item += tl.num_programs(0)
    part = parts + tl.program_id(0).to(tl.int64) * all_weights + place
    inside = (r < rows)[:, None]
    tl.store(part + r[:, None] * channels + c[None, :], by_first, mask=inside & (c < channels)[None, :])
    part += rows * channels
    tl.store(part + r, by_out, mask=r < rows)
    if ACROSS:
        part += rows
        tl.store(part + r[:, None] * width + w[None, :], by_second, mask=inside & (w < width)[None, :])


def attend(u: Tensor, layers: Sequence[Layer]) -> tuple[Tensor, ...]:
    """The features (B, sum of C) and the weights (B, 1, P) of each layer."""
    features = u.new_empty(len(u), sum(layer.values.shape[1] for layer in layers))
    weights = [u.new_empty(len(layer.values), 1, layer.values.shape[2]) for layer in layers]

    def work() -> None:
        offset = 0
        for layer, found in zip(layers, weights, strict=True):
            items, channels, _ = layer.values.shape
            tensors, numbers, constants = _arguments(u, layer)
            numbers = (*numbers, features.shape[1], offset)
            launch(attend_kernel, (items,), (*tensors, features, found), numbers, WARPS, **constants)
            offset += channels

    repeat("additive_attention.attend", work, (u, *_given(layers), features, *weights), _missing(layers))
    return features, *weights


def gradients(by_features: Tensor, u: Tensor, layers: Sequence[Layer], *weights: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients with respect to u and each layer's tensors; None for its mask."""
    by_features, by_u = by_features.contiguous(), torch.empty_like(u, memory_format=torch.contiguous_format)
    sizes = []  # of each layer's gradients by W1, w and W2
    for layer in layers:
        rows, channels = layer.inward.shape
        sizes.append((rows * channels, rows, 0 if layer.across is None else rows * u.shape[1]))
    programs, total = min(len(u), 2 * processors(u)), sum(map(sum, sizes))
    parts = u.new_empty(programs, total)
    by_values = [torch.empty_like(layer.values) for layer in layers]

    def work() -> None:
        offset = place = 0
        for i, layer in enumerate(layers):
            tensors, numbers, constants = _arguments(u, layer)
            tensors = (by_features, *tensors, weights[i], by_values[i], by_u, parts)
            numbers = (*numbers, by_features.shape[1], offset, len(u), *by_values[i].stride(), total, place)
            launch(gradient_kernel, (programs,), tensors, numbers, WARPS, ADD=i > 0, **constants)
            offset += layer.values.shape[1]
            place += sum(sizes[i])

    tensors = by_features, u, *_given(layers), *weights, *by_values, by_u, parts
    repeat("additive_attention.gradients", work, tensors, _missing(layers))
    found: list[Tensor | None] = [by_u]
    summed = iter(parts.sum(0).split([*itertools.chain.from_iterable(sizes)]))
    for layer, by_map in zip(layers, by_values, strict=True):
        by_inward, by_outward, by_across = next(summed), next(summed), next(summed)
        found += by_map, None, by_inward.view_as(layer.inward)
        found += None if layer.across is None else by_across.view_as(layer.across), by_outward.view_as(layer.outward)
    return tuple(found)


def _given(layers: Sequence[Layer]) -> list[Tensor]:
    """The layers' tensors, without those that are missing."""
    return [tensor for layer in layers for tensor in layer if tensor is not None]


def _missing(layers: Sequence[Layer]) -> tuple[bool, ...]:
    """Which of the layers' tensors are missing."""
    return tuple([tensor is None for layer in layers for tensor in layer])


def _arguments(u: Tensor, layer: Layer) -> tuple[tuple[Tensor, ...], tuple[int, ...], dict[str, int | bool]]:
    """The tensors, sizes and constants of both kernels. Missing masks and W2 are replaced by other tensors."""
    values, mask, inward, across, outward = layer
    inward = inward.contiguous()
    tensors = (
        values,
        values if mask is None else mask.contiguous(),
        inward,
        u.contiguous(),
        inward if across is None else across.contiguous(),
        outward.contiguous(),
    )
    (rows, channels), width = inward.shape, u.shape[1]
    R, C, W = (max(LEAST, power_of_2(n)) for n in (rows, channels, width))
    constants = {"MASKED": mask is not None, "ACROSS": across is not None, "R": R, "C": C, "W": W,
                 "P": max(LEAST, min(MOST_POSITIONS, TILE // C))}  # fmt: skip
    return tensors, (channels, values.shape[2], width, rows, *values.stride()), constants
