"""Distances that learn nothing, and RVSML, on a few sequences."""

import json

import pytest
import torch

import likewise as lw
from papers.common import Run, read_lines
from papers.rvsml import run as rvsml
from papers.tap import run_distances
from tests.papers.small_data import write_digits, write_har


def test_distances_are_scored_and_timed(tmp_path):
    write_digits(tmp_path)
    chosen = ("dtw", "ldtw", "ndtw", "ot", "opw", "softdtw", "tap", "rvsml_dtw")
    run = Run(data_dir=tmp_path, device="cpu", out=tmp_path / "lines.jsonl")
    run_distances.main(run, run_distances.Settings("sad", chosen, pairs=24))
    lines = read_lines(tmp_path / "lines.jsonl")
    assert [line["distance"] for line in lines] == list(chosen)
    assert [line["test"] for line in lines] == [2 if line["distance"] == "ot" else 6 for line in lines]
    for line in lines:
        assert line["seconds_a_query"] > 0
        assert ("map" in line) == (line["distance"] != "tap")
        assert (line["learning_seconds"] is None) == (line["distance"] in run_distances.UNTRAINED)
    assert all(line["accuracy"] == 1.0 for line in lines if line["distance"] in ("dtw", "softdtw", "rvsml_dtw"))


def test_rvsml_gets_centred_frames():
    """It has no intercept. Padding has no part in the mean."""
    x = lw.Batch.from_list([torch.randn(5, 2) + 9, torch.randn(3, 2) + 9])
    train, test = run_distances.centred(lw.Dataset(x, ["a", "b"]), lw.Dataset(x[:1], ["a"]))
    torch.testing.assert_close(train.items.values[train.items.mask].mean(0), torch.zeros(2), rtol=0, atol=1e-5)
    torch.testing.assert_close(test.items[0], train.items[0])
    torch.testing.assert_close(lw.DTW().matrix(train.items), lw.DTW().matrix(x), rtol=1e-4, atol=1e-4)


def test_every_distance_works():
    x = lw.Batch.from_list([torch.zeros(3, 2), torch.ones(2, 2)])
    for make in run_distances.UNTRAINED.values():
        assert make().matrix(x[:1], x).shape == (1, 2)


def test_bad_words_are_refused(tmp_path):
    write_digits(tmp_path)
    with pytest.raises(SystemExit, match="error: --distances is 'frechet'; expected one of dtw"):
        run_distances.main(Run(data_dir=tmp_path), run_distances.Settings("sad", ("frechet",)))
    with pytest.raises(SystemExit, match="error: --data is 'birds'; expected one of sad, msr_action3d"):
        run_distances.main(Run(), run_distances.Settings("birds"))
    with pytest.raises(SystemExit, match="error: --aligner is 'lcss'; expected one of dtw"):
        rvsml.main(Run(), rvsml.Settings("lcss"))


@pytest.mark.parametrize("aligner", ["dtw", "softdtw", "opw"])
def test_rvsml_learns_and_scores(tmp_path, capsys, aligner):
    write_har(tmp_path, train=12, test=6)
    settings = rvsml.Settings(aligner, standardize=True, max_iter=2, queries=3, references=6)
    rvsml.main(Run(data_dir=tmp_path, device="cpu"), settings)
    line = json.loads(capsys.readouterr().out)
    assert line["ridge"] == {"dtw": 0.1, "softdtw": 0.1, "opw": 0.01}[aligner]
    assert (line["train"], line["test"], line["references"]) == (12, 3, 6)
    assert line["accuracy"] > 0.6
    assert {"rounds_taken", "converged", "norm", "wall_time", "device"} <= set(line)
