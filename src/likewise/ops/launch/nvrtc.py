"""Kernels in CUDA C++, compiled at run time by the NVRTC that PyTorch's CUDA builds carry.

For what Triton cannot express, such as matrix products of shifted windows of shared memory. The compiled code is kept
in Triton's cache. Without NVRTC, or if ``quick`` is off, there are no such kernels, and callers use Triton's.
"""

import ctypes
import functools
import hashlib
import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from triton.runtime.cache import get_cache_manager

from likewise import _native
from likewise.ops.launch import driver
from likewise.ops.launch.launcher import recorder
from likewise.ops.launch.switch import is_quick

SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Kernel:
    """A function of a CUDA C++ file, compiled for the current device."""

    def __init__(self, code: bytes, name: str) -> None:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        cuda = ctypes.CDLL("libcuda.so.1")
        _require(cuda.cuModuleLoadData(ctypes.byref(module), code), "load")
        _require(cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode()), "find")
        self._allow = functools.cache(
            lambda shared: _require(cuda.cuFuncSetAttribute(function, SHARED_BYTES, shared), "give memory to")
        )
        self._function = function.value
        self._ready: dict[tuple[int, ...], Any] = {}

    def launch(
        self, grid: int, threads: int, shared: int, tensors: tuple[Tensor, ...], numbers: tuple[int, ...]
    ) -> None:
        """Run it with the addresses of the tensors and these integers, after ``shared`` bytes of its own memory."""
        key = (grid, threads, shared, *numbers)
        ready = self._ready.get(key)
        if ready is None:
            if len(self._ready) > 4096:
                self._ready.clear()
            self._allow(shared)
            ready = self._ready[key] = _native.Tape(*(driver.functions() or (0, 0)))
            slots = [*range(len(tensors)), *(-1 for _ in numbers)]
            ready.add(self._function, (grid, 1, 1), threads, shared, slots, [*(0 for _ in tensors), *numbers])
        recorder.calls = None  # it cannot be repeated
        if not ready.run(driver.current_stream(tensors[0].get_device()), 0, [t.data_ptr() for t in tensors]):
            raise RuntimeError("the CUDA driver refused a launch")


def kernel(path: Path, name: str, device: torch.device, **constants: int) -> Kernel | None:
    """A kernel for this device, whose macros are the constants; None if it cannot be compiled here."""
    if not is_quick() or driver.functions() is None:
        return None
    return _kernel(path, name, torch.cuda.get_device_capability(device), device.index, tuple(constants.items()))


@functools.cache
def _kernel(
    path: Path, name: str, capability: tuple[int, int], device: int, constants: tuple[tuple[str, int], ...]
) -> Kernel | None:
    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}a", "--std=c++17"]
    options += [f"-D{macro}={int(value)}" for macro, value in constants]
    try:
        return Kernel(_compiled(path.read_text(encoding="utf-8"), options), name)
    except (OSError, AttributeError, RuntimeError) as error:
        logging.getLogger(__name__).warning("%s is not used, Triton's kernel is: %s", path.name, error)
        return None


def _compiled(source: str, options: list[str]) -> bytes:
    """The code, from the cache if it was compiled before."""
    library = ctypes.CDLL(f"libnvrtc.so.{(torch.version.cuda or '0').split('.')[0]}")
    about = "\n".join([source, *options, str(torch.version.cuda)])
    cache = get_cache_manager(hashlib.sha256(about.encode()).hexdigest())
    known = cache.get_file("kernel.cubin")
    if known is not None:
        return Path(known).read_bytes()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    _require(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None), "read")
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    if library.nvrtcCompileProgram(program, len(options), given):
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.value.decode())
    _require(library.nvrtcGetCUBINSize(program, ctypes.byref(size)), "compile")
    code = ctypes.create_string_buffer(size.value)
    _require(library.nvrtcGetCUBIN(program, code), "compile")
    library.nvrtcDestroyProgram(ctypes.byref(program))
    cache.put(code.raw, "kernel.cubin", binary=True)
    return code.raw


def _require(error: int, what: str) -> None:
    if error:
        raise RuntimeError(f"error {error}: could not {what} a kernel")
