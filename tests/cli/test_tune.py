import pytest
import torch

import likewise as lw
from tests.cli.commands import answer, refusal, run


@pytest.fixture
def path(tmp_path):
    generator = torch.Generator().manual_seed(0)
    items = torch.randn(24, 12, 1, generator=generator).cumsum(1) + torch.tensor([0.0, 1.0]).repeat(12)[:, None, None]
    lw.data.write_npz(lw.Dataset(items, ["a", "b"] * 12), tmp_path / "walks.npz")
    return tmp_path / "walks.npz"


def test_it_is_the_librarys_and_other_commands_take_it(path, tmp_path):
    found = answer(
        "tune", path, "--grid", "band=0,0.1,null", "--grid", 'normalize=null,"steps"', "-o", tmp_path / "best"
    )
    grid = {"band": [0, 0.1, None], "normalize": [None, "steps"]}
    expected = lw.tune(lw.DTW(), lw.read_npz(path), grid)
    assert found["best"] == dict(expected.setting)
    assert found["settings"] == expected.rows()
    assert lw.Metric.load(tmp_path / "best").distance.config() == expected.distance.config()
    told = answer("evaluate", path, "--metric", tmp_path / "best")
    assert told["accuracy"] == pytest.approx(found["accuracy"])


@pytest.mark.parametrize("name", ["dtw", "adtw", "edr", "lcss"])
def test_usual_values(path, name):
    result = run("tune", path, "-d", name, "--most", 16)
    assert result.exit_code == 0, result.output
    assert "leave-one-out accuracy" in result.stdout
    assert "% of 16 items" in result.stdout


def test_refusals(path, a, tmp_path):
    assert "has no classes" in refusal(1, "tune", a)
    assert "cosine has no usual values; give --grid" in refusal(2, "tune", path, "-d", "cosine")
    assert "has no setting 'gamma'" in refusal(1, "tune", path, "--grid", "gamma=1,2")
    assert "is not a list of values" in refusal(2, "tune", path, "--grid", "band")
    assert "expected band to be a number" in refusal(1, "tune", path, "--grid", "band=wide")
