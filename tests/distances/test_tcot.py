import pytest
import torch

from likewise.distances.sinkhorn import Sinkhorn
from likewise.distances.tcot import TCOT
from likewise.models import config
from likewise.testing import assert_close, check_distance


def frames(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("options", [{}, {"n_iter": 7}, {"reg": 0.3, "weight": 2.5}], ids=str)
def test_contract(options):
    check_distance(TCOT(**options))


def test_without_a_weight_it_is_sinkhorn():
    x, y = frames(3, 9, 2), frames(3, 7, 2, seed=1)
    assert_close(TCOT(0.3, weight=0)(x, y), Sinkhorn(0.3)(x, y), 1e-10, "value")


def test_its_plan_is_that_of_the_coupled_cost():
    x, y = frames(2, 6, 2), frames(2, 4, 2, seed=1)
    t = (torch.arange(1, 7)[:, None] / 6 - torch.arange(1, 5) / 4).abs()
    coupled = Sinkhorn(1.0, ground=lambda a, b: torch.cdist(a, b).square() * (1 + t)).align(x, y)
    found = TCOT().align(x, y)
    assert_close(found.plan, coupled.plan, 1e-6, "plan")
    assert_close(found.value, (found.plan * torch.cdist(x, y).square()).sum((1, 2)), 1e-10, "value")


def test_it_can_be_written_down():
    distance = TCOT(0.5, weight=2.0)
    assert repr(config.build("here", config.describe(distance))) == repr(distance)


def test_bad_settings():
    with pytest.raises(ValueError, match="TCOT: reg must be positive"):
        TCOT(-1)
    with pytest.raises(ValueError, match="TCOT: time_weight must be 0 or more"):
        TCOT(weight=-1)
