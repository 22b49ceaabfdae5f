"""Exhaustive search of windows and of stretches: the reference for fast searchers, the fallback for other distances."""

import time

import torch
from torch import Tensor

from likewise._modes import evaluating
from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.search.exhaustive import ready
from likewise.search.found import Found, Stats, keep_apart
from likewise.search.normalization import window_lengths, znormalize

NUMBERS_AT_ONCE = 1 << 22  # of the windows that are laid out at once


class ExhaustiveWindows:
    """Compare each query with every window of every item; windows are laid out a block at a time.

    length: the windows' length; None for that of each query. normalize: z-normalise every window, and every query.
    stretch: (least, greatest), windows of several lengths, in units of ``length``.

    Example:
        >>> from likewise import DTW
        >>> searcher = ExhaustiveWindows(DTW(), Batch.from_list([[0.0, 0.0, 1.0, 2.0, 0.0]]))
        >>> found = searcher.search(Batch.from_list([[1.0, 2.0]]), k=1, within=None, exclude=0.5)
        >>> found.starts, found.ends
        (tensor([[2]]), tensor([[4]]))
    """

    method = "exhaustive windows"

    def __init__(
        self,
        distance: Distance,
        items: Batch,
        length: int | None = None,
        *,
        normalize: bool = False,
        stretch: tuple[float, float] | None = None,
    ) -> None:
        self.distance = distance
        self.items = items
        self.length = length
        self.normalize = normalize
        self.stretch = stretch

    def search(
        self,
        queries: Batch,
        *,
        k: int | None,
        within: float | None,
        exclude: float,
        skip: Tensor | None = None,
        threads: int | None = None,
    ) -> Found:
        """The hits of each query. Memory: one distance a window, for one query at a time."""
        start, candidates, rows = time.perf_counter(), 0, []
        dtype = torch.float32
        with torch.no_grad(), evaluating(self.distance):
            for q, query in enumerate(queries):
                query = (znormalize(query) if self.normalize else query)[None]
                lengths = window_lengths(self.length or query.shape[1], self.stretch)
                skipped = -1 if skip is None else int(skip[q])
                D, places = self._distances(query, lengths, skipped)
                candidates, dtype = candidates + len(D), D.dtype
                rows.append(select(D, places, self.items.lengths.tolist(), k, within, exclude))
        stats = Stats(self.method, candidates, seconds=time.perf_counter() - start)
        return Found.from_rows(rows, stats, dtype)

    def _distances(self, query: Tensor, lengths: list[int], skip: int) -> tuple[Tensor, Tensor]:
        """Distances (W,) of all windows, and their items, starts and ends (3, W), in order of these."""
        values, places = [], []
        for item, series in enumerate(self.items):
            for length in lengths if item != skip else ():
                windows = series.unfold(0, length, 1).mT if length <= len(series) else series.new_empty(0, length, 1)
                step = max(1, NUMBERS_AT_ONCE // (length * series.shape[1]))
                for first in range(0, len(windows), step):
                    block = windows[first : first + step]
                    block = znormalize(block) if self.normalize else block.contiguous()
                    D = self.distance.matrix(query, block)
                    values.append(ready(self.distance.name, D, first, None)[0].cpu())
                    starts = torch.arange(first, first + len(block))
                    places.append(torch.stack([torch.full_like(starts, item), starts, starts + length]))
        if not values:
            return query.new_empty(0), torch.empty(3, 0, dtype=torch.int64)
        D, where = torch.cat(values), torch.cat(places, 1)
        if len(lengths) > 1:
            order = where[2].argsort(stable=True)
            order = order[where[1][order].argsort(stable=True)]
            order = order[where[0][order].argsort(stable=True)]
            D, where = D[order], where[:, order]
        return D, where


class ExhaustiveStretches:
    """For a distance with free ends: the best stretch of every item, as the distance itself aligns it.

    Only one match of each item is found.

    Example:
        >>> from likewise import DTW
        >>> searcher = ExhaustiveStretches(DTW(subsequence=True), Batch.from_list([[0.0, 0.0, 1.0, 2.0, 0.0]]))
        >>> found = searcher.search(Batch.from_list([[1.0, 2.0]]), k=1, within=None, exclude=0.5)
        >>> found.starts, found.ends
        (tensor([[2]]), tensor([[4]]))
    """

    method = "exhaustive stretches"

    def __init__(self, distance: Distance, items: Batch) -> None:
        self.distance = distance
        self.items = items

    def search(
        self,
        queries: Batch,
        *,
        k: int | None,
        within: float | None,
        exclude: float,
        skip: Tensor | None = None,
        threads: int | None = None,
    ) -> Found:
        """The hits of each query, at most one in each item."""
        from likewise.search.exhaustive import Exhaustive

        found = Exhaustive(self.distance, self.items).search(queries, k=k, within=within, skip=skip)
        starts, ends = found.starts.clone(), found.ends.clone()
        with torch.no_grad(), evaluating(self.distance):
            for q, count in enumerate(found.counts.tolist()):
                for i in range(count):
                    series = self.items[int(found.items[q, i])]
                    path = self.distance.align(queries[q][None], series[None]).path(0)
                    starts[q, i], ends[q, i] = path[0, 1], path[-1, 1] + 1
        stats = Stats(self.method, found.stats.candidates, seconds=found.stats.seconds)
        return Found(found.distances, found.items, starts, ends, found.counts, stats)


def select(
    D: Tensor, places: Tensor, steps: list[int], k: int | None, within: float | None, exclude: float
) -> list[tuple[float, int, int, int]]:
    """The hits of one query, from the distances (W,) of all windows and their places (3, W), sorted by place."""
    order = D.argsort(stable=True)
    order = order if within is None else order[D[order] <= within]
    order = order[keep_apart(*places[:, order], steps, exclude, k)]
    return [(d, *place) for d, place in zip(D[order].tolist(), places[:, order].T.tolist(), strict=True)]
