"""TAP's convolutions as matrices in float16, for the GPU kernels."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

LARGEST_HALF = 65504.0
LEAST = 16  # the least rows and columns of a matrix for a GPU's matrix units
WHOLE = 64  # the columns of a middle convolution's matrix, or its width if that is more: see ``banded``


@dataclass(frozen=True)
class Network:
    """The convolutions' matrices; unused rows and columns are zero."""

    sides: list[int]  # sides of the kernels
    taps: list[Tensor]  # (K, K, in, out), float16: in is 2, or width; out is width, or 1
    biases: list[Tensor]  # (width,) each, and (1,); float32
    width: int
    copies: bool  # the first convolution was added here, and has no parameters

    @classmethod
    def of(cls, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> "Network":
        """Make a network from weights (out, in, K, K) and biases (out,). A weight too large for float16 becomes NaN."""
        weights, biases = [w.detach().float() for w in weights], [b.detach().float() for b in biases]
        copies = len(weights) == 1
        if copies:
            # A convolution that copies D and time, which pass the ReLU since neither is negative.
            weights = [torch.eye(2, device=weights[0].device)[:, :, None, None], *weights]
            biases = [torch.zeros(2, device=weights[0].device), *biases]
        sides, width = [w.shape[2] for w in weights], power_of_two(len(weights[0]))
        taps = []
        for k, w in enumerate(weights):
            half = torch.where(w.abs() > LARGEST_HALF, torch.nan, w).half().permute(2, 3, 1, 0)  # (K, K, in, out)
            taps.append(_padded(half, width if k else 2, 1 if k == len(weights) - 1 else width))
        padded = [functional.pad(b, (0, width - len(b))) for b in biases[:-1]]
        return cls(sides, taps, [*padded, biases[-1]], width, copies)

    @property
    def group(self) -> int:
        """The number of neighbouring cells that a middle convolution processes at once."""
        return max(1, WHOLE // self.width)

    @cached_property
    def first(self) -> Tensor:
        """(K, window, width): the taps of each row of the kernel, with the axes of tap and input combined."""
        return _padded(self.taps[0].flatten(1, 2), power_of_two(2 * self.sides[0]), self.width)

    @cached_property
    def middle(self) -> list[Tensor]:
        """(K, (group + K - 1) width, group width), for each layer between the first and the last."""
        return [banded(taps, self.group) for taps in self.taps[1:-1]]

    @cached_property
    def last(self) -> Tensor:
        """(width, taps)."""
        return _padded(self.taps[-1].flatten(0, 1)[:, :, 0].T, self.width, power_of_two(self.sides[-1] ** 2))

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
