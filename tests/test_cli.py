import json
import re
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import likewise as lw
from likewise.cli import DISTANCES, DistanceName, app

PNG = b"\x89PNG\r\n\x1a\n"


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def answer(*arguments):
    """The JSON object that a command prints."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def refusal(code, *arguments):
    """What a command says on stderr when it ends with that code."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def sequences(seed, count, channels=2, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    items = [torch.randn(5 + i, channels, generator=generator, dtype=dtype) for i in range(count)]
    return lw.Batch.from_list(items)


@pytest.fixture
def a(tmp_path):
    path = tmp_path / "a.npz"
    lw.write_npz(lw.Dataset(sequences(0, 3)), path)
    return path


@pytest.fixture
def b(tmp_path):
    path = tmp_path / "b.ts"
    lw.write_ts(lw.Dataset(sequences(1, 4)), path)
    return path


@pytest.mark.parametrize("name", DistanceName)
def test_distance_prints_the_matrix_as_json(a, b, name):
    found = answer("distance", a, b, "--distance", name)
    expected = DISTANCES[name]().matrix(lw.read_npz(a).sequences, lw.read_ts(b).sequences)
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
    assert found["distances"] == lw.DTW().matrix(lw.read_npz(a).sequences).tolist()
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
    expected = distance.matrix(lw.read_npz(a).sequences, lw.read_ts(b).sequences)
    np.testing.assert_array_equal(np.float32(found["distances"]), expected)
    assert found["options"] == options
    assert [type(value) for value in found["options"].values()] == [type(value) for value in options.values()]


def test_distance_writes_the_matrix(a, b, tmp_path):
    output = tmp_path / "D.npz"
    output.write_text("what was there")
    found = answer("distance", a, b, "-o", output)
    expected = lw.DTW().matrix(lw.read_npz(a).sequences, lw.read_ts(b).sequences)
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
    assert run("distance", a, "-o", output).exit_code == 130
    assert output.read_text() == "what was there"
    assert {path.name for path in tmp_path.iterdir()} == {"a.npz", "D.npz"}


def test_a_large_matrix_is_not_printed(tmp_path):
    path = tmp_path / "many.npz"
    np.savez(path, X=np.zeros((101, 2, 1)))
    found = answer("distance", path)
    assert found["shape"] == [101, 101]
    assert found["distances"] is None


def test_numbers_that_json_lacks_are_null(tmp_path):
    path = tmp_path / "huge.npz"
    np.savez(path, X=np.array([[[3e38]], [[-3e38]]], dtype=np.float32))
    found = answer("distance", path, "-d", "euclidean")
    assert found["distances"] == [[0, None], [None, 0]]
    assert found["max"] is None
    assert "the costs overflow torch.float32" in refusal(1, "distance", path)


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
    monkeypatch.setattr("likewise.cli._is_terminal", lambda: True)
    assert run("distance", a).exit_code == 0
    assert asked == [True]


def test_splits_of_one_file(tmp_path):
    path, rng = tmp_path / "both.npz", np.random.default_rng(0)
    train, test = rng.normal(size=(3, 6, 2)), rng.normal(size=(2, 5, 2))
    np.savez(path, X_train=train, X_test=test)
    found = answer("distance", path, path, "--split-a", "test", "--split-b", "train")
    np.testing.assert_array_equal(found["distances"], lw.DTW().matrix(test, train))
    assert "choose one with split=" in refusal(1, "distance", path)


def test_float32_and_float64_meet(a, tmp_path):
    path = tmp_path / "double.npz"
    lw.write_npz(lw.Dataset(sequences(1, 4, dtype=torch.float64)), path)
    found = answer("distance", a, path)
    expected = lw.DTW().matrix(lw.read_npz(a).sequences.to(torch.float64), lw.read_npz(path).sequences)
    np.testing.assert_array_equal(found["distances"], expected)


@pytest.mark.parametrize("name", ["dtw", "soft-dtw", "gdtw"])
def test_align_prints_value_and_path(a, b, name):
    found = answer("align", a, b, "--item-a", 2, "--item-b", 1, "-d", name)
    x, y = lw.read_npz(a).sequences[2], lw.read_ts(b).sequences[1]
    alignment = DISTANCES[name]().align([x], [y])
    assert found["value"] == alignment.value.item()
    assert found["path"] == alignment.path(0).tolist()
    assert found["items"] == [2, 1]
    assert found["lengths"] == [len(x), len(y)] == [7, 6]
    assert found["plot"] is None


def test_gdtw_takes_its_own_options(a, b):
    found = answer("distance", a, b, "-d", "gdtw", "--reg", 0.5, "--band", 0.5)
    expected = lw.GDTW(0.5, band=0.5).matrix(lw.read_npz(a).sequences, lw.read_ts(b).sequences)
    np.testing.assert_array_equal(found["distances"], expected)
    assert "dtw has no option --reg" in refusal(2, "distance", a, "-d", "dtw", "--reg", 1)


def test_align_prints_the_length_of_the_path(a, b):
    found, result = answer("align", a, b), run("align", a, b)
    assert result.exit_code == 0
    assert f"{found['value']:.6g}" in result.stdout
    assert f"{len(found['path'])} cells, from (0, 0) to (4, 4)" in result.stdout


@pytest.mark.parametrize("kind", ["two-way", "three-way", "density", "path"])
def test_align_plots(a, b, tmp_path, kind):
    picture = tmp_path / "picture.png"
    assert answer("align", a, b, "--plot", picture, "--kind", kind)["plot"] == str(picture)
    assert picture.read_bytes().startswith(PNG)


