import aeon.distances
import pytest
import torch
import tsdistances
from tslearn.metrics import cdist_normalized_cc

import likewise as lw
from likewise.distances import sbd
from likewise.models.config import build, describe
from likewise.testing import TOLERANCE, assert_close, check_distance


@pytest.mark.parametrize(
    ("distance", "options"),
    [
        (lw.SBD(), {"aligns": False}),
        (lw.SBD(), {"channels": 1}),
        (lw.SBD(independent=False), {}),
        (lw.SBD(standardize=False, independent=False), {}),
    ],
    ids=str,
)
def test_contract(distance, options):
    check_distance(distance, **options)


def walks(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).cumsum(1)


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize(("steps", "other", "channels"), [(24, 24, 1), (20, 33, 2)])
def test_values_equal_aeon(steps, other, channels, standardize):
    x, y = walks(3, steps, channels), walks(4, other, channels, seed=1)
    compute = aeon.distances.sbd_distance
    rows = [[compute(a.T.numpy().copy(), b.T.numpy().copy(), standardize) for b in y] for a in x]
    expected = torch.tensor(rows, dtype=torch.float64)
    found = lw.SBD(standardize=standardize).matrix(x, y)
    assert_close(found, expected, TOLERANCE[torch.float64].value, "aeon")


def test_values_equal_tsdistances_and_tslearn():
    x, y = walks(3, 24, 1), walks(3, 24, 1, seed=1)
    expected = torch.as_tensor(tsdistances.sb_distance(x[..., 0].numpy(), y[..., 0].numpy()))
    assert_close(lw.SBD().matrix(x, y), expected, TOLERANCE[torch.float64].value, "tsdistances")
    x, y = walks(3, 24, 2), walks(3, 24, 2, seed=1)
    norms = (t.flatten(1).norm(dim=1).numpy() for t in (x, y))
    expected = 1 - torch.as_tensor(cdist_normalized_cc(x.numpy(), y.numpy(), *norms, self_similarity=False))
    found = lw.SBD(standardize=False, independent=False).matrix(x, y)
    assert_close(found, expected, TOLERANCE[torch.float64].value, "tslearn")


def test_of_a_set_with_itself_half_is_computed(monkeypatch):
    monkeypatch.setattr(sbd, "CHUNK", (500, 500))  # several blocks of rows
    x = lw.Batch(walks(9, 20, 2), torch.tensor([20, 7, 12, 20, 3, 9, 15, 18, 20]))
    for distance in (lw.SBD(), lw.SBD(independent=False, standardize=False)):
        D = distance.matrix(x)
        assert torch.equal(D, D.T)
        assert_close(D, distance.matrix(x, x[:]), TOLERANCE[torch.float64].value, "with another set", scale=1.0)


def test_a_shift_is_found():
    x = torch.zeros(1, 20, 1)
    x[0, 5:8, 0] = torch.tensor([1.0, 3.0, 2.0])
    y = x.roll(6, 1)
    distance = lw.SBD(standardize=False)
    assert distance(x, y).item() == pytest.approx(0, abs=1e-6)
    assert distance.shift(x, y).tolist() == [[-6]]
    path = distance.align(x, y).path(0)
    assert (path[:, 1] - path[:, 0] == 6).all()
    assert len(path) == 14


def test_sequences_without_a_shape():
    flat, wave = torch.full((1, 6, 1), 3.3), torch.randn(1, 6, 1)
    assert lw.SBD()(flat, wave).item() == 1
    assert lw.SBD()(flat, 2 * flat).item() == 0
    assert lw.SBD(standardize=False)(torch.zeros(1, 6, 1), wave).item() == 1
    opposite = lw.SBD(standardize=False)([[1.0]], [[-1.0]])
    assert opposite.item() == 2


def test_settings():
    distance = lw.SBD(independent=False)
    assert build("here", describe(distance)).config() == distance.config()
    with pytest.raises(ValueError, match="independent=False for one shift"):
        lw.SBD().align(torch.randn(1, 5, 2), torch.randn(1, 5, 2))
