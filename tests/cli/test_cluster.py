import csv

import numpy as np
import pytest
import torch

import likewise as lw
from tests.cli.commands import answer, refusal, run


@pytest.fixture
def path(tmp_path):
    generator = torch.Generator().manual_seed(0)
    items = [0.1 * torch.randn(5 + i % 3, 1, generator=generator) + 4.0 * (i % 3) for i in range(18)]
    lw.data.write_npz(lw.Dataset(items, ["low", "mid", "high"] * 6), tmp_path / "a.npz")
    return tmp_path / "a.npz"


@pytest.mark.parametrize("method", ["k-means", "k-medoids", "hierarchical", "hdbscan"])
def test_clusters_are_those_of_the_classes(path, tmp_path, method):
    if method == "k-medoids":
        pytest.importorskip("kmedoids")
    given = [] if method == "hdbscan" else ["-c", 3]
    found = answer("cluster", path, "--method", method, *given, "-o", tmp_path / "c.csv", "--plot", tmp_path / "c.png")
    assert found["agreement"] == pytest.approx(1)
    assert sorted(found["sizes"].values()) == [6, 6, 6]
    with (tmp_path / "c.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["cluster"]) for row in rows] == found["clusters"]
    assert [row["label"] for row in rows[:3]] == ["low", "mid", "high"]
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_centres_are_averages(path, tmp_path):
    found = answer("cluster", path, "-c", 3, "--centers", tmp_path / "centers.npz")
    centers = lw.read_npz(tmp_path / "centers.npz")
    assert len(centers) == 3
    D = lw.DTW().matrix(lw.read_npz(path).items, centers.items)
    assert D.argmin(1).tolist() == found["clusters"]
    assert found["inertia"] == pytest.approx(float(D.min(1).values.sum()), rel=1e-5)


def test_a_learned_metric_and_text(path, tmp_path):
    torch.manual_seed(0)
    lw.Metric(lw.FrameMLP(1, hidden=4, out=2, standardize=False), lw.DTW()).save(tmp_path / "m")
    assert len(answer("cluster", path, "-c", 2, "--metric", tmp_path / "m", "--plot", tmp_path / "p.svg")["sizes"]) == 2
    result = run("cluster", path, "-c", 2, "-d", "msm", "--set", "cost=0.5")
    assert result.exit_code == 0, result.output
    assert "cost=0.5" in result.stdout


def test_refusals(path, tmp_path):
    assert "needs --clusters" in refusal(2, "cluster", path)
    assert "leave out --clusters" in refusal(2, "cluster", path, "--method", "hdbscan", "-c", 2)
    assert "has no centres" in refusal(2, "cluster", path, "-c", 2, "--method", "hierarchical", "--centers", "x.npz")
    assert "ends in .csv" in refusal(1, "cluster", path, "-c", 2, "-o", tmp_path / "x.npz")
    assert "n_clusters is 40" in refusal(1, "cluster", path, "-c", 40)
    assert "msm has no setting 'price'; it has cost" in refusal(
        2, "cluster", path, "-c", 2, "-d", "msm", "--set", "price=1"
    )
    assert np.isfinite(answer("cluster", path, "-c", 1)["inertia"])
