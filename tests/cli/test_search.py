import csv

import pytest
import torch

import likewise as lw
from tests.cli.commands import answer, refusal, run


@pytest.fixture
def series(tmp_path):
    path = tmp_path / "series.npz"
    values = torch.randn(2, 80, 1, generator=torch.Generator().manual_seed(0)).cumsum(1)
    lw.data.write_npz(lw.Dataset(values, ["walk", "run"]), path)
    return path


@pytest.fixture
def part(tmp_path, series):
    path = tmp_path / "part.npz"
    lw.data.write_npz(lw.Dataset(3 * lw.read_npz(series).items.values[1:, 30:50] + 1), path)
    return path


def test_index_search_and_explain(a, b, tmp_path):
    folder = tmp_path / "index"
    made = answer("index", b, "-o", folder, "--band", 2)
    assert (made["items"], made["distance"], made["length"]) == (4, "DTW", None)
    found = answer("search", folder, a, "-k", 2)
    truth = lw.Index(lw.DTW(band=2), lw.read_ts(b)).search(lw.read_npz(a), k=2)
    assert [row["id"] for row in found["hits"]] == truth.ids.flatten().tolist()
    assert [row["distance"] for row in found["hits"]] == truth.distances.flatten().tolist()
    assert found["stats"]["exact"]
    why = answer("explain", folder, a, "-q", 1, "-i", 1)
    assert why["id"] == truth.ids[1, 1]
    assert sum(why["by_step"]) == pytest.approx(why["distance"], rel=1e-5)
    assert sum(segment["cost"] for segment in why["segments"]) == pytest.approx(why["distance"], rel=1e-5)
    assert why["counterfactual"] is None
    shown = run("search", folder, a, "-k", 1)
    assert "pairs in" in shown.stdout
    assert run("explain", folder, a).stdout.startswith("DTW ")


def test_windows(series, part, tmp_path):
    folder = tmp_path / "index"
    assert answer("index", series, "-o", folder, "--length", 20, "--z-normalize", "--band", 2)["length"] == 20
    (hit,) = answer("search", folder, part, "-k", 1)["hits"]
    assert (hit["item"], hit["start"], hit["end"], hit["label"]) == (1, 30, 50, "run")
    why = answer("explain", folder, part)
    assert why["counterfactual"]["label"] == "walk"
    other = tmp_path / "any"
    answer("index", series, "-o", other, "--windows")
    assert answer("search", other, part, "--within", 1e9, "--exclude", 1)["hits"][0]["end"] <= 80


def test_outputs(a, b, tmp_path):
    folder, table, page, picture = (tmp_path / name for name in ("index", "hits.csv", "page.html", "why.png"))
    answer("index", b, "-o", folder)
    answer("search", folder, a, "-o", table, "--html", page, "-q", 2)
    with table.open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 12
    assert page.read_text().startswith("<!doctype html>")
    answer("explain", folder, a, "--plot", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "already exists" in refusal(1, "search", folder, a, "-o", table)
    assert "already exists" in refusal(1, "explain", folder, a, "--plot", picture)
    answer("search", folder, a, "-o", table, "--force")


def test_adding_and_replacing(a, b, tmp_path):
    folder = tmp_path / "index"
    answer("index", b, "-o", folder, "-d", "soft-dtw")
    assert "--force replaces it, --add adds to it" in refusal(1, "index", a, "-o", folder)
    assert answer("index", a, "-o", folder, "--add")["items"] == 7
    assert lw.Index.load(folder).ids == tuple("0123456")
    assert "give none" in refusal(2, "index", a, "-o", folder, "--add", "--band", 3)
    assert answer("index", a, "-o", folder, "--force")["items"] == 3


def test_a_saved_metric(a, b, tmp_path):
    torch.manual_seed(0)
    lw.Metric(lw.FrameMLP(2, hidden=4, out=3), lw.DTW()).save(tmp_path / "metric")
    assert answer("index", b, "-o", tmp_path / "index", "--metric", tmp_path / "metric")["distance"] == "learned DTW"
    assert len(answer("search", tmp_path / "index", a, "-k", 1)["hits"]) == 3
    wrong = refusal(2, "index", b, "-o", tmp_path / "other", "--metric", tmp_path / "metric", "--band", 1)
    assert "has its own settings" in wrong


def test_mistakes(a, b, tmp_path):
    assert "no such file" in refusal(1, "search", tmp_path / "nothing", a)
    answer("index", b, "-o", tmp_path / "index")
    assert "query 9" in refusal(1, "search", tmp_path / "index", a, "--html", tmp_path / "x.html", "-q", 9)
    assert "item 9 is out of range" in refusal(1, "explain", tmp_path / "index", a, "-q", 9)
    assert "has only 4 hits" in refusal(1, "explain", tmp_path / "index", a, "-i", 9)
    assert "length is 99" in refusal(1, "index", b, "-o", tmp_path / "w", "--length", 99)
