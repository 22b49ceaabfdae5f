"""The recipe of TAP, on a few sequences."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import likewise as lw
from likewise.recipes import tap


def tiny(folder):
    """A file as spoken_arabic_digits.npz is, of a few short sequences."""
    random, arrays = np.random.default_rng(0), {}
    for part, count in (("train", 12), ("test", 6)):
        lengths = random.integers(5, 9, count)
        labels = np.arange(count) % 3
        values = random.standard_normal((lengths.sum(), 13)) + 3 * np.repeat(labels, lengths)[:, None]
        arrays |= {f"values_{part}": values.astype(np.float32), f"lengths_{part}": lengths, f"y_{part}": labels}
        arrays |= {f"speaker_{part}": np.arange(count) // 3}
    np.savez(folder / "spoken_arabic_digits.npz", **arrays)


def test_it_trains_scores_and_goes_on(tmp_path, capsys):
    tiny(tmp_path)
    settings = {"data_dir": tmp_path, "epochs": 1, "batch_size": 6, "probe_epochs": 2, "folder": tmp_path / "runs"}
    for epochs in (1, 2):  # the second run goes on from the first
        tap.main(**settings | {"epochs": epochs, "seeds": 2, "untrained": True, "out": tmp_path / "lines.jsonl"})
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines[:4]] == ["untrained", "untrained", "hm", "hm"]
    assert [line["seed"] for line in lines[2:4]] == [0, 1]
    assert {"map", "accuracy", "knn", "seconds_an_epoch", "norm_ratio", "alignment_mse", "probe_accuracy"} <= set(
        lines[2]
    )
    assert "hm + tap" in capsys.readouterr().out
    assert isinstance(lw.Metric.load(tmp_path / "runs" / "sad, hm + tap, jittered, seed 1"), lw.Metric)


@pytest.mark.parametrize(
    "row", [{"distance": "softdtw", "loss": "lifted"}, {"distance": "dtw", "augment": False}, {"distance": "opw", "augment": False}, {"self_supervised": True},
            {"distance": "tap_transformer", "loss": "binomial"}, {"distance": "tap_deep", "loss": "hm_hinge"}]
)  # fmt: skip
def test_every_kind_of_row_runs(tmp_path, row):
    tiny(tmp_path)
    train, test = tap.read_sad(tmp_path)
    line = tap.run(replace(tap.Settings(epochs=1, batch_size=6), **row), 0, train, test)
    assert 0 <= line["map"] <= 1
    json.dumps(line)


def test_every_row_of_a_table_has_settings_that_exist():
    for rows in tap.TABLES.values():
        for row in rows:
            settings = replace(tap.Settings(), **row)
            assert settings.loss in tap.LOSSES
            assert settings.distance in tap.DISTANCES


def test_a_speaker_is_held_out(tmp_path, capsys):
    tiny(tmp_path)
    train, kept = tap.held_out(tap.read_sad(tmp_path)[0], tap.speakers(tmp_path))
    assert (len(train), len(kept)) == (9, 3)  # of four speakers, three utterances each
    tap.main(data_dir=tmp_path, epochs=1, batch_size=3, seeds=1, validate=True, training="paper")
    line = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (line["train"], line["test"], line["validate"], line["augment"]) == (9, 3, True, True)


def test_bad_words_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="error: unknown 'twed'; expected one of tap"):
        tap.main(distance="twed", data_dir=tmp_path)
    with pytest.raises(SystemExit, match="is not there; give --data-dir"):
        tap.main(data_dir=tmp_path)
    with pytest.raises(SystemExit, match="error: unknown 'theirs'; expected one of paper, ours"):
        tap.main(training="theirs", data_dir=tmp_path)


def test_the_real_data_are_as_described(shared_data):
    train, test = tap.read_sad(shared_data)
    assert (len(train), len(test)) == (6600, 2200)
    frames = train.sequences.values[train.sequences.mask]
    assert torch.allclose(frames.mean(0), torch.zeros(13), atol=1e-4)
    train, test = tap.read_msr(shared_data)
    assert (len(train), len(test)) == (290, 270)
    assert int(train.sequences.lengths.max()) <= tap.LONGEST
