"""What all elastic distances share. The recurrence of each, as its paper has it, is in its own file."""

import math

import aeon.distances
import numpy as np
import pytest
import torch
import tsdistances

import likewise as lw
from likewise.distances import Elastic
from likewise.models.config import build, describe
from likewise.ops.elastic import Border, Moves, Recurrence, Side
from likewise.ops.rules import Rules
from likewise.testing import TOLERANCE, assert_close, check_distance

CONTRACT = [
    (lw.ADTW(0.3), {}),
    (lw.ADTW(0.3, subsequence=True, band=2), {}),
    (lw.WDTW(0.1), {}),
    (lw.WDTW(0.2, itakura=1.5), {}),
    (lw.DDTW(), {"shortest": 3}),
    (lw.WDDTW(0.1, band=0.4), {"shortest": 3}),
    (lw.ERP(0.3), {}),
    (lw.ERP([0.1, 0.2, 0.3], band=1), {}),
    (lw.EDR(), {"differentiable": False}),
    (lw.EDR(0.7, free_start=True, band=2), {"differentiable": False}),
    (lw.LCSS(0.9), {"differentiable": False}),
    (lw.LCSS(0.9, band=0), {"differentiable": False}),
    (lw.MSM(0.7), {"aligns": False}),
    (lw.MSM(0.7, band=1), {"channels": 1}),
    (lw.MSM(subsequence=True), {"channels": 1}),
    (lw.MSM(0.7, independent=False), {}),
    (lw.TWE(0.05, 0.3), {}),
    (lw.TWE(band=0.2), {}),
    (lw.TWE(itakura=2.0), {}),
    (lw.ERP(0.3, subsequence=True), {}),
    (lw.EDR(0.7, open_end=True, itakura=2.0), {"differentiable": False}),
    (lw.DDTW(open_begin=True), {"shortest": 3}),
]


@pytest.mark.parametrize(("distance", "options"), CONTRACT, ids=str)
def test_contract(distance, options):
    check_distance(distance, **options)


@pytest.mark.parametrize("distance", [d for d, _ in CONTRACT], ids=str)
def test_it_comes_back_from_its_description(distance):
    again = build("here", describe(distance))
    assert repr(again) == repr(distance)
    assert again.config() == distance.config()


def test_reprs_tell_settings_apart():
    assert repr(lw.MSM()) == "MSM(cost=1.0)"
    assert repr(lw.MSM(independent=False)) == "MSM(cost=1.0, independent=False)"
    assert repr(lw.SBD()) == "SBD()"
    assert repr(lw.SBD(standardize=False)) == "SBD(standardize=False)"
    assert repr(lw.OTAM(symmetric=False)) == "OTAM(gamma=0.1, ground='cosine', symmetric=False)"


def walks(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).cumsum(1)


AEON = [
    (lw.ADTW, "adtw", {"penalty": 0.3}, {"warp_penalty": 0.3}),
    (lw.WDTW, "wdtw", {"steepness": 0.1}, {"g": 0.1}),
    (lw.DDTW, "ddtw", {}, {}),
    (lw.WDDTW, "wddtw", {"steepness": 0.1}, {"g": 0.1}),
    (lw.ERP, "erp", {"gap": 1000.0}, {"g": 1000.0}),  # nearer, aeon's borders are not the paper's
    (lw.EDR, "edr", {"free_start": True}, {}),
    (lw.EDR, "edr", {"epsilon": 0.4, "free_start": True}, {"epsilon": 0.4}),
    (lw.LCSS, "lcss", {"epsilon": 0.4}, {"epsilon": 0.4}),
    (lw.MSM, "msm", {"cost": 0.7}, {"c": 0.7}),
    (lw.MSM, "msm", {"cost": 0.7, "independent": False}, {"c": 0.7, "independent": False}),
    (lw.TWE, "twe", {"stiffness": 0.05, "penalty": 0.3}, {"nu": 0.05, "lmbda": 0.3}),
]


