import pytest
import torch

import likewise as lw
from likewise.search.explanation import Explanation
from tests.search.test_exhaustive import walks


def test_a_metric_explains_encoded_frames():
    torch.manual_seed(0)
    metric = lw.Metric(lw.FrameMLP(2, hidden=8, out=5), lw.DTW()).eval()
    hits = lw.Index(metric, (walks(4), list("aabb"))).search(walks(1, seed=1), k=1)
    why = hits.explain()
    assert why.cost.shape == (12, 5)
    assert float(why.cost.sum()) == pytest.approx(why.value, rel=1e-4)
    assert why.query.shape == (12, 2)
    assert why.counterfactual.label != hits.labels[0, 0]


def test_vectors_have_costs_and_no_alignment():
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    why = lw.Index(lw.Euclidean(), (x, [0, 0, 0, 1, 1, 1])).search(x[:1] + 0.1, k=1).explain()
    assert why.cost.shape == (1, 4)
    assert float(why.cost.sum()) == pytest.approx(why.value, rel=1e-4)
    assert why.counterfactual.excess.shape == (1, 4)


def test_a_distance_that_does_not_divide():
    class Longer(lw.Distance):
        def paired(self, x, y, x_lengths, y_lengths):
            return torch.ones(len(x))

    why = Explanation(Longer(), walks(1)[0], walks(1)[0])
    assert why.cost is why.by_step is why.by_channel is why.path is None
    assert why.rest == why.value == 1.0
    assert why.segments == []
    assert str(why).startswith("Longer 1")


def test_the_counterfactual_is_the_nearest_of_another_class():
    x = walks(30)
    labels = ["a"] * 20 + ["b"] * 10
    hits = lw.Index(lw.DTW(), (x, labels)).search(x[3:4] + 0.01, k=1)
    other = hits.explain().counterfactual
    D = lw.DTW().matrix(x[3:4] + 0.01, x)[0]
    nearest = 20 + int(D[20:].argmin())
    assert (other.id, other.label) == (str(nearest), "b")
    assert other.distance == pytest.approx(float(D[nearest]), rel=1e-5)
    assert float(other.excess.sum()) == pytest.approx(other.margin, rel=1e-4)
    assert other.spans
    for span in other.spans:
        part = other.excess[span.start : span.end]
        assert (part.sum(1) > 0).all()
        assert span.excess == pytest.approx(float(part.sum()))
        assert span.channel == int(part.sum(0).argmax())
    assert "nearest of another class" in str(hits.explain())
    alone = lw.Index(lw.DTW(), (x, ["a"] * 30)).search(x[:1], k=1)
    assert alone.explain().counterfactual is None
    assert lw.Index(lw.DTW(), x).search(x[:1], k=1).explain().counterfactual is None
    assert lw.Index(lw.DTW(), (x, [0.5] * 30)).search(x[:1], k=1).explain().counterfactual is None


def test_windows_are_explained_as_they_were_compared():
    series = walks(2, 60)
    index = lw.Index(lw.DTW(band=2), series, length=10, normalize="window", labels=["a", "b"])
    hits = index.search(5 * series[:1, 20:30] - 3 + 0.1 * walks(1, 10), k=3)
    why = hits.explain(0, 1)
    assert float(why.cost.sum()) == pytest.approx(float(hits.distances[0, 1]), rel=1e-3)
    assert why.counterfactual is not None
    torch.testing.assert_close(why.query.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
