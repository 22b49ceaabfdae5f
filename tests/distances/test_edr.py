import pytest
import torch

import likewise as lw
from tests.distances.recurrences import least


def published(x, y, epsilon):
    changes = least(
        len(x),
        len(y),
        lambda i, j: float(abs(x[i] - y[j]) >= epsilon),
        lambda i, j: 1.0,
        lambda i, j: 1.0,
        borders=True,
    )
    return changes / max(len(x), len(y))


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (6, 1), (9, 7), (16, 17)])
def test_it_is_the_published_recurrence(epsilon, shape):
    generator = torch.Generator().manual_seed(sum(shape))
    x, y = (torch.randn(n, generator=generator, dtype=torch.float64) for n in shape)
    found = lw.EDR(epsilon)(x[None, :, None], y[None, :, None])
    assert found.item() == pytest.approx(published(x.tolist(), y.tolist(), epsilon), rel=1e-12)


def test_the_default_reach_is_a_quarter_of_the_larger_deviation():
    x, y = [0.0, 4.0, 0.0, 4.0], [0.0, 3.6, 0.0, 3.6]  # deviations 2 and 1.8
    assert lw.EDR()([x], [y]).item() == 0  # 0.4 < 0.5
    assert lw.EDR(0.4)([x], [y]).item() == 0.5


def test_a_free_start():
    x, y = [[7.0, 8.0, 9.0, 1.0, 2.0]], [[1.0, 2.0]]
    assert lw.EDR(0.5)(x, y).item() == pytest.approx(3 / 5)
    assert lw.EDR(0.5, free_start=True)(x, y).item() == 0


def test_refusals():
    with pytest.raises(ValueError, match="EDR: epsilon must be 0 or more"):
        lw.EDR(-0.1)
    x = torch.randn(1, 4, 1, requires_grad=True)
    with pytest.raises(NotImplementedError, match="no useful derivative"):
        lw.EDR()(x, x.detach() + 1).sum().backward()
