import numpy as np
import pytest

import likewise as lw
from tests.cli.commands import answer, refusal

ROWS = "who,t,kind,x\na,0,walk,1.0\na,1,walk,1.5\nb,0,run,0.0\nb,1,run,2.0\n"


def test_a_table(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "gait.csv"
    path.write_text(ROWS)
    found = answer("distance", path, "--columns", "id=who,time=t,label=kind")
    np.testing.assert_allclose(found["distances"], lw.DTW().matrix([[1.0, 1.5], [0.0, 2.0]]))
    path.write_text(ROWS.replace("who,t,kind", "id,time,y").replace("walk", "0").replace("run", "1"))
    assert answer("distance", path)["shape"] == [2, 2]


def test_a_folder_of_wav_files(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        soundfile.write(tmp_path / name / "1.wav", np.linspace(-0.5, 0.5, 9), 8000)
    assert answer("distance", tmp_path)["distances"] == [[0, 0], [0, 0]]


def test_columns_that_make_no_sense(a, tmp_path):
    assert "only a table has columns" in refusal(1, "distance", a, "--columns", "id=who")
    assert "id is required" in refusal(2, "distance", a, "--columns", "time=t")
    assert "is not a list such as" in refusal(2, "distance", a, "--columns", "id=who,colour=x")
