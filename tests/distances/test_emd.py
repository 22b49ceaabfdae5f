import itertools

import pytest
import torch

from likewise.distances.emd import EMD
from likewise.models import config
from likewise.testing import assert_close, check_distance


def frames(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("options", [{}, {"ground": "euclidean"}], ids=str)
def test_contract(options):
    check_distance(EMD(**options))


def test_it_is_the_best_matching():
    x, y = frames(2, 5, 2), frames(2, 5, 2, seed=1)
    for b in range(2):
        cost = torch.cdist(x[b], y[b]).square()
        best = min(cost[range(5), order].mean().item() for order in itertools.permutations(range(5)))
        assert EMD()(x, y)[b].item() == pytest.approx(best, rel=1e-12)


def test_it_is_pots():
    ot = pytest.importorskip("ot")
    for n, m in ((11, 7), (8, 12), (9, 9)):
        x, y = frames(2, n, 2), frames(2, m, 2, seed=1)
        for b in range(2):
            expected = ot.emd2([], [], torch.cdist(x[b], y[b]).square().numpy())
            assert EMD()(x, y)[b].item() == pytest.approx(expected, rel=1e-6)


def test_the_plan_is_the_derivative_of_the_cost():
    x, y = frames(1, 6, 2), frames(1, 4, 2, seed=1)
    cost = torch.cdist(x, y).requires_grad_()
    distance = EMD(ground=lambda a, b: cost)
    (slope,) = torch.autograd.grad(distance(x, y).sum(), cost)
    assert_close(slope, distance.align(x, y).plan, 1e-12, "plan")


def test_equal_sequences_are_at_no_distance():
    x = frames(2, 7, 3)
    alignment = EMD().align(x, x)
    assert alignment.value.tolist() == [0, 0]
    assert alignment.path(0).tolist() == [[i, i] for i in range(7)]


def test_it_can_be_written_down():
    distance = EMD(ground="cosine")
    assert repr(config.build("here", config.describe(distance))) == repr(distance) == "EMD(ground='cosine')"
