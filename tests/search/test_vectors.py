import sys

import pytest
import torch

import likewise as lw
from likewise.search import vectors
from likewise.search.exhaustive import Exhaustive
from likewise.search.vectors import VectorSearch, refusal

DISTANCES = [lw.Euclidean(), lw.Euclidean(squared=True), lw.Cosine()]
each_distance = pytest.mark.parametrize("distance", DISTANCES, ids=["euclidean", "squared", "cosine"])


@pytest.fixture(params=["faiss", "product"])
def engine(request, monkeypatch):
    if request.param == "faiss":
        pytest.importorskip("faiss")
    else:
        monkeypatch.setitem(sys.modules, "faiss", None)
    return request.param


def same(distance, x, queries, k=5, within=None, skip=None):
    found = VectorSearch(distance, x).search(queries, k=k, within=within, skip=skip)
    truth = Exhaustive(distance, x).search(queries, k=k, within=within, skip=skip)
    assert torch.equal(found.items, truth.items)
    assert torch.equal(found.distances, truth.distances)
    assert torch.equal(found.ends, truth.ends)
    assert torch.equal(found.counts, truth.counts)
    assert found.stats.exact
    return found


@each_distance
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_exhaustive_search(engine, distance, dtype):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(700, 9, generator=generator, dtype=dtype)
    queries = torch.randn(30, 9, generator=generator, dtype=dtype)
    found = same(distance, x, queries)
    assert found.stats.method == f"{engine}, re-ranked"
    assert found.stats.compared < found.stats.candidates / 10
    same(distance, x, x[:20], skip=torch.arange(20))
    same(distance, x, queries, k=3, within=float(found.distances[:, 1].median()))
    same(distance, x, queries, k=None, within=float(found.distances.median()))
    same(distance, x, queries, k=900)


@each_distance
def test_ties_and_rounding(engine, distance):
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(4, 6, generator=generator)
    same(distance, few.repeat(50, 1), few, k=7)  # 50 items at each distance
    far = 1e4 + 1e-2 * torch.randn(300, 6, generator=generator)  # the product loses nearly all digits
    same(distance, far, far[:9] + 1e-3, k=4)
    grid = torch.randint(0, 3, (400, 5), generator=generator).float()
    grid[grid.abs().sum(1) == 0] = 1.0
    same(distance, grid, grid[:12], k=6)
    same(distance, torch.cat([few, 1e6 * few] * 20), torch.zeros(1, 6), k=3)


def test_what_is_refused():
    assert refusal(lw.Euclidean(), torch.eye(3)) is None
    assert refusal(lw.Cosine(), torch.zeros(2, 3)) == "some vectors are zero"
    assert "not Euclidean or Cosine" in refusal(lw.DTW(), torch.eye(3))
    assert refusal(lw.Euclidean(), lw.Batch(torch.zeros(1, 2, 3))) == "items are not vectors"
    x = torch.cat([torch.zeros(1, 3), torch.randn(60, 3)])
    assert lw.Index(lw.Cosine(), x).search(x[:2], k=2).stats.method == "exhaustive"


def test_an_index_of_vectors_says_what_it_did(engine):
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    index = lw.Index(lw.Euclidean(), x)
    assert index.search(x[:3], k=2).stats.method == f"{engine}, re-ranked"
    assert index.recall(x[:10], k=5) == 1.0
    metric = lw.Metric(torch.nn.Linear(4, 3), lw.Cosine())
    hits = lw.Index(metric, x).search(x[:3], k=2)
    assert hits.stats.method == f"{engine}, re-ranked"
    with torch.no_grad():
        assert torch.equal(hits.items[:, 0], metric.matrix(x[:3], x).argmin(1))


def test_mean_frames_are_vectors():
    x = lw.Batch(torch.randn(80, 7, 3, generator=torch.Generator().manual_seed(0)), [7, 3] * 40)
    index = lw.Index(lw.MeanFrames(), x)
    hits = index.search(x[:5], k=4)
    assert "re-ranked" in hits.stats.method
    assert torch.equal(hits.items, lw.MeanFrames().matrix(x[:5], x).sort(dim=1, stable=True).indices[:, :4])
    assert hits.ends[:, 0].tolist() == [7, 3, 7, 3, 7]


def test_a_graph_of_many_vectors(monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(vectors, "MANY", 1000)
    x = torch.randn(2000, 8, generator=torch.Generator().manual_seed(0))
    index = lw.Index(lw.Euclidean(), x, approximate=True)
    hits = index.search(x[:50] + 0.01, k=10)
    assert hits.stats.method == "faiss graph, re-ranked"
    assert not hits.stats.exact
    assert index.recall(x[:50] + 0.01, k=10) > 0.95
    assert (hits.distances.diff(dim=1) >= 0).all()
    few = lw.Index(lw.Euclidean(), x[:900], approximate=True).search(x[:2], k=3)
    assert few.stats.exact


def test_a_graph_needs_faiss(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(vectors, "MANY", 10)
    with pytest.raises(ImportError, match=r"pip install \"likewise\[search\]\""):
        lw.Index(lw.Euclidean(), torch.randn(50, 3), approximate=True).search(torch.randn(1, 3))


def test_faiss_keeps_its_number_of_threads():
    faiss = pytest.importorskip("faiss")
    before = faiss.omp_get_max_threads()
    lw.Index(lw.Euclidean(), torch.randn(200, 4)).search(torch.randn(3, 4))
    assert faiss.omp_get_max_threads() == before
