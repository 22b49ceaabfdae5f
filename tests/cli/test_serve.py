"""What explore and serve show; tests/web runs them."""

import pytest

pytest.importorskip("fastapi")
import likewise as lw
from likewise.cli.arguments import DistanceName
from likewise.cli.serve import open_collection
from tests.cli.commands import sequences


def test_metrics_beside_one_another(tmp_path):
    data = tmp_path / "a.npz"
    lw.data.write_npz(lw.Dataset(sequences(0, 6), ["a", "b"] * 3), data)
    for name in ("narrow", "wide"):
        lw.Metric(None, lw.DTW(band=1 if name == "narrow" else 4)).save(tmp_path / name)
    wide, msm = tmp_path / "wide", [DistanceName.MSM]
    assert list(open_collection(data, None, [], None, None).metrics) == ["dtw"]
    assert list(open_collection(data, None, msm, None, None, others=[wide]).metrics) == ["msm", "wide"]
    found = open_collection(tmp_path / "narrow", data, msm, None, None, others=[wide])
    assert list(found.metrics) == ["narrow", "msm", "wide"]
    assert "band=4" in repr(found.metrics["wide"])
    lw.Index(found.metrics["narrow"], lw.read_npz(data)).save(tmp_path / "index")
    assert list(open_collection(tmp_path / "index", None, [], None, None, others=[wide]).metrics) == ["DTW", "wide"]
    with pytest.raises(ValueError, match="two metrics have this name"):
        open_collection(wide, data, [], None, None, others=[wide])
