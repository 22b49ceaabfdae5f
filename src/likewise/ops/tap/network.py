"""TAP's convolutions as matrices in float16, for the GPU kernels.

On a GPU, a step is bound by the host, so a network is packed by a few operations: which number goes where is found once
for each shape (``_plan``), by packing the numbers' own places.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

LARGEST_HALF = 65504.0
LEAST = 16  # the least rows and columns of a matrix for a GPU's matrix units
WHOLE = 64  # the columns of a middle convolution's matrix, or its width if that is more: see ``banded``
ALIGNED = 64  # every matrix begins at a multiple of this many numbers


@dataclass(frozen=True)
class Matrices:
    """The convolutions' taps as matrices, float16; unused rows and columns are zero."""

    first: Tensor  # (K, window, width): the taps of each row of the kernel, with the axes of tap and input combined
    middle: list[Tensor]  # for each layer between the first and the last, (K, (group + K - 1) width, group width)
    last: Tensor  # (width, taps)
    # The same from outputs to inputs, with reversed taps.
    back_first: Tensor  # (width, taps), only those of D; time has no gradient
    back_middle: list[Tensor]
    back_last: Tensor  # (taps, width)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Matrices":
        """All of them changed, in the order of the fields."""
        first, middle, last = change(self.first), [*map(change, self.middle)], change(self.last)
        return Matrices(
            first, middle, last, change(self.back_first), [*map(change, self.back_middle)], change(self.back_last)
        )


