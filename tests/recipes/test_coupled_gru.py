"""The recipe of the coupled GRU, on a few sequences."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import likewise as lw
from likewise.distances.coupled_gru import CoupledGRU
from likewise.distances.siamese_gru import SiameseGRU
from likewise.recipes import coupled_gru as recipe


def tiny(folder, train=63, test=12):
    """A file as uci_har.npz is, of short sequences of 21 subjects."""
    random, arrays = np.random.default_rng(0), {"classes": np.array(["walk", "sit", "lie"])}
    for part, count in (("train", train), ("test", test)):
        labels = np.arange(count) % 3
        values = 0.3 * random.standard_normal((count, 8, 9)) + labels[:, None, None]
        arrays |= {
            f"X_{part}": values.astype(np.float32),
            f"y_{part}": labels,
            f"subject_{part}": 1 + np.arange(count) // 3 % 21,
        }
    np.savez(folder / "uci_har.npz", **arrays)


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_it_trains_scores_goes_on_and_reports(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(recipe, "SHARES", (0.1, 0.5))
    monkeypatch.setattr(recipe, "NOISE", (0.0, 2.0))
    monkeypatch.setattr(recipe, "EXPONENT_STEPS", 10)
    tiny(tmp_path)
    out = tmp_path / "lines.jsonl"
    settings = {"data_dir": tmp_path, "part": "test", "seeds": 1, "batch_size": 18, "candidates": True}
    settings |= {"model": ["sgru", "cgru"], "folder": tmp_path / "runs"}
    recipe.main(**settings, epochs=1, out=tmp_path / "first.jsonl")
    recipe.main(**settings, epochs=2, out=out, figures=tmp_path / "figures")  # goes on from the first
    siamese, coupled = lines_of(out)
    assert [line["model"] for line in (siamese, coupled)] == ["sgru", "cgru"]
    for line in (siamese, coupled):
        assert len(line["losses"]) == len(line["accuracies"]) == 2
        assert line["pairs"] == 12 * 63
        assert len(line["noise"]["positive"]) == len(recipe.NOISE)
    assert siamese["norms"] == []
    assert len(coupled["norms"]) == 2
    assert {found["by"] for found in coupled["candidates"]} == {"twin", "sgru"}
    assert "candidates" not in siamese
    assert len(coupled["synchronization"]["positive"]) == 8
    assert 0 < coupled["synchronization"]["positive_coupling"] < 1
    assert siamese["largest_exponent"] < 0  # PyTorch's weights are no chaos
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "cgru test 0 coupling.png", "cgru test 0 synchronisation.png", "noise.png"
    }  # fmt: skip
    assert isinstance(lw.Metric.load(tmp_path / "runs" / "har, cgru, test 0").distance, CoupledGRU)
    for number in (1, 2):  # as from other processes
        with out.open("a") as file:
            file.writelines(json.dumps(line | {"number": number}) + "\n" for line in (siamese, coupled))
    capsys.readouterr()
    recipe.main(report=[out])
    assert "cgru - sgru, map" in (printed := capsys.readouterr().out)
    assert "over 3 folds and seeds" in printed
    assert "50.0%" in printed


def test_a_fold_is_scored_on_its_own_subjects(tmp_path, capsys):
    tiny(tmp_path)
    recipe.main(data_dir=tmp_path, part="folds", fold=2, model=["cgru-4"], epochs=1, batch_size=18)
    line = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (line["kind"], line["number"], line["pairs"]) == ("fold", 2, 9 * 54)
    assert "noise" not in line


def test_the_size_of_shl_runs_small(tmp_path, capsys):
    recipe.main(
        data="shl_synthetic", items=48, epochs=1, part="test", seeds=1, model=["cgru"], noise=False, batch_size=6
    )
    line = json.loads(capsys.readouterr().out.splitlines()[0])
    assert line["hidden"] == [100, 100]
    train, _ = recipe.synthetic(tmp_path, 16)
    assert train.sequences.values.shape == (16, 300, 36)


def test_all_models_start_from_the_same_gru():
    built = {}
    for name in recipe.MODELS:
        torch.manual_seed(3)
        built[name] = recipe.build(recipe.Settings(model=name), 9)
    siamese = built["sgru"]
    assert isinstance(siamese, SiameseGRU)
    for name in ("cgru", "cgru-4"):
        twin = SiameseGRU.of(built[name])
        assert all(map(torch.equal, twin.parameters(), siamese.parameters()))
        assert float(built[name].cells[0].bias_hc[0].detach()) == recipe.MODELS[name]


def test_folds_cut_subjects():
    groups = torch.arange(1, 22).repeat(2)
    data = lw.Dataset(lw.Batch(torch.zeros(42, 3, 9)), torch.zeros(42, dtype=torch.int64), ("a",), groups)
    every = torch.stack([recipe.left_out(data, fold) for fold in range(recipe.FOLDS)])
    assert (every.sum(0) == 1).all()
    assert (every.sum(1) == 6).all()


def test_rvsml_rows_stand_beside(tmp_path, capsys):
    path = tmp_path / "rvsml.jsonl"
    path.write_text(json.dumps({"recipe": "rvsml", "aligner": "dtw", "accuracy": 0.7, "f1": 0.69, "map": 0.44}) + "\n")
    recipe.main(report=[path])
    assert "RVSML (dtw)" in capsys.readouterr().out


def test_bad_words_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="error: unknown 'lstm'; expected one of sgru, cgru, cgru-4"):
        recipe.main(model=["lstm"], data_dir=tmp_path)
    with pytest.raises(SystemExit, match="error: unknown 'all'; expected one of folds, test, both"):
        recipe.main(part="all", data_dir=tmp_path)
    with pytest.raises(SystemExit, match="fold must be 0 to 6, got 7"):
        recipe.main(fold=7, data_dir=tmp_path)
    with pytest.raises(SystemExit, match="is not there; give --data-dir"):
        recipe.main(data_dir=tmp_path)


@pytest.mark.skipif(not os.environ.get("LIKEWISE_DATA"), reason="needs the real data")
def test_the_real_data_are_as_described():
    train, test = recipe.read_har(Path(os.environ["LIKEWISE_DATA"]), None)
    assert (len(train), len(test), train.sequences.channels) == (7352, 2947, 9)
    assert len(train.groups.unique()) == 21
    assert replace(recipe.Settings(), model="sgru").hidden == (20,)
