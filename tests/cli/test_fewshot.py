import numpy as np
import pytest
import torch

import likewise as lw
from likewise.data.episodes import Episodes
from likewise.evaluation.few_shot import few_shot_accuracy_matrix
from tests.cli.commands import answer, refusal, run


@pytest.fixture
def data(tmp_path):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(24) % 4
    items = [torch.randn(5 + i % 3, 2, generator=generator) + 2 * labels[i] for i in range(24)]
    data = lw.Dataset(items, ["abcd"[k] for k in labels], groups=torch.arange(24) // 8)
    lw.data.write_npz(data, tmp_path / "a.npz")
    return tmp_path / "a.npz", data


def test_it_is_the_accuracy_of_the_matrix(data):
    path, known = data
    found = answer("fewshot", path, "-d", "euclidean", "--ways", 3, "--shots", 2, "--episodes", 50, "--seed", 3)
    drawn = Episodes(known.labels, 3, 2, 1, seed=3).take(50)
    expected = few_shot_accuracy_matrix(lw.Euclidean().matrix(known.items), *drawn)
    assert (found["accuracy"], found["interval"]) == (expected.accuracy, expected.interval)
    assert (found["distance"], found["sequences"]) == ("euclidean", 24)
    text = run("fewshot", path, "--ways", 3, "--episodes", 50, "--other-groups")
    assert text.exit_code == 0
    assert "%" in text.stdout
    assert "±" in text.stdout


def test_a_learned_metric(data, tmp_path):
    path, known = data
    metric = lw.Metric(lw.FrameMLP(2, hidden=4), lw.DTW())
    metric.save(tmp_path / "run")
    found = answer("fewshot", path, "--metric", tmp_path / "run", "--ways", 2, "--episodes", 20)
    with torch.no_grad():
        expected = few_shot_accuracy_matrix(metric.matrix(known.items), *Episodes(known.labels, 2, 1, 1).take(20))
    assert found["accuracy"] == pytest.approx(expected.accuracy)


def test_undrawable_inputs_are_refused(data, tmp_path):
    path, known = data
    assert "5 ways need 5 classes, but there are 4" in refusal(1, "fewshot", path)
    assert "class a has 6 items, too few for 6 shots" in refusal(1, "fewshot", path, "--ways", 2, "--shots", 6)
    lw.data.write_npz(lw.Dataset(known.items, known.labels), tmp_path / "b.npz")
    assert "has no groups" in refusal(1, "fewshot", tmp_path / "b.npz", "--other-groups")
    np.savez(tmp_path / "c.npz", X=np.zeros((2, 3, 1)))
    assert "has no classes" in refusal(1, "fewshot", tmp_path / "c.npz")
