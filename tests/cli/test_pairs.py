import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import likewise as lw
from likewise import scale
from likewise.cli import app


def run(*arguments) -> str:
    result = CliRunner().invoke(app, ["pairs", *map(str, arguments)])
    if result.exit_code:
        raise ValueError(f"{result.exit_code}: {result.output} {result.stderr}")
    return result.stdout


@pytest.fixture
def path(tmp_path):
    lw.write_npz(lw.Dataset(torch.randn(9, 5, 1, generator=torch.Generator().manual_seed(0))), tmp_path / "a.npz")
    return tmp_path / "a.npz"


def test_a_matrix_in_a_folder(path, tmp_path):
    out = tmp_path / "D.zarr"
    facts = json.loads(run(path, "--out", out, "--tile", 4, "--band", 2, "--json"))
    assert (facts["shape"], facts["tiles"], facts["computed"]) == ([9, 9], 6, 6)
    x = lw.read_npz(path).items
    assert np.array_equal(scale.TiledMatrix(out)[:], lw.DTW(band=2).matrix(x).numpy())
    with pytest.raises(ValueError, match="--resume continues it, --force replaces it"):
        run(path, "--out", out, "--band", 2)
    (out / "c/0/1").unlink()
    assert json.loads(run(path, "--out", out, "--band", 2, "--resume", "--json"))["computed"] == 1
    assert json.loads(run(path, "--out", out, "--half", "--force", "--json"))["computed"] > 0
    assert scale.TiledMatrix(out).dtype == np.float16


def test_force_replaces_only_a_matrix(path, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("mine")
    with pytest.raises(ValueError, match="holds other files"):
        run(path, "--out", tmp_path / "full", "--force")
    assert (tmp_path / "full" / "a").read_text() == "mine"
