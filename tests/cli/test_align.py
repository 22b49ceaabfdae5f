import pytest

import likewise as lw
from likewise.cli.arguments import DISTANCES
from tests.cli.commands import answer, run

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", ["dtw", "soft-dtw", "gdtw"])
def test_align_prints_value_and_path(a, b, name):
    found = answer("align", a, b, "--item-a", 2, "--item-b", 1, "-d", name)
    x, y = lw.read_npz(a).items[2], lw.read_ts(b).items[1]
    alignment = DISTANCES[name]().align([x], [y])
    assert found["value"] == alignment.value.item()
    assert found["path"] == alignment.path(0).tolist()
    assert found["items"] == [2, 1]
    assert found["lengths"] == [len(x), len(y)] == [7, 6]
    assert found["plot"] is None


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
