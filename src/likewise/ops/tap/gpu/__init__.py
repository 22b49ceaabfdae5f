"""TAP's distances on a GPU, without gradients: convolutions in float16 with float32 sums, the rest in float32.

Pairs are stored one after the other in one long line of cells, with (x_steps + halo) rows of (y_steps + halo) cells
each, where halo is half the largest kernel. The halo is zero, and so are the cells before the first pair, so a kernel's
tap is the same step along the line for every cell: nothing is masked while a convolution sums. There are four kernels:

``distances``: D, and D and time in float16. D is -1 outside of a pair, which tells the other kernels which cells to
skip. ``first`` and ``middle``: a convolution with its bias, ReLU and mask, a product of matrices for each row of its
kernel
    or for each tap. The last of them does not store its result h (cells, width), but its products with each tap of the
    last convolution, (taps, cells).
``attend``: adds these products to g, and computes the sum of softmax(-(D + g)) D over a block of rows.

Where float16 overflows, NaN is stored: unlike an infinity, it survives every ReLU and reaches the distance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.ground import at_least_float32, zero_padding
from likewise.ops.launch.launcher import launch
from likewise.ops.tap import tiles as plan
from likewise.ops.tap.gpu import convolutions
from likewise.ops.tap.network import LARGEST_HALF as LARGEST
from likewise.ops.tap.network import Network, power_of_two
from likewise.ops.tap.tiles import Tile

# To be tuned on the machine at hand; powers of two.
SCRATCH_BYTES = 1 << 30  # for the intermediate results of the pairs in progress
DISTANCE_BLOCK, DISTANCE_WARPS = 256, 4  # cells of a program
ATTEND_CELLS, ATTEND_WARPS = 1024, 4
ATTEND_COLUMNS = 128  # the most columns at once; longer rows are read in several steps
FEW_CHANNELS = 64  # frames with more channels are compared by a matrix product

LARGEST_HALF = tl.constexpr(LARGEST)
LOWEST = tl.constexpr(-1e30)


@triton.jit(do_not_specialize=["channels", "x_frames", "y_frames"])
def distances_kernel(x, y, x_lengths, y_lengths, given, tile, distances, inputs, channels, x_frames, y_frames,
                     HALO: tl.constexpr, GIVEN: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """x (items, channels, x_frames) and y in the same layout, or their distances (rows, x_steps, columns, y_steps)."""
    first_x = tl.load(tile)
    first_y = tl.load(tile + 1)
    pairs = tl.load(tile + 2).to(tl.int32)
    columns = tl.load(tile + 3).to(tl.int32)
    diagonal = tl.load(tile + 4)
    x_steps = tl.load(tile + 5).to(tl.int32)
    y_steps = tl.load(tile + 6).to(tl.int32)
    stride = y_steps + HALO
    each = (x_steps + HALO) * stride
    cell = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pair = cell // each
    i = (cell - pair * each) // stride
    j = cell - pair * each - i * stride
    row = pair // columns
    column = pair - row * columns
    item_x = first_x + row
    item_y = first_y + column + row * diagonal
    here = pair < pairs
    n = tl.load(x_lengths + item_x, mask=here, other=0).to(tl.int32)
    m = tl.load(y_lengths + item_y, mask=here, other=0).to(tl.int32)
    inside = (i < n) & (j < m)
    if GIVEN:
        at = (row.to(tl.int64) * x_steps + i) * columns + column
        D = tl.load(given + at * y_steps + j, mask=inside, other=0.0)
    else:
        x_at = x + item_x * channels * x_frames + i
        y_at = y + item_y * channels * y_frames + j
        total = tl.zeros((BLOCK,), tl.float32)
        for c in range(channels):
            x_here = tl.load(x_at + c * x_frames, mask=inside, other=0.0)
            y_here = tl.load(y_at + c * y_frames, mask=inside, other=0.0)
            total += (x_here - y_here) * (x_here - y_here)
        D = tl.sqrt_rn(total)
    time = tl.abs((i + 1).to(tl.float32) / tl.maximum(n, 1) - (j + 1).to(tl.float32) / tl.maximum(m, 1))
    tl.store(distances + cell, tl.where(inside, D, -1.0))
    half_at = inputs + 2 * cell.to(tl.int64)
    half = tl.where(D > LARGEST_HALF, float("nan"), D)
    tl.store(half_at, tl.where(inside, half, 0.0).to(tl.float16))
    tl.store(half_at + 1, tl.where(inside, time, 0.0).to(tl.float16))


@triton.jit(do_not_specialize=["plane"])
def attend_kernel(distances, products, bias, tile, sums, plane, HALO: tl.constexpr, K: tl.constexpr,
                  ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    """Sums (pairs, blocks of rows) of softmax(-(D + g)) D."""
    x_steps = tl.load(tile + 5).to(tl.int32)
    y_steps = tl.load(tile + 6).to(tl.int32)
    stride = y_steps + HALO
    pair = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    before_pair = pair * (x_steps + HALO) * stride
    distances += before_pair
    products += before_pair
    plane = plane.to(tl.int64)
    constant = tl.load(bias)
    # A softmax over columns in blocks: previous sums are rescaled when a larger score is found.
    largest = tl.full((ROWS,), LOWEST, tl.float32)
    shares = tl.zeros((ROWS,), tl.float32)
    weighted = tl.zeros((ROWS,), tl.float32)
    real = tl.zeros((ROWS,), tl.int32)
    for first in range(0, y_steps, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        here = (row < x_steps)[:, None] & (column < y_steps)[None, :]
        cell = row[:, None] * stride + column[None, :]
        D = tl.load(distances + cell, mask=here, other=-1.0)
        inside = D >= 0
        g = tl.zeros((ROWS, COLUMNS), tl.float32) + constant
        for tap in tl.static_range(K * K):
            shift = (tap // K - K // 2) * stride + tap % K - K // 2
            g += tl.load(products + (tap * plane + shift) + cell, mask=inside, other=0.0)
        score = tl.where(inside, -(D + g), LOWEST)
        before = largest
        largest = tl.maximum(largest, tl.max(score, 1))
        share = tl.where(inside, tl.exp(score - largest[:, None]), 0.0)
        shrunk = tl.exp(before - largest)
        shares = shares * shrunk + tl.sum(share, 1)
        weighted = weighted * shrunk + tl.sum(tl.where(inside, share * D, 0.0), 1)
        real = tl.maximum(real, tl.max(inside.to(tl.int32), 1))
    found = tl.where(real > 0, weighted / tl.where(real > 0, shares, 1.0), 0.0)
    tl.store(sums + pair * tl.num_programs(1) + tl.program_id(1), tl.sum(found, 0))


def tap_distances(
    x: Tensor, y: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """Distances (N, M), float32, from x (N, Tx, C) of lengths n to y (M, Ty, C) of lengths m; NaN on overflow.

    weights (out, in, K, K) and biases (out,) of the convolutions. Memory: SCRATCH_BYTES, or the memory of one pair if
    that is more.
    """
    network = Network.of(weights, biases)
    n, order_x = n.cpu().sort()
    m, order_y = m.cpu().sort()
    tiles = plan.all_pairs(n, m, network.halo, SCRATCH_BYTES // network.bytes_per_cell)
    order_x, order_y = order_x.to(x.device), order_y.to(x.device)
    work = Work.of(x[order_x], y[order_y], n, m, network, tiles)
    found = torch.empty(len(x), len(y), device=x.device)
    for k, tile in enumerate(tiles):
        rows = slice(tile.first_x, tile.first_x + tile.rows)
        found[rows, tile.first_y : tile.first_y + tile.columns] = work.run(k).view(tile.rows, tile.columns)
    return (found / work.n[:, None])[order_x.argsort()][:, order_y.argsort()]


def tap_pairs(
    x: Tensor, y: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """Distances (B,), float32, from x (B, Tx, C) of lengths n to y (B, Ty, C) of lengths m; NaN on overflow."""
    network = Network.of(weights, biases)
    n, order = n.cpu().sort()
    m = m.cpu()[order]
    tiles = plan.paired(n, m, network.halo, SCRATCH_BYTES // network.bytes_per_cell)
    order = order.to(x.device)
    work = Work.of(x[order], y[order], n, m, network, tiles)
    return (torch.cat([work.run(k) for k in range(len(tiles))]) / work.n)[order.argsort()]


@dataclass(frozen=True)
class Work:
    """Sequences in the order of the tiles, and scratch that the tiles use in turn."""

    x: Tensor  # (N, C, Tx); with many channels (N, Tx, C), zero in the padding
    y: Tensor
    n: Tensor
    m: Tensor
    network: Network
    tiles: list[Tile]
    numbers: Tensor  # (tiles, 8)
    distances: Tensor  # (cells,)
    inputs: Tensor  # (cells, 2)
    hidden: list[Tensor]  # (cells, width)
    products: Tensor  # (taps, cells)
    plane: int  # from one tap's products to the next
    far: bool  # many channels

    @classmethod
    def of(cls, x: Tensor, y: Tensor, n: Tensor, m: Tensor, network: Network, tiles: list[Tile]) -> "Work":
        """Allocate memory for the largest tile, with a margin of zeros before and after it."""
        halo, width, device = network.halo, network.width, x.device
        n_there, m_there = n.to(device), m.to(device)
        x, y = at_least_float32(x[:, : n.max()]), at_least_float32(y[:, : m.max()])
        far = x.shape[2] > FEW_CHANNELS
        if not far:
            x, y = x.mT.contiguous(), y.mT.contiguous()
        else:
            x, y = zero_padding(x, n_there), zero_padding(y, m_there)
        block = max(DISTANCE_BLOCK, convolutions.FIRST_BLOCK, convolutions.MIDDLE_ROWS * network.group)
        cells = -(-max(tile.cells(halo) for tile in tiles) // block) * block
        # The first convolution's windows are wider than its kernel, by less than the 16 cells of the widest.
        margin = -(-(halo * (int(m.max()) + halo + 1) + 16) // 16) * 16
        plane = cells + 2 * margin
        half = torch.float16
        return cls(
            x,
            y,
            n_there,
            m_there,
            network,
            tiles,
            torch.tensor([tile.numbers() for tile in tiles]).to(device),
            torch.full((plane,), -1.0, device=device)[margin:],
            torch.zeros(plane, 2, dtype=half, device=device)[margin:],
            [torch.zeros(plane, width, dtype=half, device=device)[margin:] for _ in range(network.hidden)],
            torch.zeros(network.sides[-1] ** 2, plane, device=device)[:, margin:],
            plane,
            far,
        )

    def run(self, k: int) -> Tensor:
        """Sums (pairs,) of softmax(-(D + g)) D, of tile k."""
        tile = self.tiles[k]
        self._compare(tile, self.numbers[k])
        self._convolve(tile)
        # The same number of columns for every tile, so one kernel serves them all.
        columns = min(ATTEND_COLUMNS, power_of_two(self.y.shape[1 if self.far else 2]))
        rows = ATTEND_CELLS // columns
        sums = torch.empty(tile.pairs, -(-tile.x_steps // rows), device=self.x.device)
        launch(
            attend_kernel,
            tuple(sums.shape),
            (self.distances, self.products, self.network.biases[-1], self.numbers[k], sums),
            (self.plane,),
            ATTEND_WARPS,
            HALO=self.network.halo,
            K=self.network.sides[-1],
            ROWS=rows,
            COLUMNS=columns,
        )
        return sums.sum(1)

    def _compare(self, tile: Tile, numbers: Tensor) -> None:
        """Compute D and time."""
        given = _far(self.x, self.y, tile) if self.far else None
        launch(
            distances_kernel,
            (-(-tile.cells(self.network.halo) // DISTANCE_BLOCK),),
            (self.x, self.y, self.n, self.m, self.x if given is None else given, numbers, self.distances, self.inputs),
            (self.x.shape[1], self.x.shape[2], self.y.shape[2]),
            DISTANCE_WARPS,
            HALO=self.network.halo,
            GIVEN=given is not None,
            BLOCK=DISTANCE_BLOCK,
        )

    def _convolve(self, tile: Tile) -> None:
        """Compute all convolutions except the last, and the products of their results with its taps."""
        network, stride = self.network, tile.y_steps + self.network.halo
        cells = tile.cells(network.halo)
        hidden = [*self.hidden, self.inputs]  # without a middle convolution there is none, and it is not written
        given = self.plane, stride, cells
        convolutions.first(self.inputs, self.distances, network, hidden[0], self.products, *given, keep=False)
        for layer in range(1, len(network.sides) - 1):
            into = hidden[layer % network.hidden]
            convolutions.middle(
                hidden[(layer - 1) % network.hidden], self.distances, network, layer, into, self.products, *given,
                keep=False,
            )  # fmt: skip


def _far(x: Tensor, y: Tensor, tile: Tile) -> Tensor:
    """Distances (rows, x_steps, columns, y_steps), computed in float64: the squares nearly cancel for close frames."""
    x = x[tile.first_x : tile.first_x + tile.rows, : tile.x_steps].double()
    if tile.diagonal:
        y = y[tile.first_y : tile.first_y + tile.rows, : tile.y_steps].double()
        squares = x.square().sum(2)[:, :, None] + y.square().sum(2)[:, None]
    else:
        x = x.flatten(0, 1)
        y = y[tile.first_y : tile.first_y + tile.columns, : tile.y_steps].double().flatten(0, 1)
        squares = x.square().sum(1)[:, None] + y.square().sum(1)
    apart = squares - 2 * x @ y.mT
    return torch.where(apart > 1e-14 * squares, apart, 0).sqrt().float()
