import pytest
import torch

import likewise as lw
from tests.cli.commands import answer, refusal, run, sequences


@pytest.fixture
def path(tmp_path):
    lw.data.write_npz(lw.Dataset(sequences(0, 6), ["a", "b"] * 3), tmp_path / "x.npz")
    return tmp_path / "x.npz"


def test_it_is_the_barycenter_of_each_class(path, tmp_path):
    out = tmp_path / "mean.npz"
    found = answer("average", path, "-o", out, "--by-class", "--length", 7)
    data = lw.read_npz(path)
    expected = lw.clusters.barycenter(lw.DTW(), data.items, length=7, groups=data.labels)
    kept = lw.read_npz(out)
    assert kept.labels.tolist() == found["labels"] == ["a", "b"]
    assert torch.equal(kept.items.values, expected.sequences.values)
    assert found["costs"] == pytest.approx(expected.costs.tolist())
    assert found["lengths"] == [7, 7]
    text = run("average", path, "-d", "soft-dtw", "--gamma", 0.1)
    assert text.exit_code == 0, text.output
    assert "averages" in text.stdout


def test_refusals(path, a, tmp_path):
    assert "has no classes" in refusal(1, "average", a, "--by-class")
    assert "ends in .npz" in refusal(1, "average", path, "-o", tmp_path / "x.csv")
    out = tmp_path / "y.npz"
    out.write_bytes(b"mine")
    assert "already exists" in refusal(1, "average", path, "-o", out)
    assert out.read_bytes() == b"mine"
    assert "dtw has no option --gamma" in refusal(2, "average", path, "--gamma", 1)
