import pytest
import torch

import likewise as lw
from tests.distances.recurrences import least


def published(x, y, cost):
    def split(new, before, other):
        if before <= new <= other or before >= new >= other:
            return cost
        return cost + min(abs(new - before), abs(new - other))

    return least(
        len(x),
        len(y),
        lambda i, j: abs(x[i] - y[j]),
        lambda i, j: split(x[i], x[i - 1], y[j]),
        lambda i, j: split(y[j], y[j - 1], x[i]),
    )


@pytest.mark.parametrize("cost", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (6, 1), (9, 7), (16, 17)])
def test_it_is_the_published_recurrence(cost, shape):
    generator = torch.Generator().manual_seed(sum(shape))
    x, y = (torch.randn(n, generator=generator, dtype=torch.float64).tolist() for n in shape)
    found = lw.MSM(cost)(torch.tensor(x)[None, :, None].double(), torch.tensor(y)[None, :, None].double())
    assert found.item() == pytest.approx(published(x, y, cost), rel=1e-6)


def test_by_hand():
    # 1 is moved to 2, and merged with the 2 that follows, for 1 + 0.5. 5 does not lie between 2 and 2, but 3 away.
    assert lw.MSM(0.5)([[0.0, 1.0, 2.0]], [[0.0, 2.0]]).item() == 1.5
    assert lw.MSM(0.5)([[0.0, 2.0, 5.0]], [[0.0, 2.0]]).item() == 3.5


def test_channels_add_up_when_independent():
    x, y = torch.randn(3, 9, 2), torch.randn(3, 7, 2)
    each = sum(lw.MSM()(x[..., c : c + 1], y[..., c : c + 1]) for c in range(2))
    assert torch.allclose(lw.MSM()(x, y), each)
    with pytest.raises(ValueError, match="independent=False for one path"):
        lw.MSM().align(x, y)


def test_a_stretch_is_found():
    y = torch.tensor([[5.0, 7.0, 0.0, 1.0, 2.0, 9.0, 4.0]])[..., None]
    alignment = lw.MSM(subsequence=True).align(y[:, 2:5], y)
    assert alignment.value.item() == 0
    assert alignment.path(0).tolist() == [[0, 2], [1, 3], [2, 4]]


@pytest.mark.parametrize("cost", [0, -1.0, float("inf"), float("nan")])
def test_a_cost_that_is_not_positive(cost):
    with pytest.raises(ValueError, match="MSM: cost must be positive"):
        lw.MSM(cost)
