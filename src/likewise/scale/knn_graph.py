"""knn_graph: the k nearest other items of every item, without keeping the other distances."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise.scale import pace
from likewise.scale.engine import Plan, threads
from likewise.scale.operands import Operands, read_operands
from likewise.scale.progress import Report, watched
from likewise.search.choice import has_free_ends
from likewise.search.index import Index

OP = "scale.knn_graph"
TRIED = 64  # queries of the first measurement
MOST_QUERIES = 1 << 14  # of a job
_INDEXES: dict[str, Index] = {}  # the index of this process, by its items


@dataclass(frozen=True, eq=False)
class KNNGraph:
    """The k nearest other items of each item, nearest first; of equally near ones, the first.

    neighbors: (N, k) int64. distances: (N, k). report: how it was computed.

    Example:
        >>> graph = KNNGraph(torch.tensor([[1], [0]]), torch.tensor([[2.0], [2.0]]), Report(1))
        >>> graph, graph.sparse().toarray().tolist()
        (KNNGraph(2 items, 1 neighbour each), [[0.0, 2.0], [2.0, 0.0]])
    """

    neighbors: Tensor
    distances: Tensor
    report: Report

    def sparse(self) -> Any:
        """A ``scipy.sparse.csr_array`` (N, N) of the distances, as scikit-learn's "precomputed" graphs are."""
        from scipy.sparse import csr_array

        count, k = self.neighbors.shape
        columns, order = self.neighbors.sort(1)
        values = self.distances.gather(1, order)
        starts = np.arange(0, count * k + 1, k)
        return csr_array((values.flatten().numpy(), columns.flatten().numpy(), starts), shape=(count, count))

    def __len__(self) -> int:
        return len(self.neighbors)

    def __repr__(self) -> str:
        count, k = self.neighbors.shape
        return f"KNNGraph({count:,} items, {k} neighbour{'s' * (k != 1)} each)"


@dataclass(frozen=True)
class Shared:
    """The data that all strips of queries share."""

    operands: Operands
    k: int


def knn_graph(
    distance: Any,
    X: Any,
    k: int,
    *,
    engine: str | None = None,
    cores: int | None = None,
    progress: bool = False,
) -> KNNGraph:
    """The k nearest other items of every item, exactly; other distances are not kept.

    distance: any Distance or Metric between whole items. X, engine, cores, progress: as in ``scale.matrix``.
    k: less than the number of items.

    Each worker searches an ``Index`` of all items for a strip of queries: where a lower bound allows it (DTW with a
    band, metrics with pivots, vectors), most distances are never computed, and the neighbours are still exact. Memory:
    the items once for each machine and, for each worker, what its index needs.

    Example:
        >>> from likewise import DTW
        >>> graph = knn_graph(DTW(band=1), [[0.0, 1.0], [0.0, 1.1], [5.0, 5.0]], k=1)
        >>> graph.neighbors.tolist()
        [[1], [0], [1]]
    """
    plan = Plan.read(OP, engine, None, cores)
    k = _check.whole(OP, "k", k)
    operands = read_operands(OP, distance, X)
    count = len(operands.x)
    if k >= count:
        _check.refuse(OP, f"k is {k}, but each of {count} items has {count - 1} others")
    if has_free_ends(operands.distance):
        _check.refuse(OP, f"{operands.name} compares stretches of items; a graph needs whole items")
    shared = Shared(operands, k)
    neighbors = torch.empty(count, k, dtype=torch.int64)
    distances: Tensor | None = None
    try:
        with plan.connected():
            step = _step(plan, shared)
            jobs = [(first, min(first + step, count)) for first in range(0, count, step)]
            text = f"{k} nearest of {count:,}"
            with watched(text, len(jobs), count * count, progress=progress) as (report, tally):
                for done in plan.run(search_strip, shared, jobs):
                    (first, last), (found, values) = done.job, map(torch.tensor, done.result)
                    if distances is None:
                        distances = torch.empty(count, k, dtype=values.dtype)
                    neighbors[first:last], distances[first:last] = found, values
                    tally(done, (last - first) * count)
    finally:
        _INDEXES.clear()
    assert distances is not None
    return KNNGraph(neighbors, distances, report)


def _step(plan: Plan, shared: Shared) -> int:
    """Queries of a job, by the speed of a few."""
    count = len(shared.operands.x)
    if count <= 2 * TRIED:
        return count
    with threads(plan.threads):
        search_strip(shared, (0, 2), "cpu")  # builds the index
        begin = time.perf_counter()
        middle = (count - TRIED) // 2
        search_strip(shared, (middle, middle + TRIED), "cpu")
        each = (time.perf_counter() - begin) / TRIED
    step = int(pace.SECONDS / max(each, 1e-9))
    return max(1, min(step, MOST_QUERIES, -(-count // (pace.JOBS_A_WORKER * plan.slots))))


def search_strip(shared: Shared, job: tuple[int, int], device: str) -> tuple[np.ndarray, np.ndarray]:
    """The neighbours (n, k) of some items, and their distances."""
    operands, own = shared.operands, torch.arange(*job)
    if operands.inputs not in _INDEXES:
        _INDEXES.clear()
        _INDEXES[operands.inputs] = Index(operands.distance, operands.x.items)
    hits = _INDEXES[operands.inputs].search(operands.x.part(slice(*job)), k=shared.k, skip=own)
    return hits.items.numpy(), hits.distances.numpy()
