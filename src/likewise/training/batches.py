"""Batches: the order of the items, which a resumed run takes up anywhere in any epoch."""

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
    """A seed of 63 bits for one place in the training, so that no state of a generator has to be kept.

    Example:
        >>> seed_of(0, 1, 2) == seed_of(0, 1, 2), seed_of(0, 1, 2) == seed_of(0, 2, 1)
        (True, False)
    """
    digest = hashlib.blake2b(repr((seed, *numbers)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class Batches:
    """Batches of a sampler, from any point of any epoch on.

    sampler: gives lists of indices when iterated. ``set_epoch(epoch)``, if it has that, is called before each epoch;
        ``state_dict`` and ``load_state_dict`` carry what else it knows from run to run. likewise's own samplers go on
        in the middle of an epoch; others start it again, from the state that they had then, and batches are skipped.
    """

    def __init__(self, sampler: Iterable[Any], count: int, seed: int) -> None:
        if getattr(sampler, "world_size", 1) not in (1, None):
            _check.refuse("fit", "give a sampler of whole batches, with world_size=1: fit shares them out itself")
        self._sampler: Any = sampler
        self._items = count
        self._seed = seed
        self._epoch = 0
        self._skip = 0  # batches of this epoch that a run before this one has done
        self._state: Any = None  # the sampler's, where this epoch starts for us

    @property
    def count(self) -> int | None:
        """Batches in an epoch, where the sampler says."""
        return len(self._sampler) if hasattr(self._sampler, "__len__") else None

    def start(self, epoch: int, done: int = 0, state: Any = None) -> None:
        """Begin at an epoch, so many batches of it being done; state is what ``state`` gave then."""
        self._epoch, self._skip = epoch, 0 if isinstance(self._sampler, BatchSampler) else done
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        if state is not None and hasattr(self._sampler, "load_state_dict"):
            try:
                self._sampler.load_state_dict(state)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                raise ValueError(f"fit: the sampler refuses the state of the checkpoint: {error}") from error
        self._state = self._sampler.state_dict() if hasattr(self._sampler, "state_dict") else None

    def state(self, done: int) -> Any:
        """What ``start`` needs to go on after so many batches of this epoch."""
        return self._sampler.state_dict(done) if isinstance(self._sampler, BatchSampler) else self._state

    def update(self, D: Tensor, labels: Tensor) -> None:
        """Let a sampler that wants to, as ``HardBatch`` does, see the distances of a batch."""
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
            raise TypeError(f"fit: expected the sampler to give lists of indices, got {got}")
        if int(found.min()) < 0 or int(found.max()) >= self._items:
            wrong = int(found.min()) if int(found.min()) < 0 else int(found.max())
            _check.refuse("fit", f"the sampler gave index {wrong}; there are {self._items} items")
        return found.long()
