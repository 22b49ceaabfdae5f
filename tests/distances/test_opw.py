import math

import pytest
import torch

from likewise.distances.opw import OPW
from likewise.distances.sinkhorn import Sinkhorn
from likewise.models import config
from likewise.testing import assert_close, check_distance


def frames(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("options", [{}, {"n_iter": 20}, {"inverse_difference": 1, "kl": 1, "delta": 0.5}], ids=str)
def test_contract(options):
    check_distance(OPW(**options))


def test_its_plan_minimises_the_papers_objective():
    x, y = frames(1, 7, 2), frames(1, 5, 2, seed=1)
    plan = OPW(inverse_difference=5, kl=0.5, delta=0.8).align(x, y).plan[0]
    n, m = plan.shape
    t = torch.arange(1, n + 1)[:, None] / n - torch.arange(1, m + 1) / m
    away = t / math.sqrt(1 / n**2 + 1 / m**2)
    prior = torch.exp(-(away.double() ** 2) / (2 * 0.8**2)) / (0.8 * math.sqrt(2 * math.pi))
    cost = torch.cdist(x, y)[0].square()

    def objective(T):
        return (T * cost).sum() - 5 * (T / (t**2 + 1)).sum() + 0.5 * (T * (T / prior).log()).sum()

    best = objective(plan)
    generator = torch.Generator().manual_seed(2)
    for _ in range(20):
        move = torch.randn(n, m, generator=generator, dtype=torch.float64)
        move = move - move.mean(0) - move.mean(1, keepdim=True) + move.mean()  # keeps the masses
        step = 1e-3 * plan.min() / move.abs().max() * move
        assert objective(plan + step) >= best - 1e-14
    assert (plan.sum(1) - 1 / n).abs().max() < 1e-12
    assert (plan.sum(0) - 1 / m).abs().max() < 1e-12


def test_without_time_it_is_sinkhorn():
    x, y = frames(3, 9, 2), frames(3, 7, 2, seed=1)
    assert_close(OPW(0, 0.3, math.inf)(x, y), Sinkhorn(0.3)(x, y), 1e-10, "value")
    assert_close(OPW(0, 0.3, 1e9)(x, y), Sinkhorn(0.3)(x, y), 1e-10, "value")


def test_order_matters():
    x, y = frames(1, 8, 2), frames(1, 8, 2, seed=1)
    assert OPW()(x, x) < OPW()(x, x.flip(1))
    warp = OPW(inverse_difference=500, delta=0.1).align(x, y).warp[0]
    assert_close(warp, torch.arange(8), 0.1, "a strong prior keeps to the diagonal")


def test_early_stops_differ_from_the_converged_value():
    x, y = frames(4, 30, 3), frames(4, 25, 3, seed=1)
    early, late = OPW(n_iter=20)(x, y), OPW()(x, y)
    assert ((early - late).abs() / late < 0.2).all()
    assert ((early - late).abs() / late > 1e-4).any()


def test_it_can_be_written_down():
    distance = OPW(delta=math.inf, tolerance=1e-3)
    again = config.build("here", config.describe(distance))
    assert repr(again) == repr(distance)
    assert again.settings == distance.settings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kl": 0}, "OPW: kl must be positive and finite, got 0"),
        ({"kl": -0.1}, "OPW: kl must be positive"),
        ({"inverse_difference": -1}, "OPW: inverse_difference must be 0 or more"),
        ({"delta": 0}, "OPW: delta must be positive"),
        ({"n_iter": 0}, "OPW: n_iter must be a whole number"),
    ],
)
def test_bad_settings(options, words):
    with pytest.raises(ValueError, match=words):
        OPW(**options)
