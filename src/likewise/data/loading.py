"""Batches of data that do not fit in memory: worker processes read items ahead of time."""

import ctypes
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from likewise import _check
from likewise._labels import is_map_style
from likewise.data.batch import Batch

AT_ONCE = 256  # items per batch by default
MMAP_THRESHOLD, LARGE = -3, 1 << 16  # glibc's mallopt parameter, and the size of a large block in bytes


class Loader:
    """Batches of a map-style dataset in a given order, read ahead by worker processes.

    dataset: any ``torch.utils.data.Dataset`` with ``labels``, whose [i] is (item, label). Items are sequences (T_i, C)
        or (T_i,), which make a Batch, or images (C, H, W) of one size, which make a tensor; arrays work too.
    workers: the number of reading processes; 0 reads in this process. ahead: batches that each worker reads ahead.
        Memory is that of workers x ahead batches, regardless of the dataset's size.
    seed: seeds the generators of NumPy, PyTorch and Python for random datasets. Batch n is the same with any number of
        workers, and after a restart. The caller's generators are not changed.

    Labels are not fetched; they are in ``dataset.labels``.

    Example:
        >>> class Ramps(torch.utils.data.Dataset):
        ...     labels = [0, 1, 0, 1]
        ...     def __len__(self): return 4
        ...     def __getitem__(self, i): return torch.arange(i + 1.0), self.labels[i]
        >>> [batch.lengths.tolist() for batch in Loader(Ramps()).batches([[0, 3], [2]])]
        [[1, 4], [3]]
    """

    def __init__(
        self, dataset: Any, workers: int = 0, *, ahead: int = 2, seed: int = 0, pin_memory: bool = False
    ) -> None:
        if not is_map_style(dataset):
            kind = type(dataset).__name__
            raise TypeError(f"Loader: expected a map-style dataset, with labels, len and [i], got {kind}")
        self.dataset = dataset
        self.workers = _check.whole("Loader", "workers", workers, least=0)
        self.ahead = _check.whole("Loader", "ahead", ahead)
        self.seed = _check.whole("Loader", "seed", seed, least=0)
        self.pin_memory = pin_memory

    def batches(self, indices: Iterable[Sequence[int]], first: int = 0) -> Iterator[Batch | Tensor]:
        """The items at each list of indices. ``indices`` is read lazily: it may span many epochs.

        first: the number of the first batch; after a restart, the number of batches before it.
        """
        settings: dict[str, Any] = {}
        if self.workers:
            settings = {
                "prefetch_factor": self.ahead,
                "multiprocessing_context": "fork" if _can_fork() else None,
                "worker_init_fn": _return_large_blocks,
            }
        return iter(
            DataLoader(
                _Collated(self.dataset, self.seed),  # type: ignore[arg-type]
                batch_size=None,
                sampler=_Numbered(indices, first),  # type: ignore[arg-type]
                num_workers=self.workers,
                pin_memory=self.pin_memory,
                generator=torch.Generator().manual_seed(self.seed),  # so that the caller's generator is not advanced
                **settings,
            )
        )

    def pieces(self, size: int = AT_ONCE) -> Iterator[Batch | Tensor]:
        """All items in order, ``size`` at a time."""
        count = len(self.dataset)
        return self.batches(range(start, min(start + size, count)) for start in range(0, count, size))


def collate(items: Sequence[Any]) -> Batch | Tensor:
    """Sequences (T_i, C) or (T_i,) as a Batch; images (C, H, W) of one size as a tensor (B, C, H, W).

    Example:
        >>> collate([torch.zeros(3, 8, 8), np.ones((3, 8, 8), np.float32)]).shape
        torch.Size([2, 3, 8, 8])
    """
    tensors = [item if isinstance(item, Tensor) else torch.as_tensor(np.asarray(item)) for item in items]
    if not tensors or tensors[0].ndim != 3:
        return Batch.from_list(tensors)
    for i, tensor in enumerate(tensors):
        if tensor.shape != tensors[0].shape or tensor.dtype != tensors[0].dtype:
            shapes = f"{tensor.dtype} {tuple(tensor.shape)} and {tensors[0].dtype} {tuple(tensors[0].shape)}"
            _check.refuse("Loader", f"images of a batch must have the same size and type, got {shapes} at {i} and 0")
    return torch.stack(tensors)


class _Numbered:
    """Batches with their numbers; DataLoader needs an object with ``__iter__``."""

    def __init__(self, indices: Iterable[Sequence[int]], first: int) -> None:
        self.indices, self.first = indices, first

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        for number, index in enumerate(self.indices, self.first):
            yield number, [int(i) for i in index]


class _Collated:
    """A dataset of batches. It runs in the workers, so only finished batches are sent."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset, self.seed = dataset, seed

    def __getitem__(self, numbered: tuple[int, list[int]]) -> Batch | Tensor:
        number, index = numbered
        with _seeded(self.seed, number):
            return collate([_item(self.dataset[i], i) for i in index])


def _item(fetched: Any, index: int) -> Any:
    if not isinstance(fetched, (tuple, list)) or len(fetched) < 2:
        kind = type(fetched).__name__
        raise TypeError(f"Loader: expected [{index}] of the dataset to be (item, label), got {kind}")
    return fetched[0]


@contextmanager
def _seeded(seed: int, number: int) -> Iterator[None]:
    """Seed the generators that a dataset may use, for the duration of the block."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    drawn = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(drawn)
        random.seed(drawn)
        np.random.seed(drawn)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002


def _return_large_blocks(worker: int) -> None:
    """Let glibc return every batch to the system once it is freed; kept for reuse, they fragment a worker's heap."""
    with suppress(OSError, AttributeError, TypeError):  # not glibc
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, LARGE)


def _can_fork() -> bool:
    """Whether processes can be forked; datasets then need not be pickled."""
    import multiprocessing

    return "fork" in multiprocessing.get_all_start_methods()
