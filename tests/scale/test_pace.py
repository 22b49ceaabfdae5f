from likewise import SoftDTW
from likewise.scale import pace
from likewise.scale.operands import read_operands
from tests.scale.conftest import walks


def test_tiles_are_sized_by_the_measured_speed(monkeypatch):
    operands = read_operands("op", SoftDTW(), walks(3000, 30))
    monkeypatch.setattr(pace, "growing", lambda measure, most: 2e-6)  # half a million pairs a second
    assert pace.tile_side(operands, 1, "cpu") == 992  # 2 s
    monkeypatch.setattr(pace, "growing", lambda measure, most: 1e-9)
    assert pace.tile_side(operands, 2, "cpu") == 736  # 8 jobs for two workers
    monkeypatch.setattr(pace, "growing", lambda measure, most: 10.0)
    assert pace.tile_side(operands, 2, "cpu") == 16
