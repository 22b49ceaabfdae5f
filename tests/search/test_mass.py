import numpy as np
import pytest
import torch

from likewise import Euclidean
from likewise.ops.search import normalize
from likewise.search.mass import mass, moments, sliding_products


@pytest.mark.parametrize("normal", [False, True])
@pytest.mark.parametrize("channels", [1, 2])
def test_mass(channels, normal):
    rng = np.random.default_rng(0)
    series, query = rng.normal(size=(200, channels)).cumsum(0) + 50, rng.normal(size=(16, channels))
    series[100:130] = 3.0  # constant windows
    windows = np.lib.stride_tricks.sliding_window_view(series, 16, axis=0).swapaxes(1, 2)
    x, y = torch.from_numpy(query)[None], torch.from_numpy(windows.copy())
    x, y = (normalize(x), normalize(y)) if normal else (x, y)
    np.testing.assert_allclose(
        mass(query, series, normalize=normal), Euclidean(squared=True).matrix(x, y)[0], rtol=1e-9, atol=1e-8
    )
    assert len(mass(query, series[:10])) == 0


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_moments_keep_the_digits_of_small_windows(offset):
    rng = np.random.default_rng(0)
    series = 1e-2 * rng.normal(size=(2500, 2)) + offset
    series[:1000] += 1e4
    mean, deviation = moments(series, 40)
    windows = np.lib.stride_tricks.sliding_window_view(series, 40, axis=0)  # (W, C, m)
    np.testing.assert_allclose(mean, windows.mean(-1), rtol=1e-12)
    np.testing.assert_allclose(deviation, windows.std(-1), rtol=1e-6)


def test_products_of_windows():
    rng = np.random.default_rng(1)
    query, series = rng.normal(size=(5, 2)), rng.normal(size=(30, 2))
    expected = [(query * series[t : t + 5]).sum(0) for t in range(26)]
    np.testing.assert_allclose(sliding_products(query, series), expected, atol=1e-12)