@dataclass(frozen=True)
class Network:
    """A network's matrices and biases."""

    sides: list[int]  # sides of the kernels
    shapes: list[tuple[int, ...]]  # of the taps (K, K, in, out): in is 2, or width; out is width, or 1
    width: int
    group: int  # the number of neighbouring cells that a middle convolution processes at once
    copies: bool  # the first convolution was added here, and has no parameters
    matrices: Matrices
    biases: list[Tensor]  # (width,) each, and (1,); float32

    @classmethod
    def of(cls, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> "Network":
        """Make a network from weights (out, in, K, K) and biases (out,). A weight too large for float16 becomes NaN."""
        given, device = [*weights, *biases], weights[0].device
        plan = _plan(tuple(tuple(t.shape) for t in weights), WHOLE, device)
        numbers = torch.cat([plan.constants, *(t.detach().float().flatten() for t in given)])
        half = numbers.half()
        half = torch.addcmul(half, half, plan.zero)  # infinity times zero is NaN
        packed, others = half[plan.matrices_from], numbers[plan.biases_from]
        places = iter(plan.places)
        matrices = plan.matrices.map(lambda like: packed[(at := next(places)) : at + like.numel()].view(like.shape))
        biases = [others[at : at + count] for at, count in plan.biases]
        return cls(plan.sides, plan.shapes, plan.width, plan.group, plan.copies, matrices, biases)

    @property
    def halo(self) -> int:
        """The reach of the largest kernel to each side."""
        return max(self.sides) // 2

    @property
    def hidden(self) -> int:
        """The number of arrays (cells, width) between one convolution and the next."""
        return min(len(self.sides) - 2, 2)

    @property
    def bytes_per_cell(self) -> int:
        """D, D and time in float16, the arrays between convolutions, and the products with the last one's taps."""
        return 4 + 4 + 2 * self.width * self.hidden + 4 * self.sides[-1] ** 2


@dataclass(frozen=True)
class _Plan:
    """Where each number of a network's matrices and biases is in 0, 1, and then all weights and biases, flattened."""

    sides: list[int]
    shapes: list[tuple[int, ...]]
    width: int
    group: int
    copies: bool
    matrices: Matrices  # of places, on the CPU
    places: list[int]  # where each begins
    matrices_from: Tensor
    biases: list[tuple[int, int]]  # the first number, and how many
    biases_from: Tensor
    constants: Tensor  # 0 and 1
    zero: Tensor  # in float16


@functools.lru_cache(64)
def _plan(shapes: tuple[tuple[int, ...], ...], whole: int, device: torch.device) -> _Plan:
    """The plan for weights of these shapes, whose numbers here are their places."""
    places, weights, biases = 2, [], []
    for shape in shapes:
        count = torch.Size(shape).numel()
        weights.append(torch.arange(places, places + count).view(shape))
        places += count
    for shape in shapes:
        biases.append(torch.arange(places, places + shape[0]))
        places += shape[0]
    copies = len(weights) == 1
    if copies:
        # A convolution that copies D and time, which pass the ReLU since neither is negative.
        weights, biases = [torch.eye(2).long()[:, :, None, None], *weights], [torch.zeros(2).long(), *biases]
    sides, width = [w.shape[2] for w in weights], power_of_two(len(weights[0]))
    taps = []
    for k, w in enumerate(weights):
        last = k == len(weights) - 1
        taps.append(_padded(w.permute(2, 3, 1, 0), width if k else 2, 1 if last else width))  # (K, K, in, out)
    padded = [*(functional.pad(b, (0, width - len(b))) for b in biases[:-1]), biases[-1]]
    group = max(1, whole // width)
    matrices = _matrices(taps, width, group)
    every: list[Tensor] = []
    matrices.map(lambda each: every.append(each) or each)
    places, matrices_from = _joined(every)
    ranges, biases_from = _joined(padded)
    counts = [(at, len(bias)) for at, bias in zip(ranges, padded, strict=True)]
    constants = torch.tensor([0.0, 1.0], device=device), torch.zeros((), dtype=torch.float16, device=device)
    return _Plan(
        sides, [tuple(t.shape) for t in taps], width, group, copies, matrices, places, matrices_from.to(device), counts,
        biases_from.to(device), *constants,
    )  # fmt: skip


def _matrices(taps: list[Tensor], width: int, group: int) -> Matrices:
    """The matrices of taps (K, K, in, out)."""
    side = taps[-1].shape[0]
    last = _padded(taps[-1].flatten(0, 1)[:, :, 0].T, width, power_of_two(side**2))
    from_D = taps[0][:, :, 0].flatten(0, 1).T
    return Matrices(
        _padded(taps[0].flatten(1, 2), power_of_two(2 * taps[0].shape[0]), width),
        [banded(t, group) for t in taps[1:-1]],
        last,
        _padded(from_D, width, power_of_two(from_D.shape[1])),
        [banded(t.flip(0, 1).mT, group) for t in taps[1:-1]],
        last.T,
    )


def _joined(parts: Sequence[Tensor]) -> tuple[list[int], Tensor]:
    """Where each part begins, and all of them flattened, with zeros in between."""
    at, places, flat = 0, [], []
    for part in parts:
        places.append(at)
        flat.append(functional.pad(part.flatten(), (0, -part.numel() % ALIGNED)))
        at += len(flat[-1])
    return places, torch.cat(flat)


def banded(taps: Tensor, group: int) -> Tensor:
    """Matrices (K, (group + K - 1) width, group width) from taps (K, K, width, width): one for each row of a kernel.

    It maps the numbers of group + K - 1 adjacent cells to those of the ``group`` cells in their middle.
    """
    k, _, width, _ = taps.shape
    found = taps.new_zeros(k, (group + k - 1) * width, group * width)
    bands(found, k, width).copy_(taps.flatten(1, 2))
    return found


def bands(matrices: Tensor, k: int, width: int) -> Tensor:
    """The taps (K, K width, width) of each cell of a group in banded matrices: a view (group, K, K width, width)."""
    rows, whole = matrices.shape[1:]
    strides = width * whole + width, rows * whole, whole, 1
    return matrices.as_strided((whole // width, k, k * width, width), strides, matrices.storage_offset())


def power_of_two(least: int) -> int:
    """The smallest power of two of at least ``least`` and at least LEAST."""
    return max(LEAST, 1 << (least - 1).bit_length())


def _padded(matrices: Tensor, rows: int, columns: int) -> Tensor:
    return functional.pad(matrices, (0, columns - matrices.shape[-1], 0, rows - matrices.shape[-2])).contiguous()
