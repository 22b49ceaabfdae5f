import numpy as np
import pytest
import torch

from likewise import TCN, Cosine, Euclidean, FrameMLP, Metric, evaluate, scale
from likewise.models import SmallCNN
from tests.scale.conftest import walks


@pytest.fixture
def metric():
    torch.manual_seed(0)
    return Metric(TCN(1, 4, out=5, layers=2, steps=False), Euclidean()).eval()


def parquet(folder, first, count):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    x = walks(count, 6, seed=first).numpy()
    rows = [(f"s{first + i}", t, x[i, t, 0], "ab"[i % 2]) for i in range(count) for t in range(6)]
    columns = dict(zip(("id", "time", "x", "kind"), zip(*rows, strict=True), strict=True))
    parquet.write_table(
        pyarrow.table({name: list(values) for name, values in columns.items()}), folder / f"{first}.parquet"
    )
    return torch.from_numpy(x)


@pytest.mark.parametrize("engine", [None, "ray"])
def test_parquet_files(cluster, tmp_path, metric, engine):
    x = torch.cat([parquet(tmp_path, first, 10) for first in (0, 10, 20)])
    columns = {"id": "id", "time": "time", "label": "kind"}
    found = scale.embed(metric, tmp_path, columns=columns, engine=engine)
    assert found.ids == tuple(f"s{i}" for i in range(30))
    assert found.labels.tolist() == ["a", "b"] * 15
    assert torch.allclose(found.items, metric.embed(x), atol=1e-6)
    assert evaluate(Euclidean(), found).queries == 30  # it is labelled data


@pytest.mark.parametrize("engine", [None, "ray"])
def test_sequences_wav_files_and_images(cluster, tmp_path, metric, engine):
    soundfile, image = pytest.importorskip("soundfile"), pytest.importorskip("PIL.Image")
    for name in ("npy", "wav", "png"):
        for kind in ("a", "b"):
            (tmp_path / name / kind).mkdir(parents=True)
            for i in range(3):
                path, values = tmp_path / name / kind / f"{i}.{name}", walks(1, 5 + i, seed=i)[0].numpy()
                if name == "npy":
                    np.save(path, values)
                elif name == "wav":
                    soundfile.write(path, np.clip(values, -0.9, 0.9), 8000, subtype="FLOAT")
                else:
                    image.new("RGB", (12, 12), (40 * i, 0, 99)).save(path)
    for name in ("npy", "wav"):
        found = scale.embed(metric, tmp_path / name, chunk=2, engine=engine)
        assert found.items.shape == (6, 5)
        assert found.labels.tolist() == ["a"] * 3 + ["b"] * 3
        assert found.ids[4].endswith(f"b/1.{name}")
        assert found.report.jobs == 3
    pictures = Metric(SmallCNN(3, out=4), Cosine()).eval()
    found = scale.embed(pictures, tmp_path / "png", size=8, engine=engine)
    assert found.items.shape == (6, 4)
    assert torch.equal(found.items, scale.embed(pictures, tmp_path / "png", size=8).items)
    encoder = FrameMLP(1, hidden=4, out=3)
    frames = scale.embed(Metric(encoder, Euclidean()), tmp_path / "npy", chunk=2, engine=engine)
    assert frames.items.lengths.tolist() == [5, 6, 7] * 2


def test_bad_arguments_are_refused(tmp_path, metric):
    parquet(tmp_path, 0, 2)
    (tmp_path / "again").mkdir()
    parquet(tmp_path / "again", 0, 2)
    both = [tmp_path / "0.parquet", tmp_path / "again" / "0.parquet"]
    for error, problem, given in [
        (TypeError, "expected metric to be a Metric", {"metric": Euclidean()}),
        (TypeError, "expected files to be a folder", {"files": torch.zeros(3, 4, 1)}),
        (ValueError, "the id 's0' is in two files", {"files": both}),
        (ValueError, r"expected a list of .parquet files", {"files": ["a.csv"]}),
        (ValueError, "columns are those of Parquet files", {"files": tmp_path / "nothing", "columns": {"id": "a"}}),
        ((ValueError, OSError), "nothing", {"files": tmp_path / "nothing"}),
        (ValueError, "chunk", {"chunk": 0}),
    ]:
        columns = {"id": "id", "time": "time", "label": "kind"}
        with pytest.raises(error, match=problem):
            scale.embed(
                **{
                    "metric": metric,
                    "files": both[0],
                    **({"columns": columns} if "files" not in given or given["files"] is both else {}),
                    **given,
                }
            )
