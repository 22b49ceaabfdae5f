"""Launches that C++ passes to the CUDA driver (tape.h): Triton's own launcher takes longer than a short kernel."""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from likewise import _native
from likewise.ops.private import current_stream as current_stream


@functools.cache
def functions() -> tuple[int, int] | None:
    """Addresses of cuLaunchKernel and cuEventRecord; None without NVIDIA's driver."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        found = [
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in ("cuLaunchKernel", "cuEventRecord")
        ]
    except (OSError, AttributeError):
        return None
    return (found[0], found[1]) if found[0] and found[1] else None


def is_plain(compiled: Any) -> bool:
    """Whether a kernel needs only its parameters: no cluster, no scratch memory of Triton's, no special launch."""
    about = compiled.metadata
    return about.num_ctas == 1 and not any(
        getattr(about, name, 0)
        for name in ("global_scratch_size", "profile_scratch_size", "launch_cooperative_grid", "launch_pdl")
    )


def add(
    launches: _native.Tape, compiled: Any, grid: tuple[int, int, int], arguments: Sequence[tuple[int, int]]
) -> None:
    """Add a kernel with all its arguments: (slot, offset) of a later address, or (-1, number)."""
    kinds = compiled.src.signature.values()
    # Constants are not parameters; none of our kernels takes a bool.
    kept = [argument for argument, kind in zip(arguments, kinds, strict=True) if kind != "constexpr"]
    about = compiled.metadata
    slots, values = [slot for slot, _ in kept], [value for _, value in kept]
    launches.add(compiled.function, grid, 32 * about.num_warps, about.shared, slots, values)
