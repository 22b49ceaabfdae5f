import numpy as np
import pytest

import likewise as lw
from likewise.clusters.bounds import Interval
from likewise.clusters.leave_one_out import nearest_are_right
from tests.clusters.test_tune import shapes


@pytest.mark.parametrize("slack", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("above", [False, True])
def test_any_bounds_give_the_same_answer(slack, seed, above):
    x, labels = shapes(25, 12, seed, whole=True)
    D = lw.DTW().matrix(x).numpy()
    noise = np.random.default_rng(seed).uniform(slack, 1, D.shape)
    noise = np.minimum(noise, noise.T)
    high = D / np.maximum(noise, 0.1) if above else np.full_like(D, np.inf)
    found = nearest_are_right(lw.DTW(), x, None, labels, Interval(lw.DTW(), noise * D, high))
    np.fill_diagonal(D, np.inf)
    np.testing.assert_array_equal(found.correct, labels[D.argmin(1)] == labels)
    np.fill_diagonal(D, 0)
    assert (found.bounds.low <= D * (1 + 1e-9) + 1e-12).all()
    assert (found.bounds.high >= D * (1 - 1e-9) - 1e-12).all()