@pytest.mark.parametrize(("kind", "name", "ours", "theirs"), AEON, ids=str)
def test_values_equal_aeon(kind, name, ours, theirs):
    compute = getattr(aeon.distances, f"{name}_distance")

    def expected(x, y, **options):
        rows = [[compute(a.T.numpy().copy(), b.T.numpy().copy(), **theirs, **options) for b in y] for a in x]
        return torch.tensor(rows, dtype=torch.float64)

    # aeon's bands are those of likewise for equal lengths. Sequences of unequal length begin with gaps, as in ERP's borders.
    equal, unequal = [(23, 23, 1), (19, 19, 3)], [(23, 17, 1), (17, 23, 1), (19, 26, 3)]
    for steps, other, channels in equal if kind is lw.ERP else equal + unequal:
        x, y = walks(3, steps, channels), walks(3, other, channels, seed=1)
        for band in (None, 0.1, 0.2, 0.5) if steps == other else (None,):
            options = {} if band is None else {"window": band}
            found = kind(**ours, band=band).matrix(x, y)
            text = f"{channels} channels, {steps} and {other} steps, band {band}"
            assert_close(found, expected(x, y, **options), TOLERANCE[torch.float64].value, text)


@pytest.mark.parametrize(
    ("distance", "name", "options"),
    [
        (lw.ADTW(0.3), "adtw", {"warp_penalty": 0.3}),
        (lw.WDTW(0.1), "wdtw", {"g": 0.1}),
        (lw.DDTW(), "ddtw", {}),
        (lw.WDDTW(0.1), "wddtw", {"g": 0.1}),
        (lw.ERP(1000.0), "erp", {"gap_penalty": 1000.0}),
        (lw.LCSS(0.4), "lcss", {"epsilon": 0.4}),
        (lw.MSM(1.0), "msm", {}),  # theirs has no cost
        (lw.TWE(0.05, 0.3), "twe", {"stifness": 0.05, "penalty": 0.3}),
    ],
    ids=str,
)
def test_values_equal_tsdistances(distance, name, options):
    x, y = walks(4, 21, 1), walks(5, 21, 1, seed=1)
    compute = getattr(tsdistances, f"{name}_distance")
    steps = 19 if isinstance(distance, (lw.DDTW, lw.WDDTW)) else 21  # its bands are shares of the slopes
    for share in (1.0, 0.1, 0.25, 0.5):
        expected = compute(x[..., 0].numpy(), y[..., 0].numpy(), band=share, **options)
        band = None if share == 1 else math.ceil(share * steps)  # it rounds up
        found = type(distance)(**{**distance.config(), "band": band}).matrix(x, y)
        assert_close(found, torch.as_tensor(np.asarray(expected)), TOLERANCE[torch.float64].value, f"{name}, {band}")


@pytest.mark.parametrize("distance", [lw.MSM(0.5), lw.TWE(0.01, 0.5), lw.ERP(0.1)], ids=str)
def test_metrics_obey_the_triangle_inequality(distance):
    assert distance.metric
    x = walks(12, 15, 1)
    D = distance.matrix(x)
    assert (D[:, None] <= D[:, :, None] + D[None] + 1e-9).all()
    assert not lw.MSM(independent=False).metric
    assert not lw.TWE(band=2).metric


@pytest.mark.parametrize(
    ("open_begin", "open_end"), [(True, True), (True, False), (False, True)], ids=["both", "begin", "end"]
)
@pytest.mark.parametrize(
    ("kind", "settings", "shortest"),
    [
        (lw.ADTW, {"penalty": 0.3}, 1),
        (lw.MSM, {"cost": 0.4}, 1),
        (lw.MSM, {"cost": 0.4, "independent": False}, 1),
        (lw.ERP, {"gap": 0.2}, 1),
        (lw.EDR, {"epsilon": 0.5}, 1),
        (lw.DDTW, {}, 3),
    ],
    ids=str,
)
def test_open_ends_are_the_best_stretch(kind, settings, shortest, open_begin, open_end):
    x, y = walks(1, 6, 1), walks(1, 11, 1, seed=1)
    found = kind(**settings, open_begin=open_begin, open_end=open_end)
    assert not found.symmetric
    assert not found.metric
    whole, stretches = kind(**settings), []
    for a in range(y.shape[1]) if open_begin else (0,):
        for b in range(a + shortest, y.shape[1] + 1) if open_end else (y.shape[1],):
            if b - a >= shortest:
                value = whole(x, y[:, a:b]).item()
                stretches.append(value * max(6, b - a) / 6 if kind is lw.EDR else value)
    if kind is lw.ERP:  # all of x is left out
        stretches.append((x - 0.2).abs().sum().item())
    if kind is lw.EDR:
        stretches.append(1.0)
    torch.testing.assert_close(found(x, y), torch.tensor([min(stretches)], dtype=torch.float64))
    path = found.align(x, y).path(0)
    assert open_begin or path[0, 1] == shortest // 2
    assert open_end or path[-1, 1] == y.shape[1] - 1 - shortest // 2


