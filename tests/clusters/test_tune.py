import importlib

import numpy as np
import pytest
import torch

import likewise as lw
from likewise.clusters.bounds import lower_factor
from likewise.evaluation import evaluate_matrix

module = importlib.import_module("likewise.clusters.tune")  # the package has a function of that name
ELASTIC = [name for name in ("MSM", "TWE", "ADTW", "WDTW", "ERP", "LCSS", "EDR") if hasattr(lw, name)]
GRIDS = {
    "MSM": {"cost": [0.01, 0.1, 1.0, 10.0]},
    "TWE": {"stiffness": [0.0, 0.01, 1.0], "penalty": [0.0, 0.5]},
    "ADTW": {"penalty": [0.0, 0.1, 1.0], "band": [None, 3]},
    "WDTW": {"steepness": [0.0, 0.05, 0.5]},
    "ERP": {"gap": [0.0, 0.5], "band": [None, 2]},
    "LCSS": {"epsilon": [0.1, 0.5, 1.0]},
    "EDR": {"epsilon": [0.1, 0.5, 1.0]},
}


def shapes(count=30, steps=20, seed=0, kinds=3, noise=0.4, whole=False):
    """Waves of other frequencies at other speeds; whole numbers make ties."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % kinds
    time = torch.linspace(0, 1, steps) ** (0.5 + torch.rand(count, 1, generator=generator))
    x = torch.sin((4 + 3 * labels[:, None]) * time) + noise * torch.randn(count, steps, generator=generator)
    return ((2 * x).round() if whole else x)[..., None].double(), labels.numpy()


def by_matrices(distance, x, labels, settings):
    found = []
    for setting in settings:
        D = type(distance)(**{**distance.config(), **setting}).matrix(x)
        D = D.double().fill_diagonal_(torch.inf).numpy()
        found.append(np.mean(labels[D.argmin(1)] == labels))
    return np.array(found)


@pytest.mark.parametrize(
    ("distance", "grid"),
    [
        (lw.DTW(), {"band": [0, 1, 2, 4, 8, None]}),
        (lw.DTW(), {"band": [0.3, 0.0, 0.1], "normalize": [None, "lengths"]}),
        (lw.DTW(subsequence=True), {"band": [5, 2]}),
        (lw.SoftDTW(), {"gamma": [0.01, 0.1, 1.0, 10.0]}),
        (lw.SoftDTWDivergence(), {"gamma": [0.1, 1.0]}),
        (lw.GDTW(), [{"reg": 0.01}, {"reg": 1.0, "band": 0.2}]),
    ],
    ids=str,
)
@pytest.mark.parametrize("whole", [False, True])
def test_equal_to_whole_matrices(distance, grid, whole):
    x, labels = shapes(whole=whole, count=18)
    x = lw.Batch(x, torch.arange(18) % 5 + 16)
    found = lw.tune(distance, (x, labels), grid)
    expected = by_matrices(distance, x, labels, found.settings)
    np.testing.assert_allclose(found.accuracies, expected)
    assert found.setting == found.settings[int(expected.argmax())]
    assert found.accuracy == expected.max()
    config = found.distance.config()
    assert all(config[name] == value for name, value in found.setting.items())


@pytest.mark.parametrize("name", ELASTIC)
@pytest.mark.parametrize("whole", [False, True])
def test_elastic_distances_equal_whole_matrices(name, whole):
    x, labels = shapes(whole=whole)
    distance = getattr(lw, name)()
    found = lw.tune(distance, (x, labels), GRIDS[name])
    np.testing.assert_allclose(found.accuracies, by_matrices(distance, x, labels, found.settings))


def test_few_distances_are_computed():
    x, labels = shapes(60, 40)
    grid = {"band": list(range(40))}
    found = lw.tune(lw.DTW(), (x, labels), grid)
    matrix = 60 * 59 // 2
    assert matrix <= found.computed < 4 * matrix, "and not 40 matrices"
    np.testing.assert_allclose(found.accuracies, by_matrices(lw.DTW(), x, labels, found.settings))


def test_the_order_that_bounds_best():
    settings = [{"band": band} for band in (1, 5, 3)]
    distances = [lw.DTW(**setting) for setting in settings]
    factors = torch.tensor([[lower_factor(a, b, 9) for b in distances] for a in distances])
    assert module.order_of(settings, factors) == [1, 0, 2], "the widest first, then the narrowest"
    mixed = module.read_grid({"band": [None, 3], "normalize": [None, "lengths"]})
    assert sorted(module.order_of(mixed, torch.eye(4))) == [0, 1, 2, 3]
    assert lower_factor(lw.DTW(band=1), lw.SoftDTW(), 9) == 0
    assert lower_factor(lw.DTW(band=None), lw.DTW(band=0.2), 9) == 1
    assert lower_factor(lw.DTW(band=3), lw.DTW(band=0.2), 9) == 0, "steps and fractions cannot be compared"
    assert lower_factor(lw.DTW(), lw.DTW(ground="euclidean"), 9) == 0


def test_concave_settings_bound_from_both_sides():
    x, labels = shapes(40, 30)
    costs = np.geomspace(0.05, 2, 40)
    found = lw.tune(lw.MSM(), (x, labels), {"cost": costs})
    np.testing.assert_allclose(found.accuracies, by_matrices(lw.MSM(), x, labels, found.settings))
    assert found.computed < 20 * (40 * 39 // 2), "and not 40 matrices"


def test_of_equally_accurate_settings_the_first_wins():
    x, labels = shapes(20, noise=0.0)
    for bands in ([5, 10], [10, 5]):
        found = lw.tune(lw.DTW(), (x, labels), {"band": bands})
        assert found.accuracies.tolist() == [1.0, 1.0]
        assert found.setting == {"band": bands[0]}


def test_a_metric_and_a_dataset():
    x, labels = shapes(20)
    names = np.array(["a", "b", "c"])[labels]
    data = lw.Dataset(lw.Batch(x.float()), names)
    metric = lw.Metric(lw.FrameMLP(1, hidden=4, out=2), lw.DTW()).eval()
    found = lw.tune(metric, data, {"band": [0, 3]})
    assert isinstance(found.distance, lw.Metric)
    assert found.distance.encoder is metric.encoder
    expected = evaluate_matrix(found.distance.matrix(x.float()).detach(), names).accuracy
    assert found.accuracy == pytest.approx(expected)


def test_a_sample_of_many_items(capsys):
    x, labels = shapes(40)
    one, same, other = (lw.tune(lw.DTW(), (x, labels), {"band": [0, 4]}, most=12, seed=s) for s in (0, 0, 1))
    assert one.items == 12
    assert torch.equal(one.accuracies, same.accuracies)
    assert not torch.equal(one.accuracies, other.accuracies)
    lw.tune(lw.DTW(), (x, labels), {"band": [0, 4]}, progress=True)
    assert "DTW: 2 settings, 40 items" in capsys.readouterr().err


def test_bounds_of_few_settings_are_kept(monkeypatch):
    x, labels = shapes()
    grid = {"band": [None, 9, 7, 5, 3, 1]}
    expected = lw.tune(lw.DTW(), (x, labels), grid)
    monkeypatch.setattr(module, "KEPT_NUMBERS", 1)
    assert torch.equal(lw.tune(lw.DTW(), (x, labels), grid).accuracies, expected.accuracies)


@pytest.mark.parametrize("kind", ["walks", "noise"])
def test_an_index_finds_the_same(kind, monkeypatch):
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(150, 128, 1, generator=drawn)
    x = x.cumsum(1) if kind == "walks" else x
    x[100:120] = x[50:70]  # ties
    labels, lengths = torch.arange(150) % 3, torch.full((150,), 128)
    if kind == "walks":
        lengths[:40] = 100
    data, grid = (lw.Batch(x, lengths), labels), {"band": [0.02, 0.05, 0.1, None]}
    expected = lw.tune(lw.DTW(), data, grid)
    tune = importlib.import_module("likewise.clusters.tune")
    monkeypatch.setattr(tune, "MANY_ITEMS", 100)
    monkeypatch.setattr(tune, "FEW", 0.6)
    searched = []
    original = tune.nearest_by_index
    monkeypatch.setattr(tune, "nearest_by_index", lambda *given: searched.append(given[0].rules) or original(*given))
    found = lw.tune(lw.DTW(), data, grid)
    assert found.accuracies.tolist() == expected.accuracies.tolist()
    assert found.setting == expected.setting
    assert len(searched) == 1  # without a band there is no index; with noise, it leaves too many
    banded = {"band": [0.02, 0.05, 0.1]}
    assert lw.tune(lw.DTW(), data, banded).accuracies.tolist() == expected.accuracies.tolist()[:3]
    assert len(searched) == (4 if kind == "walks" else 2)


def test_the_table():
    x, labels = shapes(12)
    found = lw.tune(lw.DTW(), (x, labels), {"band": np.arange(3), "normalize": [None]})
    assert [row["band"] for row in found.rows()] == [0, 1, 2]
    assert found.rows()[1]["accuracy"] == found.accuracies[1]
    assert "best of 3 settings" in repr(found)


@pytest.mark.parametrize(
    ("grid", "error", "message"),
    [
        ({"bands": [1]}, ValueError, "tune: DTW has no setting 'bands'; it has ground, band"),
        ({"band": []}, ValueError, "tune: the grid has no settings"),
        ([], ValueError, "tune: the grid has no settings"),
        ({"band": 3}, TypeError, "tune: expected values for 'band' in the grid"),
        ("band", TypeError, "tune: expected grid to be"),
        ({"band": [-1]}, ValueError, "DTW: band must be"),
    ],
)
def test_bad_grids_are_refused(grid, error, message):
    with pytest.raises(error, match=message):
        lw.tune(lw.DTW(), shapes(6), grid)


def test_bad_data_are_refused():
    with pytest.raises(TypeError, match="tune: expected distance to be a Distance, got str"):
        lw.tune("dtw", shapes(6), {})
    with pytest.raises(TypeError, match="tune: expected train to be a Dataset or a pair"):
        lw.tune(lw.DTW(), shapes(6)[0], {"band": [1]})
    with pytest.raises(ValueError, match="tune: expected at least two items, got 1"):
        lw.tune(lw.DTW(), ([[0.0, 1.0]], ["a"]), {"band": [1]})
    with pytest.raises(ValueError, match="most must be a whole number of 2 or more"):
        lw.tune(lw.DTW(), shapes(6), {"band": [1]}, most=1)
    with pytest.raises(ValueError, match=r"tune: expected labels of shape \(6,\)"):
        lw.tune(lw.DTW(), (shapes(6)[0], [1, 2]), {"band": [1]})
