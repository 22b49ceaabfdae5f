"""Settings from the command line, lines, and tables."""

from dataclasses import dataclass
from pathlib import Path

import pytest

import papers
from papers.common import (
    Run,
    accelerator,
    bold,
    check_choice,
    decimals,
    emit,
    find_line,
    from_command_line,
    load,
    read_lines,
    rounded,
    spread,
    table,
)


@dataclass(frozen=True)
class Settings:
    """Some settings."""

    epochs: int = 3
    lr: float | None = None
    sizes: tuple[int, ...] = (1, 2)
    augment: bool = False
    path: Path | None = None


def test_settings_are_set_by_options(capsys):
    run, settings = from_command_line(Run(), Settings(), arguments=["--seeds", "4", "5", "--sizes", "7", "--augment"])
    assert (run.seeds, settings) == ((4, 5), Settings(sizes=(7,), augment=True))
    (settings,) = from_command_line(
        Settings(), arguments=["--lr", "1e-3", "--epochs", "5", "--path", "a/b", "--no-augment"]
    )
    assert settings == Settings(epochs=5, lr=1e-3, path=Path("a/b"))
    with pytest.raises(SystemExit):
        from_command_line(Settings(), arguments=["--epoch", "x"])
    with pytest.raises(SystemExit):
        from_command_line(Settings(), arguments=["--help"])
    assert "Some settings." in capsys.readouterr().out


def test_lines_are_kept_and_found(tmp_path, capsys):
    out = tmp_path / "new" / "lines.jsonl"
    assert read_lines(out) == read_lines(None) == []
    emit({"a": 1 / 3, "b": [1, 2]}, out)
    assert capsys.readouterr().out == out.read_text()
    with out.open("a") as file:
        file.write('{"a": 0.5, "cut off')
    assert find_line({"a": 0.33333, "b": (1, 2)}, out) == {"a": 1 / 3, "b": [1, 2]}
    assert find_line({"a": 0.3334}, out) is None
    assert find_line({"a": 1 / 3, "c": 0}, out) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (123456.789, 123460.0),
        (-0.000123456, -0.00012346),
        (7, 7),
        (True, True),
        (None, None),
        ("1.23456789", "1.23456789"),
        ({"a": [1.0000001, (2.0, 1 / 3)]}, {"a": [1.0, [2.0, 0.33333]]}),
        (float("inf"), float("inf")),
    ],
)
def test_numbers_are_rounded_wherever_they_are(value, expected):
    assert rounded(value) == expected
    assert type(rounded(value)) is type(expected)


def test_cells_and_tables():
    assert spread([], "{:.1f}") == ""
    assert spread([1.0], "{:.1f}") == "1.0"
    assert spread([1.0, 3.0], "{:+.1f}") == "+2.0 ± 1.4"
    assert decimals([0.5, 0.75]) == ".625 ± .177"
    assert table(["", "a", "b"], [["x", "", ""]]).splitlines()[-1] == "| x | | |"
    assert bold([["a", "1.5"], ["b", "9"]], least=True) == [["a", "**1.5**"], ["b", "9"]]
    assert bold([["a", "80.1 %"], ["b", "80.1 %"], ["c", ""]]) == [["a", "**80.1 %**"], ["b", "**80.1 %**"], ["c", ""]]


def test_missing_and_unknown_names_are_named(tmp_path):
    with pytest.raises(SystemExit, match=r"none\.npz does not exist; give --data-dir or set LIKEWISE_DATA"):
        load(tmp_path / "none.npz")
    with pytest.raises(SystemExit, match="error: --data is 'b'; expected one of a, c"):
        check_choice("--data", "b", ["a", "c"])
    assert Run(folder=tmp_path).kept("sad", "a/b", 3) == tmp_path / "sad, a_b, 3"
    assert Run().kept("sad") is None


def test_training_is_on_the_device_that_the_line_names():
    assert (accelerator("cpu"), accelerator("cuda")) == ("cpu", "auto")
    for path in Path(papers.__file__).parent.glob("*/*.py"):  # fit itself would take a GPU if there is one
        text = path.read_text()
        assert text.count("lw.fit(") == text.count("accelerator="), path
