"""The recipe of RVSML, on a few sequences."""

import json

import numpy as np
import pytest
import torch

import likewise as lw
from likewise.recipes import rvsml


def tiny(folder):
    """A file as uci_har.npz is, of a few short sequences."""
    random, arrays = np.random.default_rng(0), {"classes": np.array(["sit", "stand", "walk"])}
    for part, count in (("train", 12), ("test", 6)):
        labels = np.arange(count) % 3
        values = random.standard_normal((count, 7, 9)) + 3 * labels[:, None, None] + 1
        arrays |= {f"X_{part}": values.astype(np.float32), f"y_{part}": labels}
    np.savez(folder / "uci_har.npz", **arrays)


def test_it_learns_scores_and_goes_on(tmp_path, capsys):
    tiny(tmp_path)
    settings = {"data_dir": tmp_path, "folder": tmp_path / "runs", "out": tmp_path / "lines.jsonl"}
    for _ in range(2):  # the second run finds the metrics of the first
        rvsml.main(aligner=["dtw", "softdtw", "opw"], standardize=True, max_iter=2, **settings)
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line["aligner"] for line in lines] == ["dtw", "softdtw", "opw"] * 2
    assert [line["ridge"] for line in lines[:3]] == [0.1, 0.1, 0.01]
    assert {"accuracy", "f1", "map", "rounds_taken", "converged", "norm", "wall_time", "device"} <= set(lines[0])
    for first, second in zip(lines[:3], lines[3:], strict=True):
        assert first["wall_time"] == second["wall_time"]
        assert first["map"] == second["map"]
    with pytest.raises(SystemExit, match="keeps a metric of other settings; give another --folder"):
        rvsml.main(standardize=True, max_iter=5, **settings)
    assert lines[0]["accuracy"] > 0.6
    assert "rvsml opw, standardised" in capsys.readouterr().out
    assert isinstance(lw.Metric.load(tmp_path / "runs" / "rvsml dtw, standardised, seed 0" / "metric"), lw.Metric)


def test_the_network_has_seeds_and_parts_of_the_data(tmp_path, capsys):
    tiny(tmp_path)
    rvsml.main(
        deep=True, rounds=1, epochs=1, seeds=2, first_seed=3, queries=3, references=6, data_dir=tmp_path,
        out=tmp_path / "lines.jsonl",
    )  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line["seed"] for line in lines] == [3, 4]
    assert (lines[0]["train"], lines[0]["test"], lines[0]["references"]) == (12, 3, 6)
    assert "deep rvsml dtw" in capsys.readouterr().out


def test_every_aligner_has_a_ridge():
    assert set(rvsml.RIDGES) == set(rvsml.ALIGNERS)
    assert all(isinstance(make(), lw.Distance) for make in rvsml.ALIGNERS.values())


def test_channels_are_standardised_by_the_training_set(tmp_path):
    tiny(tmp_path)
    train, test = rvsml.read_har(tmp_path, standardize=True)
    frames = train.sequences.values.flatten(0, 1)
    torch.testing.assert_close(frames.mean(0), torch.zeros(9), atol=1e-5, rtol=0)
    raw_train, raw_test = rvsml.read_har(tmp_path, standardize=False)
    raw = raw_train.sequences.values.flatten(0, 1)
    expected = (raw_test.sequences.values - raw.mean(0)) / raw.std(0, correction=0)
    torch.testing.assert_close(test.sequences.values, expected, atol=1e-5, rtol=1e-5)


def test_bad_words_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="error: unknown 'lcss'; expected one of dtw"):
        rvsml.main(aligner=["lcss"], data_dir=tmp_path)
    with pytest.raises(SystemExit, match="is not there; give --data-dir"):
        rvsml.main(data_dir=tmp_path)


def test_the_real_data_are_as_described(shared_data):
    train, test = rvsml.read_har(shared_data, standardize=False)
    assert train.sequences.values.shape == (7352, 128, 9)
    assert len(test) == 2947
    assert train.classes[0] == "WALKING"
