import pytest
import torch

import likewise as lw
from likewise.distances.ddtw import slopes


def test_slopes_by_hand():
    assert slopes(torch.tensor([[[0.0], [1.0], [4.0], [4.0]]]))[0, :, 0].tolist() == [1.5, 2.25]


@pytest.mark.parametrize(("kind", "base"), [(lw.DDTW, lw.DTW), (lw.WDDTW, lw.WDTW)])
def test_it_is_its_base_on_slopes(kind, base):
    x, y = torch.randn(3, 12, 2), torch.randn(3, 9, 2)
    found, expected = kind(band=3), base(band=3)
    assert torch.allclose(found(x, y), expected(slopes(x), slopes(y)))
    assert torch.allclose(found(x + 5, y - 3), found(x, y), atol=1e-4)  # blind to levels
    path = expected.align(slopes(x), slopes(y)).path(0)
    assert found.align(x, y).path(0).tolist() == (path + 1).tolist()


@pytest.mark.parametrize("distance", [lw.DDTW(), lw.WDDTW()], ids=str)
def test_too_short_for_a_derivative(distance):
    with pytest.raises(ValueError, match=rf"{distance.name}: y\[1\] has 2 steps, but needs at least 3"):
        distance.matrix([[0.0, 1.0, 2.0]], [[0.0, 1.0, 2.0], [0.0, 1.0]])
