"""Convolutions of a line of cells in float16 with float32 sums, on a GPU: see ``__init__.py``."""

import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.launch.launcher import launch
from likewise.ops.tap.network import LARGEST_HALF as LARGEST
from likewise.ops.tap.network import Network

# To be tuned on the machine at hand; powers of two.
FIRST_BLOCK, FIRST_WARPS = 128, 4  # cells of a program
MIDDLE_ROWS, MIDDLE_WARPS = 128, 4  # groups of a program
MIDDLE_STAGES, SINGLE_STAGES = 3, 4  # chunks whose cells are loaded ahead; the second for groups of one
MIDDLE_CACHE = ".ca"  # neighbouring taps read almost the same cells: cache them in L1; ".cg" does not
WIDE_STAGES = 2  # chunks loaded ahead with more than 64 channels

LARGEST_HALF = tl.constexpr(LARGEST)


@triton.jit
def finish(total, distances, bias, last, hidden, products, start, plane, GROUP: tl.constexpr, KEEP: tl.constexpr,
           TAPS: tl.constexpr, TAPS_PADDED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Bias, ReLU and mask of (BLOCK / GROUP, GROUP WIDTH) numbers. KEEP stores the result.

    With TAPS, its products with the taps of the last convolution are stored.
    """
    group = tl.arange(0, BLOCK // GROUP)
    number = tl.arange(0, GROUP * WIDTH)
    total += tl.load(bias + number % WIDTH)[None, :]
    cell = group[:, None] * GROUP + (number // WIDTH)[None, :]
    inside = tl.load(distances + start + cell) >= 0
    h = tl.where(total <= 0, 0.0, total)
    h = tl.where(total > LARGEST_HALF, float("nan"), h)
    h = tl.where(inside, h, 0.0).to(tl.float16)
    store(h, last, hidden, products, start, plane, GROUP, KEEP, TAPS, TAPS_PADDED, WIDTH, BLOCK)


@triton.jit
def store(h, last, hidden, products, start, plane, GROUP: tl.constexpr, KEEP: tl.constexpr, TAPS: tl.constexpr,
          TAPS_PADDED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Store h itself, and its products with taps."""
    if KEEP:
        number = tl.arange(0, BLOCK // GROUP)[:, None] * (GROUP * WIDTH) + tl.arange(0, GROUP * WIDTH)[None, :]
        tl.store(hidden + start * WIDTH + number, h)
    if TAPS > 0:
        channel = tl.arange(0, WIDTH)
        tap = tl.arange(0, TAPS_PADDED)
        w = tl.load(last + channel[:, None] * TAPS_PADDED + tap[None, :])
        at = products + start + tap[None, :] * plane.to(tl.int64) + tl.arange(0, BLOCK)[:, None]
        tl.store(at, tl.dot(tl.reshape(h, (BLOCK, WIDTH)), w), mask=(tap < TAPS)[None, :])


@triton.jit(do_not_specialize=["stride", "plane"])
def first_kernel(inputs, distances, weights, bias, last, hidden, products, stride, plane, K: tl.constexpr,
                 WINDOW: tl.constexpr, WIDTH: tl.constexpr, KEEP: tl.constexpr, TAPS: tl.constexpr,
                 TAPS_PADDED: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """The K cells of a kernel's row, two numbers each, are adjacent: a row is one product. WINDOW >= 2 K."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    cell = tl.arange(0, BLOCK)
    channel = tl.arange(0, WIDTH)
    window = tl.arange(0, WINDOW)
    at = inputs + 2 * (start - (K // 2) * stride - K // 2) + 2 * cell[:, None] + window[None, :]
    w_at = weights + window[:, None] * WIDTH + channel[None, :]
    total = tl.zeros((BLOCK, WIDTH), tl.float32)
    for row in tl.static_range(K):
        h = tl.load(at + 2 * row * stride)
        total = tl.dot(h, tl.load(w_at + row * WINDOW * WIDTH), total)
    finish(total, distances, bias, last, hidden, products, start, plane, 1, KEEP, TAPS, TAPS_PADDED, WIDTH, BLOCK)


@triton.jit(do_not_specialize=["stride", "plane"])
def middle_kernel(given, mask, weights, bias, last, hidden, products, stride, plane, K: tl.constexpr,
                  GROUP: tl.constexpr, CHUNK: tl.constexpr, STAGES: tl.constexpr, CACHE: tl.constexpr,
                  WIDTH: tl.constexpr, GATED: tl.constexpr, KEEP: tl.constexpr, TAPS: tl.constexpr,
                  TAPS_PADDED: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """GROUP neighbouring cells at once: a row of the kernel is the product of the GROUP + K - 1 cells around them and a
    banded matrix, CHUNK of its rows at a time. More of it is zero for larger groups, but larger products are faster.

    mask: the distances; GATED: the output of a ReLU, whose derivative then follows the convolution.
    """
    WHOLE: tl.constexpr = GROUP * WIDTH
    CHUNKS: tl.constexpr = (GROUP + K - 1) * WIDTH // CHUNK
    start = tl.program_id(0).to(tl.int64) * BLOCK
    group = tl.arange(0, BLOCK // GROUP)
    inner = tl.arange(0, CHUNK)
    outer = tl.arange(0, WHOLE)
    at = given + (start - (K // 2) * stride - K // 2) * WIDTH + group[:, None] * WHOLE + inner[None, :]
    w_at = weights + inner[:, None] * WHOLE + outer[None, :]
    total = tl.zeros((BLOCK // GROUP, WHOLE), tl.float32)
    for step in tl.range(0, K * CHUNKS, num_stages=STAGES):
        h = tl.load(at + (step // CHUNKS) * stride * WIDTH + step % CHUNKS * CHUNK, cache_modifier=CACHE)
        w = tl.load(w_at + step * CHUNK * WHOLE, cache_modifier=CACHE)
        total = tl.dot(h, w, total)
    if GATED:
        gate = tl.load(mask + start * WIDTH + group[:, None] * WHOLE + outer[None, :])
        h = tl.where(gate > 0, total, 0.0).to(tl.float16)
        store(h, last, hidden, products, start, plane, GROUP, KEEP, TAPS, TAPS_PADDED, WIDTH, BLOCK)
    else:
        finish(total, mask, bias, last, hidden, products, start, plane, GROUP, KEEP, TAPS, TAPS_PADDED, WIDTH, BLOCK)


def first(
    inputs: Tensor, distances: Tensor, network: Network, hidden: Tensor, products: Tensor, plane: int, stride: int,
    cells: int, *, keep: bool,
) -> None:  # fmt: skip
    """The first convolution of (cells, 2), its bias and ReLU. With ``keep`` the result is stored in ``hidden``.

    If the last convolution comes next, products with its taps are stored.
    """
    weights, last, taps = network.matrices.first, network.matrices.last, _taps(network, 0)
    launch(
        first_kernel, (-(-cells // FIRST_BLOCK),),
        (inputs, distances, weights, network.biases[0], last, hidden, products), (stride, plane), FIRST_WARPS,
        K=network.sides[0], WINDOW=weights.shape[1], WIDTH=network.width, KEEP=keep or not taps, TAPS=taps,
        TAPS_PADDED=last.shape[1], BLOCK=FIRST_BLOCK,
    )  # fmt: skip


def middle(
    given: Tensor, distances: Tensor, network: Network, layer: int, hidden: Tensor, products: Tensor, plane: int,
    stride: int, cells: int, *, keep: bool,
) -> None:  # fmt: skip
    """Like ``first``, for a convolution of (cells, width)."""
    matrices, taps = network.matrices, _taps(network, layer)
    tensors = given, distances, matrices.middle[layer - 1], network.biases[layer], matrices.last, hidden, products
    convolve(network, layer, tensors, taps, plane, stride, cells, gated=False, keep=keep or not taps)


def middle_back(
    slopes: Tensor, below: Tensor, network: Network, layer: int, out: Tensor, products: Tensor, plane: int, stride: int,
    cells: int,
) -> None:  # fmt: skip
    """Slopes of the output ``below`` of a ReLU from those of the convolution of it, times the slope of the ReLU.

    Of the first ReLU, products with the first convolution's taps are stored, too.
    """
    matrices, taps = network.matrices, network.sides[0] ** 2 if layer == 1 else 0
    weights, last = matrices.back_middle[layer - 1], matrices.back_first
    tensors = slopes, below, weights, network.biases[layer], last, out, products
    convolve(network, layer, tensors, taps, plane, stride, cells, gated=True, keep=True)


def convolve(
    network: Network, layer: int, tensors: tuple[Tensor, ...], taps: int, plane: int, stride: int, cells: int, *,
    gated: bool, keep: bool,
) -> None:  # fmt: skip
    """Launch ``middle_kernel`` for a layer of this network."""
    group = network.group
    stages = WIDE_STAGES if network.width > 64 else MIDDLE_STAGES if group > 1 else SINGLE_STAGES
    block = MIDDLE_ROWS * group
    launch(
        middle_kernel, (-(-cells // block),), tensors, (stride, plane), MIDDLE_WARPS,
        K=network.sides[layer], GROUP=group, CHUNK=network.width * (1 if group == 1 else 2), STAGES=stages,
        CACHE=MIDDLE_CACHE, WIDTH=network.width, GATED=gated, KEEP=keep, TAPS=taps, TAPS_PADDED=tensors[4].shape[1],
        BLOCK=block,
    )  # fmt: skip


def _taps(network: Network, layer: int) -> int:
    """Taps of the last convolution if it comes next, and 0 otherwise."""
    return network.sides[-1] ** 2 if layer == len(network.sides) - 2 else 0
