"""The READMEs' tables are those that the lines give."""

import re
import runpy
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest

import papers.common
from papers.report import PAPERS, main

ROOT = Path(papers.__file__).parent


@pytest.mark.parametrize("paper", PAPERS)
def test_a_readme_has_the_tables_of_its_lines(paper):
    text = (ROOT / paper / "README.md").read_text()
    found = list(import_module(f"papers.{paper}.report").tables())
    for each in found:
        assert each in text, f"run python -m papers.{paper}.report, and put this table into its README.md:\n{each}"
    assert text.count("|---|") == sum(each.count("|---|") for each in found), "a table that no report prints"


@pytest.mark.parametrize("paper", PAPERS)
def test_a_readme_says_in_words_what_its_lines_say(paper):
    text = " ".join((ROOT / paper / "README.md").read_text().split())
    for each in getattr(import_module(f"papers.{paper}.report"), "sentences", tuple)():
        assert each in text, f"README.md of {paper} should say: {each}"


def test_every_folder_is_a_paper_that_is_reported(capsys):
    assert {path.parent.name for path in ROOT.glob("*/run.py")} == set(PAPERS)
    index = (ROOT / "README.md").read_text()
    assert all(f"({paper}/README.md)" in index for paper in PAPERS)
    main()
    assert all(f"# {paper}" in capsys.readouterr().out for paper in PAPERS[:1])


def test_pictures_and_files_that_readmes_name_exist():
    for readme in ROOT.glob("**/README.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", readme.read_text()):
            assert (readme.parent / target).exists(), f"{readme}: {target}"


def test_the_index_quotes_the_tables():
    # Every number of the last two columns is in a table of the paper that the row is of.
    paper = None
    for row in (ROOT / "README.md").read_text().splitlines():
        if not row.startswith("| ") or row.startswith("| paper"):
            continue
        cells = row.strip("|").split("|")
        found = re.search(r"\((\w+)/README", cells[0])
        paper = found.group(1) if found else paper
        text = (ROOT / str(paper) / "README.md").read_text()
        for number in re.findall(r"\d*\.\d+", cells[3] + cells[4]):
            assert number in text, f"{paper}: {number}"


def commands():
    """The commands in the READMEs, with continued lines joined, and without comments."""
    for readme in sorted(ROOT.glob("**/README.md")):
        text, names = readme.read_text().replace("\\\n", " "), {}
        for line in re.findall(r"^(?:\$?\w+=?.*)$", "\n".join(re.findall(r"^```\n(.*?)^```", text, re.M | re.S)), re.M):
            words = shlex.split(line, comments=True)
            if "=" in words[0]:
                name, value = words[0].split("=", 1)
                names[f"${name}"] = shlex.split(value)
            else:
                yield pytest.param(names.get(words[0], words[:1]) + words[1:], id=f"{readme.parent.name}: {line[:60]}")


@pytest.mark.parametrize("command", list(commands()))
def test_commands_of_readmes_are_understood(command, monkeypatch):
    python, module, *given = [word for word in command if word != "-m"]
    assert python == "python"
    real = papers.common.from_command_line

    def parsed(*parts, arguments=None):
        real(*parts, arguments=given)
        raise SystemExit(0)

    monkeypatch.setattr("papers.common.from_command_line", parsed)
    monkeypatch.delitem(sys.modules, module, raising=False)  # or runpy warns
    with pytest.raises(SystemExit) as found:
        runpy.run_module(module, run_name="__main__")
    assert found.value.code == 0
