"""Source: training or validation data for the loop: items by index, and numbered classes."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise._labels import is_map_style, labelled, number_labels, read_labels
from likewise.data.batch import Batch
from likewise.data.loading import Loader, collate
from likewise.models.metric import as_items, take
from likewise.training.batches import Chosen, seed_of
from likewise.training.pairs import AlignedPairs
from likewise.training.ranks import ALONE, Ranks
from likewise.training.step import Shard


@dataclass(frozen=True)
class Source:
    """Items and their labels.

    items: a Batch, a tensor, AlignedPairs, or a map-style dataset whose items are fetched one by one.
    labels: (N,), the user's labels as an array of numbers or names; None without labels.
    codes: (N,) int64, each label's index in ``classes``; without labels, the item's index.
    groups: (N,), the subject of each item, if the data have it.
    chosen: positions of the items in this source; None for all.
    workers: processes that read items that are not in memory.
    ids: a name for each item, if the data have them; those of all items, also if only some are chosen.
    """

    items: Any
    labels: np.ndarray | None
    codes: Tensor
    classes: tuple[str, ...] = ()
    groups: Any = None
    chosen: Tensor | None = None
    workers: int = 0
    ids: Any = None

    @classmethod
    def of(cls, name: str, value: Any, *, need_labels: bool = False, workers: int = 0) -> "Source":
        """From a Dataset, an ImageSet, a pair (items, labels), a map-style dataset, AlignedPairs, or plain items."""
        if isinstance(value, AlignedPairs):
            return cls(value, None, torch.arange(len(value)))
        items, labels = labelled("fit", name, value, need_labels=need_labels)
        if not is_map_style(items):
            items = as_items("fit", name, items)
        extra = {"groups": getattr(value, "groups", None), "ids": getattr(value, "ids", None), "workers": workers}
        if labels is None:
            return cls(items, None, torch.arange(len(items)), **extra)
        known = read_labels("fit", f"the labels of {name}", labels, len(items))
        if known.dtype.kind == "f" and (known != np.round(known)).any():
            _check.refuse("fit", f"the labels of {name} are targets of a regression, not classes")
        codes, classes = getattr(value, "codes", None), getattr(value, "classes", None)
        if not isinstance(codes, Tensor) or not classes:
            found, (numbered,) = number_labels(known)
            codes, classes = torch.from_numpy(numbered), tuple(map(str, found.tolist()))
        return cls(items, known, codes, tuple(classes), **extra)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def in_memory(self) -> bool:
        """Whether all items are in memory, rather than read one by one."""
        return isinstance(self.items, (Batch, Tensor, AlignedPairs))

    def part(self, positions: np.ndarray | Tensor) -> "Source":
        """A source with some of the items; they are not copied."""
        index = torch.as_tensor(positions)
        own = index if self.chosen is None else self.chosen[index]
        labels = None if self.labels is None else self.labels[index.numpy()]
        groups = None if self.groups is None else np.asarray(self.groups)[index.numpy()]
        return replace(self, labels=labels, codes=self.codes[index], groups=groups, chosen=own)

    def take(self, index: Tensor | slice) -> Any:
        """The items at an index, as one batch."""
        if isinstance(index, slice):
            index = torch.arange(len(self))[index]
        index = index if self.chosen is None else self.chosen[index]
        if isinstance(self.items, AlignedPairs):
            return self.items[index]
        if self.in_memory:
            return take(self.items, index)
        return collate([self.items[int(i)][0] for i in index])

    def whole(self) -> Any:
        """All items as one batch; for items that are read one by one, the first few."""
        if not self.in_memory:
            return self.take(slice(0, 2))
        return self.items if self.chosen is None else self.take(slice(None))

    def batches(
        self, order: Iterable[Chosen], seed: int, first: int = 0, ranks: Ranks = ALONE
    ) -> Iterator[tuple[Chosen, Any]]:
        """The items of each batch of an order, with its indices.

        seed: together with the batch's number, counted from ``first``, seeds random datasets.
        ranks: of several processes, each reads only its own rows of items that are not in memory, a Shard.
        """
        if self.in_memory:
            return ((chosen, self.take(chosen.index)) for chosen in order)
        waiting: deque[Chosen] = deque()  # batches in flight: workers read ahead of the training

        def places() -> Iterator[list[int]]:
            for chosen in order:
                waiting.append(chosen)
                index = chosen.index if self.chosen is None else self.chosen[chosen.index]
                yield index[ranks.rows(len(index))].tolist()

        own = seed if ranks.size == 1 else seed_of(seed, ranks.rank)  # shards of random datasets need different seeds
        fetched = Loader(self.items, self.workers, seed=own).batches(places(), first)
        if ranks.size == 1:
            return ((waiting.popleft(), batch) for batch in fetched)
        return ((chosen := waiting.popleft(), Shard(batch, len(chosen.index))) for batch in fetched)

    def pieces(self, size: int) -> Iterator[Any]:
        """All items in order, ``size`` at a time."""
        order = (Chosen(torch.arange(i, min(i + size, len(self))), last=False) for i in range(0, len(self), size))
        return (batch for _, batch in self.batches(order, seed=0))
