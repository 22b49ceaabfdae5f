"""Batches: the order of the items, which can be resumed at any step of an epoch."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.data.samplers import BatchSampler


@dataclass(frozen=True)
class Chosen:
    """Items of one batch, and whether it is the last of its epoch."""

    index: Tensor
    last: bool


def seed_of(seed: int, *numbers: int) -> int:
    """A 63-bit seed for one position in the training, so that no generator state has to be saved.

    Example:
        >>> seed_of(0, 1, 2) == seed_of(0, 1, 2), seed_of(0, 1, 2) == seed_of(0, 2, 1)
        (True, False)
    """
    digest = hashlib.blake2b(repr((seed, *numbers)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class Batches:
    """Batches of a sampler, starting anywhere in an epoch.

    sampler: yields lists of indices. ``set_epoch(epoch)``, if present, is called before each epoch; ``state_dict`` and
        ``load_state_dict`` save and restore its other state. likewise's samplers resume in the middle of an epoch;
        others restart the epoch from their state at its beginning, and batches are skipped.
    """

    def __init__(self, sampler: Iterable[Any], count: int, seed: int) -> None:
        if getattr(sampler, "world_size", 1) not in (1, None):
            _check.refuse(
                "fit", "pass a sampler of whole batches, with world_size=1: fit divides them among the processes"
            )
        self._sampler: Any = sampler
        self._items = count
        self._seed = seed
        self._epoch = 0
        self._skip = 0  # batches of this epoch that were done by an earlier run
        self._state: Any = None  # the sampler's state at the start of this epoch

    @property
    def count(self) -> int | None:
        """Batches per epoch, if the sampler has a length."""
        return len(self._sampler) if hasattr(self._sampler, "__len__") else None

    def start(self, epoch: int, done: int = 0, state: Any = None) -> None:
        """Start at an epoch, after ``done`` of its batches; state is an earlier result of ``state``."""
        self._epoch, self._skip = epoch, 0 if isinstance(self._sampler, BatchSampler) else done
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        if state is not None and hasattr(self._sampler, "load_state_dict"):
            try:
                self._sampler.load_state_dict(state)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                raise ValueError(f"fit: the sampler cannot load the state of the checkpoint: {error}") from error
        self._state = self._sampler.state_dict() if hasattr(self._sampler, "state_dict") else None

    def state(self, done: int) -> Any:
        """The state that ``start`` needs to resume after some batches of this epoch."""
        return self._sampler.state_dict(done) if isinstance(self._sampler, BatchSampler) else self._state

    def update(self, D: Tensor, labels: Tensor) -> None:
        """Pass the distances of a batch to samplers that use them, such as ``HardBatch``."""
        if hasattr(self._sampler, "update"):
            self._sampler.update(D.detach(), labels)

    def __iter__(self) -> Iterator[Chosen]:
        torch.manual_seed(seed_of(self._seed, self._epoch))  # for samplers that draw from the global generator
        before = None
        for position, index in enumerate(self._sampler):
            if position < self._skip:
                continue
            if before is not None:
                yield Chosen(before, last=False)
            before = self._checked(index)
        if before is not None:
            yield Chosen(before, last=True)

    def _checked(self, index: object) -> Tensor:
        found = torch.as_tensor(index)
        if found.ndim != 1 or found.is_floating_point() or not found.numel():
            got = f"{found.dtype} of shape {tuple(found.shape)}"
            raise TypeError(f"fit: expected the sampler to yield lists of indices, got {got}")
        if int(found.min()) < 0 or int(found.max()) >= self._items:
            wrong = int(found.min()) if int(found.min()) < 0 else int(found.max())
            _check.refuse("fit", f"the sampler yielded index {wrong}, but there are {self._items} items")
        return found.long()
