import aeon.distances
import pytest
import torch

import likewise as lw
from likewise.models.config import build, describe
from likewise.testing import TOLERANCE, assert_close, check_distance


@pytest.mark.parametrize("options", [{"reach": 2}, {"reach": 0}, {"reach": 5, "band": 2}], ids=str)
def test_contract(options):
    check_distance(lw.ShapeDTW(**options))


def walks(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).cumsum(1)


@pytest.mark.parametrize(("steps", "other", "channels"), [(24, 24, 1), (20, 15, 2)])
def test_values_equal_aeon(steps, other, channels):
    x, y = walks(3, steps, channels), walks(3, other, channels, seed=1)
    compute = aeon.distances.shape_dtw_distance
    rows = [[compute(a.T.numpy().copy(), b.T.numpy().copy(), reach=4) for b in y] for a in x]
    expected = torch.tensor(rows, dtype=torch.float64)
    assert_close(lw.ShapeDTW(4).matrix(x, y), expected, TOLERANCE[torch.float64].value, "aeon")


def test_no_reach_is_dtw():
    x, y = walks(4, 12, 2), walks(4, 9, 2, seed=1)
    assert_close(lw.ShapeDTW(0)(x, y), lw.DTW()(x, y), TOLERANCE[torch.float64].value, "reach 0")


def test_neighbourhoods_decide():
    # The second 1 of x goes up; by itself it is as near to the first 1 of y as to the second.
    x, y = [[0.0, 1.0, 0.0, 1.0, 2.0]], [[0.0, 1.0, 2.0]]
    assert [3, 1] in lw.ShapeDTW(1).align(x, y).path(0).tolist()


def test_settings():
    assert repr(build("here", describe(lw.ShapeDTW(3, band=0.1)))) == "ShapeDTW(reach=3, band=0.1)"
    with pytest.raises(ValueError, match="ShapeDTW: reach must be a whole number of 0 or more"):
        lw.ShapeDTW(-1)
