"""Normalisation of windows, and the windows' lengths."""

import importlib
import math

import torch
from torch import Tensor

from likewise.data.batch import Batch
from likewise.ops.dispatch import HAS_TRITON
from likewise.ops.ground import at_least_float32
from likewise.ops.search import normalize

STRETCH_STEP = 1.05  # from one length of a stretched window to the next


def znormalize(windows: Tensor) -> Tensor:
    """Windows (..., T, C) with mean 0 and deviation 1 in each channel, computed in float64; constant channels become 0.

    A channel is constant if its deviation is at most 1e-7 of its largest absolute value: what is left of a constant in
    float32 is rounding, and must not be blown up.

    Example:
        >>> znormalize(torch.tensor([[1.0], [3.0]])).flatten(), znormalize(torch.full((3, 1), 0.1)).flatten()
        (tensor([-1.,  1.]), tensor([0., 0., 0.]))
    """
    wide = at_least_float32(windows.detach())
    steps, channels = wide.shape[-2:]
    if wide.is_cuda and HAS_TRITON and wide.numel():
        gpu = importlib.import_module("likewise.ops.search.gpu")  # needs Triton

        rows = torch.arange(wide.numel() // (steps * channels), device=wide.device)
        flat = wide.reshape(-1, steps, channels)
        return gpu.windows(flat, rows, torch.zeros_like(rows), steps, normalize=True).reshape(windows.shape).to(windows)
    wide = wide.cpu()
    flat = wide.reshape(-1, steps, channels) if wide.numel() else wide.new_empty(0, steps, channels)
    return normalize(flat).reshape(windows.shape).to(windows)


def normalized(items: Batch) -> Batch:
    """Whole sequences with mean 0 and deviation 1 in each channel, each over its own steps."""
    values = torch.zeros_like(items.values)
    for length in items.lengths.unique().tolist():
        rows = (items.lengths == length).nonzero()[:, 0]
        values[rows, :length] = znormalize(items.values[rows, :length])
    return Batch(values, items.lengths)


def window_lengths(length: int, stretch: tuple[float, float] | None) -> list[int]:
    """The lengths of the windows that a query of some length is compared with.

    Without stretch, its own. With stretch=(least, greatest), both ends and what lies between them in steps of 5 %.

    Example:
        >>> window_lengths(100, None), window_lengths(100, (0.9, 1.2))
        ([100], [90, 91, 95, 100, 105, 110, 116, 120])
    """
    if stretch is None:
        return [length]
    least, greatest = stretch
    first, last = (math.log(end) / math.log(STRETCH_STEP) for end in stretch)
    between = [STRETCH_STEP**i for i in range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)]
    return sorted({max(1, round(length * factor)) for factor in (least, *between, greatest)})
