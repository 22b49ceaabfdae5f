"""Answers: numbers that a kernel writes to host memory, read as soon as that kernel is done."""

import ctypes
from typing import Any

import torch
from torch import Tensor

QUERIES = 100  # polls of about a microsecond each; waiting in the driver may take longer than the kernel


class Answer:
    """Two numbers that a kernel writes and the host reads, once the kernel is done."""

    def __init__(self, device: int) -> None:
        on_gpu = device >= 0
        self.numbers = torch.zeros(2, dtype=torch.int32, pin_memory=on_gpu)
        self.address = self.numbers.data_ptr()
        self.event = 0  # the driver's handle, which exists once the event is recorded
        self._event: Any = torch.cuda.Event() if on_gpu else None
        if on_gpu:
            self._event.record()
            self.event = self._event.cuda_event
        self._both = ctypes.c_int64.from_address(self.address)
        self._free = _answers.setdefault(device, [])

    def mark(self) -> None:
        """Record that the kernel was launched."""
        if self._event is not None:
            self._event.record()

    def take(self) -> tuple[bool, bool]:
        """Wait for the kernel, return its answer, and release this object for reuse."""
        if self._event is not None:
            for _ in range(QUERIES):
                if self._event.query():
                    break
            else:
                self._event.synchronize()
        if self._both.value:
            first, second = self.numbers.tolist()
            self._both.value = 0
        else:
            first = second = 0
        self._free.append(self)
        return first != 0, second != 0


_answers: dict[int, list[Answer]] = {}  # by device, those that are not in use
_made: list[Answer] = []  # keeps all alive: a kernel may still write after an error has dropped its answer


def free_answer(x: Tensor) -> Answer | None:
    """An answer for the device of x; None while a CUDA graph is recorded, since there is nothing to read."""
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    device = x.get_device()
    try:
        return _answers[device].pop()
    except (KeyError, IndexError):
        made = Answer(device)
        _made.append(made)
        return made
