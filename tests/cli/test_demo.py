import json

import pytest
from typer.testing import CliRunner

import likewise as lw
from likewise import cli
from likewise.cli import demo


def test_it_recognises_speakers(tmp_path, capsys):
    out = tmp_path / "some" / "where"
    demo.demo(out, epochs=2)
    *table, last = capsys.readouterr().out.strip().splitlines()
    result = json.loads(last)
    assert result["data"] == "JapaneseVowels"
    assert (result["references"], result["queries"]) == (270, 370)
    assert list(result["scores"]) == [*demo.DISTANCES, "TAP, learned"]
    assert result["seconds"] > sum(score["seconds"] for score in result["scores"].values())
    for name, score in result["scores"].items():
        assert any(name in line and f"{score['accuracy']:.1%}" in line for line in table)
    # What aeon's own distances give on the same split.
    assert result["scores"]["Euclidean"]["accuracy"] == pytest.approx(341 / 370)
    assert result["scores"]["DTW"]["accuracy"] == pytest.approx(351 / 370)
    assert result["scores"]["DTW"]["map"] > result["scores"]["Euclidean"]["map"]
    assert result["scores"]["TAP, learned"]["map"] > result["scores"]["DTW"]["map"] + 0.05
    assert isinstance(lw.Metric.load(result["metric"]).distance, lw.TAP)
    assert result["picture"] == str(out / "alignment.png")
    assert (out / "alignment.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_json_is_all_that_is_printed(tmp_path, monkeypatch):
    train, test = demo.load_japanese_vowels()
    monkeypatch.setattr(demo, "load_japanese_vowels", lambda: (train[::3], test[::6]))
    monkeypatch.setattr(demo, "DISTANCES", {"DTW": demo.DISTANCES["DTW"]})
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path), "--epochs", "1", "--json"])
    assert result.exit_code == 0
    assert list(json.loads(result.stdout)["scores"]) == ["DTW", "TAP, learned"]
    assert (tmp_path / "alignment.png").exists()
