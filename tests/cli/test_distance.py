import numpy as np
import pytest
import torch

import likewise as lw
from likewise.cli.arguments import DISTANCES, DistanceName
from tests.cli.commands import answer, refusal, run, sequences


@pytest.mark.parametrize("name", DistanceName)
def test_distance_prints_the_matrix_as_json(a, b, name):
    found = answer("distance", a, b, "--distance", name)
    expected = DISTANCES[name]().matrix(lw.read_npz(a).items, lw.read_ts(b).items)
    np.testing.assert_array_equal(np.float32(found["distances"]), expected)
    assert found["distance"] == name
    assert found["options"] == {}
    assert found["shape"] == [3, 4]
    assert (found["min"], found["max"]) == (expected.min().item(), expected.max().item())
    assert found["mean"] == pytest.approx(expected.mean().item())
    assert found["seconds"] > 0
    assert found["output"] is None


def test_distance_of_one_file_is_that_to_itself(a):
    found = answer("distance", a)
    assert found["distances"] == lw.DTW().matrix(lw.read_npz(a).items).tolist()
    assert found["min"] == 0
    assert answer("distance", a, a)["distances"] == found["distances"]


@pytest.mark.parametrize(
    ("arguments", "distance", "options"),
    [
        (["--band", "2"], lw.DTW(band=2), {"band": 2}),
        (["--band", "0.2"], lw.DTW(band=0.2), {"band": 0.2}),
        (["--band", "1"], lw.DTW(band=1), {"band": 1}),
        (["--band", "1.0"], lw.DTW(band=1.0), {"band": 1.0}),
        (["--ground", "cosine"], lw.DTW(ground="cosine"), {"ground": "cosine"}),
        (["--normalize", "steps"], lw.DTW(normalize="steps"), {"normalize": "steps"}),
        (["--subsequence"], lw.DTW(subsequence=True), {"subsequence": True}),
        (
            ["-d", "soft-dtw", "--gamma", "0.5", "--band", "3"],
            lw.SoftDTW(gamma=0.5, band=3),
            {"band": 3, "gamma": 0.5},
        ),
        (
            ["-d", "soft-dtw-divergence", "--ground", "euclidean"],
            lw.SoftDTWDivergence(ground="euclidean"),
            {"ground": "euclidean"},
        ),
    ],
)
def test_options_reach_the_distance(a, b, arguments, distance, options):
    found = answer("distance", a, b, *arguments)
    expected = distance.matrix(lw.read_npz(a).items, lw.read_ts(b).items)
    np.testing.assert_array_equal(np.float32(found["distances"]), expected)
    assert found["options"] == options
    assert [type(value) for value in found["options"].values()] == [type(value) for value in options.values()]


def test_distance_writes_the_matrix(a, b, tmp_path):
    output = tmp_path / "D.npz"
    output.write_text("what was there")
    assert refusal(1, "distance", a, "-o", output) == f"error: {output}: already exists; --force replaces it\n"
    assert output.read_text() == "what was there"
    found = answer("distance", a, b, "-o", output, "--force")
    expected = lw.DTW().matrix(lw.read_npz(a).items, lw.read_ts(b).items)
    with np.load(output) as saved:
        assert saved.files == ["distances"]
        np.testing.assert_array_equal(saved["distances"], expected)
    assert found["output"] == str(output)
    assert found["distances"] is None
    assert {path.name for path in tmp_path.iterdir()} == {"a.npz", "b.ts", "D.npz"}


def test_an_interrupted_write_leaves_what_was_there(a, tmp_path, monkeypatch):
    output = tmp_path / "D.npz"
    output.write_text("what was there")

    def half(file, **arrays):
        file.write(b"PK")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", half)
    assert run("distance", a, "-o", output, "--force").exit_code == 130
    assert output.read_text() == "what was there"
    assert {path.name for path in tmp_path.iterdir()} == {"a.npz", "D.npz"}


def test_a_large_matrix_is_not_printed(tmp_path):
    path = tmp_path / "many.npz"
    np.savez(path, X=np.zeros((101, 2, 1)))
    found = answer("distance", path)
    assert found["shape"] == [101, 101]
    assert found["distances"] is None


def test_an_overflow_is_an_error(tmp_path):
    path = tmp_path / "huge.npz"
    np.savez(path, X=np.array([[[3e38]], [[-3e38]]], dtype=np.float32))
    for name in ("dtw", "euclidean"):
        assert "the costs overflow torch.float32; scale the sequences down" in refusal(1, "distance", path, "-d", name)


def test_distance_prints_a_summary(a, b):
    result = run("distance", a, b, "--band", "2")
    assert result.exit_code == 0
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert lines["shape"].strip() == "3 x 4"
    assert lines["options"].strip() == "band=2"
    assert result.stderr == ""  # no terminal, no progress


def test_a_terminal_sees_progress(a, monkeypatch):
    asked = []
    matrix = lw.DTW.matrix
    monkeypatch.setattr(lw.DTW, "matrix", lambda *args, progress: asked.append(progress) or matrix(*args))
    monkeypatch.setattr("likewise.cli.distance.is_terminal", lambda: True)
    assert run("distance", a).exit_code == 0
    assert asked == [True]


def test_splits_of_one_file(tmp_path):
    path, rng = tmp_path / "both.npz", np.random.default_rng(0)
    train, test = rng.normal(size=(3, 6, 2)), rng.normal(size=(2, 5, 2))
    np.savez(path, X_train=train, X_test=test)
    found = answer("distance", path, path, "--split-a", "test", "--split-b", "train")
    np.testing.assert_array_equal(found["distances"], lw.DTW().matrix(test, train))
    assert "choose one with --split" in refusal(1, "distance", path)


def test_float32_and_float64_meet(a, tmp_path):
    path = tmp_path / "double.npz"
    lw.data.write_npz(lw.Dataset(sequences(1, 4, dtype=torch.float64)), path)
    found = answer("distance", a, path)
    expected = lw.DTW().matrix(lw.read_npz(a).items.to(torch.float64), lw.read_npz(path).items)
    np.testing.assert_array_equal(found["distances"], expected)


def test_gdtw_takes_its_own_options(a, b):
    found = answer("distance", a, b, "-d", "gdtw", "--reg", 0.5, "--band", 0.5)
    expected = lw.GDTW(0.5, band=0.5).matrix(lw.read_npz(a).items, lw.read_ts(b).items)
    np.testing.assert_array_equal(found["distances"], expected)
    assert "dtw has no option --reg" in refusal(2, "distance", a, "-d", "dtw", "--reg", 1)


def test_output_is_checked_before_the_work(a, tmp_path, monkeypatch):
    monkeypatch.setattr(lw.DTW, "matrix", None)
    assert refusal(1, "distance", a, "-o", tmp_path) == f"error: {tmp_path}: is a folder; give the name of a file\n"
    nowhere = tmp_path / "none" / "D.npz"
    assert refusal(1, "distance", a, "-o", nowhere) == f"error: {nowhere}: its folder does not exist\n"
