"""Every window of long series under DTW, normalised on the fly."""

import math
import time

import torch
from torch import Tensor

from likewise.data.batch import Batch
from likewise.distances.dtw import DTW
from likewise.ops import search as op
from likewise.ops.ground import at_least_float32, euclidean
from likewise.search.found import Found, Stats, keep_apart
from likewise.search.normalization import window_lengths
from likewise.search.whole import as_found


class WindowSearch:
    """The nearest windows of every item under DTW, exactly: equal to comparing each query with every window.

    distance: a DTW for which ``whole.refusal`` returns None. length: the windows' length; None for that of each query.
    normalize: z-normalise every window, and every query, as ``normalization.znormalize`` does. stretch: (least,
    greatest), windows of several lengths, in units of ``length``.

    Windows are never laid out: bounds read the series, and the moments of each window come from running sums. Memory:
    the series, and three copies in float32; a search adds 16 bytes for each candidate that the bounds leave, in parts
    of bounded size.

    Example:
        >>> searcher = WindowSearch(DTW(band=1), Batch.from_list([[0.0, 0.0, 1.0, 2.0, 0.0]]))
        >>> found = searcher.search(Batch.from_list([[1.0, 2.0]]), k=1, within=None, exclude=0.5)
        >>> found.starts, found.ends
        (tensor([[2]]), tensor([[4]]))
    """

    method = "bounds of windows"

    def __init__(
        self,
        distance: DTW,
        items: Batch,
        length: int | None = None,
        *,
        normalize: bool = False,
        stretch: tuple[float, float] | None = None,
    ) -> None:
        self.distance = distance
        self.items = Batch(at_least_float32(items.values), items.lengths)
        self.length = length
        self.normalize = normalize
        self.stretch = stretch
        self._prepared: op.Prepared | None = None
        if length is not None:
            self.prepared(length)

    def prepared(self, length: int) -> op.Prepared:
        """The items with their envelopes for windows of some length; those of one length are kept."""
        if self._prepared is None or self._prepared.length != length:
            self._prepared = op.prepare(self.items.values, self.items.lengths, self.distance.rules.window, length)
        return self._prepared

    def search(
        self,
        queries: Batch,
        *,
        k: int | None,
        within: float | None,
        exclude: float,
        skip: Tensor | None = None,
        threads: int | None = None,
        skip_start: Tensor | None = None,
    ) -> Found:
        """The hits of each query.

        skip_start: (Q,), of the item that a query must not find, only windows that begin less than exclude times the
        query's length from here are left out, the one that begins here in any case.
        """
        start = time.perf_counter()
        values: list[Tensor] = [torch.empty(0)] * len(queries)
        places: list[Tensor] = [torch.empty(0, 3, dtype=torch.int64)] * len(queries)
        parts: list[Stats] = [Stats(self.method, 0)]
        for steps in queries.lengths.unique().tolist():
            rows = (queries.lengths == steps).nonzero()[:, 0]
            wanted = op.Wanted(
                k,
                within,
                skip=None if skip is None else skip[rows],
                skip_start=None if skip_start is None else skip_start[rows],
                skip_radius=max(1, math.ceil(exclude * steps)),
                by_lengths=self.distance.normalize == "lengths",
                threads=threads,
            )
            outcomes = self._group(at_least_float32(queries.values[rows, :steps]), wanted, exclude)
            parts += [Stats(self.method, one.candidates, one.killed, one.cells) for one in outcomes]
            for i, q in enumerate(rows.tolist()):
                values[q], places[q] = self._select(outcomes, i, k, exclude)
        return as_found(values, places, Stats.total(parts), queries, start)

    def _group(self, queries: Tensor, wanted: op.Wanted, exclude: float) -> list[op.Outcome]:
        """Matches of queries of one length, for every length of the windows."""
        steps, root = queries.shape[1], self.distance.ground is euclidean
        if self.normalize:
            queries = op.normalize(queries)
        lengths = window_lengths(self.length or steps, self.stretch)
        radius = math.ceil(exclude * max(lengths))
        if len(lengths) == 1 and radius <= 1:
            radius = 0  # no two windows start together
        wanted = op.Wanted(**{**vars(wanted), "radius": radius})
        outcomes = []
        for length in lengths:
            if length == steps:
                prepared = self.prepared(length)
            else:
                prepared = op.without_envelopes(self.prepared(self.length or steps), length)
            outcomes.append(op.windows(queries, prepared, wanted, root=root, normalized=self.normalize))
        return outcomes

    def _select(self, outcomes: list[op.Outcome], i: int, k: int | None, exclude: float) -> tuple[Tensor, Tensor]:
        """The matches of query i, from those of every length of the windows: values (K,), and places (K, 3)."""
        counts = [int(one.counts[i]) for one in outcomes]
        value = torch.cat([one.values[i, :count] for one, count in zip(outcomes, counts, strict=True)])
        place = torch.cat(
            [
                torch.stack([one.items[i, :count], one.starts[i, :count], one.ends[i, :count]], 1)
                for one, count in zip(outcomes, counts, strict=True)
            ]
        )
        if len(outcomes) > 1:
            for column in (2, 1, 0):
                order = place[:, column].argsort(stable=True)
                value, place = value[order], place[order]
            order = value.argsort(stable=True)
            value, place = value[order], place[order]
        if k == 1:
            return value[:1], place[:1]
        kept = keep_apart(place[:, 0], place[:, 1], place[:, 2], self.items.lengths.tolist(), exclude, k)
        return value[kept], place[kept]
