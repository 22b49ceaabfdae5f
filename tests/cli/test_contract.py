"""What every command has in common. A new command needs an example here, and inherits all of it."""

import errno
import json
import os
import re
from types import SimpleNamespace

import pytest
import torch
import typer.main

import likewise as lw
from likewise import _output
from likewise.cli import app, printing
from likewise.distances import distance as distances
from tests.cli.commands import run

COMMANDS = typer.main.get_command(app).commands
# A small job of each command, in a folder with the files that ``folder`` makes. OUT is where it may write.
EXAMPLES = {
    "align": "a.npz a.npz -j 1 --plot OUT.png",
    "average": "a.npz -o OUT.npz",
    "cluster": "a.npz -c 2 -o OUT.csv",
    "convert": "a.npz -o OUT.npz",
    "demo": "--out OUT --minutes 0.0001",
    "distance": "a.npz -o OUT.npz",
    "evaluate": "a.npz",
    "explain": "index a.npz --plot OUT.png",
    "explore": "missing.npz",
    "fewshot": "a.npz --ways 2 --episodes 5",
    "index": "a.npz -o OUT",
    "info": "",
    "pairs": "a.npz --out OUT",
    "search": "index a.npz -o OUT.csv",
    "serve": "missing.npz",
    "train": "a.npz -o OUT --metric dtw --minutes 1",
    "tune": "a.npz -o OUT --grid band=0,1",
}
SERVERS = {"explore", "serve"}  # they run until they are stopped; tests/web runs them
NO_DATA = {"demo", "info"}
# These draw something at random; the others give the same answer every time.
SEEDED = {"cluster", "demo", "evaluate", "explore", "fewshot", "train", "tune"}
# These use a GPU if there is one; the others compute on the CPU.
ON_DEVICES = {"align", "average", "cluster", "demo", "distance", "evaluate", "explain", "explore", "fewshot", "pairs"}
ON_DEVICES |= {"search", "serve", "train", "tune"}
# These may take minutes; of the others, reading may, which says for how long already.
LONG = {"average", "cluster", "demo", "distance", "evaluate", "fewshot", "index", "pairs", "search", "train", "tune"}
WRITES = {name for name, given in EXAMPLES.items() if "OUT" in given}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Labelled sequences and an index, in the working directory."""
    generator = torch.Generator().manual_seed(0)
    items = [torch.randn(4 + i % 3, 2, generator=generator) + 3.0 * (i % 2) for i in range(8)]
    data = lw.Dataset(items, ["low", "high"] * 4)
    lw.data.write_npz(data, tmp_path / "a.npz")
    lw.Index(lw.DTW(), data).save(tmp_path / "index")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def small_demo(monkeypatch):
    from likewise.cli import demo

    train, test = demo.load_japanese_vowels()
    monkeypatch.setattr(demo, "load_japanese_vowels", lambda: (train[::6], test[::12]))


def words(name, out="result"):
    return [name, *EXAMPLES[name].replace("OUT", out).split()]


def written(folder):
    """The names of what a command left behind."""
    return sorted(path.name for path in folder.iterdir() if path.name not in ("a.npz", "index"))


def one_line(result):
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert re.fullmatch(r"error: [^\n]+\n", result.stderr), result.stderr
    return result.stderr


def options(name):
    return {option for parameter in COMMANDS[name].params for option in parameter.opts}


def test_every_command_has_an_example():
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_common_options(name):
    assert "--json" in options(name)
    assert ("--seed" in options(name)) == (name in SEEDED)
    assert ("--device" in options(name)) == (name in ON_DEVICES)
    assert ("--force" in options(name)) == (name in WRITES)
    assert all(parameter.help for parameter in COMMANDS[name].params)
    assert COMMANDS[name].help
    assert len(COMMANDS[name].get_short_help_str(80)) <= 55  # a line of an overview in a window of 80 columns
    assert "``" not in COMMANDS[name].help


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - SERVERS))
def test_json_is_one_object_and_all_that_is_printed(name, folder, small_demo):
    result = run(*words(name), "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    assert isinstance(json.loads(result.stdout), dict)


@pytest.mark.parametrize("name", sorted(WRITES - {"demo"}))
def test_results_are_never_replaced_without_force_and_are_whole_or_absent(name, folder, monkeypatch):
    assert run(*words(name)).exit_code == 0
    (left,) = written(folder)
    before = _content(folder / left)
    assert "--force replaces it" in one_line(run(*words(name)))
    assert _content(folder / left) == before
    assert run(*words(name), "--force").exit_code == 0
    assert written(folder) == [left]

    def full(*given, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "result")

    monkeypatch.setattr(_output, "_finish", full)
    before = _content(folder / left)
    assert "No space left" in one_line(run(*words(name), "--force"))
    assert _content(folder / left) == before
    one_line(run(*words(name, "other")))
    assert [entry for entry in written(folder) if entry.endswith((".part", ".old"))] == []
    for entry in set(written(folder)) - {
        left,
        "result.search",
        "other.search",
        "result.unfinished",
        "other.unfinished",
    }:
        assert (folder / entry).is_dir()
        assert not (folder / entry / "index.json").exists()


def _content(path):
    if path.is_file():
        return path.read_bytes()
    return {
        str(file): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and "search" not in file.parts
    }


@pytest.mark.parametrize("name", sorted(LONG))
def test_on_a_terminal_long_work_shows_the_time_left(name, folder, small_demo, monkeypatch):
    monkeypatch.setattr(printing, "sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(distances, "CELLS_A_STEP", 1)  # a matrix that takes less than a tenth of a second has no bar
    monkeypatch.setenv("FORCE_COLOR", "1")  # for rich, which draws what moves on a terminal only
    result = run(*words(name))
    assert result.exit_code == 0, result.output
    assert re.search(r"\d:\d\d|-:--:--", result.stderr), result.stderr


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - NO_DATA))
def test_a_missing_file_is_one_line(name, folder):
    given = [word.replace("a.npz", "missing.npz") for word in words(name)]
    assert "missing.npz" in one_line(run(*given))
    assert written(folder) == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_wrong_usage_is_2(name, folder):
    result = run(*words(name), "--colour", "red")
    assert result.exit_code == 2
    assert "No such option" in result.stderr
    assert written(folder) == []


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - SERVERS - NO_DATA))
def test_ctrl_c_is_130_and_leaves_nothing(name, folder, monkeypatch):
    def interrupted(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(lw, "read_npz", interrupted)
    result = run(*words(name))
    assert result.exit_code == 130, result.output
    assert "Traceback" not in result.output
    assert written(folder) == []


@pytest.mark.parametrize("name", sorted(SEEDED - SERVERS - {"demo"}))
def test_a_seed_makes_answers_equal(name, folder):
    first, second = (json.loads(run(*words(name, out), "--seed", 3, "--json").stdout) for out in ("one", "two"))
    for answer in (first, second):
        for key in ("seconds", "output", "results", "files"):
            answer.pop(key, None)
    assert first == second
