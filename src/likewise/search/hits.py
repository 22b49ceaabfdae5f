"""Hits: what a search found."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from likewise import _check
from likewise._output import writing
from likewise.data.columns import narwhals_module
from likewise.search.explanation import Explanation
from likewise.search.found import Found, Stats
from likewise.search.items import Items
from likewise.search.page import write_page

if TYPE_CHECKING:
    from likewise.search.index import Index
    from likewise.search.stored import Shelf

MOST_COMPARED = 4096  # hits in a store that are looked through for one of another class


class Hits:
    """The hits of Q queries, nearest first; K is the largest number of hits of any query.

    distances: (Q, K) float; inf where a query has fewer hits.
    items: (Q, K) int64, positions in the index at the time of the search; -1 where there are fewer. In a store items
        have no positions: these only tell the hits apart.
    starts, ends: (Q, K) int64, the steps of the item that match, [start, end); all of it for whole items.
    ids, labels: (Q, K) arrays of the items' names and labels; "" where there are fewer, NaN for targets. Without labels
        in the index, labels is None.
    counts: (Q,) int64, the number of hits of each query. stats: what the search did, see ``Stats``.
    queries: the queries, as the index read them.

    ``hits[q]`` is the part of one query, or of a slice of them.

    Example:
        >>> from likewise import DTW, Index
        >>> hits = Index(DTW(), [[0.0, 1.0], [5.0, 5.0], [0.0, 2.0]]).search([[0.0, 1.0], [4.0, 5.0]], k=1)
        >>> hits
        Hits(2 queries, 1 hit each)
        >>> hits.items.tolist(), hits[1].distances
        ([[0], [1]], tensor([[1.]]))
    """

    def __init__(self, found: Found, index: "Index", queries: Items, shelf: "Shelf | None" = None) -> None:
        self.distances = found.distances
        self.items = found.items
        self.starts = found.starts
        self.ends = found.ends
        self.counts = found.counts
        self.stats: Stats = found.stats
        self.queries = queries
        held = index if shelf is None else shelf  # the items at the time of the search: positions change with the index
        self.ids = _named(found.items, np.array(held.ids, dtype=object), "")
        self._targets = held.labels is not None and held.labels.dtype.kind == "f"
        self.labels = None
        if held.labels is not None:
            self.labels = _named(found.items, held.labels.astype(object), np.nan if self._targets else "")
        self._index = index
        self._items = held.items

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, index: int | slice) -> "Hits":
        """The hits of one query, or of some."""
        if not isinstance(index, slice):
            place = self._query(index)
            index = slice(place, place + 1)
        picked = copy.copy(self)
        for name in ("distances", "items", "starts", "ends", "counts", "queries", "ids", "labels"):
            value = getattr(self, name)
            setattr(picked, name, None if value is None else value[index])
        return picked

    def __iter__(self) -> Iterator["Hits"]:
        return (self[q] for q in range(len(self)))

    def query(self, q: int) -> Tensor:
        """A query as it was compared: (T, C), normalised if the index normalises, or a vector."""
        return self._index.view(self.queries[self._query(q)])

    def match(self, q: int, i: int = 0) -> Tensor:
        """What the i-th hit of a query matched: (T, C), the item or its window, normalised if the index normalises."""
        q, i = self._place(q, i)
        item = self._items[int(self.items[q, i])]
        return self._index.view(item[int(self.starts[q, i]) : int(self.ends[q, i])] if item.ndim == 2 else item)

    def series(self, q: int, i: int = 0) -> Tensor:
        """The item of the i-th hit of a query, whole and as it was given."""
        q, i = self._place(q, i)
        return self._items[int(self.items[q, i])]

    def explain(self, q: int = 0, i: int = 0, *, tolerance: float = 0.1) -> Explanation:
        """Why the i-th hit of query q is so near: alignment, costs, segments, counterfactual.

        tolerance: how much more, as a share of the distance, the straight segments may cost than the path.

        Example:
            >>> from likewise import DTW, Index
            >>> index = Index(DTW(), [[0.0, 1.0, 3.0], [5.0, 5.0, 5.0]], labels=["low", "high"])
            >>> print(index.search([[0.0, 1.0, 2.0]], k=1).explain())
            DTW 1 to 0 (low)
              steps 0..2: shift +0.0, stretch 1.00, amplitude 1.53, cost 1
              nearest of another class: 1 (high), 50; steps 0..2 cost 49 more there
        """
        q, i = self._place(q, i)
        label = None if self.labels is None else self.labels[q, i]
        start, end = int(self.starts[q, i]), int(self.ends[q, i])
        name = str(self.ids[q, i]) + ("" if label is None else f" ({label})")
        name += "" if end - start == len(self.series(q, i)) else f", steps {start}..{end - 1}"
        value = float(self.distances[q, i])
        return Explanation(
            self._index.distance,
            self.query(q),
            self.match(q, i),
            value=value,
            tolerance=tolerance,
            name=name,
            other=lambda: self._of_another_class(q, label),
        )

    def _of_another_class(self, q: int, label: object) -> tuple[str, object, Explanation] | None:
        """The nearest item whose label is another: its id, its label, and why."""
        index = self._index
        if self.labels is None or self._targets:
            return None
        if index.store is None and index.labels is not None and (index.labels == label).all():
            return None
        query, k = self.queries[self._query(q) :][:1], 4
        while k <= MOST_COMPARED or index.store is None:
            hits = index.search(query, k=k)
            for i, other in enumerate(hits.labels[0] if hits.labels is not None else ()):
                if other not in (label, ""):
                    value = float(hits.distances[0, i])
                    name = f"{hits.ids[0, i]} ({other})"
                    why = Explanation(index.distance, hits.query(0), hits.match(0, i), value=value, name=name)
                    return hits.ids[0, i], other, why
            if int(hits.counts[0]) < k:
                return None
            k *= 4
        return None

    def to_html(
        self, path: str | Path, q: int = 0, *, k: int = 10, title: str | None = None, overwrite: bool = True
    ) -> Path:
        """Write one page about a query: its hits, drawn and aligned, with their costs, segments and counterfactuals.

        The page is a single file that loads nothing else. k: the largest number of hits to draw. overwrite: whether a
        file of that name may be replaced. Returns the path.

        Example:
            >>> import tempfile
            >>> from likewise import DTW, Index
            >>> hits = Index(DTW(), [[0.0, 1.0, 3.0], [5.0, 5.0, 5.0]]).search([[0.0, 1.0, 2.0]], k=2)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     hits.to_html(f"{folder}/hits.html").read_text()[:15]
            '<!doctype html>'
        """
        q = self._query(q)
        text = write_page(self, q, k=_check.whole("Hits.to_html", "k", k), title=title)
        with writing(path, overwrite=overwrite) as part:
            part.write_text(text, encoding="utf-8")
        return Path(path)

    def to_frame(self, *, backend: str = "pyarrow") -> Any:
        """A table with a row for each hit: query, rank (from 0), distance, item, id, label, start, end.

        backend: "pyarrow", "pandas" or "polars". Needs the extra ``tables``.

        Example:
            >>> from likewise import DTW, Index
            >>> index = Index(DTW(), [[0.0, 1.0], [5.0, 5.0]], labels=["low", "high"])
            >>> index.search([[0.0, 1.0]], k=2).to_frame(backend="pandas")
               query  rank  distance  item id label  start  end
            0      0     0       0.0     0  0   low      0    2
            1      0     1      41.0     1  1  high      0    2
        """
        nw = narwhals_module()
        query, rank = (self.items >= 0).nonzero(as_tuple=True)
        columns: dict[str, Any] = {"query": query.numpy(), "rank": rank.numpy()}
        columns["distance"] = self.distances[query, rank].numpy()
        columns["item"] = self.items[query, rank].numpy()
        columns["id"] = self.ids[query.numpy(), rank.numpy()]
        if self.labels is not None:
            columns["label"] = self.labels[query.numpy(), rank.numpy()]
            if self._targets:
                columns["label"] = columns["label"].astype(np.float64)
        columns |= {name: getattr(self, f"{name}s")[query, rank].numpy() for name in ("start", "end")}
        try:
            return nw.from_dict(columns, backend=backend).to_native()
        except ImportError as error:
            raise ImportError(f"Hits.to_frame: install {backend}, or choose another backend") from error

    def __repr__(self) -> str:
        counts, total = self.counts.tolist(), len(self)
        if total == 1:
            shown = f"{counts[0]} hit{'s' * (counts[0] != 1)}"
        elif len(set(counts)) == 1:
            shown = f"{counts[0]} hit{'s' * (counts[0] != 1)} each"
        elif total == 2:
            shown = f"{counts[0]} and {counts[1]} hits"
        else:
            shown = f"{min(counts, default=0)}..{max(counts, default=0)} hits each"
        return f"Hits({total} quer{'y' if total == 1 else 'ies'}, {shown})"

    def _query(self, q: int) -> int:
        if not -len(self) <= q < len(self):
            raise IndexError(f"Hits: query {q} of {len(self)}")
        return q % len(self)

    def _place(self, q: int, i: int) -> tuple[int, int]:
        q = self._query(q)
        count = int(self.counts[q])
        if not -count <= i < count:
            raise IndexError(f"Hits: hit {i} of query {q}, which has {count}")
        return q, i % count


def _named(items: Tensor, names: np.ndarray, missing: object) -> np.ndarray:
    """The names of items (Q, K), with ``missing`` for missing hits."""
    found = np.full(tuple(items.shape), missing, dtype=object)
    there = (items >= 0).numpy()
    found[there] = names[items[items >= 0].numpy()]
    return found
