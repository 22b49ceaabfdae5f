"""A tape: the launches of a call, repeated for the next call of the same shapes and settings.

The sizes, flags and arguments of a launch follow from shapes and settings, but computing them in Python takes longer
than a short kernel. A tape keeps them: a repetition needs only the addresses of the tensors, which C++ passes to the
CUDA driver.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from likewise import _native
from likewise.ops.launch import driver
from likewise.ops.launch.launcher import recorder
from likewise.ops.launch.switch import is_quick

Call = tuple[Any, tuple[int, int, int], tuple[Tensor, ...], tuple[Any, ...]]


class Tape:
    """Launches on the tensors given in each call, and on scratch memory for all other tensors."""

    def __init__(self, functions: tuple[int, int], calls: list[Call], given: tuple[Tensor, ...]) -> None:
        slots = {tensor.data_ptr(): slot for slot, tensor in enumerate(given)}
        begins: dict[int, int] = {}  # of each scratch tensor's storage
        self.scratch = 0  # bytes
        self._launches = _native.Tape(*functions)
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
            driver.add(self._launches, compiled, grid, [*map(place, tensors), *((-1, number) for number in rest)])

    def run(self, device: int, given: tuple[int, ...], event: int = 0) -> bool:
        """Launch on the tensors at these addresses, scratch last; record the event after the first.

        False if the driver refuses: a thread that has not used CUDA before has no context yet.
        """
        return self._launches.run(driver.current_stream(device), event, given)


_tapes: dict[tuple[Any, ...], Tape] = {}


def find(key: tuple[Any, ...]) -> Tape | None:
    """The tape of a call that was recorded; None where ``quick`` is off."""
    return _tapes.get(key) if is_quick() else None


def record(key: tuple[Any, ...], work: Callable[[], tuple[Any, tuple[Tensor, ...] | None]]) -> Any:
    """Run ``work``, which returns (result, tensors), and return the result; with tensors, record its launches."""
    recorder.calls = []
    try:
        result, given = work()
        calls = recorder.calls
    finally:
        recorder.calls = None
    functions = driver.functions()
    if calls and given is not None and functions is not None and all(driver.is_plain(call[0]) for call in calls):
        if len(_tapes) > 256:
            _tapes.clear()
        _tapes[key] = Tape(functions, calls, given)
    return result


def repeat(name: str, work: Callable[[], None], tensors: tuple[Tensor, ...], settings: tuple[Any, ...] = ()) -> None:
    """Run ``work``, which only launches kernels, on these tensors; from a tape if it has run on tensors like them.

    Its launches follow from the settings and from the tensors' shapes, strides and types.
    """
    addresses = [tensor.data_ptr() for tensor in tensors]
    first: dict[int, int] = {}
    same = [first.setdefault(address, slot) for slot, address in enumerate(addresses)]  # which are the same tensor
    device, about = tensors[0].get_device(), [(t.shape, t.stride(), t.dtype) for t in tensors]
    key = (name, device, settings, *same, *about)
    known = find(key)
    if known is not None and not any(address & 15 for address in addresses) and known.run(device, (*addresses, 0)):
        return
    record(key, lambda: (work(), tensors))
    if key in _tapes and _tapes[key].scratch:  # it made tensors of its own, such as contiguous copies
        del _tapes[key]
