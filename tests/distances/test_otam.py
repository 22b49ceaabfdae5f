import math

import pytest
import torch

from likewise.distances.otam import OTAM
from likewise.models.config import build, describe
from likewise.testing import check_distance
from tests.distances.grounds import manhattan, named


def directed(cost, gamma):
    """Cell by cell, with a column of zeros before and after, as the published implementations have it."""
    rows, columns = len(cost), len(cost[0]) + 2
    cost = [[0.0, *row, 0.0] for row in cost]

    def softmin(*values):
        return -gamma * math.log(sum(math.exp(-v / gamma) for v in values))

    R = [[0.0] * columns for _ in range(rows)]
    for m in range(1, columns):
        R[0][m] = cost[0][m] + R[0][m - 1]
    for i in range(1, rows):
        R[i][1] = cost[i][1] + softmin(R[i - 1][0], R[i - 1][1], R[i][0])
        for m in range(2, columns - 1):
            R[i][m] = cost[i][m] + softmin(R[i - 1][m - 1], R[i][m - 1])
        R[i][-1] = softmin(R[i - 1][-2], R[i - 1][-1], R[i][-2])
    return R[-1][-1]


@pytest.mark.parametrize(
    "options", [{}, {"gamma": 1.0}, {"symmetric": False}, {"ground": "sqeuclidean"}, {"ground": manhattan}], ids=named
)
def test_contract(options):
    check_distance(OTAM(**options))


@pytest.mark.parametrize("gamma", [0.1, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (5, 1), (6, 3), (3, 6), (8, 8)])
def test_it_is_the_published_recursion(gamma, shape):
    generator = torch.Generator().manual_seed(sum(shape))
    x, y = (torch.randn(1, n, 4, generator=generator, dtype=torch.float64) for n in shape)
    cost = 1 - torch.nn.functional.cosine_similarity(x[0][:, None], y[0], dim=2)
    there, back = directed(cost.tolist(), gamma), directed(cost.T.tolist(), gamma)
    assert OTAM(gamma, symmetric=False)(x, y).item() == pytest.approx(there, rel=1e-9)
    assert OTAM(gamma)(x, y).item() == pytest.approx((there + back) / 2, rel=1e-9)


def test_ends_are_free():
    y = torch.eye(5, dtype=torch.float64)[None, 1:4]
    x = torch.eye(5, dtype=torch.float64)[None]
    hard = OTAM(gamma=1e-3, symmetric=False)
    assert hard(x, y).item() == pytest.approx(0, abs=0.01)  # y is a stretch of x
    assert hard(x, y.flip(1)).item() == pytest.approx(2, abs=0.02)  # the order counts
    assert hard(y, x).item() == pytest.approx(2, abs=0.02)  # x is not a stretch of y: its ends cost


def test_the_plan_is_the_derivative_and_says_where():
    x, y = torch.eye(6, dtype=torch.float64)[None], torch.eye(6, dtype=torch.float64)[None, 2:4]
    plan = OTAM(gamma=0.02, symmetric=False).align(x, y).plan[0]
    assert plan.sum(0).tolist() == pytest.approx([1, 1], abs=0.02)  # every frame of y once
    assert plan[2, 0].item() == pytest.approx(1, abs=0.02)
    assert plan[3, 1].item() == pytest.approx(1, abs=0.02)


def test_huge_costs_stay_finite():
    x, y = 100 * torch.randn(2, 3, 7, 2), 100 * torch.randn(2, 3, 9, 2)
    x, y = x[0].requires_grad_(), y[0]
    value = OTAM(gamma=0.01, ground="sqeuclidean")(x, y)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert value.isfinite().all()
    assert gradient.isfinite().all()


def test_it_comes_back_from_its_description():
    for options in ({}, {"gamma": 0.5, "symmetric": False, "ground": "euclidean"}):
        assert repr(build("here", describe(OTAM(**options)))) == repr(OTAM(**options))
    with pytest.raises(ValueError, match="OTAM: gamma must be positive"):
        OTAM(0)
