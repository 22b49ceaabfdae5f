"""A tape: the launches of a call, repeated for the next call of the same shapes and settings.

Sizes, flags and arguments of a launch follow from shapes and settings, and working them out takes Python longer than a
short kernel runs. A tape keeps what came out; to repeat it takes the addresses of the tensors only.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from likewise.ops.gpu.common import recorder


class Tape:
    """Launches on tensors that are given at each call, and on scratch, which is whatever else they touched."""

    def __init__(self, calls: list[tuple[Any, tuple[Any, ...], tuple[Tensor, ...]]], given: tuple[Tensor, ...]) -> None:
        self.sizes = [tensor.numel() for tensor in given]
        slots = {tensor.data_ptr(): slot for slot, tensor in enumerate(given)}
        begins: dict[int, int] = {}  # of each scratch tensor's storage
        self.scratch = 0  # bytes

        def place(tensor: Tensor) -> tuple[int, int]:
            slot = slots.get(tensor.data_ptr())
            if slot is not None:
                return slot, 0
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in begins:
                begins[storage.data_ptr()] = self.scratch
                self.scratch += -(-storage.nbytes() // 256) * 256
            return len(given), begins[storage.data_ptr()] + tensor.data_ptr() - storage.data_ptr()

        self._calls = [(run, [place(tensor) for tensor in tensors], rest) for run, rest, tensors in calls]

    def run(self, *given: int, after_first: Callable[[], object]) -> None:
        """Launch on the tensors at these addresses, scratch last."""
        later: Callable[[], object] | None = after_first
        for run, places, rest in self._calls:
            run(*[given[slot] + offset for slot, offset in places], *rest)
            if later is not None:
                later()
                later = None


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
    if calls is not None and given is not None:
        if len(_tapes) > 256:
            _tapes.clear()
        _tapes[key] = Tape(calls, given)
    return result
