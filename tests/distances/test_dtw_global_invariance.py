import aeon.distances
import pytest
import torch

import likewise as lw
from likewise.models.config import build, describe
from likewise.testing import TOLERANCE, assert_close, check_distance


def test_contract():
    check_distance(lw.DTWGlobalInvariance(max_iter=50), any_width=True)


def walks(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).cumsum(1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("x_channels", "y_channels"), [(3, 3), (4, 2)])
def test_values_equal_aeon(x_channels, y_channels, bias):
    x, y = walks(3, 16, x_channels), walks(3, 21, y_channels, seed=1)
    compute = aeon.distances.dtw_gi_distance
    rows = [[compute(a.T.numpy().copy(), b.T.numpy().copy(), use_bias=bias) for b in y] for a in x]
    expected = torch.tensor(rows, dtype=torch.float64)
    found = lw.DTWGlobalInvariance(bias=bias).matrix(x, y)
    assert_close(found, expected, TOLERANCE[torch.float64].value, "aeon")


@pytest.mark.parametrize("bias", [False, True])
def test_the_first_rotation_is_that_of_aeon(bias):
    x, y = walks(3, 16, 3), walks(3, 21, 2, seed=1)
    start = torch.linalg.qr(walks(3, 2, 1, seed=5)[..., 0]).Q
    compute = aeon.distances.dtw_gi_distance
    options = {"init_p": start.contiguous().numpy(), "use_bias": bias}
    rows = [[compute(a.T.numpy().copy(), b.T.numpy().copy(), **options) for b in y] for a in x]
    distance = lw.DTWGlobalInvariance(start=start, bias=bias)
    expected = torch.tensor(rows, dtype=torch.float64)
    assert_close(distance.matrix(x, y), expected, TOLERANCE[torch.float64].value, "aeon")
    assert (distance.matrix(x, y) - lw.DTWGlobalInvariance(bias=bias).matrix(x, y)).abs().max() > 0.1
    with pytest.raises(ValueError, match=r"start has shape \(3, 2\), but x and y have 2 and 3 channels"):
        distance(y, x)


@pytest.mark.parametrize("band", [0.1, 0.3])
def test_bands_are_those_of_aeon_for_equal_lengths(band):
    x, y = walks(3, 20, 3), walks(3, 20, 3, seed=1)
    compute = aeon.distances.dtw_gi_distance
    rows = [[compute(a.T.numpy().copy(), b.T.numpy().copy(), window=band) for b in y] for a in x]
    expected = torch.tensor(rows, dtype=torch.float64)
    assert_close(lw.DTWGlobalInvariance(band=band).matrix(x, y), expected, TOLERANCE[torch.float64].value, "aeon")


def test_a_rotation_is_undone():
    x = walks(2, 20, 3)
    turn, _ = torch.linalg.qr(walks(3, 3, 1, seed=4)[..., 0])
    small = torch.linalg.matrix_exp(0.3 * (turn - turn.T))
    distance = lw.DTWGlobalInvariance()
    y = x @ small
    assert (distance(x, y) < 1e-9).all()
    assert torch.allclose(distance.rotation(x, y)[0], small, atol=1e-6)
    assert distance.align(x, y).path(0).tolist() == [[i, i] for i in range(20)]


def test_what_has_no_derivative():
    x, y = walks(1, 12, 2).requires_grad_(), walks(1, 12, 2, seed=1)
    with pytest.raises(NotImplementedError, match="bias=True"):
        lw.DTWGlobalInvariance(bias=True)(x, y)
    with pytest.raises(NotImplementedError, match="raise max_iter"):
        lw.DTWGlobalInvariance(max_iter=1)(x, y)


def test_settings():
    distance = lw.DTWGlobalInvariance(max_iter=7, band=3)
    assert repr(build("here", describe(distance))) == repr(distance)
    turned = lw.DTWGlobalInvariance(start=[[0.0, 1.0], [1.0, 0.0]])
    assert repr(build("here", describe(turned))) == repr(turned)
    with pytest.raises(ValueError, match="start must be a matrix"):
        lw.DTWGlobalInvariance(start=torch.ones(2))
    with pytest.raises(ValueError, match="max_iter must be a whole number"):
        lw.DTWGlobalInvariance(max_iter=0)
