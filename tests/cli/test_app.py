import json
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest

import likewise as lw
from likewise.cli import COMMANDS
from tests.cli.commands import refusal, run, sequences


def test_version():
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"likewise {metadata.version('likewise')}\n")


@pytest.mark.parametrize("command", [[], *([command.__name__] for command in COMMANDS)], ids=str)
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
    text = tmp_path / "a.txt"
    assert refusal(1, "distance", text).startswith(
        f"error: {text}: expected a folder of WAV files, or a file that ends"
    )
    empty = tmp_path / "empty.npz"
    np.savez(empty, X=np.zeros((0, 3, 2)))
    assert refusal(1, "distance", empty) == f"error: {empty}: has no items\n"


def test_bad_values(a, b, tmp_path):
    three = tmp_path / "three.npz"
    lw.data.write_npz(lw.Dataset(sequences(0, 2, channels=3)), three)
    assert refusal(1, "distance", a, three) == "error: DTW: x has 2 channels and y has 3\n"
    assert refusal(1, "align", a, three) == "error: DTW: x has 2 channels and y has 3\n"
    assert refusal(1, "distance", a, "-d", "soft-dtw", "--gamma", "0").startswith("error: SoftDTW: gamma must be pos")
    assert refusal(1, "distance", a, "--band", "1.5").startswith("error: DTW: band must be a whole number of steps")
    held = f"error: {a}: item 3 is out of range; it holds 3, counted from 0\n"
    assert refusal(1, "align", a, b, "--item-a", "3") == held
    assert refusal(1, "align", a, b, "--item-b", "-1").endswith("item -1 is out of range; it holds 4, counted from 0\n")
    assert refusal(1, "align", a, b, "--plot", tmp_path / "x.nope").startswith("error: Format 'nope' is not supported")
    assert refusal(1, "distance", b, "--split-a", "train") == f"error: {b}: only an .npz file has splits\n"


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


def test_internal_errors_show_their_traceback(a, monkeypatch):
    def broken(*args, **options):
        raise TypeError("ours")

    monkeypatch.setattr(lw.DTW, "matrix", broken)
    result = run("distance", a)
    assert isinstance(result.exception, TypeError)
    assert "error:" not in result.output


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
