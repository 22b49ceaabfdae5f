import aeon.distances
import pytest
import torch

import likewise as lw
from likewise.distances import shape_dtw
from likewise.models.config import build, describe
from likewise.testing import TOLERANCE, assert_close, check_distance


@pytest.mark.parametrize("options", [{"reach": 2}, {"reach": 0}, {"reach": 5, "band": 2}], ids=str)
def test_contract(options):
    check_distance(lw.ShapeDTW(**options))


def walks(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).cumsum(1)


@pytest.mark.parametrize("band", [None, 0.1, 0.3])  # aeon's is that of likewise for equal lengths
@pytest.mark.parametrize(("steps", "other", "channels"), [(24, 24, 1), (20, 15, 2)])
def test_values_equal_aeon(steps, other, channels, band):
    other = other if band is None else steps
    x, y = walks(3, steps, channels), walks(3, other, channels, seed=1)
    y[:, :8] = x[:, :8] = x[:1, :8]  # aeon is wrong where a path begins along a border
    compute = aeon.distances.shape_dtw_distance
    options = {} if band is None else {"window": band}
    rows = [[compute(a.T.numpy().copy(), b.T.numpy().copy(), reach=4, **options) for b in y] for a in x]
    expected = torch.tensor(rows, dtype=torch.float64)
    assert_close(lw.ShapeDTW(4, band=band).matrix(x, y), expected, TOLERANCE[torch.float64].value, "aeon")


def test_no_reach_is_dtw():
    x, y = walks(4, 12, 2), walks(4, 9, 2, seed=1)
    assert_close(lw.ShapeDTW(0)(x, y), lw.DTW()(x, y), TOLERANCE[torch.float64].value, "reach 0")


def test_neighbourhoods_decide():
    # The second 1 of x goes up; by itself it is as near to the first 1 of y as to the second.
    x, y = [[0.0, 1.0, 0.0, 1.0, 2.0]], [[0.0, 1.0, 2.0]]
    assert [3, 1] in lw.ShapeDTW(1).align(x, y).path(0).tolist()


def test_blocks_of_items(monkeypatch):
    x, y = walks(7, 14, 2), walks(5, 11, 2, seed=1)
    batch = lw.Batch(x, torch.tensor([14, 9, 12, 3, 1, 14, 8]))
    distances = lw.ShapeDTW(3), lw.ShapeDTW(3, open_end=True)  # which is not symmetric
    whole = [(d.matrix(batch), d.matrix(batch, y)) for d in distances]
    monkeypatch.setattr(shape_dtw, "NUMBERS", 600)
    for distance, (own, both) in zip(distances, whole, strict=True):
        assert torch.equal(distance.matrix(batch), own)
        assert torch.equal(distance.matrix(batch, y), both)


def test_single_precision_takes_the_path_of_double_precision():
    x = walks(20, 100, 1).float()
    torch.testing.assert_close(lw.ShapeDTW().matrix(x), lw.ShapeDTW().matrix(x.double()).float(), rtol=1e-6, atol=0)


def test_listed_pairs_have_the_values_of_the_matrix():
    x, pairs = walks(6, 60, 2), torch.cartesian_prod(torch.arange(6), torch.arange(6))
    D = lw.ShapeDTW(2).matrix(x).flatten()
    torch.testing.assert_close(lw.ShapeDTW(2).some_pairs(x, x, pairs), D)
    limits = D.median().expand(36)
    found, near = lw.ShapeDTW(2).some_pairs(x, x, pairs, limits=limits), limits >= D
    assert torch.equal(found[near], D[near])


def test_settings():
    assert repr(build("here", describe(lw.ShapeDTW(3, band=0.1)))) == "ShapeDTW(reach=3, band=0.1)"
    with pytest.raises(ValueError, match="ShapeDTW: reach must be a whole number of 0 or more"):
        lw.ShapeDTW(-1)
