import aeon.distances
import pytest
import torch

import likewise as lw
from tests.distances.recurrences import least


def published(x, y, gap):
    return least(
        len(x),
        len(y),
        lambda i, j: abs(x[i] - y[j]),
        lambda i, j: abs(x[i] - gap),
        lambda i, j: abs(y[j] - gap),
        borders=True,
    )


@pytest.mark.parametrize("gap", [0.0, 0.7])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (6, 1), (9, 7), (16, 17)])
def test_it_is_the_published_recurrence(gap, shape):
    generator = torch.Generator().manual_seed(sum(shape))
    x, y = (torch.randn(n, generator=generator, dtype=torch.float64) for n in shape)
    found = lw.ERP(gap)(x[None, :, None], y[None, :, None])
    assert found.item() == pytest.approx(published(x.tolist(), y.tolist(), gap), rel=1e-12)


def test_aeon_charges_more_for_gaps_at_the_beginning():
    # The first frame of x is left out for its distance from 0; aeon charges all three.
    x, y = [[1.0, 2.0, 3.0]], [[2.0, 3.0]]
    assert lw.ERP()(x, y).item() == 1
    assert aeon.distances.erp_distance(torch.tensor(x[0]).numpy(), torch.tensor(y[0]).numpy()) > 1


def test_what_is_left_out_at_the_beginning_is_drawn_along_the_first_column():
    alignment = lw.ERP().align([[1.0, 2.0, 3.0]], [[2.0, 3.0]])
    assert alignment.path(0).tolist() == [[0, 0], [1, 0], [2, 1]]


def test_gaps_of_several_channels():
    x, y = torch.randn(3, 6, 2), torch.randn(3, 8, 2)
    assert torch.allclose(lw.ERP([0.5, 0.5])(x, y), lw.ERP(0.5)(x, y))
    with pytest.raises(ValueError, match="gap has 3 values, but the sequences have 2 channels"):
        lw.ERP([0.0, 0.0, 0.0])(x, y)
    with pytest.raises(ValueError, match="ERP: gap must be finite"):
        lw.ERP(float("nan"))
    with pytest.raises(TypeError, match="ERP: expected gap to be a number"):
        lw.ERP("0")
