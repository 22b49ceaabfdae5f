import resource
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch

import likewise as lw
from likewise import DTW, Batch, Distance, Euclidean, FrameMLP, Metric, scale
from tests.scale.conftest import walks


def unequal(count: int = 13) -> Batch:
    lengths = torch.arange(count) % 7 + 4
    values = walks(count, 10, seed=1).clone()
    values[torch.arange(10) >= lengths[:, None]] = torch.nan  # padding may hold anything
    return Batch(values, lengths)


class Lopsided(Distance):
    """Not symmetric."""

    def paired(self, x, y, x_lengths, y_lengths):
        return x[:, 0, 0] - 2 * y[:, 0, 0]


@pytest.mark.parametrize("tile", [None, 4, 5, 100])
@pytest.mark.parametrize("distance", [DTW(), DTW(band=0.2), Lopsided()], ids=["dtw", "band", "lopsided"])
def test_equals_the_matrix_in_memory(tmp_path, distance, tile):
    x = unequal()
    D = scale.matrix(distance, x, out=tmp_path / "D.zarr", tile=tile)
    assert D.symmetric == distance.symmetric
    np.testing.assert_allclose(D[:], distance.matrix(x).numpy(), rtol=1e-5)
    y = unequal(6)
    E = scale.matrix(distance, x, y, out=tmp_path / "E", tile=tile)
    np.testing.assert_allclose(np.asarray(E), distance.matrix(x, y).numpy(), rtol=1e-5)


def test_only_the_triangle_is_stored(tmp_path):
    D = scale.matrix(DTW(), walks(12), out=tmp_path / "D.zarr", tile=3)
    files = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "D.zarr" / "c").rglob("*") if path.is_file())
    assert files == sorted(f"D.zarr/c/{i}/{j}" for j in range(4) for i in range(j + 1))
    assert D.layout.count == D.report.jobs == D.report.computed == 10


def test_float16_and_what_does_not_fit(tmp_path):
    x = walks(9)
    D = scale.matrix(DTW(), x, out=tmp_path / "D.zarr", tile=4, dtype="float16")
    assert D.dtype == np.float16
    np.testing.assert_allclose(D[:], DTW().matrix(x).half().numpy(), rtol=1e-5)
    with pytest.raises(ValueError, match="does not fit in float16; use float32"):
        scale.matrix(DTW(), x * 1000, out=tmp_path / "E.zarr", dtype="float16")
    wide = scale.matrix(DTW(), x.double() * 1000, out=tmp_path / "F.zarr")
    assert wide.dtype == np.float32


def test_a_metric_encodes_each_item_once(tmp_path):
    seen = []

    class Counting(FrameMLP):
        def forward(self, x):
            seen.append(len(x))
            return super().forward(x)

    metric = Metric(Counting(1, hidden=4, out=3), DTW())
    x = unequal()
    D = scale.matrix(metric, x, out=tmp_path / "D.zarr", tile=4)
    assert sum(seen) == len(x)
    with torch.no_grad():
        expected = metric.distance.matrix(metric.embed(x)).numpy()
    assert np.array_equal(D[:], expected)


def test_vectors_and_a_dataset(tmp_path):
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    D = scale.matrix(Euclidean(), x, out=tmp_path / "D.zarr", tile=7)
    np.testing.assert_allclose(D[:], Euclidean().matrix(x).numpy(), atol=1e-6)
    data = lw.Dataset(walks(6), list("aabbcc"))
    np.testing.assert_allclose(
        scale.matrix(DTW(), data, out=tmp_path / "E", tile=4)[:], DTW().matrix(data).numpy(), rtol=1e-5
    )


def test_threads_of_several_devices(tmp_path):
    x = walks(30)
    D = scale.matrix(DTW(), x, out=tmp_path / "D.zarr", tile=4, devices=["cpu", "cpu", "cpu"])
    np.testing.assert_allclose(D[:], DTW().matrix(x).numpy(), rtol=1e-5)


def test_on_ray(cluster, tmp_path):
    x = unequal(40)
    here = scale.matrix(DTW(), x, out=tmp_path / "here", tile=8)
    D = scale.matrix(DTW(), x, out=tmp_path / "D.zarr", tile=8, engine="ray", progress=True)
    assert np.array_equal(D[:], here[:])
    assert D.report.computed == D.layout.count
    assert 0 < max(D.report.memory.values()) < 4 << 30
    assert scale.matrix(DTW(), x, out=tmp_path / "D.zarr", engine="ray").report.computed == 0
    with pytest.raises(ValueError, match="does not fit in float16"):
        scale.matrix(DTW(), x.values.nan_to_num() * 1e4, out=tmp_path / "F", dtype="float16", engine="ray")


def test_resumes(tmp_path):
    x, out = walks(20), tmp_path / "D.zarr"
    D = scale.matrix(DTW(), x, out=out, tile=6)
    expected, files = D[:], {path: path.stat().st_mtime_ns for path in out.rglob("c/*/*")}
    gone, damaged = out / "c/0/1", out / "c/2/3"
    gone.unlink()
    content = bytearray(damaged.read_bytes())
    content[100] ^= 4
    damaged.write_bytes(content)
    assert [tile.key for tile in D.missing()] == ["c/0/1"]
    with pytest.raises(ValueError, match="c/2/3: damaged"):
        scale.TiledMatrix(out)[:6, 18:], scale.TiledMatrix(out)[12:18, 18:]
    again = scale.matrix(DTW(), x, out=out)
    assert again.report.computed == 2
    assert np.array_equal(again[:], expected)
    again.verify()
    for path, written in files.items():
        assert path in (gone, damaged) or path.stat().st_mtime_ns == written


