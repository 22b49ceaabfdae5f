"""TAP's distances and their gradients by C++ kernels, in float32."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from likewise.ops import cpu
from likewise.ops.ground import scaled_down, zero_padding
from likewise.ops.tap import winograd

SLOTS = 16  # numbers of a cell come in sixteens: one vector, or a few
LARGEST_END, LARGEST_MIDDLE = 15, 7  # sides of the first and the last convolution, and of those between
CELL_WORK = 50  # of a cell, in the cells that ``share_out`` counts
PARTS = 8  # partial sums of gradients: their number and the order of additions are fixed
KEPT_BYTES = 1 << 30  # for the backward pass; with more, values are computed again


def fits(x: Tensor, y: Tensor, weights: Sequence[Tensor]) -> bool:
    """Whether the kernels support these inputs: not float64, and at least two convolutions of moderate size."""
    if not x.is_cpu or x.dtype == torch.float64 or not len(x) or not len(y) or not x.shape[2] or len(weights) < 2:
        return False
    widths = {*(len(w) for w in weights[:-1]), *(w.shape[1] for w in weights[1:])}
    ends, middle = (weights[0], weights[-1]), weights[1:-1]
    small = max(w.shape[2] for w in ends) <= LARGEST_END and all(w.shape[2] <= LARGEST_MIDDLE for w in middle)
    return small and len(widths) == 1 and not torch.compiler.is_compiling()


@dataclass(frozen=True)
class _Network:
    """The weights as Layout in layout.h has them; derivatives have the places of all but those of the backward pass."""

    sides: list[int]
    width: int

    @property
    def stride(self) -> int:
        return -(-self.width // SLOTS) * SLOTS

    def packed(self, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
        """One array, float32."""
        w, b = ([t.detach().float().numpy().astype(np.float64) for t in some] for some in (weights, biases))
        parts = [w[0].transpose(1, 2, 3, 0), b[0]]
        for middle, bias in zip(w[1:-1], b[1:-1], strict=True):
            parts += [winograd.transformed(middle), bias]
        parts += [w[-1][0].transpose(1, 2, 0), b[-1]]
        parts += [winograd.transformed(middle[..., ::-1, ::-1].swapaxes(0, 1)) for middle in w[1:-1]]
        parts += [w[0][:, 0, ::-1, ::-1].transpose(1, 2, 0), w[-1][0, :, ::-1, ::-1].transpose(1, 2, 0)]
        rows = [np.pad(part, [(0, 0)] * (part.ndim - 1) + [(0, self.stride - part.shape[-1])]) for part in parts]
        return torch.from_numpy(np.concatenate([row.ravel() for row in rows]).astype(np.float32))

    def sizes(self) -> list[int]:
        """Rows of each part that has a derivative."""
        found = [2 * self.sides[0] ** 2, 1]
        for _ in self.sides[1:-1]:
            found += [winograd.TILE**2 * self.width, 1]
        return [*found, self.sides[-1] ** 2, 1]

    def unpacked(self, sums: np.ndarray) -> tuple[list[Tensor], list[Tensor]]:
        """Derivatives of weights and biases, float64, from their packed form."""
        rows = sums.reshape(-1, self.stride)[:, : self.width]
        parts = np.split(rows, np.cumsum(self.sizes())[:-1])
        first, *middle, last = self.sides
        weights = [parts[0].reshape(2, first, first, -1).transpose(3, 0, 1, 2)]
        for k, side in enumerate(middle):
            at_points = parts[2 + 2 * k].reshape(winograd.TILE**2, self.width, self.width)
            weights.append(winograd.transformed_back(at_points, side))
        weights.append(parts[-2].reshape(last, last, -1).transpose(2, 0, 1)[None])
        biases = [*(part[0] for part in parts[1:-2:2]), parts[-1][0, :1]]
        return [torch.from_numpy(np.ascontiguousarray(w)) for w in weights], [torch.from_numpy(b) for b in biases]

    def kept(self, cells: Tensor) -> Tensor:
        """Floats that are kept for pairs of so many cells."""
        return cells + cells * (self.stride // 16) + self.sides[-1] ** 2 * self.stride


class Work:
    """Distances from x (N, Tx, C), of lengths n, to y (M, Ty, C) and their gradients; ``fits`` must hold."""

    def __init__(
        self, x: Tensor, y: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]
    ) -> None:
        self.shapes = x.shape, y.shape
        x, y = (zero_padding(t.detach(), k).float()[:, : k.max()] for t, k in ((x, n), (y, m)))
        x, y, self.unit = scaled_down(x, y)
        x, y = x.float(), y.float()
        self.x = x.contiguous()
        self.y = functional.pad(y.mT, (0, -y.shape[1] % SLOTS)).contiguous()  # (M, C, Ty)
        self.y_steps = y.shape[1]
        self.n, self.m = n.contiguous(), m.contiguous()
        self.network = _Network([w.shape[2] for w in weights], len(weights[0]))
        self.weights = self.network.packed(weights, biases)
        self.sides = torch.tensor(self.network.sides)

    def values(self, items: Tensor, others: Tensor, memory: "Memory | None" = None) -> Tensor:
        """Distances of pairs (B,), float32; what their gradients need goes to the memory."""
        order = self._order(items, others)
        found = torch.empty(len(items))
        problem = self._problem(items[order], others[order], memory and memory.first[order])
        at = 0 if memory is None else memory.numbers.data_ptr()

        def run(begin: int, end: int) -> None:
            cpu.native.tap_values(cpu.INSTRUCTION_SET, problem[0], at, found.data_ptr(), begin, end)

        cpu.share_out(len(items), CELL_WORK * self.x.shape[1] * self.y_steps, run)
        return torch.empty_like(found).index_copy_(0, order, found)

    def gradients(self, items: Tensor, others: Tensor, slopes: Tensor, memory: "Memory | None" = None) -> list[Tensor]:
        """Gradients of sum_k slopes[k] d(x[items[k]], y[others[k]]) by x, y, weights and biases."""
        order = self._order(items, others)
        slopes = slopes.detach().float()[order].contiguous()
        problem = self._problem(items[order], others[order], memory and memory.first[order])
        at = 0 if memory is None else memory.numbers.data_ptr()
        parts, count = min(PARTS, len(items)), len(items)
        to_x, to_y = torch.zeros(parts, *self.x.shape), torch.zeros(parts, *self.y.shape)
        sums = np.zeros((parts, sum(self.network.sizes()) * self.network.stride))

        def run(begin: int, end: int) -> None:
            for part in range(begin, end):
                cpu.native.tap_gradients(
                    cpu.INSTRUCTION_SET,
                    problem[0],
                    at,
                    slopes.data_ptr(),
                    to_x[part].data_ptr(),
                    to_y[part].data_ptr(),
                    sums[part].ctypes.data,
                    count * part // parts,
                    count * (part + 1) // parts,
                )

        cpu.share_out(parts, 2 * CELL_WORK * self.x.shape[1] * self.y_steps * count // max(parts, 1), run)
        weights, biases = self.network.unpacked(sums.sum(0))
        frames = to_x.sum(0), to_y.sum(0).mT[:, : self.y_steps]
        padded = [functional.pad(t, (0, 0, 0, s[1] - t.shape[1])) for t, s in zip(frames, self.shapes, strict=True)]
        return [*padded, *weights, *biases]

    def memory(self, items: Tensor, others: Tensor) -> "Memory | None":
        """Room for what the gradients of these pairs need, unless that is too much."""
        sizes = self.network.kept(self.n[items] * self.m[others])
        ends = sizes.cumsum(0)
        if 4 * int(ends[-1]) > KEPT_BYTES:
            return None
        return Memory(torch.empty(int(ends[-1])), ends - sizes)

    def _order(self, items: Tensor, others: Tensor) -> Tensor:
        """Pairs of one size one after the other."""
        return torch.argsort(self.n[items] * (self.y_steps + 1) + self.m[others], stable=True)

    def _problem(self, items: Tensor, others: Tensor, first: Tensor | None) -> tuple[object, tuple[object, ...]]:
        """The problem for the C++ kernels, with the tensors to which its addresses point."""
        native = cpu.native.TapProblem(
            x=self.x.data_ptr(),
            y=self.y.data_ptr(),
            x_lengths=self.n.data_ptr(),
            y_lengths=self.m.data_ptr(),
            items=items.data_ptr(),
            others=others.data_ptr(),
            kept=0 if first is None else first.data_ptr(),
            sides=self.sides.data_ptr(),
            weights=self.weights.data_ptr(),
            unit=self.unit,
            layers=len(self.network.sides),
            x_steps=self.x.shape[1],
            y_steps=self.y.shape[2],
            channels=self.x.shape[2],
            width=self.network.width,
            stride=self.network.stride,
        )
        return native, (items, others, first)


@dataclass(frozen=True)
class Memory:
    """What gradients need of pairs, and where it begins for each of them."""

    numbers: Tensor
    first: Tensor  # (B,) int64
