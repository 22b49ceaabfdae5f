"""Collection: items with their labels, and the metrics that compare them."""

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from threading import Lock
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from likewise._labels import class_names, labelled, read_labels, sorted_classes
from likewise._modes import evaluating
from likewise.data.batch import Batch
from likewise.distances.alignment import Alignment
from likewise.distances.distance import Distance
from likewise.models.metric import Metric, as_items, take
from likewise.search import Hits, Index, Stats
from likewise.web.bodies import Like
from likewise.web.refusals import Refusal
from likewise.web.work import Job


@dataclass(frozen=True)
class Hit:
    """A neighbour: its position in the collection, its distance, and the steps [start, end) that matched."""

    item: int
    distance: float
    start: int
    end: int


@dataclass(frozen=True)
class Answer:
    """The hits of every query, nearest first, how they were found, and how long it took."""

    hits: list[list[Hit]]
    seconds: float
    method: str
    candidates: int
    killed: dict[str, int]


class Collection:
    """Items, their labels and ids, and named metrics; it computes everything for the service and the page.

    items: a Dataset, an ImageSet, a Batch, a tensor, a list of sequences, or a pair (items, labels); None for a service
        that compares only the items of requests.
    metrics: Distances by name; the first is the default. indexes: those that there are already, by the metric's name.
    device: where searches, maps and judgements compute, such as "cuda", with copies of the items and of the metrics.

    Example:
        >>> from likewise import DTW
        >>> collection = Collection(([[0.0, 1.0], [5.0, 6.0]], ["low", "high"]), {"dtw": DTW()})
        >>> collection.search(None, collection.take([0]), k=1).hits
        [[Hit(item=0, distance=0.0, start=0, end=2)]]
    """

    def __init__(
        self,
        items: Any,
        metrics: Mapping[str, Distance],
        *,
        name: str = "collection",
        indexes: Mapping[str, Index] | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        if not metrics:
            raise ValueError("Collection: expected at least one metric")
        for key, metric in metrics.items():
            if not isinstance(metric, Distance):
                raise TypeError(f"Collection: expected metric {key!r} to be a Distance, got {type(metric).__name__}")
            metric.eval()
        self.name = name
        self.metrics = dict(metrics)
        self.device = device
        self._copies: dict[str, Distance] = {}
        self.items: Batch | Tensor | None = None
        self.labels: np.ndarray | None = None
        self.classes: tuple[str, ...] = ()
        self.codes = np.empty(0, np.int64)
        self.ids: tuple[str, ...] = ()
        if items is not None:
            self._read(items)
        self._indexes = {(key, False): index for key, index in (indexes or {}).items()}
        self._lock = Lock()

    @classmethod
    def of_index(cls, index: Index, metrics: Mapping[str, Distance] | None = None, *, name: str = "index") -> Self:
        """The items of an index, searched by it, and by other metrics beside it.

        Example:
            >>> from likewise import DTW, Euclidean
            >>> index = Index(DTW(), [[0.0, 1.0], [5.0, 6.0]], labels=["low", "high"])
            >>> list(Collection.of_index(index, {"euclidean": Euclidean()}).metrics)
            ['DTW', 'euclidean']
        """
        own = index.distance.name
        collection = cls(
            index.items if index.labels is None else (index.items, index.labels),
            {own: index.distance, **(metrics or {})},
            name=name,
            indexes={own: index},
            device=index.device,
        )
        collection.ids = tuple(map(_without_folders, index.ids))
        return collection

    def _read(self, given: Any) -> None:
        items, labels = labelled("Collection", "items", given, need_labels=False)
        self.items = as_items("Collection", "items", items)
        if len(self.items) == 0:
            raise ValueError("Collection: there are no items")
        size = len(self.items)
        self.ids = tuple(_without_folders(name) for name in getattr(given, "ids", None) or map(str, range(size)))
        if labels is not None:
            self.labels = class_names(read_labels("Collection", "labels", labels, size))
            self.classes = tuple(sorted_classes(self.labels).tolist())
            place = {name: i for i, name in enumerate(self.classes)}
            self.codes = np.array([place[name] for name in self.labels.tolist()], np.int64)

    def __len__(self) -> int:
        return 0 if self.items is None else len(self.items)

    @property
    def kind(self) -> str:
        """The kind of the items: "sequences", "images", "vectors", or "none"."""
        if self.items is None:
            return "none"
        if isinstance(self.items, Batch):
            return "sequences"
        return "images" if self.items.ndim == 4 else "vectors"

    @property
    def like(self) -> Like:
        """The form of a query."""
        if isinstance(self.items, Batch):
            return Like(channels=self.items.values.shape[2])
        if isinstance(self.items, Tensor) and self.items.ndim == 4:
            return Like(image=tuple(self.items.shape[1:]))
        return Like()

    @property
    def lengths(self) -> np.ndarray:
        """(N,), the steps of each sequence; 1 for anything else."""
        return self.items.lengths.numpy() if isinstance(self.items, Batch) else np.ones(len(self), np.int64)

    def metric(self, name: str | None) -> tuple[str, Distance]:
        """A metric by its name; the first by default."""
        if name is None:
            return next(iter(self.metrics.items()))
        if name not in self.metrics:
            raise Refusal(422, f"metric: expected one of {', '.join(self.metrics)}")
        return name, self.metrics[name]

    def take(self, places: list[int]) -> Batch | Tensor:
        """Some of the items."""
        if self.items is None or not all(0 <= place < len(self) for place in places):
            raise Refusal(422, f"items: expected positions from 0 to {len(self) - 1}")
        return take(self.items, torch.tensor(places))

    def many(self, name: str, places: np.ndarray) -> tuple[Distance, Batch | Tensor]:
        """A metric and some of the items, where many distances are computed."""
        assert self.items is not None
        metric, items = self.metrics[name], take(self.items, torch.from_numpy(places))
        if self.device is None:
            return metric, items
        with self._lock:
            if name not in self._copies:
                self._copies[name] = copy.deepcopy(metric).to(self.device)
            return self._copies[name], items.to(self.device)

    def index(self, name: str, *, windows: bool = False) -> Index:
        """The index of a metric, made on first use; of whole items, or of all their windows, each normalised."""
        with self._lock:
            if (name, windows) not in self._indexes:
                options: dict[str, Any] = {"subsequence": True, "normalize": "window"} if windows else {}
                made = Index(self.metrics[name], self.items, **options, device=self.device)
                if not windows:
                    made.search(self.take([0]), k=1)  # encodes the items, and builds what the search needs
                self._indexes[name, windows] = made
            return self._indexes[name, windows]

    def search(
        self,
        name: str | None,
        queries: Batch | Tensor,
        *,
        k: int = 10,
        within: float | None = None,
        skip: list[int] | None = None,
        windows: bool = False,
        job: Job | None = None,
    ) -> Answer:
        """The k nearest items of each query, or with ``windows`` the nearest stretches of the items.

        skip: for each query an item that it must not find. Queries are searched one by one, with a check of the job
        before each.
        """
        if self.items is None:
            raise Refusal(422, "this server holds no items to search; start it with data")
        name, _ = self.metric(name)
        if job is not None:
            job.check()
        index = self.index(name, windows=windows)
        began = time.perf_counter()
        parts = []
        for q in range(len(queries)):
            if job is not None:
                job.check()
            one = None if skip is None else [skip[q]]
            parts.append(index.search(take(queries, slice(q, q + 1)), k=k, within=within, skip=one))
        seconds = time.perf_counter() - began
        stats = Stats.total([part.stats for part in parts])
        return Answer([_hits(part) for part in parts], seconds, stats.method, stats.candidates, stats.killed)

    def align(self, name: str | None, x: Batch | Tensor, y: Batch | Tensor) -> Alignment:
        """How x[b] and y[b] match."""
        metric = self.metric(name)[1]
        with torch.no_grad(), evaluating(metric):
            try:
                return metric.align(x, y)
            except NotImplementedError:
                raise Refusal(422, "this metric does not align sequences") from None

    def try_align(self, name: str | None, x: Batch | Tensor, y: Batch | Tensor) -> Alignment | None:
        """As ``align``; None where the metric does not align, such as one that compares vectors."""
        try:
            found = self.align(name, x, y)
            found.path(0)  # alignments are lazy
        except (Refusal, ValueError, NotImplementedError):
            return None
        return found

    def embed(self, name: str | None, x: Batch | Tensor) -> Batch | Tensor:
        """The items, encoded by the metric's encoder."""
        name, metric = self.metric(name)
        if not isinstance(metric, Metric) or metric.encoder is None:
            raise Refusal(422, f"metric: {name} has no encoder, so it cannot embed items")
        return metric.embed(x)


def _without_folders(name: str) -> str:
    """The name of a file and of its folder, which is often its class, without the rest of the path."""
    return "/".join(PurePath(name).parts[-2:]) if PurePath(name).is_absolute() or name.count("/") > 1 else name


def _hits(found: Hits) -> list[Hit]:
    """The hits of one query."""
    columns = (
        getattr(found, name)[0, : int(found.counts[0])].tolist() for name in ("items", "distances", "starts", "ends")
    )
    return [Hit(*row) for row in zip(*columns, strict=True)]
