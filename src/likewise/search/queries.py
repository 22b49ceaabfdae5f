"""Queries: read and checked against the items of an index."""

from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.search.collection import Collection, kind_of
from likewise.search.items import Items, read_items
from likewise.search.options import Options


def read_queries(op: str, queries: Any, distance: Distance, held: Collection, options: Options) -> Items:
    """Queries, checked against the items, with their dtype and on their device."""
    read = read_items(op, "queries", queries, distance)
    if not len(held):
        return read
    part, count = held.table, len(read)
    values = read.values if isinstance(read, Batch) else read
    if isinstance(read, Batch) != (part.offsets is not None):
        _check.refuse(op, f"expected queries like the items, {kind_of(part)}")
    if isinstance(read, Batch) and read.channels != part.values.shape[1] and count:
        _check.refuse(op, f"queries have {read.channels} channels, the items have {part.values.shape[1]}")
    if not isinstance(read, Batch) and values.shape[1:] != part.values.shape[1:]:
        shapes = tuple(values.shape[1:]), tuple(part.values.shape[1:])
        _check.refuse(op, f"queries have shape {shapes[0]} each, the items have {shapes[1]}")
    if options.windows and count:
        assert isinstance(read, Batch)
        _check_windows(op, read, held.items, options)
    return read.to(part.values.device, part.values.dtype)


def read_skip(op: str, skip: Any, queries: int, items: int) -> Tensor | None:
    """Positions (Q,) of items that the queries must not find, -1 for none."""
    if skip is None:
        return None
    found = torch.as_tensor(skip)
    if found.shape != (queries,) or found.is_floating_point() or found.dtype == torch.bool:
        _check.refuse(op, f"expected skip of shape ({queries},), whole numbers, got {found.dtype} {tuple(found.shape)}")
    found = found.to("cpu", torch.int64)
    if queries and not (int(found.min()) >= -1 and int(found.max()) < items):
        _check.refuse(op, f"skip holds a position that is not among the {items} items")
    return found


def _check_windows(op: str, queries: Batch, items: Items, options: Options) -> None:
    """Queries of the length that windows have, none longer than every item."""
    lengths, length = queries.lengths, options.length
    if length is not None and (wrong := lengths != length).any():
        place = int(wrong.nonzero()[0])
        hint = "subsequence=True instead of length searches windows of any query's length"
        _check.refuse(op, f"query {place} has {int(lengths[place])} steps, windows have {length}; {hint}")
    assert isinstance(items, Batch)
    longest, least = int(items.lengths.max()), (options.stretch or (1.0,))[0]
    if int(lengths.max()) * least > longest:
        place = int(lengths.argmax())
        _check.refuse(op, f"query {place} has {int(lengths[place])} steps, but the longest item has {longest}")
