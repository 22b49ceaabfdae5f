"""Index and Collection with a device: the same hits, maps and verdicts as where the items are."""

import os

import pytest
import torch

from likewise import DTW, TCN, Batch, Embedder, Euclidean, Index, Metric, SoftDTW
from likewise.evaluation import Candidates
from likewise.web.collection import Collection
from likewise.web.judging import judge
from likewise.web.maps import draw_map
from likewise.web.work import Job

DEVICE = "cuda" if torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0" else "cpu"


def walks(count=24, steps=20):
    return Batch.from_list([torch.randn(steps + i % 3, 2).cumsum(0) for i in range(count)])


def metrics():
    return {
        "DTW": DTW(band=0.2),
        "soft-DTW of frames": Metric(TCN(2, 4, layers=1), SoftDTW()),
        "vectors": Metric(Embedder(TCN(2, 4, layers=1), 8), Euclidean()),
    }


@pytest.mark.parametrize("name", metrics())
def test_an_index_finds_the_same_on_a_device(name):
    distance, items, queries = metrics()[name].eval(), walks(), walks(5)
    found = Index(distance, items, device=DEVICE).search(queries, k=3)
    expected = Index(distance, items).search(queries, k=3)
    assert torch.equal(found.items, expected.items)
    assert torch.allclose(found.distances, expected.distances, rtol=1e-4)
    assert next(distance.parameters(), torch.zeros(1)).device.type == "cpu"  # the caller's stays where it is
    assert found.match(0).device.type == "cpu"
    assert found.explain().value == pytest.approx(float(found.distances[0, 0]))


def test_windows_and_candidates(tmp_path):
    items, query = walks(3, 80), walks(2, 16)
    given = {"length": 16, "normalize": "window"}
    query = Batch(query.values[:, :16])
    expected = Index(DTW(band=0.1), items, **given)
    expected.save(tmp_path / "index")
    found = Index.load(tmp_path / "index", device=DEVICE).search(query, k=4)
    assert torch.equal(found.starts, expected.search(query, k=4).starts)
    index = Index(SoftDTW(), items, candidates=Candidates(DTW(), keep=2), device=DEVICE)
    assert index.recall(query, k=1) == Index(SoftDTW(), items, candidates=Candidates(DTW(), keep=2)).recall(query, k=1)


def test_a_store_refuses_a_device():
    with pytest.raises(ValueError, match="device is not for a store"):
        Index(DTW(), store=object(), device="cpu")


@pytest.mark.parametrize("name", metrics())
def test_a_collection_judges_and_draws_the_same(name):
    data = walks(), ["up", "down"] * 12
    there, here = (Collection(data, metrics(), device=device) for device in (DEVICE, None))
    there.metrics = here.metrics
    verdicts = [judge(one, name, Job(60.0)) for one in (there, here)]
    assert verdicts[0].scores == verdicts[1].scores
    assert verdicts[0].distance == pytest.approx(verdicts[1].distance, rel=1e-4)
    drawn = [draw_map(one, name, Job(60.0)).places for one in (there, here)]
    assert abs(drawn[0]) == pytest.approx(abs(drawn[1]), abs=1e-3)
    assert len(there.search(name, there.take([0]), k=3, skip=[0]).hits[0]) == 3
