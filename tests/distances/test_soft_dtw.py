import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import likewise as lw
from likewise.testing import TOLERANCE, assert_close, check_distance
from tests.distances.grounds import manhattan, named


def walks(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).cumsum(1).to(dtype)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gamma": 0.01},
        {"gamma": 30},
        {"band": 1},
        {"band": 0.3, "gamma": 0.3},
        {"itakura": 1.5},
        {"open_begin": True},
        {"open_end": True},
        {"subsequence": True, "gamma": 0.1},
        {"ground": "euclidean"},
        {"ground": "cosine"},
        {"ground": manhattan, "band": 2},
    ],
    ids=named,
)
def test_contract(options):
    check_distance(lw.SoftDTW(**options))


@pytest.mark.parametrize(
    "options", [{}, {"gamma": 0.1, "band": 0.5}, {"ground": "cosine"}, {"ground": manhattan}], ids=named
)
def test_contract_of_the_divergence(options):
    check_distance(lw.SoftDTWDivergence(**options))


@pytest.mark.parametrize("gamma", [0.1, 1.0, 7.0])
def test_two_frames_against_two(gamma):
    # Costs [[1, 9], [4, 0]]: three paths, which cost 1, 1 + 9 and 1 + 4.
    x, y = [[0.0, 3.0]], [[1.0, 3.0]]
    costs = (x[0][0] - y[0][0]) ** 2, (x[0][0] - y[0][1]) ** 2, (x[0][1] - y[0][0]) ** 2
    paths = [costs[0], costs[0] + costs[1], costs[0] + costs[2]]
    total = sum(math.exp(-path / gamma) for path in paths)
    distance = lw.SoftDTW(gamma)
    assert distance(x, y).item() == pytest.approx(-gamma * math.log(total), rel=1e-5)
    plan = distance.align(x, y).plan[0]
    above, below = (math.exp(-path / gamma) / total for path in paths[1:])
    assert_close(plan, torch.tensor([[1, above], [below, 1]]), 1e-5, "plan")
    warp = distance.align(x, y).warp[0]
    assert_close(warp, torch.tensor([above / (1 + above), 1 / (1 + below)]), 1e-5, "warp")


def test_paths_are_counted():
    assert lw.SoftDTW(2.0)([[5.0, 5.0]], [[5.0, 5.0]]).item() == pytest.approx(-2 * math.log(3))
    assert lw.SoftDTW()([[5.0] * 3], [[5.0] * 3]).item() == pytest.approx(-math.log(13))  # a Delannoy number


def test_one_frame_has_one_path():
    assert lw.SoftDTW(10.0)([[1.0]], [[0.0, 2.0, 4.0]]).item() == pytest.approx(1 + 1 + 9)


def test_a_small_gamma_gives_dtw():
    x, y = walks(4, 9, 2), walks(4, 7, 2, seed=1)
    for options in ({}, {"band": 1}, {"subsequence": True}, {"ground": "euclidean"}, {"ground": manhattan}):
        soft, hard = lw.SoftDTW(1e-6, **options), lw.DTW(**options)
        assert_close(soft(x, y), hard(x, y), 1e-6, "value")
        assert_close(soft.align(x, y).plan, hard.align(x, y).plan, 1e-6, "plan")
        assert [soft.align(x, y).path(b).tolist() for b in range(4)] == [
            hard.align(x, y).path(b).tolist() for b in range(4)
        ]


def test_the_plan_is_the_derivative_of_the_cost():
    x, y = walks(3, 6, 1), walks(3, 5, 1, seed=1)
    cost = (x - y.mT).square().requires_grad_()
    for options in ({}, {"open_end": True}, {"band": 0.4}):
        distance = lw.SoftDTW(0.5, ground=lambda a, b: cost, **options)
        (derivative,) = torch.autograd.grad(distance(x, y).sum(), cost)
        plan = lw.SoftDTW(0.5, **options).align(x, y).plan
        assert_close(plan, derivative, 1e-10, "plan")


def test_every_frame_is_visited():
    x, y = walks(3, 6, 1), walks(3, 5, 1, seed=1)
    plan = lw.SoftDTW(5.0).align(x, y).plan
    assert (plan.sum(1) >= 1 - 1e-12).all()
    assert (plan.sum(2) >= 1 - 1e-12).all()
    assert_close(plan[:, 0, 0], torch.ones(3), 1e-12, "the first corner")
    assert_close(plan[:, -1, -1], torch.ones(3), 1e-12, "the last corner")


def test_the_plan_is_differentiable():
    x, y = walks(2, 4, 2).requires_grad_(), walks(2, 3, 2, seed=1).requires_grad_()
    distance = lw.SoftDTW(0.7)
    assert torch.autograd.gradcheck(lambda a, b: distance.align(a, b).plan, (x, y))
    assert torch.autograd.gradcheck(lambda a, b: distance.align(a, b).warp, (x, y))
    assert torch.autograd.gradgradcheck(distance, (x, y))