def test_open_ends_of_distances_by_a_path():
    x, y = walks(3, 6, 2), walks(3, 11, 2, seed=1)
    exact = lw.DTW(subsequence=True)(x, y)
    torch.testing.assert_close(lw.ShapeDTW(reach=0, subsequence=True)(x, y), exact)
    assert (lw.DTWGlobalInvariance(subsequence=True)(x, y) <= exact).all()
    for distance in (lw.ShapeDTW(open_end=True), lw.DTWGlobalInvariance(open_begin=True, band=2)):
        assert repr(build("here", describe(distance))) == repr(distance)
        assert not distance.symmetric


@pytest.mark.parametrize("kind", [lw.WDTW, lw.WDDTW, lw.TWE, lw.LCSS])
def test_no_open_ends_where_they_mean_nothing(kind):
    for name in ("open_begin", "open_end", "subsequence"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            kind(**{name: True})


def test_some_pairs_and_their_limits():
    x, y = walks(20, 80, 1), walks(30, 70, 1, seed=1)
    pairs = torch.cartesian_prod(torch.arange(20), torch.arange(30))
    for distance in (lw.MSM(), lw.EDR(0.3), lw.LCSS(0.3), lw.WDTW()):
        D = distance.matrix(x, y).flatten()
        assert_close(distance.some_pairs(x, y, pairs), D, TOLERANCE[torch.float64].value, distance.name)
        limit = D.quantile(0.05)
        found = distance.some_pairs(x, y, pairs, limits=limit.expand(len(pairs)))
        near = limit >= D
        assert_close(found[near], D[near], TOLERANCE[torch.float64].value, distance.name, scale=1.0)
        assert (found[~near] > limit).all()
    x, y = walks(6, 40, 2), walks(7, 30, 2, seed=1)
    pairs = torch.cartesian_prod(torch.arange(6), torch.arange(7))
    for distance in (lw.MSM(), lw.MSM(independent=False)):
        D = distance.matrix(x, y).flatten()
        assert_close(distance.some_pairs(x, y, pairs), D, TOLERANCE[torch.float64].value, "two channels")
        assert_close(distance.some_pairs(x, y, pairs, limits=D + 1e-9), D, TOLERANCE[torch.float64].value, "limits")


def test_a_distance_of_ones_own():
    class Levenshtein(Elastic):
        """A change costs the difference, a gap 1."""

        def moves(self):
            return Moves(Recurrence.EDIT, root=True, border=Border.GAPS)

        def side(self, x, lengths):
            return Side(x, lengths, gaps=torch.ones_like(x[..., 0]))

    distance = Levenshtein(Rules())
    check_distance(distance)
    assert distance([[0.0, 5.0, 0.0]], [[0.0, 0.0]]).item() == 1


def test_gaps_learn():
    gap = torch.nn.Parameter(torch.tensor(1.0))

    class Learned(Elastic):
        def moves(self):
            return Moves(Recurrence.EDIT, root=True, border=Border.GAPS)

        def side(self, x, lengths):
            return Side(x, lengths, gaps=gap.expand(x.shape[:2]))

    Learned(Rules())([[0.0, 5.0, 0.0, 5.0]], [[0.0, 0.0]]).sum().backward()
    assert gap.grad.item() == 2  # two gaps


LONG = {
    lw.DTW(): 3000,
    lw.ADTW(): 3000,
    lw.WDTW(0.005): 3000,
    lw.DDTW(): 3000,
    lw.TWE(): 3000,
    lw.MSM(): 3000,
    lw.ERP(): 1000,
}


@pytest.mark.parametrize(("distance", "steps"), LONG.items(), ids=str)
def test_sums_of_many_small_costs_keep_their_digits(distance, steps):
    # In float32, a sum that begins with a large cost loses those that are small beside it, and the least of many nearly
    # equal sums is one that was rounded down: errors of 1.2e-5 here, and more for longer sequences.
    generator = torch.Generator().manual_seed(0)
    x, noise, y = torch.randn(3, 2, steps, 1, generator=generator)
    x, y = x.cumsum(1) / steps**0.5, y.cumsum(1) / steps**0.5
    near = x + 0.003 * noise
    near[:, 0] += 10
    for a, b in ((x, y), (x, near)):
        expected = distance(a.double(), b.double())
        assert_close(distance(a, b), expected, 1e-6, "values")
        assert_close(distance.matrix(a, b).diagonal(), expected, 1e-6, "matrix")
        learned = a.clone().requires_grad_()
        (slope,) = torch.autograd.grad(distance(learned, b).sum(), learned)
        assert slope.dtype == torch.float32
        assert slope.isfinite().all()
