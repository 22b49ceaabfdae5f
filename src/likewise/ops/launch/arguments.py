"""Sizes and numbers for launches."""

import functools
import struct

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def float64_from(bits):
    """A Python float would reach a kernel as float32, so its bits are passed instead."""
    return bits.to(tl.int64).to(tl.float64, bitcast=True)


def float64_bits(value: float) -> int:
    """The bits of a float, for ``float64_from``."""
    return struct.unpack("<q", struct.pack("<d", value))[0]


@functools.cache
def _processors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def processors(x: Tensor) -> int:
    """Multiprocessors of the tensor's device."""
    return _processors(x.get_device()) if x.is_cuda else 1


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up. Triton's own function, made for kernels, takes a hundred times as long."""
    return -(-a // b)


def power_of_2(least: int) -> int:
    """The smallest power of two that is at least ``least``, which is positive."""
    return 1 << (least - 1).bit_length()