def test_the_divergence_by_hand():
    # s(x, y) with one path: 4; s(x, x) = 0; s(y, y) = -gamma log 3.
    assert lw.SoftDTWDivergence(2.0)([[0.0]], [[1.0, 1.0]]).item() == pytest.approx(2 + math.log(3))


def test_the_divergence_of_equal_sequences_is_zero():
    x = lw.Batch(walks(4, 9, 2), [9, 3, 1, 7])
    for options in ({}, {"gamma": 0.1}, {"band": 2}, {"ground": "cosine"}, {"ground": manhattan}, {"itakura": 2.0}):
        distance = lw.SoftDTWDivergence(**options)
        assert torch.equal(distance(x, x), torch.zeros(4, dtype=torch.float64))
        assert_close(distance.matrix(x).diagonal(), torch.zeros(4), 1e-12, "diagonal", scale=1.0)


@given(st.integers(0, 2**31), st.sampled_from([0.01, 0.3, 1.0, 20.0]), st.sampled_from(["sqeuclidean", "euclidean"]))
@settings(max_examples=40, deadline=None)
def test_the_divergence_is_not_negative(seed, gamma, ground):
    generator = np.random.default_rng(seed)
    channels = int(generator.integers(1, 4))
    items = [generator.standard_normal((int(n), channels)) for n in generator.integers(1, 7, 5)]
    found = lw.SoftDTWDivergence(gamma, ground=ground).matrix(items)
    assert (found >= -1e-9 * max(1, gamma)).all()


def test_the_divergence_has_no_open_ends():
    with pytest.raises(TypeError, match="unexpected keyword argument 'open_end'"):
        lw.SoftDTWDivergence(open_end=True)  # type: ignore[call-arg]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_values_equal_the_peers(dtype):
    aeon = pytest.importorskip("aeon.distances")
    tslearn = pytest.importorskip("tslearn.metrics")
    x, y = walks(4, 12, 2, dtype=dtype), walks(3, 12, 2, dtype=dtype, seed=1)
    a, b = x.double().numpy(), y.double().numpy()
    channels_first = [np.ascontiguousarray(t.transpose(0, 2, 1)) for t in (a, b)]
    tolerance = TOLERANCE[dtype].value
    for gamma in (0.1, 1.0, 5.0):
        found = lw.SoftDTW(gamma).matrix(x, y)
        expected = torch.from_numpy(aeon.soft_dtw_pairwise_distance(*channels_first, gamma=gamma))
        assert_close(found, expected, tolerance, "aeon's pairwise")
        assert_close(found, torch.from_numpy(tslearn.cdist_soft_dtw(a, b, gamma=gamma)), tolerance, "tslearn")
        expected = torch.from_numpy(tslearn.cdist_soft_dtw_normalized(a, b, gamma=gamma))
        assert_close(lw.SoftDTWDivergence(gamma).matrix(x, y), expected, tolerance, "tslearn's divergence")
        plan, _ = tslearn.soft_dtw_alignment(a[0], b[0], gamma=gamma)
        assert_close(lw.SoftDTW(gamma).align(x[:1], y[:1]).plan[0], torch.from_numpy(plan), tolerance, "tslearn's plan")


@pytest.mark.parametrize(
    ("distance", "text"),
    [
        (lw.SoftDTW(), "SoftDTW(gamma=1.0, ground='sqeuclidean')"),
        (lw.SoftDTW(0.1, band=3), "SoftDTW(gamma=0.1, ground='sqeuclidean', band=3)"),
        (lw.SoftDTWDivergence(ground="cosine"), "SoftDTWDivergence(gamma=1.0, ground='cosine')"),
    ],
)
def test_repr(distance, text):
    assert repr(distance) == text


@pytest.mark.parametrize("kind", [lw.SoftDTW, lw.SoftDTWDivergence])
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gamma": -1.0}, ValueError, "gamma must be positive and finite, got -1.0"),
        ({"gamma": 0}, ValueError, "gamma must be positive and finite, got 0"),
        ({"gamma": math.nan}, ValueError, "gamma must be positive and finite, got nan"),
        ({"gamma": math.inf}, ValueError, "gamma must be positive and finite, got inf"),
        ({"gamma": "1"}, TypeError, "expected gamma to be a number, got str"),
        ({"gamma": True}, TypeError, "expected gamma to be a number, got bool"),
        ({"ground": "l1"}, ValueError, "unknown ground cost 'l1'"),
        ({"band": -0.5}, ValueError, "band must be a whole number of steps"),
        ({"band": 1, "itakura": 2.0}, ValueError, "give band or itakura, not both"),
    ],
)
def test_bad_settings_are_refused(kind, options, error, message):
    with pytest.raises(error, match=f"{kind.__name__}: {message}"):
        kind(**options)


def test_costs_that_overflow_are_refused():
    x = torch.full((2, 3, 1), 1e30)
    with pytest.raises(
        ValueError, match=r"soft_dtw: the value of pair \[0\] is not finite: the costs overflow torch.float32"
    ):
        lw.SoftDTW()(x, -x)
