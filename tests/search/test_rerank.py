import pytest
import torch

import likewise as lw
from tests.search.test_exhaustive import walks


def brute(distance, cheap, queries, items, keep, k):
    """The k nearest of the ``keep`` nearest by the cheap distance, item by item."""
    with torch.no_grad():
        near, dear = cheap.matrix(queries, items), distance.matrix(queries, items)
    rows = []
    for q in range(len(queries)):
        chosen = sorted(range(len(items)), key=lambda j: (near[q, j].item(), j))[:keep]
        rows.append(sorted(chosen, key=lambda j: (dear[q, j].item(), j))[:k])
    return rows


@pytest.mark.parametrize("keep", [5, 40, 60])
@pytest.mark.parametrize(
    "distance",
    [lw.SoftDTW(), lw.CoupledGRU(2, hidden=(3,), standardize=False), lw.TAP(width=4), lw.GDTW(grid=9)],
    ids=["soft-dtw", "coupled", "tap", "gdtw"],
)
def test_the_nearest_of_the_candidates(distance, keep):
    torch.manual_seed(0)
    items, queries = walks(60, 8), walks(3, 8, seed=1)
    index = lw.Index(distance, items, candidates=lw.evaluation.Candidates(lw.MeanFrames(), keep=keep))
    hits = index.search(queries, k=4)
    assert hits.items.tolist() == brute(distance, lw.MeanFrames(), queries, items, keep, 4)
    assert hits.stats.killed == {"candidates": 3 * (60 - keep)}
    assert hits.stats.exact == (keep == 60)
    assert hits.stats.method.endswith("candidates re-ranked")
    recall = index.recall(queries, k=4)
    assert recall == 1.0 if keep == 60 else 0 < recall <= 1
    with torch.no_grad():
        D = distance.matrix(queries, items)
    best = D.sort(1).values[:, 3:4]
    assert recall == pytest.approx(float((hits.distances <= best * (1 + 1e-5)).double().mean()), abs=1e-9)


def test_a_metric_with_alignment_and_a_cheap_metric():
    torch.manual_seed(0)
    dear = lw.Metric(lw.FrameMLP(2, hidden=8, out=4), lw.SoftDTW()).eval()
    cheap = lw.SiameseGRU(2, hidden=(4,), standardize=False)
    items, queries = lw.Batch(walks(40, 8), [8, 5] * 20), lw.Batch(walks(2, 8, seed=1), [8, 3])
    index = lw.Index(dear, items, candidates=lw.evaluation.Candidates(cheap, keep=0.5))
    hits = index.search(queries, k=3)
    assert hits.items.tolist() == brute(dear, cheap, queries, items, 20, 3)
    assert hits.ends[0].tolist() == [int(items.lengths[i]) for i in hits.items[0]]
    assert hits.explain(0, 1).value == pytest.approx(float(hits.distances[0, 1]))


def test_skip_and_within():
    items = walks(30, 8)
    index = lw.Index(lw.SoftDTW(), items, candidates=lw.evaluation.Candidates(lw.Euclidean(), keep=10))
    own = index.search(items[:5], k=2, skip=range(5))
    assert (own.items != torch.arange(5)[:, None]).all()
    near = float(own.distances[:, 0].median())
    within = index.search(items[:5], within=near, skip=range(5))
    assert within.counts.sum() >= 3
    assert (within.distances[within.items >= 0] <= near).all()


def test_a_cheap_distance_of_another_library():
    class Theirs:
        def matrix(self, x, y):
            return torch.zeros(len(x), len(y))

    index = lw.Index(lw.DTW(), walks(3), candidates=lw.evaluation.Candidates(Theirs(), keep=2))
    with pytest.raises(TypeError, match="expected the candidates' metric to be a Distance, got Theirs"):
        index.search(walks(1))
