import pytest
import torch

import likewise as lw
from likewise.models.config import build, describe
from likewise.ops.elastic import Recurrence
from likewise.testing import check_distance

INNER = [
    (lw.ADTW(0.3), {}),
    (lw.ADTW(0.3, subsequence=True, band=2), {}),
    (lw.WDTW(0.2, itakura=1.5), {}),
    (lw.DDTW(), {"shortest": 3}),
    (lw.WDDTW(0.1, band=0.4), {"shortest": 3}),
    (lw.ERP([0.1, 0.2, 0.3], band=1), {}),
    (lw.ERP(0.3, open_end=True), {}),
    (lw.MSM(0.7), {"aligns": False}),
    (lw.MSM(0.7, band=1), {"channels": 1}),
    (lw.MSM(0.7, independent=False), {}),
    (lw.TWE(0.05, 0.3), {}),
]


@pytest.mark.parametrize(("distance", "options"), [INNER[k] for k in (1, 4, 5, 8, 9, 10)], ids=str)
def test_contract(distance, options):
    check_distance(lw.SoftElastic(distance, gamma=0.5), **options)


@pytest.mark.parametrize(("distance", "options"), INNER, ids=str)
def test_towards_zero_it_is_the_distance(distance, options):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(4, t, options.get("channels", 3), generator=generator).double() for t in (9, 11))
    hard, soft = distance.matrix(x, y), lw.SoftElastic(distance, 1e-6)
    torch.testing.assert_close(soft.matrix(x, y), hard, atol=1e-4, rtol=0)
    assert (lw.SoftElastic(distance, 1.0).matrix(x, y) <= hard).all()
    assert soft.symmetric == distance.symmetric
    if distance.moves().recurrence == Recurrence.WARP:  # others have several best paths
        torch.testing.assert_close(soft.align(x, y).plan, distance.align(x, y).plan, atol=1e-3, rtol=0)


def test_many_pairs_are_computed_again_for_derivatives(monkeypatch):
    from likewise.distances import soft_elastic

    x = torch.randn(3, 8, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    distance = lw.SoftElastic(lw.MSM(0.5), 0.3)
    (expected,) = torch.autograd.grad(distance.matrix(x).square().sum(), x)
    monkeypatch.setattr(soft_elastic, "CELLS_KEPT", 1)
    (found,) = torch.autograd.grad(distance.matrix(x).square().sum(), x)
    torch.testing.assert_close(found, expected)


def test_averages_and_description():
    x = torch.sin(torch.linspace(0, 6, 20) * (0.8 + 0.05 * torch.arange(6)[:, None]))[..., None]
    distance = lw.SoftElastic(lw.MSM(0.5), 0.1)
    found = lw.barycenter(distance, x)
    assert (found.history.diff(dim=0) <= 0).all()
    assert found.cost < found.history[0].item()
    again = build("here", describe(distance))
    assert repr(again) == repr(distance)
    torch.testing.assert_close(again(x, x.flip(0)), distance(x, x.flip(0)))


def test_bad_use_is_refused():
    for inner in (lw.EDR(), lw.LCSS()):
        with pytest.raises(ValueError, match=f"SoftElastic: {inner.name} counts matches"):
            lw.SoftElastic(inner)
    with pytest.raises(ValueError, match="SoftElastic: the value of ShapeDTW is not the least cost of any path"):
        lw.SoftElastic(lw.ShapeDTW())
    with pytest.raises(
        TypeError, match=r"SoftElastic: expected an elastic distance such as MSM\(\), got DTW; use SoftDTW"
    ):
        lw.SoftElastic(lw.DTW())
    with pytest.raises(ValueError, match="SoftElastic: gamma must be positive"):
        lw.SoftElastic(lw.MSM(), 0.0)
    with pytest.raises(ValueError, match="each channel has its own path"):
        lw.SoftElastic(lw.MSM()).align(torch.zeros(1, 3, 2), torch.zeros(1, 3, 2))