def test_a_different_run_is_not_resumed(tmp_path):
    x, out = walks(8), tmp_path / "D.zarr"
    scale.matrix(DTW(), x, out=out, tile=4)
    for problem, change in {
        "another distance or items": {"distance": DTW(band=2)},
        "another shape": {"X": walks(9)},
        "distance or items": {"X": walks(8, seed=5)},
        "another dtype": {"dtype": "float16"},
        "another tile": {"tile": 3},
        "already has a matrix": {"resume": False},
    }.items():
        with pytest.raises(ValueError, match=problem):
            scale.matrix(**{"distance": DTW(), "X": x, "out": out, **change})
    weights = Metric(FrameMLP(1, hidden=4, out=2), DTW())
    scale.matrix(weights, x, out=tmp_path / "M")
    with torch.no_grad():
        next(weights.parameters()).add_(0.1)
    with pytest.raises(ValueError, match="distance or items"):
        scale.matrix(weights, x, out=tmp_path / "M")


def test_bad_arguments_are_refused_by_name(tmp_path):
    x = walks(4)
    out = tmp_path / "D.zarr"
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("")
    nan = x.clone()
    nan[2, 3] = torch.nan
    for error, problem, given in [
        (TypeError, "expected distance to be a Distance", {"distance": "dtw"}),
        (ValueError, r"x\[..., None\]|shape \(B, T, C\)|channel", {"X": x[..., 0]}),
        (ValueError, r"X\[2\] holds nan at step 3", {"X": nan}),
        (ValueError, "at least one item", {"X": x[:0]}),
        (ValueError, "do not match", {"Y": torch.zeros(3, 4, 2)}),
        (TypeError, "float64", {"Y": x.double()}),
        (ValueError, "tile", {"tile": 0}),
        (TypeError, "tile", {"tile": "big"}),
        (ValueError, "takes more than 1024 MB", {"tile": 1 << 15}),
        (ValueError, "dtype must be", {"dtype": "float64"}),
        (ValueError, "engine must be", {"engine": "dask"}),
        (NotADirectoryError, "is a file", {"out": tmp_path / "file"}),
        (ValueError, "has other files", {"out": tmp_path / "full"}),
    ]:
        with pytest.raises(error, match=problem):
            scale.matrix(**{"distance": DTW(), "X": x, "out": out, **given})
    assert not out.exists()


def test_nan_is_refused(tmp_path):
    class Broken(Lopsided):
        def paired(self, x, y, x_lengths, y_lengths):
            return super().paired(x, y, x_lengths, y_lengths).sqrt()

    with pytest.raises(ValueError, match=r"returned NaN for the pair \(0, "):
        scale.matrix(Broken(), walks(5).abs() + 1, out=tmp_path / "D.zarr")


PROGRAM = """
    import sys, time
    import torch
    from likewise import DTW, Distance, scale

    class Slow(Distance):
        symmetric = True
        tiles = 0
        def all_pairs(self, x, y, x_lengths, y_lengths):
            Slow.tiles += 1
            if Slow.tiles > 8:
                time.sleep(600)  # until it is killed
            return DTW().all_pairs(x, y, x_lengths, y_lengths)

    x = torch.randn(24, 20, 1, generator=torch.Generator().manual_seed(0)).cumsum(1)
    scale.matrix(Slow(), x, out=sys.argv[1], tile=3)
"""


class Slow(DTW):
    """The distance of the program, as quick as it can be; its description is the same."""

    def config(self):
        return {}


def test_a_killed_driver_is_resumed(tmp_path):
    out = tmp_path / "D.zarr"
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM), str(out)])
    deadline = time.monotonic() + 300
    while len(list(out.glob("c/*/?"))) < 5 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    done = len(list(out.glob("c/*/?")))
    assert 5 <= done < 36
    D = scale.matrix(Slow(), walks(24), out=out, tile=3)
    assert D.report.computed == 36 - done
    np.testing.assert_allclose(D[:], DTW().matrix(walks(24)).numpy(), rtol=1e-5)
    assert not list(out.glob("c/*/.*"))


def test_a_full_disk_is_said_and_resumed_from(tmp_path):
    """A limit on the size of files stands for the end of the disk."""
    out, x = tmp_path / "D.zarr", walks(60)
    expected = scale.matrix(DTW(), x, out=out, tile=20)[:]
    (out / "c/1/2").unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # Python ignores SIGXFSZ
    try:
        with pytest.raises(OSError, match=r"File too large; 4 of 6 tiles are done and kept; call scale.matrix again"):
            scale.matrix(DTW(), x, out=out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(out.glob("c/*/.*"))
    again = scale.matrix(DTW(), x, out=out)
    assert again.report.computed == 1
    assert np.array_equal(again[:], expected)
