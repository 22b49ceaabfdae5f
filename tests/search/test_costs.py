import pytest
import torch

import likewise as lw
from likewise.search.costs import by_channel
from likewise.search.explanation import Explanation
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


@pytest.mark.parametrize("ground", ["sqeuclidean", "euclidean", "cosine"])
def test_channels_sum_to_the_ground_cost(ground):
    from likewise.ops.ground import NAMED

    x, y = torch.randn(2, 7, 3, dtype=torch.float64)
    x[2], y[3] = 0, 0
    x[4] = y[4]
    whole = NAMED[ground](x[:, None], y[:, None])[:, 0, 0]
    torch.testing.assert_close(by_channel(NAMED[ground], x, y).sum(1), whole)
