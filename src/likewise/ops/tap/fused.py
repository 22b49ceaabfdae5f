"""TAP's distances and their gradients by Triton kernels, if these support the network and the device."""

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from likewise.ops.dispatch import HAS_TRITON

WIDEST = 128  # channels between convolutions: more would not fit a multiprocessor's memory
WIDE, WIDE_BYTES = 64, 132 << 10  # more channels than this need this much memory, which only large GPUs have
LARGEST_KERNEL = 9  # the taps of the last convolution are written out in its kernel
MOST_CELLS = 1 << 30  # of one pair, with room for its border: cells are counted in 32 bits


def fused_distances(
    x: Tensor, y: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor | None:
    """Distances (N, M), float32, from x (N, Tx, C) of lengths n to y (M, Ty, C) of lengths m, or None.

    The convolutions run in float16; if that overflows, the distance is NaN. The result is None if there is no kernel:
    without a GPU, in float64, or for too wide a network. Memory: about a gigabyte.
    """
    return _run("tap_distances", x, y, n, m, weights, biases)


def fused_pairs(
    x: Tensor, y: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor | None:
    """Distances (B,), float32, of pairs, or None, as for ``fused_distances``."""
    return _run("tap_pairs", x, y, n, m, weights, biases)


def fused_gradients(
    x: Tensor, y: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], items: Tensor,
    others: Tensor, slopes: Tensor,
) -> list[Tensor]:  # fmt: skip
    """Gradients of sum_k slopes[k] d(x[items[k]], y[others[k]]) by x, y, weights and biases; ``is_fast`` must hold."""
    return _run("gradients.tap_gradients", x, y, n, m, weights, biases, items, others, slopes).tensors


def fused_work(x: Tensor, y: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Any:
    """A ``Work`` of all pairs, row by row; ``is_fast`` must hold."""
    return _run("gradients.Work", x, y, n, m, weights, biases)


def is_fast(x: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor]) -> bool:
    """Whether there are kernels, and gradients may have the precision of TensorFloat-32 or of half precision."""
    half = x.dtype in (torch.float16, torch.bfloat16) or torch.is_autocast_enabled("cuda")
    return _fits(x, x, n, m, weights) and (half or torch.backends.cudnn.allow_tf32)


def _fits(x: Tensor, y: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor]) -> bool:
    """Whether kernels support these inputs."""
    if not x.is_cuda or x.dtype == torch.float64 or not len(x) or not len(y) or not x.shape[2] or not HAS_TRITON:
        return False
    widest, largest, room = max(w.shape[1] for w in weights), max(w.shape[2] for w in weights), _room(x.device)
    if not room or widest > WIDEST or largest > LARGEST_KERNEL or (widest > WIDE and room < WIDE_BYTES):
        return False
    return (int(n.max()) + largest) * (int(m.max()) + largest) <= MOST_CELLS


@functools.cache
def _room(device: torch.device) -> int:
    """Bytes of a multiprocessor's memory that a program may use; 0 on a GPU without the kernels' matrix units."""
    if torch.version.hip or torch.cuda.get_device_capability(device) < (8, 0):
        return 0
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def _run(
    function: str, x: Tensor, y: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor],
    *more: Tensor,
) -> Any:  # fmt: skip
    if not _fits(x, y, n, m, weights):
        return None
    module, _, name = function.rpartition(".")
    found = importlib.import_module(f"likewise.ops.tap.gpu{module and '.'}{module}")
    with torch.cuda.device(x.device):
        return getattr(found, name)(x, y, n, m, weights, biases, *more)
