"""Search of vectors: matrix products propose candidates, which the distance itself compares."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from likewise.distances.cosine import Cosine
from likewise.distances.distance import Distance
from likewise.distances.euclidean import Euclidean
from likewise.evaluation import ranking
from likewise.search.exhaustive import Exhaustive, join
from likewise.search.found import Found, Stats

MARGIN = 16  # candidates beside the k that are wanted
PAIRS_AT_ONCE = 1 << 24  # products of a block
QUERIES_AT_ONCE = 512
MANY = 50_000  # number of vectors from which a graph pays
NEIGHBORS, BUILT_WITH, LEAST_VISITED = 32, 80, 128  # of a vector in the graph; beams that build and search it


class VectorSearch:
    """The nearest vectors under Euclidean or Cosine, exactly, or by a graph.

    |x - y|^2 = |x|^2 + |y|^2 - 2 x.y, from a product of matrices, is quick and loses digits. It proposes k + 16
    candidates of each query, which the distance itself compares. If rounding might have cost a query one of its k
    nearest, that query is searched exhaustively; so the result is exact. faiss computes the products where it is
    installed (one thread: its default threads are many times slower on few cores), PyTorch where it is not.

    approximate: from 50,000 vectors on, faiss's graph (HNSW) proposes the candidates instead. It is built when it is
    first used, and may miss some of the nearest. Fewer vectors are searched exactly.

    Example:
        >>> searcher = VectorSearch(Euclidean(), torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]]))
        >>> searcher.search(torch.tensor([[0.0, 0.1]]), k=2, within=None).items
        tensor([[0, 2]])
    """

    def __init__(self, distance: Distance, vectors: Tensor, *, approximate: bool = False) -> None:
        self.distance = distance
        self.items = vectors
        self.approximate = approximate and len(vectors) >= MANY
        self._centre = torch.zeros(vectors.shape[1])
        if not isinstance(distance, Cosine) and len(vectors):
            self._centre = vectors.float().mean(0)  # smaller numbers lose fewer digits
        self._flat = self._projected(vectors)
        self._squares = self._flat.square().sum(1)
        self._faiss: Any = None
        faiss = faiss_module(needed=self.approximate)
        if faiss is not None and len(vectors):
            self._faiss = self._built(faiss)
        kind = "faiss graph" if self.approximate else "faiss" if self._faiss is not None else "product"
        self.method = f"{kind}, re-ranked"

    def search(
        self,
        queries: Tensor,
        *,
        k: int | None,
        within: float | None,
        exclude: float = 0.0,
        skip: Tensor | None = None,
        threads: int | None = None,
    ) -> Found:
        """The hits of each query. Without k, every distance is computed."""
        if k is None or len(self.items) <= k + MARGIN:
            return Exhaustive(self.distance, self.items).search(queries, k=k, within=within, skip=skip)
        start, parts, again = time.perf_counter(), [], 0
        with torch.no_grad():
            for some in torch.arange(len(queries)).split(QUERIES_AT_ONCE):
                left_out = None if skip is None else skip[some]
                best, where, sure = self._nearest(queries[some], k, left_out)
                unsure = (~sure).nonzero()[:, 0]
                if len(unsure) and not self.approximate:
                    again += len(unsure)
                    rest = Exhaustive(self.distance, self.items).search(
                        queries[some][unsure], k=k, within=None, skip=None if left_out is None else left_out[unsure]
                    )
                    width = rest.items.shape[1]
                    best[unsure], where[unsure] = torch.inf, -1
                    best[unsure, :width], where[unsure, :width] = rest.distances, rest.items
                if within is not None:
                    far = best > within
                    best, where = best.masked_fill(far, torch.inf), where.masked_fill(far, -1)
                parts.append((best, where))
        pairs = len(queries) * len(self.items)
        killed = pairs - (len(queries) - again) * (k + MARGIN) - again * len(self.items)
        seconds = time.perf_counter() - start
        stats = Stats(self.method, pairs, {"product": killed}, seconds=seconds, exact=not self.approximate)
        return join(parts, stats, torch.ones(len(self.items), dtype=torch.int64))

    def _nearest(self, queries: Tensor, k: int, skip: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Distances and items (q, k), and which queries are sure of them."""
        flat = self._projected(queries)
        rough, chosen = self._proposed(flat, k + MARGIN)  # squared; (q, k + 16)
        chosen = chosen.sort(1).values
        missing = chosen < 0  # a graph may find fewer
        D = self.distance(*_pairs(queries, self.items, chosen.clamp(min=0))).reshape(chosen.shape)
        D = D.masked_fill(missing, torch.nan)
        if skip is not None:
            D = D.masked_fill(chosen == skip[:, None], torch.nan)
        nearest = ranking.nearest(D, k)
        best, where = D.gather(1, nearest), chosen.gather(1, nearest)
        limit = self._squared(best[:, -1])
        # Rounding of the sums of D products in float32, relative to the largest terms.
        largest = (flat.square().sum(1).sqrt() + self._squares.max().sqrt()).square()
        error = 2 * (flat.shape[1] + 8) * torch.finfo(torch.float32).eps * largest
        sure = (rough.amax(1) - error > limit + error) & ~best[:, -1].isnan()
        lost = best.isnan()
        return best.masked_fill(lost, torch.inf), where.masked_fill(lost, -1), sure

    def _proposed(self, flat: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Squared distances and positions (q, count) of the nearest vectors, with rounding errors."""
        if self._faiss is not None:
            with _threads(faiss_module(needed=True), 1):
                rough, chosen = self._faiss.search(flat.numpy(), count)
            return torch.from_numpy(rough), torch.from_numpy(chosen)
        values, places = [], []
        for some in flat.split(max(1, PAIRS_AT_ONCE // len(self._flat))):
            rough = torch.addmm(self._squares, some, self._flat.T, alpha=-2)
            value, place = rough.topk(count, largest=False)
            values.append(value + some.square().sum(1, keepdim=True))
            places.append(place)
        return torch.cat(values), torch.cat(places)

    def _projected(self, vectors: Tensor) -> Tensor:
        """Vectors whose Euclidean order is that of the distance: centred, or scaled to length 1."""
        flat = vectors.detach().to("cpu", torch.float32) - self._centre
        if isinstance(self.distance, Cosine):
            flat = torch.nn.functional.normalize(vectors.detach().to("cpu", torch.float64), dim=1).float()
        return flat.contiguous()

    def _squared(self, distance: Tensor) -> Tensor:
        """The squared Euclidean distance of projected vectors, from the distance."""
        if isinstance(self.distance, Cosine):
            return 2 * distance.float()
        squared = isinstance(self.distance, Euclidean) and self.distance.squared
        return distance.float() if squared else distance.float().square()

    def _built(self, faiss: Any) -> Any:
        size = self._flat.shape[1]
        if self.approximate:
            built = faiss.IndexHNSWFlat(size, NEIGHBORS)
            built.hnsw.efConstruction, built.hnsw.efSearch = BUILT_WITH, LEAST_VISITED
        else:
            built = faiss.IndexFlatL2(size)
        with _threads(faiss, torch.get_num_threads()):
            built.add(self._flat.numpy())
        return built


def refusal(distance: Distance, vectors: object) -> str | None:
    """Why products of matrices do not apply; None if they do.

    A vector of zeros has no direction: Cosine then compares all pairs.
    """
    if type(distance) not in (Euclidean, Cosine):
        return f"it is {type(distance).__name__}, not Euclidean or Cosine"
    if not isinstance(vectors, Tensor) or vectors.ndim != 2 or not vectors.is_floating_point():
        return "items are not vectors"
    if vectors.is_cuda:
        return "vectors are on a GPU"
    if type(distance) is Cosine and len(vectors) and bool((vectors == 0).all(1).any()):
        return "some vectors are zero"
    return None


def faiss_module(*, needed: bool) -> Any:
    """Import faiss, if it is installed; if it is needed and is not, say how to install it."""
    try:
        import faiss
    except ImportError as error:
        if not needed:
            return None
        hint = 'pip install "likewise[search]"'
        raise ImportError(f"approximate search of vectors needs faiss; install it with {hint}") from error
    return faiss


@contextmanager
def _threads(faiss: Any, count: int) -> Iterator[None]:
    """Set the number of faiss's threads within a block."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _pairs(queries: Tensor, items: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and items (q * n, D), pair by pair."""
    return queries.repeat_interleave(chosen.shape[1], 0), items[chosen.flatten()]
