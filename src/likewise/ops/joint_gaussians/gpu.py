"""The joint kernel of Gaussian mixtures on a GPU: two launches, and one for its derivative, for any number of layers.

Differences are taken before they are squared, which is more precise than the reference, at negligible cost.
"""

import functools
import itertools
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.joint_gaussians.mixture import Mixture
from likewise.ops.joint_gaussians.reference import least_bandwidth, least_difference
from likewise.ops.launch.arguments import ceil_div
from likewise.ops.launch.launcher import launch
from likewise.ops.launch.tape import repeat

BLOCK = 16  # rows and columns of a program's tile
CHANNELS = 32  # channels that it processes at a time
MANY = 64  # sums that are read at a time
WARPS = 4


@triton.jit(do_not_specialize=["count", "width", "blocks"])
def distances_kernel(side, columns, labels, apart, sums, count, width, blocks, LABELLED: tl.constexpr,
                     BLOCK: tl.constexpr, CHANNELS: tl.constexpr):  # fmt: skip
    """apart(layer, i, j) = ||x_i - x_j||^2 for a tile of pairs.

    sums(layer, tile): their sum, that of ||x_i||^2, and the number of pairs with different labels.
    """
    tile = tl.program_id(0)
    layer = tl.program_id(1)
    last = tl.load(columns + layer + 1)
    i = (tile // blocks * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    j = (tile % blocks * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    total = tl.zeros((BLOCK, BLOCK), side.dtype.element_ty)
    squares = tl.zeros((BLOCK, CHANNELS), side.dtype.element_ty)
    for first in range(tl.load(columns + layer), last, CHANNELS):
        c = first + tl.arange(0, CHANNELS)
        there = (c < last)[None, :]
        x = tl.load(side + i[:, None] * width + c[None, :], mask=(i < count)[:, None] & there, other=0.0)
        y = tl.load(side + j[:, None] * width + c[None, :], mask=(j < count)[:, None] & there, other=0.0)
        difference = x[:, None, :] - y[None, :, :]
        total += tl.sum(difference * difference, 2)
        squares += x * x
    inside = (i < count)[:, None] & (j < count)[None, :]
    total = tl.where(inside, total, 0.0)
    tl.store(apart + (layer * count.to(tl.int64) + i[:, None]) * count + j[None, :], total, mask=inside)
    at = sums + (layer * blocks * blocks + tile) * 3
    tl.store(at, tl.sum(tl.sum(total, 1), 0))
    tl.store(at + 1, tl.where(tile // blocks == tile % blocks, tl.sum(tl.sum(squares, 1), 0), 0.0))
    if LABELLED:
        different = inside & unlike(labels, i, j, count)
        tl.store(at + 2, tl.sum(tl.sum(different.to(tl.int32), 1), 0).to(side.dtype.element_ty))


@triton.jit
def unlike(labels, i, j, count):
    """Whether the labels of i and j differ."""
    of_i = tl.load(labels + i, mask=i < count, other=0)
    of_j = tl.load(labels + j, mask=j < count, other=0)
    return of_i[:, None] != of_j[None, :]


@triton.jit
def total_of(sums, layer, which, tiles, MANY: tl.constexpr):
    """One of the sums, over all tiles."""
    total = tl.zeros((MANY,), sums.dtype.element_ty)
    for first in range(0, tiles, MANY):
        tile = first + tl.arange(0, MANY)
        total += tl.load(sums + (layer * tiles + tile) * 3 + which, mask=tile < tiles, other=0.0)
    return tl.sum(total, 0)


@triton.jit
def middle_of(sums, known, layer, count, tiles, K: tl.constexpr, MANY: tl.constexpr, DIFFERENCE: tl.constexpr,
              LEAST: tl.constexpr):  # fmt: skip
    """The bandwidth b of a layer: the given one or, if that is 0, the mean squared distance, bounded from below."""
    pairs = tl.maximum(count.to(tl.float64) * (count - 1), 1.0).to(sums.dtype.element_ty)
    mean = total_of(sums, layer, 0, tiles, MANY) / pairs
    size = total_of(sums, layer, 1, tiles, MANY) / count
    mean = tl.maximum(tl.maximum(mean, size * (DIFFERENCE * DIFFERENCE)), LEAST)
    given = tl.load(known + layer * (K + 1))
    return tl.where(given > 0, given, mean)


@triton.jit
def shares(apart, at, inside, known, layer, middle, K: tl.constexpr):
    """For k = mean of exp(-D / s): its largest part, and the sums of all parts and of parts * -1 / s, divided by it."""
    D = tl.load(apart + at, mask=inside, other=0.0)
    slowest = tl.load(known + layer * (K + 1) + K) / middle
    total = D * 0.0
    slopes = D * 0.0
    for k in range(K):
        rate = tl.load(known + layer * (K + 1) + 1 + k) / middle
        share = tl.exp(D * (rate - slowest))
        total += share
        slopes += share * rate
    return tl.exp(D * slowest), total, slopes


@triton.jit(do_not_specialize=["count", "layers", "blocks"])
def joint_kernel(apart, sums, known, weights, values, count, layers, blocks, LABELLED: tl.constexpr, K: tl.constexpr,
                 BLOCK: tl.constexpr, MANY: tl.constexpr, DIFFERENCE: tl.constexpr, LEAST: tl.constexpr):  # fmt: skip
    """values(tile) = the sum of w_ij prod_l k_l over a tile of pairs; apart is replaced by the derivative."""
    tile = tl.program_id(0)
    i = (tile // blocks * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    j = (tile % blocks * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = (i < count)[:, None] & (j < count)[None, :]
    at = i[:, None] * count + j[None, :]
    if LABELLED:
        different = total_of(sums, 0, 2, blocks * blocks, MANY)
        joint = tl.where(inside & unlike(weights, i, j, count), 1.0 / tl.maximum(different, 1.0), 0.0)
    else:
        joint = tl.load(weights + at, mask=inside, other=0.0)
    each = count.to(tl.int64) * count
    for layer in range(layers):
        middle = middle_of(sums, known, layer, count, blocks * blocks, K, MANY, DIFFERENCE, LEAST)
        largest, total, slopes = shares(apart, layer * each + at, inside, known, layer, middle, K)
        joint *= largest * total / K
    tl.store(values + tile, tl.sum(tl.sum(joint, 1), 0))
    for layer in range(layers):
        middle = middle_of(sums, known, layer, count, blocks * blocks, K, MANY, DIFFERENCE, LEAST)
        largest, total, slopes = shares(apart, layer * each + at, inside, known, layer, middle, K)
        tl.store(apart + layer * each + at, joint * slopes / total, mask=inside)


@triton.jit(do_not_specialize=["count", "width"])
def gradient_kernel(by_value, side, groups, by_apart, grads, count, width, BLOCK: tl.constexpr,
                    CHANNELS: tl.constexpr):  # fmt: skip
    """grads(i) = 4 by_value sum over j of by_apart_ij (x_i - x_j), for a group of one layer's channels."""
    group = groups + tl.program_id(1) * 3
    layer = tl.load(group)
    c = tl.load(group + 1) + tl.arange(0, CHANNELS)
    there = (c < tl.load(group + 2))[None, :]
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    own = (i < count)[:, None]
    x = tl.load(side + i[:, None] * width + c[None, :], mask=own & there, other=0.0)
    total = tl.zeros((BLOCK, CHANNELS), side.dtype.element_ty)
    for first in range(0, count, BLOCK):
        j = first + tl.arange(0, BLOCK)
        y = tl.load(side + j[:, None].to(tl.int64) * width + c[None, :], mask=(j < count)[:, None] & there, other=0.0)
        at = by_apart + (layer * count.to(tl.int64) + i[:, None]) * count + j[None, :]
        slope = tl.load(at, mask=own & (j < count)[None, :], other=0.0)
        total += tl.sum(slope[:, :, None] * (x[:, None, :] - y[None, :, :]), 1)
    tl.store(grads + i[:, None] * width + c[None, :], 4 * tl.load(by_value) * total, mask=own & there)


def value(layers: Sequence[Tensor], mixtures: tuple[Mixture, ...], weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The weighted sum, the concatenated layers (B, sum of C_l), and the sum's derivative by distances (L, B, B)."""
    side = torch.cat(tuple(layers), 1)
    count, width = side.shape
    columns, _ = _columns(tuple(x.shape[1] for x in layers), side.device)
    known = _known(mixtures, side.dtype, side.device)
    blocks = ceil_div(count, BLOCK)
    apart = side.new_empty(len(layers), count, count)
    sums = side.new_empty(len(layers), blocks * blocks, 3)
    values = side.new_empty(blocks * blocks)
    weights, labelled = weights.contiguous(), weights.ndim == 1

    def work() -> None:
        launch(distances_kernel, (len(values), len(layers)), (side, columns, weights, apart, sums),
               (count, width, blocks), WARPS, LABELLED=labelled, BLOCK=BLOCK, CHANNELS=CHANNELS)  # fmt: skip
        launch(joint_kernel, (len(values),), (apart, sums, known, weights, values), (count, len(layers), blocks), WARPS,
               LABELLED=labelled, K=known.shape[1] - 1, BLOCK=BLOCK, MANY=MANY, DIFFERENCE=least_difference(side),
               LEAST=least_bandwidth(side.dtype))  # fmt: skip

    repeat("joint_gaussians.value", work, (side, columns, weights, known, apart, sums, values))
    return values.sum(), side, apart


def gradients(by_value: Tensor, layers: Sequence[Tensor], side: Tensor, by_apart: Tensor) -> Sequence[Tensor]:
    """The layers' gradients (B, C_l), from the result of ``value``."""
    (count, width), channels = side.shape, tuple(x.shape[1] for x in layers)
    _, groups = _columns(channels, side.device)
    grads = torch.empty_like(side)
    tensors = by_value, side, groups, by_apart, grads
    grid = ceil_div(count, BLOCK), len(groups)
    repeat("joint_gaussians.gradients", lambda: launch(
        gradient_kernel, grid, tensors, (count, width), WARPS, BLOCK=BLOCK, CHANNELS=CHANNELS
    ), tensors)  # fmt: skip
    return grads.split(channels, 1)


@functools.lru_cache(256)
def _columns(channels: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """The first column of each layer, and groups of CHANNELS of one layer: its number, first and last column."""
    begins = [0, *itertools.accumulate(channels)]
    groups = [
        (layer, first, last)
        for layer, (begin, last) in enumerate(itertools.pairwise(begins))
        for first in range(begin, last, CHANNELS)
    ]
    return torch.tensor(begins, dtype=torch.int32).to(device), torch.tensor(groups, dtype=torch.int32).to(device)


@functools.lru_cache(256)
def _known(mixtures: tuple[Mixture, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """For each layer its bandwidth, 0 if it must be estimated, and -1 / factor for each of its Gaussians."""
    most = max(len(mixture.factors) for mixture in mixtures)
    rows = [[mixture.bandwidth or 0.0, *(-1 / f for f in mixture.repeated(most))] for mixture in mixtures]
    return torch.tensor(rows, dtype=dtype).to(device)
