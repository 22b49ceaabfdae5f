"""A tape: the launches of a call, repeated for the next call of the same shapes and settings.

Sizes, flags and arguments of a launch follow from shapes and settings, and working them out takes Python longer than a
short kernel runs; so does Triton's own launcher. A tape keeps what came out; to repeat it takes the addresses of the
tensors only, and C++ hands them to the CUDA driver (tape.h).
"""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from likewise import _native
from likewise.ops.gpu.common import recorder

Call = tuple[Any, tuple[int, int, int], tuple[Tensor, ...], tuple[Any, ...]]


class Tape:
    """Launches on tensors that are given at each call, and on scratch, which is whatever else they touched."""

    def __init__(self, driver: tuple[int, int], calls: list[Call], given: tuple[Tensor, ...]) -> None:
        slots = {tensor.data_ptr(): slot for slot, tensor in enumerate(given)}
        begins: dict[int, int] = {}  # of each scratch tensor's storage
        self.scratch = 0  # bytes
        self._launches = _native.Tape(*driver)
        self._kernels = [call[0] for call in calls]  # kept loaded

        def place(tensor: Tensor) -> tuple[int, int]:
            slot = slots.get(tensor.data_ptr())
            if slot is not None:
                return slot, 0
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in begins:
                begins[storage.data_ptr()] = self.scratch
                self.scratch += -(-storage.nbytes() // 256) * 256
            return len(given), begins[storage.data_ptr()] + tensor.data_ptr() - storage.data_ptr()

        for compiled, grid, tensors, rest in calls:
            kinds = compiled.src.signature.values()
            # What Triton made a constant is no parameter; bool is none of ours.
            places = [
                place(argument) if isinstance(argument, Tensor) else (-1, argument)
                for argument, kind in zip((*tensors, *rest), kinds, strict=True)
                if kind != "constexpr"
            ]
            about = compiled.metadata
            self._launches.add(
                compiled.function,
                grid,
                32 * about.num_warps,
                about.shared,
                [slot for slot, _ in places],
                [value for _, value in places],
            )

    def run(self, device: int, given: tuple[int, ...], event: int = 0) -> bool:
        """Launch on the tensors at these addresses, scratch last; record the event after the first.

        False if the driver would not: a thread that has not met CUDA before has no context yet.
        """
        return self._launches.run(current_stream(device), event, given)


def current_stream(device: int) -> int:
    """The driver's handle of the stream that PyTorch launches on."""
    return torch._C._cuda_getCurrentRawStream(device)


@functools.cache
def driver() -> tuple[int, int] | None:
    """Addresses of cuLaunchKernel and cuEventRecord; None without NVIDIA's driver, and then nothing is recorded."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        found = [
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in ("cuLaunchKernel", "cuEventRecord")
        ]
    except (OSError, AttributeError):
        return None
    return (found[0], found[1]) if found[0] and found[1] else None


_tapes: dict[tuple[Any, ...], Tape] = {}


def find(key: tuple[Any, ...]) -> Tape | None:
    """The tape of a call that was recorded."""
    return _tapes.get(key)


def record(key: tuple[Any, ...], work: Callable[[], tuple[Any, tuple[Tensor, ...] | None]]) -> Any:
    """Return the first of what ``work`` returns, and record its launches if the second, what is given, is not None."""
    recorder.calls = []
    try:
        result, given = work()
        calls = recorder.calls
    finally:
        recorder.calls = None
    addresses = driver()
    if calls and given is not None and addresses is not None and all(_is_plain(call[0]) for call in calls):
        if len(_tapes) > 256:
            _tapes.clear()
        _tapes[key] = Tape(addresses, calls, given)
    return result


def _is_plain(compiled: Any) -> bool:
    """Whether a kernel needs nothing but its parameters: no cluster, no scratch of Triton's, no special launch."""
    about = compiled.metadata
    return about.num_ctas == 1 and not any(
        getattr(about, name, 0)
        for name in ("global_scratch_size", "profile_scratch_size", "launch_cooperative_grid", "launch_pdl")
    )
