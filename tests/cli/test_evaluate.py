import pytest
import torch

import likewise as lw
from tests.cli.commands import answer, refusal, run


@pytest.fixture
def files(tmp_path):
    generator = torch.Generator().manual_seed(0)
    parts = []
    for count in (12, 18):
        labels = torch.arange(count) % 3
        items = torch.randn(count, 6, 2, generator=generator) + labels[:, None, None]
        parts.append(lw.Dataset(items, ["abc"[k] for k in labels], groups=torch.arange(count) // 4))
    for name, part in zip(("q", "r"), parts, strict=True):
        lw.data.write_npz(part, tmp_path / f"{name}.npz")
    return tmp_path / "q.npz", tmp_path / "r.npz", *parts


def test_it_is_evaluate_with_intervals(files):
    q, r, queries, references = files
    found = answer("evaluate", q, r, "-d", "dtw", "--k", 1, "--k", 3)
    scores = lw.evaluate(lw.DTW(), queries, references, ks=(1, 3))
    assert (found["map"], found["accuracy"]) == (scores.map, scores.accuracy)
    assert found["recall"] == {"1": scores.recall[1], "3": scores.recall[3]}
    assert found["intervals"] == {name: list(scores.interval(name)) for name in ("map", "accuracy", "f1")}
    grouped = answer("evaluate", q, r, "--by-group")["intervals"]["map"]
    assert grouped == list(scores.interval("map", groups=queries.groups))
    text = run("evaluate", q, r).stdout
    assert "12 queries, 18 references, 3 classes" in text
    assert "95 % interval of map: " in text


def test_alone_and_with_a_learned_metric(files, tmp_path):
    q, _, queries, _ = files
    assert answer("evaluate", q)["map"] == lw.evaluate(lw.DTW(), queries).map
    assert answer("evaluate", q, q)["map"] == lw.evaluate(lw.DTW(), queries).map
    metric = lw.Metric(lw.FrameMLP(2, hidden=4, standardize=False), lw.DTW())
    metric.save(tmp_path / "run")
    found = answer("evaluate", q, "--metric", tmp_path / "run")
    assert found["map"] == lw.evaluate(metric, queries).map
    assert found["metric"] == str(tmp_path / "run")


def test_refusals(files, tmp_path):
    q, _, queries, _ = files
    assert "--split-b needs REFERENCES" in refusal(2, "evaluate", q, "--split-b", "x")
    lw.data.write_npz(lw.Dataset(queries.items), tmp_path / "bare.npz")
    assert "bare.npz: has no classes" in refusal(1, "evaluate", tmp_path / "bare.npz")
    lw.data.write_npz(lw.Dataset(queries.items, queries.labels), tmp_path / "alone.npz")
    assert "has no groups" in refusal(1, "evaluate", tmp_path / "alone.npz", "--by-group")
    assert "no such file" in refusal(1, "evaluate", q, "--metric", tmp_path / "none")
