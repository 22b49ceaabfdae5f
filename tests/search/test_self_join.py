"""Matrix profile, motifs and discords, against brute force."""

import math

import numpy as np
import pytest
import torch

from likewise import DTW, Batch, Euclidean
from likewise.ops.search import normalize
from likewise.search.mass import euclidean_profile
from likewise.search.self_join import self_join


def brute_force(distance, items, length, normal, exclude):
    """Distances (W, W) of all windows, infinite where they are near each other, and their places."""
    windows, places = [], []
    for i, item in enumerate(items):
        for s in range(len(item) - length + 1):
            windows.append(item[s : s + length])
            places.append((i, s))
    x = torch.stack(windows)
    D = distance.matrix(normalize(x) if normal else x)
    radius = max(1, math.ceil(exclude * length))
    for a, (i, s) in enumerate(places):
        for b, (j, t) in enumerate(places):
            if i == j and abs(s - t) < radius:
                D[a, b] = torch.inf
    return D, places


@pytest.mark.parametrize("normal", [False, True])
@pytest.mark.parametrize("exclude", [0.0, 0.5, 1.0])
def test_profile_under_dtw(exclude, normal):
    torch.manual_seed(0)
    items = Batch.from_list([torch.randn(60, 1), torch.randn(25, 1), torch.randn(5, 1)])
    distance = DTW(band=1)
    D, places = brute_force(distance, items, 8, normal, exclude)
    profile = self_join(distance, items, 8, normalize=normal, exclude=exclude)
    assert list(zip(profile.items.tolist(), profile.starts.tolist(), strict=True)) == places
    assert torch.equal(profile.distances[:, 0], D.min(1).values)
    found = list(zip(profile.neighbor_items[:, 0].tolist(), profile.neighbor_starts[:, 0].tolist(), strict=True))
    assert found == [places[i] for i in D.argmin(1).tolist()]
    motif = profile.motifs()[0]
    assert motif[0] == float(D.min())
    assert profile.discords()[0][0] == float(D.min(1).values.max())


def test_several_neighbors_lie_apart():
    torch.manual_seed(1)
    profile = self_join(DTW(band=1), Batch(torch.randn(1, 80, 1)), 6, k=3, exclude=0.5)
    starts = torch.cat([profile.starts[:, None], profile.neighbor_starts], 1)
    gaps = (starts[:, :, None] - starts[:, None]).abs() + 100 * torch.eye(4)
    assert gaps.min() >= 3
    assert (profile.distances.diff(dim=1) >= 0).all()
    assert len(profile.motifs(3)) == 3
    assert len(profile.discords(2)) == 2


@pytest.mark.parametrize("normal", [False, True])
def test_profile_under_euclidean(normal):
    torch.manual_seed(2)
    items = Batch(torch.randn(1, 150, 2, dtype=torch.float64).cumsum(1))
    D, _ = brute_force(Euclidean(), items, 10, normal, 0.5)
    profile = self_join(Euclidean(), items, 10, normalize=normal)
    torch.testing.assert_close(profile.distances[:, 0], D.min(1).values, rtol=1e-9, atol=1e-9)
    assert torch.equal(profile.neighbor_starts[:, 0], D.argmin(1))


def test_no_windows():
    assert len(self_join(DTW(), Batch(torch.randn(1, 3, 1)), 5).starts) == 0
    assert len(euclidean_profile(np.zeros((3, 1)), 5, 1)[0]) == 0
    assert self_join(DTW(), Batch(torch.randn(1, 3, 1)), 5).motifs() == []


def test_what_is_refused():
    with pytest.raises(ValueError, match="self_join"):
        self_join(DTW(itakura=2.0), Batch(torch.randn(1, 30, 1)), 5)
