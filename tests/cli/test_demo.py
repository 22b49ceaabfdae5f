import json

import pytest
from typer.testing import CliRunner

import likewise as lw
from likewise import cli
from likewise.cli import demo
from likewise.selection import candidates_for, search


@pytest.fixture(autouse=True)
def two_candidates(monkeypatch):
    """The search itself has its own tests."""
    chosen = [
        candidate
        for candidate in candidates_for(demo.load_japanese_vowels()[0])
        if candidate.name in ("dtw", "vectors")
    ]
    monkeypatch.setattr(search, "candidates_for", lambda data: chosen)


def test_it_recognises_speakers(tmp_path, capsys):
    out = tmp_path / "some" / "where"
    demo.demo(out, minutes=5)
    text = capsys.readouterr().out.strip().splitlines()
    assert text[-2:] == [
        f"likewise explore {out}/run {out}/test.npz",
        "shows all of it in a browser, at http://127.0.0.1:8000/",
    ]
    demo.demo(out, minutes=5, force=True, as_json=True)
    result = json.loads(capsys.readouterr().out)
    assert result["data"] == "JapaneseVowels"
    assert (result["references"], result["queries"]) == (270, 370)
    assert list(result["scores"]) == [*demo.DISTANCES, "vectors, chosen"]
    assert result["seconds"] > sum(score["seconds"] for score in result["scores"].values())
    for name, score in result["scores"].items():
        assert any(name in line and (f"{score['accuracy']:.1%}" in line or "chosen" in name) for line in text)
    for command in ("train", "evaluate", "index", "search", "explain"):
        assert any(line.startswith(f"likewise {command} {out}") for line in text)
    # What aeon's own distances give on the same split.
    assert result["scores"]["Euclidean"]["accuracy"] == pytest.approx(341 / 370)
    assert result["scores"]["DTW"]["accuracy"] == pytest.approx(351 / 370)
    assert result["scores"]["DTW"]["map"] > result["scores"]["Euclidean"]["map"]
    assert result["scores"]["vectors, chosen"]["map"] > result["scores"]["DTW"]["map"] + 0.05
    assert isinstance(lw.Metric.load(result["metric"]).encoder, lw.TCN)
    assert len(lw.Index.load(result["index"])) == 270
    assert len(result["nearest"]) == 3
    assert result["picture"] == str(out / "alignment.png")
    assert (out / "alignment.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert (out / "run" / "README.md").is_file()


def test_json_is_all_that_is_printed_and_it_runs_again(tmp_path, monkeypatch):
    train, test = demo.load_japanese_vowels()
    monkeypatch.setattr(demo, "load_japanese_vowels", lambda: (train[::3], test[::6]))
    monkeypatch.setattr(demo, "DISTANCES", {"DTW": demo.DISTANCES["DTW"]})
    for _ in range(2):
        result = CliRunner().invoke(
            cli.app, ["demo", "--out", str(tmp_path), "--minutes", "0.0001", "--json", "--force"]
        )
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert list(found["scores"]) == ["DTW", "dtw, chosen"]
        assert found["explanation"].startswith("DTW")
        assert (tmp_path / "alignment.png").exists()
