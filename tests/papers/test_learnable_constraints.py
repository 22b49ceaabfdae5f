"""Learning constraints, in a few steps."""

import json

import pytest
import torch

from likewise.recipes import learnable_constraints as recipe


def pairs(count=12, seed=0):
    return recipe.make_pairs(count, torch.Generator().manual_seed(seed))


def test_the_pairs_are_as_described():
    found = pairs(50)
    assert found.x.shape == found.y.shape == (50, recipe.STEPS, recipe.CHANNELS)
    assert (found.truth.diff(dim=1) > 0).all()  # no warp turns back
    assert torch.equal(found.truth[:, 0], torch.zeros(50))
    assert torch.allclose(found.truth[:, -1], torch.ones(50))
    wander = (found.truth - found.times).abs().amax(0)
    assert 0.8 * recipe.WANDER < wander.max() <= recipe.WANDER + 1e-6
    assert wander[recipe.STEPS // 6] < 0.3 * wander.max()  # little at first


@pytest.mark.parametrize("learned", [("reg",), ("band",), ("features", "reg", "band")], ids=str)
def test_only_what_is_learned_changes(learned):
    train = pairs()
    aligner = recipe.Aligner(0.3, 0.05, learned)
    before = {name: value.clone() for name, value in aligner.state_dict().items()}
    generator = torch.Generator().manual_seed(1)
    recipe.learn(aligner, train, pairs(4, seed=2), 3, 12, 0.05, generator)
    changed = {name for name, value in aligner.state_dict().items() if not torch.equal(value, before[name])}
    names = {"reg": "log_reg", "band": "log_band", "features": "features.weight"}
    assert changed == {names[name] for name in learned}


def test_a_band_becomes_narrow_where_warps_are():
    train = pairs(40)
    aligner = recipe.Aligner(1.0, 0.1, ("band",))
    best, curve = recipe.learn(aligner, train, train, 30, 20, 0.05, torch.Generator().manual_seed(0))
    assert curve[0] == pytest.approx(recipe.time_err(recipe.Aligner(1.0, 0.1), train))
    assert min(curve) < 0.95 * curve[0]
    assert best.band[1] < 0.8 * best.band[4]


def test_it_prints_draws_and_keeps(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(recipe, "REGS", (1.0, 10.0))
    monkeypatch.setattr(recipe, "BANDS", (0.05, 0.5))
    out = tmp_path / "some" / "lines.jsonl"
    recipe.main(seeds=1, steps=1, pairs=4, batch_size=2, lr=0.02, out=out, plot=tmp_path / "band.png")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["learned"] for line in lines] == list(recipe.VARIANTS)
    assert all(line["time_err"] > 0 and len(line["band"]) == recipe.BAND_KNOTS for line in lines)
    assert "features and lambda" in capsys.readouterr().out
    assert (tmp_path / "band.png").read_bytes().startswith(b"\x89PNG")