def test_info():
    found = answer("info")
    assert found["likewise"] == metadata.version("likewise")
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert found["simd"] in ("avx512", "avx2", "baseline")
    assert set(found["kernels"]) >= {"dtw", "soft_dtw"}
    assert found["kernels"]["dtw"]["cpu"] is True
    assert found["kernels"]["dtw"]["gpu"] is (found["triton"] is not None)
    text = run("info").stdout
    assert re.search(r"soft_dtw +yes +(yes|no)", text)
    assert re.search(rf"simd +{found['simd']}", text)


def test_info_without_triton(monkeypatch):
    version = metadata.version

    def absent(name):
        if name == "triton":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", absent)
    found = answer("info")
    assert found["triton"] is None
    assert found["kernels"]["dtw"] == {"cpu": True, "gpu": False}
    assert re.search(r"triton +absent", run("info").stdout)


def test_version():
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"likewise {metadata.version('likewise')}\n")


@pytest.mark.parametrize("command", [[], ["distance"], ["align"], ["info"], ["demo"]])
def test_help(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")


def test_missing_and_junk_files(a, tmp_path):
    missing = tmp_path / "missing.npz"
    assert refusal(1, "distance", missing) == f"error: {missing}: No such file or directory\n"
    junk = tmp_path / "junk.npz"
    junk.write_bytes(b"junk")
    assert refusal(1, "distance", a, junk).startswith(f"error: {junk}: not an .npz file, or a damaged one: ")
    text = tmp_path / "junk.ts"
    text.write_text("@univariate perhaps\n")
    assert refusal(1, "align", text, a) == f"error: {text}:1:13: expected true or false, got 'perhaps'\n"
    csv = tmp_path / "a.csv"
    assert refusal(1, "distance", csv) == f"error: {csv}: expected a file that ends in .npz or .ts\n"
    empty = tmp_path / "empty.npz"
    np.savez(empty, X=np.zeros((0, 3, 2)))
    assert refusal(1, "distance", empty) == f"error: {empty}: holds no sequences\n"


def test_bad_values(a, b, tmp_path):
    three = tmp_path / "three.npz"
    lw.write_npz(lw.Dataset(sequences(0, 2, channels=3)), three)
    assert refusal(1, "distance", a, three) == "error: DTW: x has 2 channels and y has 3\n"
    assert refusal(1, "align", a, three) == "error: DTW: x has 2 channels and y has 3\n"
    assert refusal(1, "distance", a, "-d", "soft-dtw", "--gamma", "0").startswith("error: SoftDTW: gamma must be pos")
    assert refusal(1, "distance", a, "--band", "1.5").startswith("error: DTW: band must be a whole number of steps")
    held = f"error: {a}: item 3 is out of range; it holds 3, counted from 0\n"
    assert refusal(1, "align", a, b, "--item-a", "3") == held
    assert refusal(1, "align", a, b, "--item-b", "-1").endswith("item -1 is out of range; it holds 4, counted from 0\n")
    assert refusal(1, "align", a, b, "--plot", tmp_path / "x.nope").startswith("error: Format 'nope' is not supported")
    assert refusal(1, "distance", b, "--split-a", "train") == f"error: {b}: only an .npz file has splits\n"


def test_output_is_checked_before_the_work(a, tmp_path, monkeypatch):
    monkeypatch.setattr(lw.DTW, "matrix", None)
    assert refusal(1, "distance", a, "-o", tmp_path) == f"error: {tmp_path}: is a folder\n"
    nowhere = tmp_path / "none" / "D.npz"
    assert refusal(1, "distance", a, "-o", nowhere) == f"error: {nowhere}: its folder does not exist\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gamma", "1"], "dtw has no option --gamma; it has --band, --ground, --normalize, --subsequence"),
        (["-d", "soft-dtw", "--normalize", "steps"], "soft-dtw has no option --normalize; it has --band, --gamma"),
        (["-d", "euclidean", "--band", "3"], "euclidean has no option --band; it has none"),
        (["-d", "cosine", "--ground", "cosine"], "cosine has no option --ground; it has none"),
        (["-d", "hamming"], "'hamming' is not one of 'dtw', 'soft-dtw'"),
        (["--band", "wide"], "'wide' is neither a whole number nor a fraction"),
        (["--ground", "l1"], "'l1' is not one of"),
        (["--split-b", "train"], "--split-b needs B"),
        (["--colour"], "No such option: --colour"),
    ],
)
def test_wrong_usage(a, arguments, message):
    assert message in refusal(2, "distance", a, *arguments)


def test_ctrl_c(a, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(lw.DTW, "matrix", interrupted)
    refusal(130, "distance", a)


def test_mistakes_of_ours_show_themselves(a, monkeypatch):
    def broken(*args, **options):
        raise TypeError("ours")

    monkeypatch.setattr(lw.DTW, "matrix", broken)
    result = run("distance", a)
    assert isinstance(result.exception, TypeError)
    assert "error:" not in result.output


def test_demo_calls_the_recipe(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr("likewise.recipes.demo.main", lambda *arguments: called.append(arguments))
    assert run("demo", "--out", tmp_path, "--json").exit_code == 0
    assert called == [(tmp_path, True)]


def test_as_a_module():
    result = subprocess.run(
        [sys.executable, "-m", "likewise", "info", "--json"], capture_output=True, text=True, check=True, timeout=120
    )
    assert json.loads(result.stdout)["python"] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize(
    ("module", "absent"), [("likewise", {"typer", "rich", "matplotlib"}), ("likewise.cli", {"matplotlib", "aeon"})]
)
def test_imports_are_lazy(module, absent):
    code = f"import sys, {module}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert absent.isdisjoint(result.stdout.split())
