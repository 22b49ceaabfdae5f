import pytest
import torch

import likewise as lw
from tests.distances.recurrences import least


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (6, 1), (9, 7), (16, 17)])
def test_it_is_the_published_recurrence(shape):
    generator = torch.Generator().manual_seed(sum(shape))
    x, y = (torch.randn(n, generator=generator, dtype=torch.float64) for n in shape)

    def cost(i, j):
        return (x[i] - y[j]).item() ** 2

    def aside(i, j):
        return cost(i, j) + 0.4

    found = lw.ADTW(0.4)(x[None, :, None], y[None, :, None])
    assert found.item() == pytest.approx(least(*shape, cost, aside, aside), rel=1e-12)


def test_between_dtw_and_the_diagonal():
    x, y = torch.randn(4, 20, 2).cumsum(1), torch.randn(4, 20, 2).cumsum(1)
    assert torch.allclose(lw.ADTW(0.0)(x, y), lw.DTW()(x, y))
    assert torch.allclose(lw.ADTW(1e6)(x, y), (x - y).square().sum((1, 2)))
    with pytest.raises(ValueError, match="ADTW: penalty must be 0 or more"):
        lw.ADTW(-1)
