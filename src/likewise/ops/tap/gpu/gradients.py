"""Distances of some pairs, and their gradients, by the kernels of ``slopes.py``."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from likewise.ops.ground import at_least_float32
from likewise.ops.launch.launcher import launch
from likewise.ops.tap.gpu import convolutions
from likewise.ops.tap.gpu import slopes as kernels
from likewise.ops.tap.gpu.order import Order
from likewise.ops.tap.lines import BLOCK as LINE_BLOCK
from likewise.ops.tap.lines import Line
from likewise.ops.tap.network import Network, bands, power_of_two

# To be tuned on the machine at hand; powers of two, except the first two.
SCRATCH_BYTES = 4 << 30  # for the intermediate results of a line
PROGRAMS = 1056  # programs that share the blocks of a line, each with its own sum
CELL_BLOCK, CELL_WARPS = 256, 4
TABLE_BLOCK = 128
ATTEND_CELLS, ATTEND_WARPS = 256, 2
ATTEND_COLUMNS = 256
LAST_BLOCK, LAST_WARPS = 128, 2  # for up to 32 channels and 25 taps, and more for more
WEIGHT_ROWS, WEIGHT_WARPS, WEIGHT_STAGES = 32, 8, 4  # groups of a program
SPARE_MEMORY = 16 << 10  # bytes of shared memory reserved for the compiler
WEIGHT_CACHE = ".ca"  # the cells of neighbouring groups overlap
WEIGHT_WHOLE, WEIGHT_CHUNK, WEIGHT_PROGRAMS = 128, 256, 132
FRAME_BLOCK, FRAME_CHANNELS, FRAME_WARPS = 32, 64, 1
FEW_CHANNELS = 64  # frames with more channels are compared by a matrix product
MOST_FRAMES = 1 << 26  # numbers in the frames of a line's pairs
PEAK = 256.0  # the largest slope of g is scaled to between half of this and this


@dataclass(frozen=True)
class Gradients:
    """Gradients of a sum of distances, float32."""

    x: Tensor
    y: Tensor
    weights: list[Tensor]  # (out, in, K, K)
    biases: list[Tensor]  # (out,)

    @property
    def tensors(self) -> list[Tensor]:
        """All of them."""
        return [self.x, self.y, *self.weights, *self.biases]


def tap_gradients(
    x: Tensor, y: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor],
    items: Tensor, others: Tensor, slopes: Tensor,
) -> Gradients:  # fmt: skip
    """Gradients of sum_k slopes[k] d(x[items[k]], y[others[k]]), all as in ``Work``."""
    if len(items):
        return Work(x, y, n, m, weights, biases, items, others).gradients(slopes)
    zeros = [torch.zeros_like(t, dtype=torch.float32) for t in (x, y, *weights, *biases)]
    return Gradients(zeros[0], zeros[1], zeros[2 : 2 + len(weights)], zeros[2 + len(weights) :])


class Work:
    """Some pairs in lines, scratch for the largest line, and sums of gradients."""

    def __init__(
        self, x: Tensor, y: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor],
        items: Tensor | None = None, others: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Pairs of x (N, Tx, C), of lengths n, and y (M, Ty, C), of lengths m, on the CPU.

        items and others (P,) are their numbers; without them, these are all pairs, row by row.
        """
        self.shapes = x.shape, y.shape
        self.parameters = weights, biases
        self.network = Network.of(weights, biases)
        self.x = at_least_float32(x[:, : n.max()]).mT.contiguous()  # (N, C, T)
        self.y = self.x if y is x and m is n else at_least_float32(y[:, : m.max()]).mT.contiguous()
        frames = (self.x.shape[2] + self.y.shape[2]) * x.shape[2]
        limits = SCRATCH_BYTES // self.bytes_per_cell, max(1, MOST_FRAMES // frames)
        halo, device = self.network.halo, x.device
        if items is None or others is None:
            self.order = Order.of_all(n, m, halo, limits, device)
        else:
            self.order = Order.of(n, m, items.cpu(), others.cpu(), halo, limits, device)
        self.n, self.m = self.order.n, self.order.m
        self.forward: Line | None = None  # the line whose forward pass is in the scratch memory

    def values(self) -> Tensor:
        """Distances (P,), float32; NaN where float16 overflows. One line is kept for the gradients."""
        found = []
        with torch.cuda.device_of(self.x):
            for line in self._lines():
                self._forward(line, keep=self.is_whole)
                found.append(self._values(line))
        if not self.is_whole:
            self.free()
        sums = torch.cat(found) if len(found) > 1 else found[0]
        return torch.empty_like(sums).scatter_(0, self.order.places, sums / self.order.frames)

    def gradients(self, slopes: Tensor) -> Gradients:
        """Gradients of the sum of slopes (P,) times the distances; not finite where float16 overflows."""
        self._prepare()
        slopes = slopes.float()[self.order.places] / self.order.frames
        with torch.cuda.device_of(self.x):
            for line in self._lines() if self.forward is None else [self.forward]:
                if self.forward is None:
                    self._forward(line, keep=True)
                self._add(line, slopes if self.is_whole else slopes[line.first : line.last].clone())
        self.free()
        return self._found()

    @property
    def is_whole(self) -> bool:
        """Whether all pairs are in one line."""
        return len(self.order.cuts) == 1

    def free(self) -> None:
        """Free the scratch memory; its contents are recomputed if they are needed."""
        self.forward = None
        for name in ("distances", "inputs", "hidden", "spare", "to_g", "to_D", "products", "narrow", "wide"):
            self.__dict__.pop(name, None)

    def _lines(self) -> Iterator[Line]:
        """Yield one line at a time, with scratch memory for any of them."""
        cuts = self.order.cuts
        self._allocate(max(rows * stride for _, _, stride, rows in cuts), max(stride for _, _, stride, _ in cuts))
        for cut in cuts:
            yield self._lay(*cut)

    def _lay(self, first: int, last: int, stride: int, rows: int) -> Line:
        """Make a line and its table."""
        cells = -(-rows * stride // LINE_BLOCK) * LINE_BLOCK
        table = torch.full((-(-cells // stride), 4), -1, dtype=torch.int32, device=self.x.device)
        items, others, before = self.order.items, self.order.others, self.order.before
        if not self.is_whole:
            items, others, before = (t[first:last].clone() for t in (items, others, before))
            before -= before[0].clone()
        launch(
            kernels.table_kernel, (last - first,), (items, others, before, self.n, table), (), 4, BLOCK=TABLE_BLOCK,
        )  # fmt: skip
        return Line(first, last, stride, cells, table, items, others, before * stride)

    def _prepare(self) -> None:
        """Zero the gradients."""
        shapes = [self.x.shape, self.y.shape, *self.network.shapes, *(bias.shape for bias in self.network.biases)]
        sizes = [math.prod(shape) for shape in shapes]
        flat = torch.zeros(sum(sizes), device=self.x.device)
        parts = [part.view(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)]
        layers = len(self.network.sides)
        self.to_x, self.to_y, self.to_taps, self.to_biases = *parts[:2], parts[2 : 2 + layers], parts[2 + layers :]

    @property
    def last_warps(self) -> int:
        """Warps of the kernels that hold sums for all channels, and for all taps of an outer convolution."""
        return LAST_WARPS * max(1, self.network.width // 32) * (2 if self.taps > 25 else 1)

    @property
    def taps(self) -> int:
        """The largest number of products per cell with the taps of the first or the last convolution."""
        return max(self.network.sides[0], self.network.sides[-1]) ** 2

    @property
    def bytes_per_cell(self) -> int:
        """D, D and time, slopes of g and of D, the output of every ReLU, slopes of one, and products with taps."""
        return 4 + 4 + 8 + 2 * self.network.width * len(self.network.sides) + 4 * self.taps

    def _allocate(self, cells: int, stride: int) -> None:
        """Allocate scratch memory for lines of this many cells, with a margin before and after them."""
        halo, width, device = self.network.halo, self.network.width, self.x.device
        self.margin = margin = -(-(halo * (stride + 1) + 2 * _reach(width)) // 16) * 16
        cells = -(-cells // LINE_BLOCK) * LINE_BLOCK + stride
        self.plane = plane = -(-(cells + 2 * margin) // 16) * 16
        arrays = len(self.network.sides)
        # Two blocks of memory, so that few operations clear all margins.
        self.narrow = torch.empty(4 + self.taps, plane, device=device)
        self.wide = torch.empty(arrays, plane, width, dtype=torch.float16, device=device)
        self._clear(slice(margin))
        self.distances, self.to_g, self.to_D, inputs = self.narrow[:4, margin:]
        self.inputs = inputs.view(torch.float16).view(-1, 2)
        self.products = self.narrow[4:, margin:]
        *self.hidden, self.spare = self.wide[:, margin:]

    def _clear(self, some: slice) -> None:
        """Clear cells of the scratch memory, counted from its beginning."""
        self.narrow[:, some] = 0
        self.narrow[0, some] = -1  # the distances
        self.wide[:, some] = 0

    def _forward(self, line: Line, *, keep: bool) -> None:
        """Compute D and time, all convolutions except the last, and products with its taps."""
        self.forward = line
        after = self.margin + line.cells  # the kernels write every cell of a line
        self._clear(slice(after, after + line.stride + self.margin))
        self._compare(line)
        network, given = self.network, (self.plane, line.stride, line.cells)
        convolutions.first(self.inputs, self.distances, network, self.hidden[0], self.products, *given, keep=keep)
        for layer in range(1, len(network.sides) - 1):
            convolutions.middle(
                self.hidden[layer - 1], self.distances, network, layer, self.hidden[layer], self.products, *given,
                keep=keep,
            )  # fmt: skip

    def _values(self, line: Line) -> Tensor:
        """Sums (pairs,) of A D."""
        columns, rows = self._block()
        sums = torch.empty(len(line.items), -(-self.x.shape[2] // rows), device=self.x.device)
        launch(
            kernels.attend_values, tuple(sums.shape),
            (self.distances, self.products, self.network.biases[-1], line.starts, line.items, self.n, sums),
            (line.stride, self.plane), ATTEND_WARPS, K=self.network.sides[-1], ROWS=rows, COLUMNS=columns,
        )  # fmt: skip
        return sums.sum(1)

    def _block(self) -> tuple[int, int]:
        """Columns and rows that a program processes at once, the same for every line."""
        columns = min(ATTEND_COLUMNS, power_of_two(self.y.shape[2] + self.network.halo))
        return columns, ATTEND_CELLS // columns

    def _add(self, line: Line, slopes: Tensor) -> None:
        """Add the gradients of a line of pairs; this overwrites its forward pass."""
        self.forward = None
        scale = self._attend(line, slopes)
        self._through_convolutions(line, scale)
        self._to_frames(line, scale)

    def _compare(self, line: Line) -> None:
        """Compute D and time."""
        far = self.x.shape[1] > FEW_CHANNELS
        given = _far(self.x[line.items], self.y[line.others]) if far else self.x
        launch(
            kernels.line_kernel, (line.cells // CELL_BLOCK,),
            (self.x, self.y, self.n, self.m, given, line.table, self.distances, self.inputs),
            (line.stride, self.x.shape[1], self.x.shape[2], self.y.shape[2]), CELL_WARPS,
            GIVEN=far, BLOCK=CELL_BLOCK,
        )  # fmt: skip

    def _attend(self, line: Line, slopes: Tensor) -> Tensor:
        """Compute the slopes of g and of D; return the power of two by which to scale those of g."""
        columns, rows = self._block()
        launch(
            kernels.attend_slopes, (-(-line.rows // rows),),
            (self.distances, self.products, self.network.biases[-1], slopes, line.table, self.to_g, self.to_D),
            (line.stride, self.plane, line.rows), ATTEND_WARPS, K=self.network.sides[-1], ROWS=rows, COLUMNS=columns,
        )  # fmt: skip
        peak = torch.linalg.vector_norm(self.to_g[: line.cells], torch.inf)
        return ((PEAK / peak.clamp(1e-30)).view(torch.int32) & 0x7F800000).view(torch.float32)  # its exponent only

    def _through_convolutions(self, line: Line, scale: Tensor) -> None:
        """Go from the slopes of g to products with the first convolution's taps, and add the weights' slopes."""
        network, width, matrices = self.network, self.network.width, self.network.matrices
        blocks, last = line.cells // LAST_BLOCK, matrices.back_last
        parts = torch.empty(min(blocks, PROGRAMS), width, last.shape[0], device=self.x.device)
        sums = torch.empty(len(parts), width, device=self.x.device)
        launch(
            kernels.last_slopes, (len(parts),),
            (self.to_g, scale, self.hidden[-1], last, self.spare, parts, sums), (line.stride, blocks), self.last_warps,
            K=network.sides[-1], TAPS_PADDED=last.shape[0], WIDTH=width, PARTS=len(parts), BLOCK=LAST_BLOCK,
        )  # fmt: skip
        found = parts.sum(0)[:, : network.sides[-1] ** 2].T.unflatten(0, 2 * (network.sides[-1],))
        self.to_taps[-1] += found[..., None] / scale
        slopes, free = self.spare, self.hidden[-1]
        for layer in reversed(range(1, len(network.sides) - 1)):
            below = self.hidden[layer - 1]
            top = layer == len(network.sides) - 2
            total = sums.sum(0) if top else slopes[: line.cells].sum(0, dtype=torch.float32)
            self.to_biases[layer] += total / scale
            self._to_weights(line, layer, below, slopes, scale)
            convolutions.middle_back(
                slopes, below, network, layer, free, self.products, self.plane, line.stride, line.cells
            )
            slopes, free = free, slopes
        self._to_first_weights(line, slopes, scale)
        if len(network.sides) == 2:  # no kernel has stored these products
            torch.mm(
                matrices.back_first[:, : network.sides[0] ** 2].T.float(), slopes[: line.cells].T.float(),
                out=self.products[: network.sides[0] ** 2, : line.cells],
            )  # fmt: skip

    def _to_weights(self, line: Line, layer: int, below: Tensor, slopes: Tensor, scale: Tensor) -> None:
        """Add the slopes of the taps of a middle convolution."""
        width, k = self.network.width, self.network.sides[layer]
        group = max(1, WEIGHT_WHOLE // width)
        block, whole = WEIGHT_ROWS * group, group * width
        blocks = line.cells // block
        chunks = -(-(group + k - 1) * width // WEIGHT_CHUNK)
        count = min(blocks, max(1, WEIGHT_PROGRAMS // (k * chunks)))
        parts = torch.empty(count, k, chunks * WEIGHT_CHUNK, whole, device=self.x.device)
        each = 2 * WEIGHT_ROWS * (WEIGHT_CHUNK + whole)  # bytes of a stage
        stages = min(WEIGHT_STAGES, max(1, (_shared_memory(parts) - SPARE_MEMORY) // each))
        launch(
            kernels.weight_slopes, (count, k, chunks), (below, slopes, parts), (line.stride, blocks),
            WEIGHT_WARPS, K=k, GROUP=group, CHUNK=WEIGHT_CHUNK, WIDTH=width, STAGES=stages, CACHE=WEIGHT_CACHE,
            PARTS=count, BLOCK=block,
        )  # fmt: skip
        total = parts.sum(0) / scale
        # A band has every tap once for each cell of the group.
        self.to_taps[layer] += bands(total, k, width).sum(0).unflatten(1, (k, width))

    def _to_first_weights(self, line: Line, slopes: Tensor, scale: Tensor) -> None:
        network, width, k = self.network, self.network.width, self.network.sides[0]
        if network.copies:
            return
        blocks, window = line.cells // LAST_BLOCK, network.matrices.first.shape[1]
        count = min(blocks, PROGRAMS)
        parts = torch.empty(count, k, window, width, device=self.x.device)
        launch(
            kernels.first_weight_slopes, (count,), (self.inputs, slopes, parts), (line.stride, blocks),
            self.last_warps, K=k, WINDOW=window, WIDTH=width, PARTS=count, BLOCK=LAST_BLOCK,
        )  # fmt: skip
        total = parts.sum(0) / scale
        self.to_taps[0] += total[:, : 2 * k].unflatten(1, (k, 2))
        self.to_biases[0] += total[0, -1]

    def _to_frames(self, line: Line, scale: Tensor) -> None:
        """Add the slopes of the frames."""
        launch(
            kernels.frame_weights, (line.cells // CELL_BLOCK,),
            (self.products, scale, self.distances, self.to_D), (line.stride, self.plane), CELL_WARPS,
            K=self.network.sides[0], BLOCK=CELL_BLOCK,
        )  # fmt: skip
        x, y = (self.x, line.items, self.n), (self.y, line.others, self.m)
        by_x = self._frame_slopes(line.starts, x, y, line.stride, 1)
        by_y = self._frame_slopes(line.starts, y, x, 1, line.stride)
        ascending = self.order.ascending
        if ascending is not None and self.is_whole:  # all pairs, for one y after the other
            shape = len(self.y), len(self.x)
            self.to_x += by_x.unflatten(0, shape).sum(0)
            self.to_y.index_add_(0, ascending, by_y.unflatten(0, shape).sum(1))
        else:
            self.to_x.index_add_(0, line.items, by_x)
            self.to_y.index_add_(0, line.others, by_y)

    def _frame_slopes(
        self, starts: Tensor, own: tuple[Tensor, Tensor, Tensor], other: tuple[Tensor, Tensor, Tensor], down: int,
        right: int,
    ) -> Tensor:  # fmt: skip
        """Slopes (pairs, C, T) of the frames of each pair's own item; given: frames, items and lengths."""
        channels, steps = own[0].shape[1:]
        some = min(FRAME_CHANNELS, power_of_two(channels))
        found = torch.empty(len(starts), channels, steps, device=starts.device)
        launch(
            kernels.frame_slopes, (len(starts), -(-steps // FRAME_BLOCK), -(-channels // some)),
            (self.to_D, own[0], other[0], starts, own[1], other[1], own[2], other[2], found),
            (down, right, channels, steps, other[0].shape[2]), FRAME_WARPS,
            OWN=FRAME_BLOCK, OTHER=FRAME_BLOCK, CHANNELS=some,
        )  # fmt: skip
        return found

    def _found(self) -> Gradients:
        """The gradients, without the channels that were padded, and with zeros for frames that were cut off."""
        to_taps, to_biases, (weights, biases) = self.to_taps, self.to_biases, self.parameters
        if self.network.copies:
            to_taps, to_biases = to_taps[1:], to_biases[1:]
        to_weights = [
            t.permute(3, 2, 0, 1)[: w.shape[0], : w.shape[1]].contiguous()
            for t, w in zip(to_taps, weights, strict=True)
        ]
        to_biases = [t[: len(b)] for t, b in zip(to_biases, biases, strict=True)]
        to_x, to_y = (
            functional.pad(to.mT, (0, 0, 0, shape[1] - to.shape[2]))
            for to, shape in zip((self.to_x, self.to_y), self.shapes, strict=True)
        )
        return Gradients(to_x, to_y, to_weights, to_biases)


def _shared_memory(tensor: Tensor) -> int:
    """Bytes of a multiprocessor's memory that a program may use."""
    if not tensor.is_cuda:
        return 1 << 30
    return torch.cuda.get_device_properties(tensor.device).shared_memory_per_block_optin


def _reach(width: int) -> int:
    """Cells beyond a kernel that a window of a block may read."""
    return 16 + max(WEIGHT_CHUNK, WEIGHT_WHOLE) // width


def _far(x: Tensor, y: Tensor) -> Tensor:
    """Distances (pairs, Tx, Ty) of (pairs, C, Tx) and (pairs, C, Ty), in float64: the squares nearly cancel."""
    x, y = torch.nan_to_num(x.double()), torch.nan_to_num(y.double())
    squares = x.square().sum(1)[:, :, None] + y.square().sum(1)[:, None]
    apart = torch.baddbmm(squares, x.mT, y, alpha=-2)
    return torch.where(apart > 1e-14 * squares, apart, 0).sqrt().float()
