"""LDMLT and SWMD on a few sequences."""

import pytest

from papers.common import Run, read_lines
from papers.tap import run_linear
from tests.papers.small_data import write_digits


@pytest.mark.parametrize("method", ["ldmlt", "swmd"])
def test_a_setting_is_chosen_on_held_out_speakers_and_tested_once(tmp_path, monkeypatch, method):
    write_digits(tmp_path)
    grid = {"ldmlt": [{"max_iter": 1}, {"max_iter": 2}], "swmd": [{"epochs": 1}, {"epochs": 2}]}
    monkeypatch.setattr(run_linear, "GRIDS", grid)
    run = Run((0,), tmp_path, device="cpu", out=tmp_path / "lines.jsonl")
    for _ in range(2):  # the second time there is nothing to do
        run_linear.main(run, run_linear.Settings("sad", method))
    lines = read_lines(tmp_path / "lines.jsonl")
    assert [(line["validate"], line["aligner"]) for line in lines] == [
        *[(True, "dtw"), (True, "opw")] * 2, (False, "dtw"), (False, "opw"),
    ]  # fmt: skip
    for line in lines[4:]:
        tried = [one for one in lines[:4] if one["aligner"] == line["aligner"]]
        best = max(tried, key=lambda one: one["accuracy"] + one["map"])
        assert line["options"] == best["options"]
        assert line["train"] > best["train"]


def test_bad_words_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="error: --method is 'lmnn'; expected one of ldmlt, swmd"):
        run_linear.main(Run(data_dir=tmp_path), run_linear.Settings(method="lmnn"))
