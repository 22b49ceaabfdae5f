"""What the Triton kernels share, and how they are launched."""

import functools
import struct
import threading
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise import _native
from likewise.ops.gpu import driver

UNREACHABLE = tl.constexpr(1e30)


@triton.jit
def float64_from(bits):
    """A Python float reaches a kernel as float32; its bits arrive whole."""
    return bits.to(tl.int64).to(tl.float64, bitcast=True)


@triton.jit
def softmin2(a, b, SOFT: tl.constexpr):
    least = tl.minimum(a, b)
    if SOFT:
        least -= tl.log2(1.0 + tl.exp2(-tl.abs(a - b)))
    return least


@triton.jit
def softmin3(a, b, c, SOFT: tl.constexpr):
    least = tl.minimum(tl.minimum(a, b), c)
    if SOFT:
        least -= tl.log2(tl.exp2(least - a) + tl.exp2(least - b) + tl.exp2(least - c))
    return least


@triton.jit
def window_row(WINDOW: tl.constexpr, size, n, m, i):
    """First and last column of row i, as Window.row says; n and m may differ from lane to lane."""
    first = n * 0
    last = m - 1
    if WINDOW == 1 or WINDOW == 2:
        radius = size + (n * 0).to(tl.float64)
        if WINDOW == 2:
            radius = tl.floor(size * tl.minimum(n, m).to(tl.float64))
        r = tl.minimum(radius, (n + m).to(tl.float64)).to(tl.int32)
        first = tl.maximum(first, i - r + tl.minimum(m - n, 0))
        last = tl.minimum(last, i + r + tl.maximum(m - n, 0))
    if WINDOW == 3:
        first, last = parallelogram(size, n, m, i)
        before, reach = parallelogram(size, n, m, i - 1)
        first = tl.where(i > 0, tl.minimum(first, reach + 1), 0)
        last = tl.maximum(first, last)
    return first, last


@triton.jit
def parallelogram(size, n, m, i):
    line = (m - 1).to(tl.float64) / tl.maximum(n - 1, 1).to(tl.float64)
    line = tl.where(n > 1, line, 0.0)
    from_start = (i + n * 0).to(tl.float64)
    from_end = (n - 1 - i).to(tl.float64)
    end = (m - 1).to(tl.float64)
    first = tl.maximum(line / size * from_start, end - size * line * from_end)
    last = tl.minimum(size * line * from_start, end - line / size * from_end)
    last = tl.where(i < n - 1, tl.floor(last + 1e-9).to(tl.int32), m - 1)
    return tl.ceil(first - 1e-9).to(tl.int32), last


def float64_bits(value: float) -> int:
    """The bits of a float, for ``float64_from``."""
    return struct.unpack("<q", struct.pack("<d", value))[0]


class Recorder(threading.local):
    """While ``calls`` is a list, it gets this thread's launches: kernel, grid, tensors, numbers and constants."""

    calls: list[tuple[Any, tuple[int, int, int], tuple[Tensor, ...], tuple[Any, ...]]] | None = None


recorder = Recorder()

# By every number and type: the driver's launch, Triton's, the kernel, its grid, and its arguments behind the tensors.
_ready: dict[tuple[Any, ...], tuple[_native.Tape | None, Any, Any, tuple[int, int, int], tuple[Any, ...]]] = {}
_compiled: dict[tuple[Any, ...], Any] = {}  # by what Triton may specialise a kernel for


def launch(
    kernel: Any, grid: tuple[int, ...], tensors: tuple[Tensor, ...], numbers: tuple[int, ...], num_warps: int,
    **constants: Any,
) -> None:  # fmt: skip
    """Run kernel[grid](*tensors, *numbers, **constants).

    Triton's own launcher inspects every argument at every call, which takes longer than a short kernel. Here a call
    like one before costs a look into a table, and goes to the CUDA driver. Kernels are compiled once for each class of
    numbers that Triton tells apart, see ``_kind``: lengths that change from call to call do not compile anew.
    """
    pointers = [tensor.data_ptr() for tensor in tensors]
    types = [tensor.dtype for tensor in tensors]
    unaligned = 0
    for pointer in pointers:
        unaligned |= pointer & 15
    interpreted = not isinstance(kernel, triton.runtime.JITFunction)
    if unaligned or interpreted:
        recorder.calls = None  # it cannot be repeated
        options = {} if interpreted else _options(num_warps)
        kernel[grid](*tensors, *numbers, **constants, **options)
        return
    device = tensors[0].get_device()
    key = (id(kernel), grid, numbers, num_warps, device, *types, *constants, *constants.values())
    ready = _ready.get(key)
    if ready is None:
        if len(_ready) > 4096:
            _ready.clear()
        named = tuple(constants[name] for name in kernel.arg_names[len(tensors) + len(numbers) :])
        kinds = _kinds(kernel, numbers, kernel.arg_names[len(tensors) :])
        which = (id(kernel), num_warps, device, *types, *kinds, *named)
        if which not in _compiled:
            options = _options(num_warps)
            _compiled[which] = kernel.warmup(*tensors, *numbers, grid=grid, **options, **constants)
        # It takes all arguments by position: it skips constants, and numbers that Triton made one because they are 1.
        compiled, (x, y, z), rest = _compiled[which], (*grid, 1, 1)[:3], (*numbers, *named)
        run, whole_grid = compiled[x, y, z], (x, y, z)
        run(*pointers, *rest)  # which loads the kernel
        _ready[key] = _direct(compiled, whole_grid, len(tensors), rest), run, compiled, whole_grid, rest
    else:
        direct, run, compiled, whole_grid, rest = ready
        if direct is None or not direct.run(driver.current_stream(device), 0, pointers):
            run(*pointers, *rest)
    if recorder.calls is not None:
        recorder.calls.append((compiled, whole_grid, tensors, rest))


def _direct(compiled: Any, grid: tuple[int, int, int], tensors: int, rest: tuple[Any, ...]) -> _native.Tape | None:
    """The launch by the driver, given the addresses of so many tensors; None where only Triton can launch."""
    functions = driver.functions()
    if functions is None or not driver.is_plain(compiled):
        return None
    launches = _native.Tape(*functions)
    driver.add(launches, compiled, grid, [*((slot, 0) for slot in range(tensors)), *((-1, number) for number in rest)])
    return launches


def _options(num_warps: int) -> dict[str, int]:
    return {"num_warps": num_warps, "num_stages": 1}  # where loads ahead pay, they are written out


def _kinds(kernel: Any, numbers: tuple[int, ...], names: list[str]) -> list[int]:
    """What a kernel may be specialised for in each number: whether it is 1, a multiple of 16, and its width."""
    return [_kind(number, name not in kernel.do_not_specialize) for number, name in zip(numbers, names, strict=False)]


def _kind(number: int, specialized: bool) -> int:
    if specialized and number == 1:
        return -1
    width = 0 if -(1 << 31) <= number < 1 << 31 else 2 if number < 1 << 63 else 4
    return width + (specialized and number % 16 == 0)


@functools.cache
def _processors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def processors(x: Tensor) -> int:
    """Multiprocessors of the tensor's device."""
    return _processors(x.get_device()) if x.is_cuda else 1


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up. Triton's own, made for kernels, takes a hundred times as long."""
    return -(-a // b)


def power_of_2(least: int) -> int:
    """The smallest power of two that is at least ``least``, which is positive."""
    return 1 << (least - 1).bit_length()
