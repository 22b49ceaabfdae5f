import pytest
import torch

import likewise as lw
from likewise.search.costs import by_channel
from likewise.search.explanation import Explanation
from likewise.search.segments import segments
from tests.search.test_exhaustive import walks

ADDITIVE = [
    lw.DTW(),
    lw.DTW(band=2, ground="euclidean"),
    lw.DTW(ground="cosine"),
    lw.DTW(normalize="lengths"),
    lw.DTW(normalize="steps"),
    lw.DTW(subsequence=True),
    lw.Sinkhorn(),
    lw.OPW(),
    lw.TCOT(),
    lw.EMD(ground="euclidean"),
    lw.TAP(width=4),
    lw.TAP(width=4, symmetric=True),
    lw.Euclidean(),
    lw.Euclidean(squared=True),
    lw.Cosine(),
    lw.MeanFrames(),
]


@pytest.mark.parametrize("distance", ADDITIVE, ids=lambda d: type(d).__name__)
def test_costs_sum_to_the_distance(distance):
    x, y = walks(1, 9, 3)[0], walks(1, 12, 3, seed=1)[0]
    why = Explanation(distance, x, y)
    with torch.no_grad():
        assert why.value == pytest.approx(distance([x], [y]).item(), rel=1e-5)
    assert why.cost.shape == x.shape
    assert why.match_cost.shape == y.shape
    assert abs(why.rest) < 1e-4 * why.value
    for total in (why.cost, why.match_cost, why.by_step, why.by_channel):
        assert float(total.sum()) == pytest.approx(why.value, rel=1e-4)
    assert (why.cost >= 0).all()


def test_costs_of_dtw_by_hand():
    x, y = torch.tensor([[0.0, 1.0], [2.0, 1.0]]), torch.tensor([[0.0, 3.0], [2.0, 1.0], [3.0, 1.0]])
    why = Explanation(lw.DTW(), x, y)
    assert why.path.tolist() == [[0, 0], [1, 1], [1, 2]]
    assert why.cost.tolist() == [[0.0, 4.0], [1.0, 0.0]]
    assert why.match_cost.tolist() == [[0.0, 4.0], [0.0, 0.0], [1.0, 0.0]]
    assert why.by_step.tolist() == [4.0, 1.0]
    assert why.by_channel.tolist() == [1.0, 4.0]


def test_the_rest_is_what_belongs_to_no_step():
    x, y = walks(1, 9, 2)[0], walks(1, 9, 2, seed=1)[0]
    soft = Explanation(lw.SoftDTW(gamma=0.5), x, y)
    assert soft.rest < 0  # the entropy
    assert float(soft.cost.sum()) + soft.rest == pytest.approx(soft.value)
    gdtw = Explanation(lw.GDTW(reg=0.5), x, y)
    assert gdtw.rest > 0  # the slopes
    straight = Explanation(lw.GDTW(reg=1e6), x, y)
    residuals = (x - y).double().square()
    residuals[[0, -1]] /= 2
    torch.testing.assert_close(straight.cost, residuals / 8, atol=1e-3, rtol=1e-3)


def test_a_coupled_gru_divides_by_step_only():
    torch.manual_seed(0)
    x, y = walks(1, 9, 2)[0], walks(1, 12, 2, seed=1)[0]
    why = Explanation(lw.CoupledGRU(2, hidden=(4,), standardize=False), x, y)
    assert why.cost.shape == (9, 1)
    assert why.match_cost.shape == (12, 1)
    assert why.by_channel is None
    assert float(why.cost.sum()) == pytest.approx(why.value, rel=1e-5)
    assert float(why.match_cost.sum()) == pytest.approx(why.value, rel=1e-5)


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


@pytest.mark.parametrize("ground", ["sqeuclidean", "euclidean", "cosine"])
def test_channels_sum_to_the_ground_cost(ground):
    from likewise.ops.ground import NAMED

    x, y = torch.randn(2, 7, 3, dtype=torch.float64)
    x[2], y[3] = 0, 0
    x[4] = y[4]
    whole = NAMED[ground](x[:, None], y[:, None])[:, 0, 0]
    torch.testing.assert_close(by_channel(NAMED[ground], x, y).sum(1), whole)


def bump(at, width=4.0, steps=60, height=1.0):
    return height * torch.exp(-(torch.arange(float(steps)) - at).square() / (2 * width**2))[:, None]


def test_segments_show_a_shift_an_amplitude_and_a_stretch():
    x = bump(15) + bump(42, 3.0)
    y = bump(19) + bump(42, 3.0)
    why = Explanation(lw.DTW(), x, y)
    first = next(s for s in why.segments if s.start <= 13 < s.end)
    second = next(s for s in why.segments if s.start <= 42 < s.end)
    assert first.shift == pytest.approx(4.0, abs=1.0)
    assert second.shift == pytest.approx(0.0, abs=0.5)
    assert len(why.segments) <= 12
    wide = Explanation(lw.DTW(), bump(15, 3.0, 30), bump(30, 6.0, 60))
    middle = next(s for s in wide.segments if s.start <= 15 < s.end)
    assert middle.stretch == pytest.approx(2.0, abs=0.4)
    taller = Explanation(lw.DTW(band=0), x, 2 * x)
    assert [(s.start, s.end) for s in taller.segments] == [(0, 60)]
    assert taller.segments[0].amplitude == pytest.approx(2.0)


@pytest.mark.parametrize("seed", range(5))
def test_segments_divide_the_query_and_its_cost(seed):
    x, y = walks(1, 30, 2, seed)[0], walks(1, 37, 2, seed + 50)[0]
    for tolerance in (0.0, 0.1, 1.0):
        why = Explanation(lw.DTW(), x, y, tolerance=tolerance)
        assert why.segments[0].start == 0
        assert why.segments[-1].end == 30
        assert all(a.end == b.start for a, b in zip(why.segments, why.segments[1:], strict=False))
        assert all(a.match_start <= b.match_start for a, b in zip(why.segments, why.segments[1:], strict=False))
        assert sum(s.cost for s in why.segments) == pytest.approx(why.value, rel=1e-5)
    assert len(Explanation(lw.DTW(), x, y, tolerance=1.0).segments) <= len(Explanation(lw.DTW(), x, y).segments)


def test_equal_sequences_are_one_segment():
    x = walks(1, 20)[0]
    why = Explanation(lw.DTW(), x, x)
    (only,) = why.segments
    assert (only.start, only.end, only.shift, only.stretch, only.amplitude, only.cost) == (0, 20, 0.0, 1.0, 1.0, 0.0)
    flat = torch.zeros(5, 1)
    assert Explanation(lw.DTW(), flat, flat).segments[0].amplitude == 1.0
    assert segments(torch.tensor([[0, 0]]), flat[:1], flat[:1], lambda i, j: torch.zeros(len(i)), torch.zeros(1), 0.1)


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
