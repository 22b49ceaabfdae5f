import pytest
import torch

import likewise as lw
from tests.cli.commands import answer, refusal, run


def test_a_table_becomes_npz_and_ts(tmp_path):
    pytest.importorskip("narwhals")
    path = tmp_path / "long.csv"
    rows = ["who,t,kind,x"] + [f"{who},{t},{'ab'[who % 2]},{who + t * t}" for who in range(4) for t in range(5)]
    path.write_text("\n".join(rows) + "\n")
    given = ("--columns", "id=who,time=t,label=kind")
    found = answer("convert", path, "-o", tmp_path / "a.npz", *given)
    assert (found["items"], found["counts"], found["warnings"]) == (4, {"a": 2, "b": 2}, [])
    data = lw.read_npz(tmp_path / "a.npz")
    assert data.labels.tolist() == ["a", "b", "a", "b"]
    assert run("convert", tmp_path / "a.npz", "-o", tmp_path / "a.ts").exit_code == 0
    assert lw.read_ts(tmp_path / "a.ts").items == data.items


def test_it_says_what_looks_wrong(a, tmp_path):
    lw.data.write_npz(lw.Dataset(torch.ones(2, 3, 1), ["a", "a"]), tmp_path / "flat.npz")
    result = run("convert", tmp_path / "flat.npz")
    assert result.exit_code == 0
    assert "warning: channel 0 is constant" in result.stdout
    assert "warning: 1 item equals another one: 1 and 0" in result.stdout
    assert "written" not in result.stdout


def test_existing_files_are_kept(a, tmp_path):
    out = tmp_path / "b.npz"
    assert "written to" in run("convert", a, "-o", out).stdout
    before = out.read_bytes()
    assert "already exists; --force replaces it" in refusal(1, "convert", a, "-o", out)
    assert out.read_bytes() == before
    assert run("convert", a, "-o", out, "--force").exit_code == 0
    assert "expected a name that ends in .npz or .ts" in refusal(1, "convert", a, "-o", tmp_path / "x.csv")


def test_images_are_described_and_written(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name in ("iris", "rose"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        image.new("RGB", (9, 9), "red" if name == "iris" else "blue").save(tmp_path / "photos" / name / "1.png")
    found = answer("convert", tmp_path / "photos", "--size", 8)
    assert (found["items"], found["lengths"], found["classes"]) == (2, None, 2)
    assert answer("convert", tmp_path / "photos", "--size", 8, "-o", tmp_path / "x.npz")["items"] == 2
    written, read = lw.read_npz(tmp_path / "x.npz"), lw.read_image_folder(tmp_path / "photos", size=8)
    assert written.items.equal(read.items)
    assert (written.ids, written.labels.tolist()) == (read.ids, read.labels.tolist())
    assert "images are written as .npz" in refusal(1, "convert", tmp_path / "photos", "-o", tmp_path / "x.ts")
