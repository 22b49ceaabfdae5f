"""Index: items that are searched by their distance to a query."""

import copy
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from likewise import _check
from likewise._progress import waiting
from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.distances.dtw import DTW
from likewise.evaluation.candidates import Candidates
from likewise.search.choice import choose, exhaustive, has_free_ends
from likewise.search.collection import Collection
from likewise.search.exhaustive import Exhaustive
from likewise.search.found import Searcher, share_found
from likewise.search.hits import Hits
from likewise.search.items import Items, read_items
from likewise.search.normalization import normalized, znormalize
from likewise.search.options import Options, read_settings
from likewise.search.pieces import search_in_pieces
from likewise.search.queries import read_queries, read_skip
from likewise.search.self_join import Profile, self_join
from likewise.search.storage import MOST_BYTES, Folder
from likewise.search.store import Store
from likewise.search.stored import Stored
from likewise.search.watch import Watch

DEFAULT_K = 10


class Index:
    """The nearest items to a query under a distance, exactly by default.

    distance: any Distance, or a Metric, whose encoder then runs once for each item.
    items: a Dataset, a Batch, a tensor or array (N, T, C), a list of sequences, or a pair (items, labels). Euclidean
        and Cosine also take vectors (N, D), a Metric whatever its encoder takes. None begins with an empty index.
    length: search all windows of this many steps of the items, which are long series, instead of whole items.
        ``subsequence=True`` searches windows of each query's own length.
    normalize: "window" scales every window, or whole item, and every query to mean 0 and deviation 1 in each channel.
    stretch: (least, greatest): windows of several lengths, in units of the query's, in steps of 5 %.
    labels, ids: (N,), in place of those of the items. Ids are names, each used once; "0", "1", ... by default.
    candidates: Candidates(cheap distance, keep): only the items that it keeps for a query are compared by ``distance``.
        This is faster and may miss some; ``recall`` measures how many.
    approximate: let faiss search a graph (HNSW) of the vectors, if there are 50,000 or more. It may miss some, too.
    store: a vector database, such as a MilvusStore, that keeps the items in place of this process's memory. It proposes
        candidates by their vectors, which ``distance`` compares. With a distance that compares no vectors, give
        ``candidates`` that do, such as Candidates(MeanFrames(), keep=200).
    device: where searches compare items, such as "cuda", with copies of the items and of the distance that are made at
        the first search. By default, where the items are. Hits and explanations stay with the items.

    With a distance that has free ends, such as DTW(subsequence=True), a hit is a stretch of an item. Which comparisons
    a search can skip depends on the distance; ``hits.stats`` counts them. An index that was saved or loaded belongs to
    its folder: ``add`` and ``remove`` write there before they return.

    Example:
        >>> import torch
        >>> from likewise import DTW
        >>> index = Index(DTW(band=2), [[0.0, 1.0, 2.0], [2.0, 1.0, 0.0], [0.0, 0.0, 2.0]], labels=["up", "down", "up"])
        >>> hits = index.search([[0.0, 1.0, 1.0]], k=2)
        >>> hits.ids.tolist(), hits.labels.tolist(), hits.distances
        ([['0', '2']], [['up', 'up']], tensor([[1., 2.]]))
        >>> long = torch.sin(torch.arange(200.0) / 10)[None, :, None]
        >>> Index(DTW(band=0.1), long, length=20).search(long[:, 30:50], k=2).starts  # and one period later
        tensor([[30, 93]])
    """

    def __init__(
        self,
        distance: Distance,
        items: Any = None,
        *,
        length: int | None = None,
        subsequence: bool = False,
        normalize: str | None = None,
        stretch: tuple[float, float] | None = None,
        labels: Any = None,
        ids: Any = None,
        candidates: Candidates | None = None,
        approximate: bool = False,
        store: Store | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        if not isinstance(distance, Distance):
            raise TypeError(f"Index: expected distance to be a Distance or a Metric, got {type(distance).__name__}")
        self.distance = distance
        self._options = Options(length, subsequence, normalize, stretch, candidates, approximate)
        self.store = store
        self.device = None if device is None else torch.device(device)
        if store is not None and device is not None:
            _check.refuse("Index", "device is not for a store; move the distance to it, which embeds the items")
        self._held = Collection(distance, self._options) if store is None else Stored(distance, self._options, store)
        self._forget()
        if items is not None:
            self._held.add(self._held.read("Index", items, labels, ids))
        elif labels is not None or ids is not None:
            _check.refuse("Index", "labels and ids need items")

    # The contents of the index.

    def __len__(self) -> int:
        return len(self._held)

    @property
    def items(self) -> Items:
        """The items, as a Batch or a tensor; position i is what ``hits.items`` calls i."""
        return self._held.items

    @property
    def ids(self) -> tuple[str, ...]:
        """The name of each item."""
        return self._held.table.ids

    @property
    def labels(self) -> np.ndarray | None:
        """The label of each item, (N,): names, or float64 targets; None without labels."""
        return self._held.table.labels

    @property
    def options(self) -> Options:
        """The options of the index."""
        return self._options

    @property
    def folder(self) -> Path | None:
        """The folder that the index belongs to, once it was saved or loaded."""
        return None if self._held.folder is None else self._held.folder.path

    def view(self, item: Tensor) -> Tensor:
        """An item, a window or a query, (T, C), as it is compared: normalised if the index normalises."""
        return znormalize(item) if self._options.normalize is not None else item

    # Searching.

    def search(
        self,
        queries: Any,
        k: int | None = None,
        within: float | None = None,
        exclude: float = 0.5,
        *,
        skip: Any = None,
        where: Any = None,
        threads: int | None = None,
        progress: bool = False,
    ) -> Hits:
        """The nearest items, or windows, of each query, nearest first; ties in the order of the items.

        queries: what the index takes as items. k: how many to find; 10 by default, or all with ``within``. If there are
            fewer, all of them are found; an empty index finds nothing.
        within: the largest distance of a hit. exclude: matches of a query in one series begin at least this share of
            their length apart; 0 allows neighbours.
        skip: (Q,) positions of items that the queries must not find, -1 for none: leave-one-out.
        where: with a store: only items whose label or other fields satisfy these conditions: a value, a list of values,
            or slice(low, high) for low <= value < high. where={"label": ["walk", "run"], "year": slice(2019, None)}.
        threads: by default ``torch.get_num_threads()``. progress: draw a bar on stderr.

        Example:
            >>> import torch
            >>> from likewise import Euclidean
            >>> index = Index(Euclidean(), torch.tensor([[0.0], [1.0], [5.0]]), ids=["a", "b", "c"])
            >>> index.search(torch.tensor([[0.2], [9.0]]), within=2.0)
            Hits(2 queries, 2 and 0 hits)
        """
        op = "Index.search"
        if k is None and within is None:
            k = DEFAULT_K
        k = None if k is None else _check.whole(op, "k", k)
        if within is not None and (within := float(_check.number(op, "within", within))) != within:
            _check.refuse(op, "within is NaN")
        exclude = _check.not_negative(op, "exclude", exclude)
        threads = None if threads is None else _check.whole(op, "threads", threads)
        read = self._queries(op, queries)
        if isinstance(self._held, Stored):
            if skip is not None:
                _check.refuse(op, "skip names positions, which items in a store do not have; use where")
            found, shelf = self._held.search(op, read, k=k, within=within, where=where)
            return Hits(found, self, read, shelf)
        if where is not None:
            _check.refuse(op, "where needs an index with a store; without one, build the index of the items you want")
        skipped = read_skip(op, skip, len(read), len(self))
        if len(self) == 0 or len(read) == 0:
            found = Exhaustive(self.distance, read[:0]).search(read, k=0, within=None)
        else:
            ready, given = self._there(self._compared(read)), {"within": within, "exclude": exclude, "threads": threads}
            with waiting("preparing the items", shown=progress and self._search is None):
                searcher = self._searcher
            search = partial(search_in_pieces, searcher) if progress else searcher.search
            found = search(ready, k=k, skip=skipped, **given)
        return Hits(found, self, read)

    def recall(self, queries: Any, k: int = DEFAULT_K, *, skip: Any = None) -> float:
        """The share of the k nearest items, by exhaustive search, that ``search`` finds; 1 if the index is exact.

        An item as near as the k-th nearest counts as one of them. With a store, every item is read.

        Example:
            >>> import torch
            >>> from likewise import DTW, Euclidean
            >>> from likewise.evaluation import Candidates
            >>> x = torch.randn(50, 8, 1, generator=torch.Generator().manual_seed(0)).cumsum(1)
            >>> Index(DTW(), x, candidates=Candidates(Euclidean(), keep=25)).recall(x[:5], k=3)
            1.0
        """
        op = "Index.recall"
        if self._options.windows or has_free_ends(self.distance):
            _check.refuse(op, "windows are always searched exactly; recall is for whole items")
        k = _check.whole(op, "k", k)
        read = self._queries(op, queries)
        if not len(self) or not len(read):
            _check.refuse(op, "expected at least one query and one item")
        if isinstance(self._held, Stored):
            return self._held.recall(op, read, k)
        skipped = read_skip(op, skip, len(read), len(self))
        ready = self._there(self._compared(read))
        distance, items, _ = self._on_device()
        everything = exhaustive(distance, items)
        truth = everything.search(ready, k=k, within=None, exclude=0.0, skip=skipped)
        found = self._searcher.search(ready, k=k, within=None, exclude=0.0, skip=skipped)
        return share_found(found, truth)

    def watch(self, query: Any, *, within: float, exclude: float = 0.5) -> Watch:
        """Look for a query in samples as they come, in bounded memory, under the distance of this index.

        query: a sequence (T, C) or (T,). within: the largest distance of a match. ``watch.push(samples)`` returns the
        matches that are complete; see ``Watch``. The items of the index play no part.

        Example:
            >>> from likewise import DTW
            >>> watch = Index(DTW(band=1)).watch([0.0, 5.0, 0.0], within=0.5)
            >>> watch.push([0.0, 0.0, 5.0, 0.0, 0.0, 0.0])
            [Sighting(distance=0.0, start=1, end=4)]
        """
        if not isinstance(self.distance, DTW):
            raise TypeError(f"Index.watch: expected the distance to be a DTW, got {self.distance.name}")
        normalize = self._options.normalize is not None
        return Watch(self.distance, query, within=within, exclude=exclude, normalize=normalize)

    def self_join(
        self, k: int = 1, exclude: float = 0.5, *, threads: int | None = None, progress: bool = False
    ) -> Profile:
        """The k nearest other windows of every window: the matrix profile, with its motifs and discords.

        The index has a ``length``. exclude: windows that begin less than this share of the length apart are not
        neighbours. Under DTW, or Euclidean for one series and k=1.

        Example:
            >>> import torch
            >>> from likewise import DTW
            >>> wave = torch.sin(torch.arange(60) * 0.9)[None, :, None]
            >>> profile = Index(DTW(band=1), wave, length=8).self_join()
            >>> profile.motifs()[0][0] < 0.1
            True
        """
        length, items = self._options.length, self.items
        if length is None or not isinstance(items, Batch) or self._options.stretch is not None:
            _check.refuse("Index.self_join", "expected an index of windows of one length; build it with length=")
        return self_join(
            self.distance,
            items,
            length,
            normalize=self._options.normalize is not None,
            k=k,
            exclude=exclude,
            threads=threads,
            progress=progress,
        )

    # Changing.

    def add(self, items: Any, *, labels: Any = None, ids: Any = None, fields: Any = None) -> Self:
        """Add items, with their labels if the others have some. Returns the index.

        If the process dies on the way, the folder still holds the old index. With a store, repeat the call: nothing is
        added twice. fields: with a store, further values for ``where``, by name: a list
        for each, {"year": [2019, ...]}.

        Example:
            >>> from likewise import DTW
            >>> len(Index(DTW(), [[1.0, 2.0]]).add([[3.0], [4.0, 5.0]]))
            3
        """
        part = self._held.read("Index.add", items, labels, ids)
        if isinstance(self._held, Stored):
            self._held.add(part, fields)
        elif fields is not None:
            _check.refuse("Index.add", "fields need an index with a store")
        else:
            self._held.add(part)
        self._forget()
        return self

    def upsert(self, items: Any, *, labels: Any = None, ids: Any = None, fields: Any = None) -> Self:
        """Add items, in place of those with the same ids; for an index with a store. Returns the index."""
        op = "Index.upsert"
        if not isinstance(self._held, Stored):
            _check.refuse(op, "needs an index with a store; without one, remove the old items and add the new ones")
        self._held.add(self._held.read(op, items, labels, ids), fields, replace=True)
        return self

    def remove(self, ids: Any) -> Self:
        """Remove items by their ids. Positions of later items move down. Returns the index.

        An unknown id raises an error. With a store it is ignored, so that a failed call can be repeated.

        Example:
            >>> from likewise import DTW
            >>> Index(DTW(), [[1.0], [2.0], [3.0]], ids=["a", "b", "c"]).remove(["b"]).ids
            ('a', 'c')
        """
        wanted = [str(name) for name in ([ids] if isinstance(ids, (str, int)) else ids)]
        self._held.remove(wanted)
        self._forget()
        return self

    # On disk.

    def save(self, folder: str | Path, *, progress: bool = False) -> None:
        """Write the index to a folder, in place of an index that is there; the index then belongs to the folder.

        Numbers go to safetensors files, settings to index.json; nothing is pickled. If the process dies on the way, the
        folder holds what it held before. Removed items are left out. progress: draw a bar on stderr.

        Example:
            >>> import tempfile
            >>> from likewise import DTW
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Index(DTW(band=3), [[1.0, 2.0], [3.0]]).save(folder)
            ...     Index.load(folder).add([[5.0]])
            Index(DTW(ground='sqeuclidean', band=3), 3 sequences of 1..2 steps, 1 channel)
        """
        if isinstance(self._held, Stored):
            self._held.save(folder)
        else:
            self._held.save(folder, progress=progress)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        classes: Iterable[type[nn.Module]] = (),
        verify: bool = True,
        limit: int = MOST_BYTES,
        device: str | torch.device | None = None,
    ) -> Self:
        """Load an index that ``save`` wrote. Items are mapped into memory and read when they are searched.

        classes: your own classes that the distance uses; only these and likewise's are ever instantiated.
        verify: read all files once and compare their checksums. limit: the most bytes of items. device: where searches
        compare items, as in ``Index``.

        Items of unequal length are padded in memory at the first search; those of equal length stay mapped.
        """
        source = Folder(folder)
        manifest = source.read_manifest()
        distance, options = read_settings(source, manifest, classes)
        index = cls(distance, **vars(options), device=device)
        held = index._held
        assert isinstance(held, Collection)
        held.load(source, manifest, verify=verify, limit=limit)
        return index

    def __repr__(self) -> str:
        if isinstance(self._held, Stored):
            return f"Index({self.distance!r}, {self._held!r})"
        if not len(self):
            return f"Index({self.distance!r}, empty)"
        part, count = self._held.table, len(self)
        if part.offsets is None:
            held = f"{count} items of {' x '.join(map(str, part.values.shape[1:]))}"
        else:
            held = repr(self.items)[len("Batch(") : -1].rsplit(", ", 2)[0]
            held = held.replace("sequences, ", "sequences of ").replace("sequence, ", "sequence of ")
        options = self._options
        windows = f", windows of {options.length} steps" if options.length else ", windows" if options.windows else ""
        return f"Index({self.distance!r}, {held}{windows})"

    # Inside.

    @property
    def _searcher(self) -> Searcher:
        if self._search is None:
            self._search = choose(*self._on_device())
        return self._search

    def _on_device(self) -> tuple[Distance, Items, Options]:
        """The distance, the items and the options, where items are compared."""
        distance, items, options = self.distance, self._there(self._compared(self.items)), self._options
        if self.device is None:
            return distance, items, options
        if (given := options.candidates) is not None and isinstance(given.metric, nn.Module):
            cheap = copy.deepcopy(given.metric).to(self.device)
            options = replace(options, candidates=Candidates(cheap, given.keep))  # type: ignore[arg-type]
        return copy.deepcopy(distance).to(self.device), items, options

    def _there(self, items: Items) -> Items:
        """Queries or items, where items are compared."""
        return items if self.device is None else items.to(self.device)

    def _compared(self, items: Items) -> Items:
        """Whole queries or items as they are compared; windows are normalised when they are."""
        if self._options.windows or self._options.normalize is None:
            return items
        assert isinstance(items, Batch)
        return normalized(items)

    def _forget(self) -> None:
        """After a change: the searchers are built again on next use."""
        self._search: Searcher | None = None

    def _queries(self, op: str, queries: Any) -> Items:
        if isinstance(self._held, Stored):
            return read_items(op, "queries", queries, self.distance)
        return read_queries(op, queries, self.distance, self._held, self._options)
