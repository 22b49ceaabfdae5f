"""Collection: items with their labels, and the metrics that compare them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise._labels import class_names, labelled, read_labels, sorted_classes
from likewise._modes import evaluating
from likewise.data.batch import Batch
from likewise.distances.alignment import Alignment
from likewise.distances.distance import Distance
from likewise.models.metric import Metric, as_items, take
from likewise.web.bodies import Like
from likewise.web.refusals import Refusal
from likewise.web.work import Job

CELLS_A_PIECE = 1 << 31  # cells between two checks of a job: about a tenth of a second of DTW


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
    """Items, their labels and ids, and named metrics; everything that the service and the page compute.

    items: a Dataset, an ImageSet, a Batch, a tensor, a list of sequences, or a pair (items, labels); None for a service
        that compares only what it is sent.
    metrics: Distances by name; the first is the default.

    Example:
        >>> from likewise import DTW
        >>> collection = Collection(([[0.0, 1.0], [5.0, 6.0]], ["low", "high"]), {"dtw": DTW()})
        >>> collection.search(None, collection.take([0]), k=1).hits
        [[Hit(item=0, distance=0.0, start=0, end=2)]]
    """

    def __init__(self, items: Any, metrics: Mapping[str, Distance], *, name: str = "collection") -> None:
        if not metrics:
            raise ValueError("Collection: expected at least one metric")
        for key, metric in metrics.items():
            if not isinstance(metric, Distance):
                raise TypeError(f"Collection: expected metric {key!r} to be a Distance, got {type(metric).__name__}")
            metric.eval()
        self.name = name
        self.metrics = dict(metrics)
        self.items: Batch | Tensor | None = None
        self.labels: np.ndarray | None = None
        self.classes: tuple[str, ...] = ()
        self.codes = np.empty(0, np.int64)
        self.ids: tuple[str, ...] = ()
        if items is not None:
            self._read(items)
        self._encoded: dict[str, Batch | Tensor] = {}
        self._lock = Lock()
        self.pieces = 1 << 16  # items compared between two checks of a job, at most

    def _read(self, given: Any) -> None:
        items, labels = labelled("Collection", "items", given, need_labels=False)
        self.items = as_items("Collection", "items", items)
        if len(self.items) == 0:
            raise ValueError("Collection: there are no items")
        size = len(self.items)
        self.ids = tuple(getattr(given, "ids", None) or map(str, range(size)))
        if labels is not None:
            self.labels = class_names(read_labels("Collection", "labels", labels, size))
            self.classes = tuple(sorted_classes(self.labels).tolist())
            place = {name: i for i, name in enumerate(self.classes)}
            self.codes = np.array([place[name] for name in self.labels.tolist()], np.int64)

    def __len__(self) -> int:
        return 0 if self.items is None else len(self.items)

    @property
    def kind(self) -> str:
        """What the items are: "sequences", "images", "vectors", or "none"."""
        if self.items is None:
            return "none"
        if isinstance(self.items, Batch):
            return "sequences"
        return "images" if self.items.ndim == 4 else "vectors"

    @property
    def like(self) -> Like:
        """What a query must look like."""
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

    def encoded(self, name: str, job: Job | None = None) -> Batch | Tensor:
        """All items as the metric's distance compares them; encoded once."""
        metric = self.metrics[name]
        if not isinstance(metric, Metric):
            assert self.items is not None
            return self.items
        with self._lock:
            if name not in self._encoded:
                assert self.items is not None
                parts = []
                for start in range(0, len(self), 256):
                    if job is not None:
                        job.check()
                    parts.append(metric.embed(take(self.items, slice(start, start + 256))))
                self._encoded[name] = Batch.cat(parts) if isinstance(parts[0], Batch) else torch.cat(parts)  # type: ignore[arg-type]
            return self._encoded[name]

    def search(
        self,
        name: str | None,
        queries: Batch | Tensor,
        *,
        k: int = 10,
        within: float | None = None,
        skip: list[int] | None = None,
        job: Job | None = None,
    ) -> Answer:
        """The k nearest items of each query. skip: for each query an item that it must not find."""
        if self.items is None:
            raise Refusal(422, "this server holds no items to search; start it with data")
        name, metric = self.metric(name)
        references = self.encoded(name, job)
        began = time.perf_counter()
        x = metric.embed(queries) if isinstance(metric, Metric) else queries
        distance = metric.distance if isinstance(metric, Metric) else metric
        columns = []
        with torch.no_grad(), evaluating(distance):
            for part in _pieces(x, references, self.pieces):
                if job is not None:
                    job.check()
                columns.append(distance.matrix(x, take(references, part)))
        D = torch.cat(columns, 1)
        if skip is not None:
            rows = [row for row, item in enumerate(skip) if item >= 0]
            D[rows, [skip[row] for row in rows]] = torch.inf
        values, items = D.sort(dim=1, stable=True)
        lengths = self.lengths
        hits = [
            [
                Hit(i, d, 0, int(lengths[i]))
                for d, i in zip(values[q, :k].tolist(), items[q, :k].tolist(), strict=True)
                if (within is None or d <= within) and not (skip is not None and i == skip[q])
            ]
            for q in range(len(D))
        ]
        return Answer(hits, time.perf_counter() - began, "exhaustive", D.numel(), {})

    def align(self, name: str | None, x: Batch | Tensor, y: Batch | Tensor) -> Alignment:
        """How x[b] and y[b] match."""
        metric = self.metric(name)[1]
        with torch.no_grad(), evaluating(metric):
            try:
                return metric.align(x, y)
            except NotImplementedError:
                raise Refusal(422, "this metric does not align sequences") from None

    def try_align(self, name: str | None, x: Batch | Tensor, y: Batch | Tensor) -> Alignment | None:
        """As ``align``; None where the metric aligns nothing, such as one that compares vectors."""
        try:
            found = self.align(name, x, y)
            found.path(0)  # alignments are lazy
        except (Refusal, ValueError, NotImplementedError):
            return None
        return found

    def embed(self, name: str | None, x: Batch | Tensor) -> Batch | Tensor:
        """What the metric's encoder makes of the items."""
        name, metric = self.metric(name)
        if not isinstance(metric, Metric) or metric.encoder is None:
            raise Refusal(422, f"metric: {name} has no encoder, so that it does not embed")
        return metric.embed(x)


def _pieces(x: Batch | Tensor, y: Batch | Tensor, most: int) -> list[slice]:
    """Parts of y, each of them a short computation."""
    steps = [items.values.shape[1] if isinstance(items, Batch) else items.shape[1] for items in (x, y)]
    cells = steps[0] * steps[1] if isinstance(x, Batch) else steps[0]
    size = min(most, max(16, CELLS_A_PIECE // max(1, len(x) * cells)))
    return [slice(first, first + size) for first in range(0, len(y), size)]
