"""TAP's convolutions as the GPU kernels want them: matrices in float16."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

LARGEST_HALF = 65504.0
LEAST = 16  # rows and columns of a matrix that a GPU's matrix units take


@dataclass(frozen=True)
class Network:
    """Matrices whose unused rows and columns are zero."""

    sides: list[int]  # of the kernels
    weights: list[Tensor]  # (K, window, width), (K K, width, width) of each in the middle, (width, taps); float16
    biases: list[Tensor]  # (width,) each, and (1,); float32
    width: int

    @classmethod
    def of(cls, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> "Network":
        """From weights (out, in, K, K) and biases (out,). A weight that float16 cannot hold becomes NaN."""
        weights, biases = [w.detach().float() for w in weights], [b.detach().float() for b in biases]
        if len(weights) == 1:
            # A convolution that copies D and time: neither is negative, so that they pass the ReLU.
            weights = [torch.eye(2, device=weights[0].device)[:, :, None, None], *weights]
            biases = [torch.zeros(2, device=weights[0].device), *biases]
        sides, width = [w.shape[2] for w in weights], power_of_two(len(weights[0]))
        halves = [torch.where(w.abs() > LARGEST_HALF, torch.nan, w).half() for w in weights]
        first, *middle, last = [w.permute(2, 3, 1, 0) for w in halves]  # (K, K, in, out)
        matrices = [_padded(first.flatten(1, 2), power_of_two(2 * sides[0]), width)]
        matrices += [_padded(w.flatten(0, 1), width, width) for w in middle]
        matrices += [_padded(last.flatten(0, 1)[:, :, 0].T, width, power_of_two(sides[-1] ** 2))]
        padded = [functional.pad(b, (0, width - len(b))) for b in biases[:-1]]
        return cls(sides, matrices, [*padded, biases[-1]], width)

    @property
    def halo(self) -> int:
        """How far the largest kernel reaches to each side."""
        return max(self.sides) // 2

    @property
    def taps(self) -> int:
        """Of the last convolution."""
        return self.sides[-1] ** 2

    @property
    def hidden(self) -> int:
        """How many arrays (cells, width) are needed to go from one convolution to the next."""
        return min(len(self.sides) - 2, 2)

    @property
    def bytes_per_cell(self) -> int:
        """D, D and time in float16, what lies between convolutions, and the products with the last one's taps."""
        return 4 + 4 + 2 * self.width * self.hidden + 4 * self.taps


def power_of_two(least: int) -> int:
    """The smallest power of two that is not less, but at least LEAST."""
    return max(LEAST, 1 << (least - 1).bit_length())


def _padded(matrices: Tensor, rows: int, columns: int) -> Tensor:
    return functional.pad(matrices, (0, columns - matrices.shape[-1], 0, rows - matrices.shape[-2])).contiguous()
