"""Exhaustive search: every distance is computed, a block at a time. Any distance, always exact."""

import math
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from likewise import _check
from likewise._modes import evaluating
from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.evaluation import ranking
from likewise.models.metric import take
from likewise.search.found import Found, Stats

PAIRS_AT_ONCE = 1 << 22  # distances of a block: 16 MB of float32
QUERIES_AT_ONCE = 512
VALUES_AT_ONCE = 1 << 24  # numbers in the items of a block

Items = Batch | Tensor  # sequences, or vectors (N, D)
Pairs = tuple[Tensor, Tensor]  # distances (q, K) and items (q, K), padded with inf and -1


class Exhaustive:
    """Compare each query with every item, through ``distance.matrix``.

    distance: a Distance between the items. Memory is bounded by blocks of about four million distances.

    Example:
        >>> from likewise import DTW
        >>> searcher = Exhaustive(DTW(), Batch.from_list([[0.0, 1.0], [5.0, 5.0], [0.0, 2.0]]))
        >>> found = searcher.search(Batch.from_list([[0.0, 1.0, 1.0]]), k=2, within=None, exclude=0.0)
        >>> found.items, found.distances
        (tensor([[0, 2]]), tensor([[0., 2.]]))
    """

    method = "exhaustive"

    def __init__(self, distance: Distance, items: Items) -> None:
        self.distance = distance
        self.items = items

    def search(
        self,
        queries: Items,
        *,
        k: int | None,
        within: float | None,
        exclude: float = 0.0,
        skip: Tensor | None = None,
        threads: int | None = None,
    ) -> Found:
        """The hits of each query; ``exclude`` does not apply to whole items."""
        start = time.perf_counter()
        parts = []
        with torch.no_grad(), evaluating(self.distance):
            for some in torch.arange(len(queries)).split(QUERIES_AT_ONCE):
                part = take(queries, some)
                skipped = None if skip is None else skip[some]
                parts.append(self._all(part, within, skipped) if k is None else self._nearest(part, k, within, skipped))
        candidates = len(queries) * len(self.items)
        stats = Stats(self.method, candidates, seconds=time.perf_counter() - start)
        return join(parts, stats, lengths_of(self.items))

    def _nearest(self, queries: Items, k: int, within: float | None, skip: Tensor | None) -> Pairs:
        k = min(k, len(self.items))
        best: Tensor | None = None
        where = torch.empty(len(queries), 0, dtype=torch.int64)
        for first, D in self._blocks(queries, skip):
            columns = torch.arange(first, first + D.shape[1]).expand(len(D), -1)
            D = D if best is None else torch.cat([best, D], 1)  # earlier items first, so that ties go to them
            where = torch.cat([where, columns], 1)
            nearest = ranking.nearest(D, min(k, D.shape[1]))
            best, where = D.gather(1, nearest), where.gather(1, nearest.cpu())
        if best is None:
            return torch.empty(len(queries), 0), where
        best = best.cpu()
        lost = best.isnan() if within is None else ~(best <= within)  # NaN: skipped
        return best.masked_fill(lost, torch.inf), where.masked_fill(lost, -1)

    def _all(self, queries: Items, within: float | None, skip: Tensor | None) -> Pairs:
        rows, columns, values = [], [], []
        dtype = torch.float32
        for first, D in self._blocks(queries, skip):
            dtype = D.dtype
            row, column = (~D.isnan() if within is None else within >= D).nonzero(as_tuple=True)
            rows.append(row.cpu())
            columns.append(column.cpu() + first)
            values.append(D[row, column].cpu())
        if not rows:
            return torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
        row, column, value = torch.cat(rows), torch.cat(columns), torch.cat(values)
        order = column.argsort(stable=True)
        order = order[value[order].argsort(stable=True)]
        order = order[row[order].argsort(stable=True)]  # by query, distance, item
        row, column, value = row[order], column[order], value[order]
        counts = row.bincount(minlength=len(queries))
        place = torch.arange(len(row)) - (counts.cumsum(0) - counts)[row]
        width = int(counts.max()) if len(counts) else 0
        best = torch.full((len(queries), width), torch.inf, dtype=dtype)
        where = torch.full((len(queries), width), -1, dtype=torch.int64)
        best[row, place], where[row, place] = value, column
        return best, where

    def _blocks(self, queries: Items, skip: Tensor | None) -> Iterator[tuple[int, Tensor]]:
        """The first item of each block, and its distances (q, n), with NaN for the items to be skipped."""
        values = self.items.values if isinstance(self.items, Batch) else self.items
        each = max(1, math.prod(values.shape[1:]))
        step = max(1, min(PAIRS_AT_ONCE // max(1, len(queries)), VALUES_AT_ONCE // each))
        for first in range(0, len(self.items), step):
            D = self.distance.matrix(queries, take(self.items, slice(first, first + step)))
            yield first, ready(self.distance.name, D, first, skip)


def ready(op: str, D: Tensor, first: int, skip: Tensor | None) -> Tensor:
    """Distances (q, n) to items first.., in float32 or better, with NaN where query and item may not meet."""
    if D.isnan().any():
        row, column = D.isnan().nonzero()[0].tolist()
        _check.refuse("Index.search", f"{op} returned NaN for query {row} and item {first + column}")
    D = D if D.dtype in (torch.float32, torch.float64) else D.float()
    if skip is not None:
        inside = (skip >= first) & (skip < first + D.shape[1])
        if inside.any():
            rows = inside.nonzero()[:, 0]
            D = D.clone()
            D[rows.to(D.device), (skip[rows] - first).to(D.device)] = torch.nan
    return D


def lengths_of(items: Items) -> Tensor:
    """The steps of each item; 1 for vectors."""
    return items.lengths if isinstance(items, Batch) else torch.ones(len(items), dtype=torch.int64)


def join(parts: list[Pairs], stats: Stats, lengths: Tensor) -> Found:
    """Whole items that were found, by groups of queries: they begin at 0 and end with the item."""
    width = max((part[0].shape[1] for part in parts), default=0)
    pad = torch.nn.functional.pad
    distances = [pad(part[0], (0, width - part[0].shape[1]), value=torch.inf) for part in parts]
    places = [pad(part[1], (0, width - part[1].shape[1]), value=-1) for part in parts]
    best = torch.cat(distances) if parts else torch.empty(0, 0)
    where = torch.cat(places) if parts else torch.empty(0, 0, dtype=torch.int64)
    counts = (where >= 0).sum(1)
    width = int(counts.max()) if len(counts) else 0
    best, where = best[:, :width], where[:, :width]
    found = where >= 0
    ends = torch.where(found, lengths[where.clamp(min=0)] if len(lengths) else where, -1)
    return Found(best, where, torch.where(found, 0, -1), ends, counts, stats)
