import pytest

import likewise as lw
from tests.cli.commands import sequences


@pytest.fixture
def a(tmp_path):
    path = tmp_path / "a.npz"
    lw.data.write_npz(lw.Dataset(sequences(0, 3)), path)
    return path


@pytest.fixture
def b(tmp_path):
    path = tmp_path / "b.ts"
    lw.data.write_ts(lw.Dataset(sequences(1, 4)), path)
    return path
