"""Launch a kernel, through the CUDA driver if the same launch has been made before."""

import threading
from typing import Any

import triton
from torch import Tensor

from likewise import _native
from likewise.ops.launch import driver
from likewise.ops.launch.switch import is_quick


class Recorder(threading.local):
    """While ``calls`` is a list, this thread's launches are added: kernel, grid, tensors, numbers and constants."""

    calls: list[tuple[Any, tuple[int, int, int], tuple[Tensor, ...], tuple[Any, ...]]] | None = None


recorder = Recorder()

# By every number and type: the driver's launch, Triton's, the kernel, its grid, and its arguments behind the tensors.
_ready: dict[tuple[Any, ...], tuple[_native.Tape | None, Any, Any, tuple[int, int, int], tuple[Any, ...]]] = {}
_compiled: dict[tuple[Any, ...], Any] = {}  # by the classes that Triton specialises kernels for


def launch(
    kernel: Any, grid: tuple[int, ...], tensors: tuple[Tensor, ...], numbers: tuple[int, ...], num_warps: int,
    **constants: Any,
) -> None:  # fmt: skip
    """Run kernel[grid](*tensors, *numbers, **constants).

    A repeated call takes one table lookup, and goes to the CUDA driver. Kernels are compiled once for each class of
    numbers that Triton distinguishes, see ``_kind``: changing lengths do not cause recompilation. Triton itself
    launches interpreted kernels, tensors that are not aligned to 16 bytes, and everything if ``quick`` is off.
    """
    pointers = [tensor.data_ptr() for tensor in tensors]
    types = [tensor.dtype for tensor in tensors]
    unaligned = 0
    for pointer in pointers:
        unaligned |= pointer & 15
    if unaligned or not is_quick() or not isinstance(kernel, triton.runtime.JITFunction):
        recorder.calls = None  # this launch cannot be repeated
        kernel[grid](*tensors, *numbers, **constants, **_options(num_warps))
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
        # It takes all arguments by position: it skips constants, and numbers that Triton made constants because they
        # are 1.
        compiled, (x, y, z), rest = _compiled[which], (*grid, 1, 1)[:3], (*numbers, *named)
        run, whole_grid = compiled[x, y, z], (x, y, z)
        run(*pointers, *rest)  # this also loads the kernel
        _ready[key] = _direct(compiled, whole_grid, len(tensors), rest), run, compiled, whole_grid, rest
    else:
        direct, run, compiled, whole_grid, rest = ready
        if direct is None or not direct.run(driver.current_stream(device), 0, pointers):
            run(*pointers, *rest)
    if recorder.calls is not None:
        recorder.calls.append((compiled, whole_grid, tensors, rest))


def _direct(compiled: Any, grid: tuple[int, int, int], tensors: int, rest: tuple[Any, ...]) -> _native.Tape | None:
    """The driver's launch for this number of tensors; None if only Triton can launch."""
    functions = driver.functions()
    if functions is None or not driver.is_plain(compiled):
        return None
    launches = _native.Tape(*functions)
    driver.add(launches, compiled, grid, [*((slot, 0) for slot in range(tensors)), *((-1, number) for number in rest)])
    return launches


def _options(num_warps: int) -> dict[str, int]:
    return {"num_warps": num_warps, "num_stages": 1}  # kernels that benefit from prefetching do it explicitly


def _kinds(kernel: Any, numbers: tuple[int, ...], names: list[str]) -> list[int]:
    """The property of each number for which Triton may specialise a kernel: 1, a multiple of 16, and its width."""
    return [_kind(number, name not in kernel.do_not_specialize) for number, name in zip(numbers, names, strict=False)]


def _kind(number: int, specialized: bool) -> int:
    if specialized and number == 1:
        return -1
    width = 0 if -(1 << 31) <= number < 1 << 31 else 2 if number < 1 << 63 else 4
    return width + (specialized and number % 16 == 0)
