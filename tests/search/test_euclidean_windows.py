"""Euclidean windows by convolution: the hits of exhaustive search."""

import numpy as np
import pytest
import torch

from likewise import Batch, Euclidean, Index
from likewise.search.euclidean_windows import EuclideanWindowSearch, rounding
from likewise.search.exhaustive_windows import ExhaustiveWindows
from likewise.search.mass import mass
from tests.search.problems import draw


@pytest.mark.parametrize("seed", range(1, 241, 2))
def test_random_problems_equal_exhaustive_search(seed):
    p = draw(np.random.default_rng(seed), whole=False)
    distance = Euclidean(squared=seed % 3 == 0)
    given = {"k": p.k, "within": p.within, "exclude": p.exclude, "skip": p.skip}
    found, expected = (
        kind(distance, p.items, p.length, normalize=p.normalize, stretch=p.stretch).search(p.queries, **given)
        for kind in (EuclideanWindowSearch, ExhaustiveWindows)
    )
    for name in ("counts", "distances", "items", "starts", "ends"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), (name, p)
    assert found.stats.candidates == expected.stats.candidates
    assert found.stats.compared >= int(found.counts.sum())


@pytest.mark.parametrize("normalize", [True, False])
def test_few_windows_are_compared(normalize):
    torch.manual_seed(0)
    series = torch.randn(1, 20_000, 2).cumsum(1)
    index = Index(Euclidean(), series, length=100, normalize="window" if normalize else None)
    hits = index.search(series[:, 700:800], k=5)
    assert hits.starts[0, 0] == 700
    assert hits.stats.method == "convolution, re-ranked"
    assert hits.stats.compared < 0.05 * hits.stats.candidates
    truth = ExhaustiveWindows(Euclidean(), Batch(series), 100, normalize=normalize)
    expected = truth.search(Batch(series[:, 700:800]), k=5, within=None, exclude=0.5)
    assert torch.equal(hits.distances, expected.distances)
    assert torch.equal(hits.starts, expected.starts)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("offset", [0.0, 3e3])
def test_rounding_is_at_least_what_it_is(normalize, offset):
    rng = np.random.default_rng(0)
    series = rng.normal(size=(3000, 1)).cumsum(0) + offset
    series[1000:1200] = series[1000] + 1e-3 * rng.normal(size=(200, 1))  # small beside the rest
    query = series[1050:1090].copy()
    windows = np.lib.stride_tricks.sliding_window_view(series[:, 0], 40).astype(np.longdouble)
    x = query[:, 0].astype(np.longdouble)
    if normalize:
        windows = (windows - windows.mean(1, keepdims=True)) / windows.std(1, keepdims=True)
        x = (x - x.mean()) / x.std()
    exact = np.square(windows - x).sum(1)
    off = np.abs(mass(query, series, normalize=normalize) - exact)
    assert (off <= rounding(query, series, normalize=normalize)).all()
