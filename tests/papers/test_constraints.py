"""Learning constraints, in a few steps."""

import pytest
import torch

from papers.common import read_lines
from papers.decdtw import run_constraints as run


def pairs(count=12, seed=0):
    return run.make_pairs(count, torch.Generator().manual_seed(seed))


def test_the_pairs_are_as_described():
    found, times = pairs(50), torch.linspace(0, 1, run.STEPS)
    assert found.x.values.shape == found.y.values.shape == (50, run.STEPS, run.CHANNELS)
    assert (found.truth.diff(dim=1) > 0).all()  # no warp turns back
    assert torch.equal(found.truth[:, 0], torch.zeros(50))
    assert torch.allclose(found.truth[:, -1], torch.ones(50))
    wander = (found.truth - times).abs().amax(0)
    assert 0.8 * run.WANDER < wander.max() <= run.WANDER + 1e-6
    assert wander[run.STEPS // 6] < 0.3 * wander.max()  # little at first
    straight = 1000 * (found.truth - times).abs().mean()
    assert run.time_err(run.build(10.0, 0.05), found) < 0.9 * straight  # the warps go from x to y


@pytest.mark.parametrize("learned", [("reg",), ("band",), ("features", "reg", "band")], ids=str)
def test_only_what_is_learned_changes(learned):
    metric, train = run.build(0.3, 0.05, learned), pairs()
    before = {name: value.clone() for name, value in metric.state_dict().items()}
    run.learn(metric, run.Settings(steps=10, batch_size=12, lr=0.05), train, train, 1)
    changed = {name for name, value in metric.state_dict().items() if not torch.equal(value, before[name])}
    names = {"reg": "distance.raw_reg", "band": "distance.raw_band", "features": "encoder.layers.0.weight"}
    assert changed == {names[name] for name in learned}


def test_a_band_becomes_narrow_where_warps_are():
    train, metric = pairs(40), run.build(1.0, 0.1, ("band",))
    before = run.time_err(metric, train)
    assert run.learn(metric, run.Settings(steps=30, lr=0.2), train, train, 0) < 0.95 * before
    assert metric.distance.band[1] < 0.8 * metric.distance.band[4]


def test_it_prints_draws_and_keeps(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "REGS", (1.0, 10.0))
    monkeypatch.setattr(run, "BANDS", (0.05, 0.5))
    out = tmp_path / "some" / "lines.jsonl"
    run.main(run.Figure((0,), out=out, plot=tmp_path / "band.png"), run.Settings(steps=1, pairs=4, batch_size=2))
    lines = read_lines(out)
    assert [line["learned"] for line in lines] == list(run.VARIANTS)
    assert all(line["time_err"] > 0 and len(line["band"]) == run.BAND_KNOTS for line in lines)
    assert (tmp_path / "band.png").read_bytes().startswith(b"\x89PNG")
