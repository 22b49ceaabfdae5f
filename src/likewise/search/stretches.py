"""Open-ended matches: every stretch of a series that DTW with free ends finds, not only the best one."""

import math
import time

import torch
from torch import Tensor

from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.distances.dtw import DTW
from likewise.ops import search as op
from likewise.ops.ground import at_least_float32, euclidean, sqeuclidean
from likewise.ops.rules import Rules
from likewise.search.found import Found, Stats, keep_apart
from likewise.search.whole import as_found


class StretchSearch:
    """Matches of all of a query with a stretch of an item, of any length, under DTW(subsequence=True).

    Each step of an item is the end of one candidate: the best path that ends there, and where it starts. Of these,
    matches are kept apart by ``exclude`` times the query's length, from start to start. The best of an item is the one
    whose value ``DTW`` itself returns. Every cell of the alignment is computed; memory: 16 bytes a step of the items.

    Example:
        >>> searcher = StretchSearch(DTW(subsequence=True), Batch.from_list([[1.0, 2.0, 0.0, 0.0, 1.0, 1.0, 2.0]]))
        >>> found = searcher.search(Batch.from_list([[1.0, 2.0]]), k=2, within=None, exclude=0.5)
        >>> found.starts, found.ends
        (tensor([[0, 5]]), tensor([[2, 7]]))

    Reference: Sakurai, Faloutsos & Yamamuro (2007), SPRING.
    """

    method = "stretches"

    def __init__(self, distance: DTW, items: Batch) -> None:
        self.distance = distance
        self.items = Batch(at_least_float32(items.values), items.lengths)

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
        """The hits of each query."""
        start = time.perf_counter()
        x, root = at_least_float32(queries.values), self.distance.ground is euclidean
        values, places = [], []
        for q, steps in enumerate(queries.lengths.tolist()):
            query = x[q : q + 1, :steps]
            ends, begins = op.stretches(query, self.items.values, self.items.lengths, root=root, threads=threads)
            if self.distance.normalize == "lengths":  # as if the item were whole: DTW divides by both lengths
                ends = ends / (steps + self.items.lengths[:, None])
            value, place = self._select(ends, begins, steps, k, within, exclude, -1 if skip is None else int(skip[q]))
            values.append(value)
            places.append(place)
        cells = int(queries.lengths.sum() * self.items.lengths.sum())
        stats = Stats(self.method, len(queries) * int(self.items.lengths.sum()), cells=cells)
        return as_found(values, places, stats, queries, start)

    def _select(
        self, ends: Tensor, begins: Tensor, steps: int, k: int | None, within: float | None, exclude: float, skip: int
    ) -> tuple[Tensor, Tensor]:
        """The hits of one query, from the value and the start of the stretch that ends at each step, both (N, T)."""
        real = self.items.mask.clone()
        if skip >= 0:
            real[skip] = False
        item, last = real.nonzero().T
        value, first = ends[real], begins[real]
        if within is not None:
            near = value <= within
            item, last, value, first = item[near], last[near], value[near], first[near]
        # In order of item, start and end already, as both never fall along an item.
        order = value.argsort(stable=True)
        place = torch.stack([item, first, last + 1], 1)[order]
        if exclude > 0:  # of the stretches that start together the best remains
            place, order = _first_of_each(place, order)
        kept = keep_apart(place[:, 0], place[:, 1], place[:, 1] + steps, self.items.lengths.tolist(), exclude, k)
        return value[order][kept], place[kept]


def refusal(distance: Distance) -> str | None:
    """Why the open-ended matches of a distance are not found this way; None if they are.

    Example:
        >>> refusal(DTW(subsequence=True)), refusal(DTW())
        (None, 'its ends are not both open')
    """
    if type(distance) is not DTW:
        return f"it is {type(distance).__name__}, not DTW"
    if distance.ground not in (sqeuclidean, euclidean):
        return "its ground cost is not sqeuclidean or euclidean"
    if not (distance.rules.open_begin and distance.rules.open_end):
        return "its ends are not both open"
    if distance.rules != Rules(open_begin=True, open_end=True):
        return "it has a band"
    return 'it is divided by the steps of the path: normalize="steps"' if distance.normalize == "steps" else None


def radius(exclude: float, steps: int) -> int:
    """Matches of a query of so many steps start at least so many steps apart."""
    return math.ceil(exclude * steps)


def _first_of_each(place: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Of several rows with one item and start, the first."""
    if not len(place):
        return place, order
    key = place[:, 0] * (place[:, 1].max() + 1) + place[:, 1]
    by_key = key.argsort(stable=True)
    sorted_key = key[by_key]
    new = torch.ones(len(key), dtype=torch.bool)
    new[1:] = sorted_key[1:] != sorted_key[:-1]
    kept = by_key[new].sort().values
    return place[kept], order[kept]
