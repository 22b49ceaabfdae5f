import pytest
import torch

import likewise as lw
from tests.distances.recurrences import least


def published(x, y, stiffness, penalty):
    x, y = [0.0, *x], [0.0, *y]  # frames count from 1

    def match(i, j):
        return abs(x[i + 1] - y[j + 1]) + abs(x[i] - y[j]) + 2 * stiffness * abs(i - j)

    return least(
        len(x) - 1,
        len(y) - 1,
        match,
        lambda i, j: abs(x[i + 1] - x[i]) + stiffness + penalty,
        lambda i, j: abs(y[j + 1] - y[j]) + stiffness + penalty,
    )


@pytest.mark.parametrize(("stiffness", "penalty"), [(0.0, 0.0), (0.1, 0.5), (1.0, 0.0)])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (6, 1), (9, 7), (16, 17)])
def test_it_is_the_published_recurrence(stiffness, penalty, shape):
    generator = torch.Generator().manual_seed(sum(shape))
    x, y = (torch.randn(n, generator=generator, dtype=torch.float64) for n in shape)
    found = lw.TWE(stiffness, penalty)(x[None, :, None], y[None, :, None])
    assert found.item() == pytest.approx(published(x.tolist(), y.tolist(), stiffness, penalty), rel=1e-12, abs=1e-12)


def test_by_hand():
    # 0 with 0, then 1 with 2: 1 + 0. Leaving out the last 2 costs its jump, 1, and 0.5 + 1. Or first 1 is left out, for
    # as much, and 2 is matched with 2 a step apart in time, after 1 with 0: 0 + 1 + 2 * 0.5.
    assert lw.TWE(0.5, 1.0)([[0.0, 1.0, 2.0]], [[0.0, 2.0]]).item() == 3.5


def test_ranges():
    with pytest.raises(ValueError, match="TWE: stiffness must be 0 or more"):
        lw.TWE(-0.1)
    with pytest.raises(ValueError, match="TWE: penalty must be 0 or more"):
        lw.TWE(penalty=-1.0)
