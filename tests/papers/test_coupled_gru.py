"""The coupled GRU's experiments, on a few sequences."""

import json

import numpy as np
import pytest
import torch

import likewise as lw
from papers.common import read_lines
from papers.coupled_gru import data, measures, report, run
from papers.coupled_gru.run import Parts, Settings
from tests.papers.small_data import write_har

SMALL = {"batch_size": 18, "epochs": 2, "val_every": 1, "hidden": (4,)}


def test_it_trains_scores_measures_and_draws(tmp_path, monkeypatch):
    monkeypatch.setattr(measures, "SHARES", (0.1, 0.5))
    monkeypatch.setattr(measures, "NOISE", (0.0, 2.0))
    monkeypatch.setattr(measures, "EXPONENT_STEPS", 10)
    write_har(tmp_path)
    out = tmp_path / "lines.jsonl"
    parts = Parts(
        data_dir=tmp_path, part="test", seeds=(0,), candidates=True, folder=tmp_path / "runs", out=out, device="cpu"
    )
    for model in ("sgru", "cgru", "cgru"):  # the last one is there already
        run.main(parts, Settings(model=model, **SMALL))
    siamese, coupled = read_lines(out)
    assert [line["model"] for line in (siamese, coupled)] == ["sgru", "cgru"]
    for line in (siamese, coupled):
        assert len(line["losses"]) == len(line["accuracies"]) == 2
        assert line["pairs"] == 12 * 63
        assert len(line["noise"]["positive"]) == 2
    assert siamese["norms"] == []
    assert len(coupled["norms"]) == 2
    assert {found["by"] for found in coupled["candidates"]} == {"twin", "sgru"}
    assert "candidates" not in siamese
    assert len(coupled["synchronization"]["positive"]) == 8
    assert 0 < coupled["synchronization"]["positive_coupling"] < 1
    assert siamese["largest_exponent"] < 0  # PyTorch's weights are no chaos
    report.draw([siamese, coupled], tmp_path / "figures")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "cgru test 0 coupling.png", "cgru test 0 synchronisation.png", "noise.png"
    }  # fmt: skip
    assert isinstance(lw.Metric.load(tmp_path / "runs" / "har, cgru, test, 0").distance, lw.CoupledGRU)


def test_a_fold_is_scored_on_its_own_subjects(tmp_path, capsys, monkeypatch):
    write_har(tmp_path)
    monkeypatch.setattr(run, "planned", lambda _: [("fold", 2, 0)])
    run.main(Parts(data_dir=tmp_path, part="folds", device="cpu"), Settings(model="cgru-4", **SMALL | {"epochs": 1}))
    line = json.loads(capsys.readouterr().out)
    assert (line["kind"], line["number"], line["pairs"]) == ("fold", 2, 9 * 54)
    assert "noise" not in line


def test_folds_and_seeds_are_planned():
    assert list(run.planned(Parts(part="both", seeds=(3, 4)))) == [
        *(("fold", k, 3) for k in range(7)), ("test", 3, 3), ("test", 4, 4)
    ]  # fmt: skip
    assert list(run.planned(Parts(part="folds", seeds=(3,), only=(2, 5)))) == [("fold", 2, 3), ("fold", 5, 3)]


def test_margins_under_noise_are_compared_seed_by_seed():
    def line(model: str, number: int, margins: list[float]) -> dict:
        noise = {"levels": [0.0, 1.0], "positive": [1.0, 1.0], "negative": [1 + margin for margin in margins]}
        return {"model": model, "number": number, "global_weight": 0.1, "hidden": [20], "noise": noise}

    lines = [line("cgru", 0, [3.0, 0.5]), line("cgru", 1, [2.0, 0.1]), line("sgru", 1, [1.0, 0.3])]
    *_, coupled, siamese, ahead = report.noise_table(lines).splitlines()
    assert coupled == "| coupled GRU, 2 seeds | **2.50** | **0.30** |"
    assert siamese == "| siamese GRU, 1 seed | 1.00 | **0.30** |"
    assert ahead == "| coupled GRU ahead of siamese GRU, seeds | 1 of 1 | 0 of 1 |"


def test_the_size_of_shl_runs_small(monkeypatch):
    train, test = data.synthetic_shl(None, (48, 24))
    assert train.items.values.shape == (48, 300, 36)
    monkeypatch.setattr(run, "measure", lambda *_, **__: {})
    settings = Settings(data="shl_synthetic", hidden=(100, 100), batch_size=6, epochs=1, most_pairs=100)
    found = run.experiment(Parts(device="cpu"), settings, "test", 0, 0, train, test)
    assert found["pairs"] <= 100


def test_all_models_start_from_the_same_gru():
    built = {}
    for name in run.MODELS:
        torch.manual_seed(3)
        built[name] = run.build(Settings(model=name), 9)
    for name in ("cgru", "cgru-4"):
        twin = lw.SiameseGRU.of(built[name])
        assert all(map(torch.equal, twin.parameters(), built["sgru"].parameters()))
        assert float(built[name].cells[0].bias_hc[0].detach()) == run.MODELS[name]


def test_many_pairs_are_thinned():
    assert run.thinning(100, 100, None) == run.thinning(100, 100, 10_000) == 1
    assert run.thinning(5472, 15660, 400_000) == 15


def test_folds_cut_subjects():
    given = lw.Dataset(torch.zeros(42, 3, 9), ["a"] * 42, groups=np.tile(np.arange(1, 22), 2))
    every = np.stack([data.fold_mask(given, fold) for fold in range(data.FOLDS)])
    assert (every.sum(0) == 1).all()
    assert (every.sum(1) == 6).all()


def test_figure_3_counts_epochs_not_validations(tmp_path, monkeypatch):
    """Validations come every second epoch; earlier lines name the step of each, of 36 sequences."""
    own = report.HAR_TRAIN - 1000
    fold = {"kind": "fold", "number": 2, "pairs": own * 1000, "batch_size": 36}
    earlier = {**fold, "validation_steps": [own // 36 * 2, own // 36 * 4]}
    assert report.epochs_of({**earlier, "kind": "test", "number": 9}, [fold]) == [2, 4]
    seen = []
    monkeypatch.setattr("likewise.viz.plot_coupling_norm", lambda norms, scores, *, epochs, ax: seen.append(epochs))
    monkeypatch.setattr("likewise.viz.plot_loss_by_coupling", lambda norms, losses, *, epochs, ax: seen.append(epochs))
    line = {**fold, "model": "cgru", "norms": [1.0, 2.0], "accuracies": [0.5, 0.6], "losses": [2.0, 1.0]}
    report.draw([{**line, "validation_epochs": [2, 4]}], tmp_path)
    assert seen == [[2, 4], [2, 4]]


def test_bad_words_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="error: --model is 'lstm'; expected one of sgru, cgru, cgru-4"):
        run.main(Parts(data_dir=tmp_path), Settings(model="lstm"))
    with pytest.raises(SystemExit, match="does not exist; give --data-dir"):
        run.main(Parts(data_dir=tmp_path), Settings())


def test_the_real_data_are_as_described(shared_data):
    train, test = data.read_har_npz(shared_data)
    assert (len(train), len(test), train.items.values.shape[1:]) == (7352, 2947, (128, 9))
    assert train.classes[0] == "WALKING"
    assert len(np.unique(train.groups)) == 21
