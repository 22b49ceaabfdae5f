"""Convolutions of 32 channels, and the slopes of their weights, on Hopper's matrix units.

``convolve.cu`` and ``weigh.cu`` copy a tile of cells and its surroundings to shared memory once, where each of a kernel's
taps is a shifted window of the same numbers. Triton cannot shift such a window, so its kernels copy the tile many times.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from likewise.ops.launch import nvrtc
from likewise.ops.launch.arguments import processors
from likewise.ops.tap.network import HOPPER_WIDTH

# To be tuned on the machine at hand.
CELLS = 256  # of a tile; a multiple of 64
WIDEST_SIDE = 5  # of the kernels whose weights' slopes are summed here: more do not fit the registers
MOST_GROUPS = 3  # warpgroups of a program, each with its own tile
SPARE_MEMORY = 1 << 10

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Window:
    """The cells around a tile, in shared memory."""

    segments: int  # 1, or one for each row of taps, if that is less memory
    length: int  # cells of a segment
    pitch: int  # cells from one row of taps to the next
    between: int  # bytes from 8 channels of every cell to the next 8

    @classmethod
    @functools.cache
    def of(cls, side: int, stride: int, cells: int) -> "Window":
        """The smaller of the two ways to hold the cells that a kernel of this side reads."""
        whole, row = (side - 1) * stride + cells + side - 1, cells + side - 1
        rows = side * (row + 1)
        segments, length, pitch, held = (1, whole, stride, whole) if whole <= rows else (side, row, row + 1, rows)
        return cls(segments, length, pitch, -(-held * 16 // 128) * 128 + 32)  # no two of 8 threads meet in a bank

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """As arguments of a kernel."""
        return self.segments, self.length, self.pitch, self.between


def convolve(
    given: Tensor, mask: Tensor, weights: Tensor, bias: Tensor, last: Tensor, hidden: Tensor, products: Tensor, *,
    side: int, taps: int, gated: bool, keep: bool, stride: int, plane: int, cells: int,
) -> bool:  # fmt: skip
    """What ``middle_kernel`` computes, with weights of ``Matrices.blocked``; False if there is no such kernel here."""
    if not is_hopper(given.device) or cells % CELLS:
        return False
    window, own = Window.of(side, stride, CELLS), 2 * side**2 * HOPPER_WIDTH**2
    groups = min(MOST_GROUPS, (_memory(given.device) - own) // (4 * window.between))
    if groups < 1:
        return False
    constants = {"K": side, "BLOCKS": CELLS // 64, "GROUPS": groups, "TAPS": taps, "PADDED": last.shape[1]}
    kernel = nvrtc.kernel(HERE / "convolve.cu", "convolve", given.device, **constants, GATED=gated, KEEP=keep)
    if kernel is None:
        return False
    tiles = cells // CELLS
    kernel.launch(
        min(processors(given), -(-tiles // groups)), 128 * groups, own + groups * 4 * window.between,
        (given, mask, weights, bias, last, hidden, products), (stride, plane, tiles, *window.numbers),
    )  # fmt: skip
    return True


def weigh(given: Tensor, slopes: Tensor, *, side: int, stride: int, cells: int) -> Tensor | None:
    """Slopes (K, K, in, out) of a convolution's taps, from its input and the slopes of its output, both (cells, 32)."""
    if not is_hopper(given.device) or cells % CELLS or side > WIDEST_SIDE:
        return None
    window = Window.of(side, stride, CELLS)
    shared = 2 * 4 * (window.between + (CELLS + 8) * 16 + 32)
    kernel = nvrtc.kernel(HERE / "weigh.cu", "weigh", given.device, K=side)
    if kernel is None or shared > _memory(given.device):
        return None
    tiles = cells // CELLS
    parts = torch.empty(min(processors(given), tiles), side, side, HOPPER_WIDTH, HOPPER_WIDTH, device=given.device)
    kernel.launch(len(parts), 128 * side, shared, (given, slopes, parts), (stride, tiles, *window.numbers))
    return parts.sum(0).mT


@functools.cache
def is_hopper(device: torch.device) -> bool:
    """Whether the matrix units are those that the kernels are written for."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


@functools.cache
def _memory(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin - SPARE_MEMORY
