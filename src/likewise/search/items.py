"""The items of an index: parts that are added, with their ids and labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise._labels import class_names, is_map_style, items_of, labelled, read_labels
from likewise.data.batch import Batch, as_sequences
from likewise.data.loading import Loader
from likewise.distances.distance import Distance
from likewise.distances.framewise import Framewise
from likewise.models.metric import Metric, as_items

Items = Batch | Tensor


@dataclass(frozen=True)
class Part:
    """Items that were added together.

    values: the frames of all sequences one after the other, (S, C); or vectors (N, D) or images (N, C, H, W).
    offsets: (N + 1,) int64, where each sequence begins, and the end of the last; None for vectors and images.
    ids: a name for each. labels: (N,) names (str) or targets (float64), or None.

    Example:
        >>> part = Part(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 2, 3]), ("a", "b"), None)
        >>> len(part), part.items()[0].flatten()
        (2, tensor([1., 2.]))
    """

    values: Tensor
    offsets: Tensor | None
    ids: tuple[str, ...]
    labels: np.ndarray | None

    def __len__(self) -> int:
        return len(self.ids)

    def items(self) -> Items:
        """The items as a Batch or a tensor. Sequences of equal length are not copied, others are padded."""
        if self.offsets is None:
            return self.values
        lengths = self.offsets.diff()
        if len(lengths) == 0:
            return Batch(self.values.new_empty(0, 0, self.values.shape[1]))
        longest = int(lengths.max())
        if int(lengths.min()) == longest:
            return Batch(self.values.view(len(lengths), longest, -1))
        values = self.values.new_zeros(len(lengths), longest, self.values.shape[1])
        values[torch.arange(longest) < lengths[:, None]] = self.values
        return Batch(values, lengths)

    def item(self, place: int) -> Tensor:
        """One item: (T, C), a vector or an image."""
        if self.offsets is None:
            return self.values[place]
        return self.values[int(self.offsets[place]) : int(self.offsets[place + 1])]

    def at(self, places: np.ndarray) -> "Part":
        """The items at these positions, in this order."""
        index = torch.from_numpy(places)
        if self.offsets is None:
            values, offsets = self.values[index], None
        else:
            lengths = self.offsets.diff()[index]
            offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
            frames = torch.arange(int(offsets[-1])) + (self.offsets[:-1][index] - offsets[:-1]).repeat_interleave(
                lengths
            )
            values = self.values[frames]
        labels = None if self.labels is None else self.labels[places]
        return Part(values, offsets, tuple(self.ids[i] for i in places.tolist()), labels)

    @staticmethod
    def cat(parts: Sequence["Part"]) -> "Part":
        """Parts as one."""
        if len(parts) == 1:
            return parts[0]
        offsets = None
        if parts[0].offsets is not None:
            lengths = torch.cat([part.offsets.diff() for part in parts if part.offsets is not None])
            offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        labels = [part.labels for part in parts if part.labels is not None]
        return Part(
            torch.cat([part.values for part in parts]),
            offsets,
            tuple(name for part in parts for name in part.ids),
            np.concatenate(labels) if labels else None,
        )


def read_part(op: str, data: Any, labels: Any, ids: Any, first_id: int, distance: Distance) -> Part:
    """A part from whatever the user has: a Dataset, a Batch, a tensor, a list, or a pair (items, labels).

    labels, ids: in place of those of the data. first_id: where automatic ids begin; the ids "0", "1", ... that a
    Dataset gives to items without names count as automatic.
    distance: what will compare them; ``read_items`` says why.
    """
    items, own_labels = labelled(op, "items", data, need_labels=False)
    ids = getattr(data, "ids", None) if ids is None else ids
    labels = own_labels if labels is None else labels
    if is_map_style(items):
        pieces = list(Loader(items).pieces())
        items = Batch.cat(pieces) if pieces and isinstance(pieces[0], Batch) else torch.cat(pieces)  # type: ignore[arg-type]
    items = read_items(op, "items", items, distance)
    count = len(items)
    offsets = None
    values = items
    if isinstance(items, Batch):
        lengths = items.lengths
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        if count and int(lengths.min()) == items.values.shape[1]:  # no padding
            values = items.values.reshape(-1, items.channels).clone()
        else:
            values = items.values[items.mask] if count else items.values.new_empty(0, items.channels)
    assert isinstance(values, Tensor)
    values = values.detach().clone() if offsets is None else values.detach()  # the caller may change theirs
    return Part(values, offsets, _read_ids(op, ids, count, first_id), _read_labels(op, labels, count))


def read_items(op: str, name: str, items: Any, distance: Distance) -> Items:
    """Sequences as a Batch. Vectors (N, D), for Euclidean, Cosine and Metrics, and images, for Metrics, as a tensor.

    Numbers that are not finite raise an error.
    """
    items = items_of(items)
    flat = isinstance(items, (Tensor, np.ndarray)) and items.ndim == 2
    if isinstance(distance, Metric) or (flat and isinstance(distance, Framewise)):
        items = as_items(op, name, items)
    else:
        items = Batch(*as_sequences(op, name, items))
    if isinstance(items, Batch):
        _check.finite(op, name, items.values, items.lengths)
    elif items.is_floating_point() and not items.isfinite().all():
        place = (~items.isfinite()).nonzero()[0].tolist()
        _check.refuse(op, f"{name}[{place[0]}] holds {items[tuple(place)].item()} at {place[1:]}")
    return items


def _read_ids(op: str, ids: Any, count: int, first: int) -> tuple[str, ...]:
    if ids is None or tuple(ids) == tuple(map(str, range(count))):
        return tuple(map(str, range(first, first + count)))
    names = tuple(class_names(read_labels(op, "ids", list(ids), count)).tolist())
    if len(set(names)) != count:
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))
        _check.refuse(op, f"two items have the id {twice!r}; give each its own with ids=")
    return names


def _read_labels(op: str, labels: Any, count: int) -> np.ndarray | None:
    if labels is None:
        return None
    values = read_labels(op, "labels", labels, count)
    return values.astype(np.float64) if values.dtype.kind == "f" else class_names(values)
