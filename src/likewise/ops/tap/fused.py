"""TAP's distances without gradients by a few Triton kernels, where they can."""

import importlib
from collections.abc import Sequence

import torch
from torch import Tensor

WIDEST = 128  # channels between convolutions: more would not fit a multiprocessor's memory
WIDE, WIDE_BYTES = 64, 132 << 10  # more channels than that need so much of it, which only large GPUs have
LARGEST_KERNEL = 9  # the taps of the last convolution are written out in its kernel
MOST_CELLS = 1 << 30  # of one pair, with room for its border: cells are counted in 32 bits


def fused_distances(
    x: Tensor, y: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor | None:
    """Distances (N, M), float32, from x (N, Tx, C) of lengths n to y (M, Ty, C) of lengths m, or None.

    The convolutions run in float16: where that overflows, the distance is NaN. None where there is no kernel for them:
    not on a GPU, float64, too wide a network. Memory: about a gigabyte.
    """
    return _run("tap_distances", x, y, n, m, weights, biases)


def fused_pairs(
    x: Tensor, y: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor | None:
    """Distances (B,), float32, of pairs, or None, as ``fused_distances`` has them."""
    return _run("tap_pairs", x, y, n, m, weights, biases)


def _run(
    function: str, x: Tensor, y: Tensor, n: Tensor, m: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor | None:
    if not x.is_cuda or x.dtype == torch.float64 or not len(x) or not len(y) or not x.shape[2]:
        return None
    if torch.version.hip or torch.cuda.get_device_capability(x.device) < (8, 0):
        return None
    widest, largest = max(w.shape[1] for w in weights), max(w.shape[2] for w in weights)
    room = torch.cuda.get_device_properties(x.device).shared_memory_per_block_optin
    if widest > WIDEST or largest > LARGEST_KERNEL or (widest > WIDE and room < WIDE_BYTES):
        return None
    if (int(n.max()) + largest) * (int(m.max()) + largest) > MOST_CELLS:
        return None
    try:
        module = importlib.import_module("likewise.ops.tap.gpu")
    except ImportError:  # no Triton
        return None
    with torch.cuda.device(x.device):
        return getattr(module, function)(x, y, n, m, weights, biases)
