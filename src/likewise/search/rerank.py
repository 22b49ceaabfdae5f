"""Re-ranking the candidates of a cheap distance, and searchers of encoded items."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from likewise._modes import evaluating
from likewise.distances.distance import Distance
from likewise.evaluation import ranking
from likewise.evaluation.candidates import compare
from likewise.models.metric import take
from likewise.search.exhaustive import Items, join, lengths_of
from likewise.search.found import Found, Searcher, Stats

FEW = 32  # candidates of a query that are compared pair by pair; more, as a row of a matrix


class EncodedSearch:
    """A searcher of encoded items: queries are encoded first."""

    def __init__(self, encode: Callable[[Items], Items], inner: Searcher, lengths: Tensor) -> None:
        self.encode = encode
        self.inner = inner
        self.lengths = lengths

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
        """The hits of each query; they end where the items end, not their encodings."""
        start = time.perf_counter()
        ready = self.encode(queries)
        found = self.inner.search(ready, k=k, within=within, exclude=exclude, skip=skip, threads=threads)
        stats = Stats(**{**vars(found.stats), "seconds": time.perf_counter() - start})
        ends = torch.where(found.items >= 0, self.lengths[found.items.clamp(min=0)], -1)
        return Found(found.distances, found.items, found.starts, ends, found.counts, stats)


class RerankSearch:
    """Candidates of a cheap distance, compared and ranked by an expensive one.

    cheap: a searcher of the same items. distance: between items as ``encode`` returns them. keep: how many candidates
    each query has. With all items as candidates the result is exact. With fewer, hits may be missed; the distances of
    those found are exact.
    """

    def __init__(
        self, cheap: Searcher, distance: Distance, encode: Callable[[Items], Items], items: Items, keep: int
    ) -> None:
        self.cheap = cheap
        self.distance = distance
        self.encode = encode
        self.items = encode(items)
        self.lengths = lengths_of(items)
        self.keep = keep

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
        """The hits of each query, among its candidates."""
        start = time.perf_counter()
        proposed = self.cheap.search(queries, k=self.keep, within=None, exclude=0.0, skip=skip, threads=threads)
        ready, parts = self.encode(queries), []
        with torch.no_grad(), evaluating(self.distance):
            for q in range(len(queries)):
                chosen = proposed.items[q, : int(proposed.counts[q])].sort().values
                D = self._compared(ready, q, chosen)
                order = ranking.nearest(D, min(len(chosen) if k is None else k, len(chosen)))[0].cpu()
                best, where = D[0].cpu()[order], chosen[order]
                near = best <= (torch.inf if within is None else within)
                parts.append((best[near][None], where[near][None]))
        pairs, total = len(queries) * len(self.items), int(proposed.counts.sum())
        method = f"{proposed.stats.method}; candidates re-ranked"
        exact = proposed.stats.exact and self.keep >= len(self.items)
        stats = Stats(method, pairs, {"candidates": pairs - total}, seconds=time.perf_counter() - start, exact=exact)
        return join(parts, stats, self.lengths)

    def _compared(self, queries: Items, q: int, chosen: Tensor) -> Tensor:
        """Distances (1, n) of a query to its candidates."""
        one = take(queries, slice(q, q + 1))
        if len(chosen) <= FEW or callable(getattr(self.distance, "between", None)):
            return compare("Index.search", self.distance, one, self.items, chosen[None])
        D = self.distance.matrix(one, take(self.items, chosen))
        if D.isnan().any():
            raise ValueError(f"Index.search: {self.distance.name} returned NaN for a candidate of query {q}")
        return D if D.dtype in (torch.float32, torch.float64) else D.float()
