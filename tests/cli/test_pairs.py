import json
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import likewise as lw
from likewise import scale
from likewise.cli import app
from likewise.data import read_npz, write_npz
from likewise.scale.matrix import compute_tile

matrix_module = sys.modules[compute_tile.__module__]  # likewise.scale.matrix is also the name of the function


def run(*arguments) -> str:
    result = CliRunner().invoke(app, ["pairs", *map(str, arguments)])
    if result.exit_code:
        raise ValueError(f"{result.exit_code}: {result.output} {result.stderr}")
    return result.stdout


@pytest.fixture
def path(tmp_path):
    write_npz(lw.Dataset(torch.randn(9, 5, 1, generator=torch.Generator().manual_seed(0))), tmp_path / "a.npz")
    return tmp_path / "a.npz"


def test_a_matrix_in_a_folder(path, tmp_path):
    out = tmp_path / "D.zarr"
    facts = json.loads(run(path, "--out", out, "--tile", 4, "--band", 2, "--json"))
    assert (facts["shape"], facts["tiles"], facts["computed"]) == ([9, 9], 6, 6)
    x = read_npz(path).items
    np.testing.assert_allclose(scale.TiledMatrix(out)[:], lw.DTW(band=2).matrix(x).numpy(), rtol=1e-5)
    with pytest.raises(ValueError, match="--resume continues it, --force replaces it"):
        run(path, "--out", out, "--band", 2)
    (out / "c/0/1").unlink()
    assert json.loads(run(path, "--out", out, "--band", 2, "--resume", "--json"))["computed"] == 1
    assert json.loads(run(path, "--out", out, "--half", "--force", "--json"))["computed"] > 0
    assert scale.TiledMatrix(out).dtype == np.float16


def test_force_replaces_only_a_matrix(path, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("mine")
    with pytest.raises(ValueError, match="has other files"):
        run(path, "--out", tmp_path / "full", "--force")
    assert (tmp_path / "full" / "a").read_text() == "mine"


def test_the_old_matrix_stays_until_the_new_one_is_complete(path, tmp_path, monkeypatch):
    out, part = tmp_path / "D.zarr", tmp_path / "D.zarr.unfinished"
    run(path, "--out", out, "--tile", 4)
    before = scale.TiledMatrix(out)[:]
    write, written = matrix_module.write_tile, []

    def interrupted(*given):
        written.append(given)
        if len(written) == 3:
            raise KeyboardInterrupt
        write(*given)

    monkeypatch.setattr(matrix_module, "write_tile", interrupted)
    result = CliRunner().invoke(app, ["pairs", str(path), "--out", str(out), "--tile", "4", "--band", "1", "--force"])
    assert result.exit_code == 130, result.output
    np.testing.assert_array_equal(scale.TiledMatrix(out)[:], before)
    assert len(list(part.rglob("c/*/*"))) == 2
    # It goes on where it was, and only then takes the place of the old one.
    monkeypatch.setattr(matrix_module, "write_tile", write)
    facts = json.loads(run(path, "--out", out, "--tile", 4, "--band", 1, "--resume", "--json"))
    assert (facts["tiles"], facts["computed"]) == (6, 4)
    expected = lw.DTW(band=1).matrix(read_npz(path).items).numpy()
    np.testing.assert_allclose(scale.TiledMatrix(out)[:], expected, rtol=1e-5)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["D.zarr", "a.npz"]


def test_an_unfinished_matrix_is_neither_the_result_nor_forgotten(path, tmp_path, monkeypatch):
    out, part = tmp_path / "D.zarr", tmp_path / "D.zarr.unfinished"

    def interrupted(*given):
        raise KeyboardInterrupt

    write = matrix_module.write_tile
    monkeypatch.setattr(matrix_module, "write_tile", interrupted)
    assert CliRunner().invoke(app, ["pairs", str(path), "--out", str(out)]).exit_code == 130
    assert not out.exists()
    monkeypatch.setattr(matrix_module, "write_tile", write)
    with pytest.raises(ValueError, match=r"D\.zarr\.unfinished: is not complete; --resume"):
        run(path, "--out", out)
    run(path, "--out", out, "--force", "--band", 1)
    assert not part.exists()
    assert scale.TiledMatrix(out).shape == (9, 9)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file; pairs writes a folder"):
        run(path, "--out", tmp_path / "file")


@pytest.mark.parametrize(("address", "code"), [("127.0.0.1:1", 1), ("127.0.0.1:99999", 1), ("nowhere", 2), ("a:b", 2)])
def test_a_cluster_that_is_not_there(path, tmp_path, address, code):
    pytest.importorskip("ray")
    result = CliRunner().invoke(app, ["pairs", str(path), "--out", str(tmp_path / "D"), "--ray", address])
    assert result.exit_code == code, result.output
    assert ("there is no such cluster" if code == 1 else "expected auto, local, or an address") in result.stderr


def test_a_cluster_of_its_own(path, tmp_path, monkeypatch):
    """--ray local leaves it to scale.matrix to start one; an address is joined before."""
    ray = pytest.importorskip("ray")
    joined, computed = [], []

    def matrix(*given, **how):
        computed.append(how["engine"])
        raise ValueError("far enough")

    monkeypatch.setattr(ray, "init", lambda **given: joined.append(given["address"]))
    monkeypatch.setattr(lw.scale, "matrix", matrix)
    for how in ("local", "auto"):
        result = CliRunner().invoke(app, ["pairs", str(path), "--out", str(tmp_path / how), "--ray", how])
        assert "far enough" in result.stderr
    assert (joined, computed) == (["auto"], ["ray", "ray"])
