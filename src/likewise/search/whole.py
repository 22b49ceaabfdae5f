"""Search of whole items under DTW: bounds rule out most, and DTW compares the rest."""

import time
from dataclasses import replace

from torch import Tensor

from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.distances.dtw import DTW
from likewise.ops import search as op
from likewise.ops.dtw.cpu import LONGEST_IN_FLOAT32
from likewise.ops.ground import at_least_float32, euclidean, sqeuclidean
from likewise.search.found import Found, Stats


class WholeSearch:
    """The nearest whole items under DTW, exactly: equal to comparing each query with every item.

    distance: a DTW for which ``refusal`` returns None. Envelopes are built once, here. Memory: 3.4 times the items, in
    float32; .7 times where many channels vary together, until queries of other lengths come. ``search`` skips what a
    lower bound rules out, in stages that ``stats`` counts: the bounds of means over 8 steps, Keogh's bound of the query
    with the items' envelopes, and that of the items with the query's envelope. Where bounds do not pay, it compares
    every pair. Unequal lengths: the last bound only, and abandoning. Items of one length and many channels that vary
    together: bounds of means, then DTW of their four leading channels.

    Example:
        >>> searcher = WholeSearch(DTW(band=1), Batch.from_list([[0.0, 1.0], [5.0, 5.0], [0.0, 2.0]]))
        >>> found = searcher.search(Batch.from_list([[0.0, 1.0]]), k=2, within=None)
        >>> found.items, found.distances
        (tensor([[0, 2]]), tensor([[0., 1.]]))
    """

    method = "bounds"

    def __init__(self, distance: DTW, items: Batch) -> None:
        self.distance = distance
        self.items = items
        values = at_least_float32(items.values)
        if len(items) and 2 * int(items.lengths.max()) > LONGEST_IN_FLOAT32:  # as all distances are computed then
            values = values.double()
        self.dtype = values.dtype
        self.prepared = op.prepare(values, items.lengths, distance.rules.window)

    def search(
        self,
        queries: Batch,
        *,
        k: int | None,
        within: float | None,
        exclude: float = 0.0,
        skip: Tensor | None = None,
        threads: int | None = None,
    ) -> Found:
        """The hits of each query; ``exclude`` does not apply to whole items."""
        start = time.perf_counter()
        wanted = op.Wanted(k, within, skip=skip, by_lengths=self.distance.normalize == "lengths", threads=threads)
        root = self.distance.ground is euclidean
        found = op.whole(queries.values.to(self.dtype), queries.lengths, self.prepared, wanted, root=root)
        seconds = time.perf_counter() - start
        stats = Stats(self.method, found.candidates, found.killed, found.cells, seconds)
        values = found.values.to(at_least_float32(queries.values).dtype)
        return Found(values, found.items, found.starts, found.ends, found.counts, stats)


def refusal(distance: Distance) -> str | None:
    """Why the bounds do not apply to a distance; None if they do.

    Example:
        >>> refusal(DTW(band=0.1)), refusal(DTW(ground="cosine"))
        (None, 'its ground cost is not sqeuclidean or euclidean')
    """
    if type(distance) is not DTW:
        return f"it is {type(distance).__name__}, not DTW"
    if distance.ground not in (sqeuclidean, euclidean):
        return "its ground cost is not sqeuclidean or euclidean"
    if distance.normalize == "steps":
        return 'it is divided by the steps of the path: normalize="steps"'
    return op.refusal(distance.rules)


def as_found(values: list[Tensor], places: list[Tensor], stats: Stats, queries: Batch, start: float) -> Found:
    """Pad the matches of each query; ``start`` is when the search began."""
    counts = [len(value) for value in values]
    width = max(counts, default=0)
    distances = queries.values.new_full((len(values), width), float("inf"))
    where = queries.lengths.new_full((3, len(values), width), -1)
    for q, (value, place) in enumerate(zip(values, places, strict=True)):
        distances[q, : len(value)] = value
        where[:, q, : len(value)] = place.T
    stats = replace(stats, seconds=time.perf_counter() - start)
    return Found(distances, where[0], where[1], where[2], queries.lengths.new_tensor(counts), stats)
