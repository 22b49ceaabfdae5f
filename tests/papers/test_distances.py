"""The recipe of distances, on a few sequences."""

import json

import pytest
import torch

import likewise as lw
from likewise.recipes import distances
from tests.recipes.test_tap import tiny


def test_distances_are_scored_and_timed(tmp_path, capsys):
    tiny(tmp_path)
    chosen = ["dtw", "ldtw", "ndtw", "ot", "opw", "softdtw", "tap", "rvsml_dtw"]
    distances.main(data="sad", data_dir=tmp_path, distance=chosen, pairs=24, device="cpu", out=tmp_path / "lines.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line["distance"] for line in lines] == chosen
    assert [line["test"] for line in lines] == [2 if line["distance"] == "ot" else 6 for line in lines]
    for line in lines:
        assert line["seconds_a_query"] > 0
        assert ("map" in line) == (line["distance"] != "tap")
        assert (line["learning_seconds"] is None) == (line["distance"] in distances.UNTRAINED)
    assert all(line["accuracy"] == 1.0 for line in lines if line["distance"] in ("dtw", "softdtw", "rvsml_dtw"))
    table = capsys.readouterr().out
    assert "rvsml_dtw" in table
    assert "(29.6)" in table


def test_every_distance_of_the_tables_is_there():
    assert set(distances.PUBLISHED) <= set(distances.UNTRAINED)
    assert all(set(times) <= set(distances.UNTRAINED) for times in distances.PUBLISHED_SECONDS.values())
    x = lw.Batch.from_list([torch.zeros(3, 2), torch.ones(2, 2)])
    for make in distances.UNTRAINED.values():
        assert make().matrix(x[:1], x).shape == (1, 2)
    for make in distances.LEARNED.values():
        assert make().set_params(max_iter=1).fit(x, [0, 1]).predict(x).shape == (2,)


def test_a_trained_tap_is_scored(tmp_path):
    tiny(tmp_path)
    torch.manual_seed(0)
    lw.Metric(lw.FrameMLP(13, hidden=8), lw.TAP()).save(tmp_path / "tap")
    distances.main(
        data="sad", data_dir=tmp_path, distance=["tap"], tap=tmp_path / "tap", queries=3, device="cpu",
        out=tmp_path / "lines.jsonl",
    )  # fmt: skip
    line = json.loads((tmp_path / "lines.jsonl").read_text())
    assert line["test"] == 3
    assert 0 <= line["map"] <= 1


def test_the_table_names_the_papers_figures(capsys):
    line = {"distance": "dtw", "test": 2, "map": 0.5, "knn": {"1": 0.5, "5": 0.25}, "seconds_a_query": 0.1,
            "pairs_a_second": 10.0}  # fmt: skip
    distances.print_table("msr_action3d", [line])
    assert "50.00 (81.32)" in capsys.readouterr().out
    assert distances.beside(None, 2.0, "{:.1f}") == "(2.0)"
    assert distances.beside(None, None, "{:.1f}") == ""


def test_bad_words_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="error: unknown 'frechet'; expected one of dtw"):
        distances.main(distance=["frechet"], data_dir=tmp_path)
    with pytest.raises(SystemExit, match="error: unknown 'birds'; expected one of sad, msr_action3d"):
        distances.main(data="birds", data_dir=tmp_path)
