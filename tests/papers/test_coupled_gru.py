"""The recipe of the coupled GRU, on a few sequences."""

import contextlib
import copy
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import likewise as lw
from likewise import _check
from likewise.distances.coupled_gru import CoupledGRU
from likewise.distances.siamese_gru import SiameseGRU
from likewise.recipes import coupled_gru as recipe
from likewise.recipes import coupled_gru_data as data
from likewise.recipes import coupled_gru_measures as measures
from likewise.recipes.coupled_gru_training import Settings, Training, falling, shuffled, train_together


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


def test_it_trains_scores_and_reports(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(measures, "SHARES", (0.1, 0.5))
    monkeypatch.setattr(measures, "NOISE", (0.0, 2.0))
    monkeypatch.setattr(measures, "EXPONENT_STEPS", 10)
    tiny(tmp_path)
    out = tmp_path / "lines.jsonl"
    settings = {"data_dir": tmp_path, "part": "test", "seeds": 1, "batch_size": 18, "steps": 4, "val_every": 2}
    settings |= {"candidates": True, "folder": tmp_path / "runs", "out": out}
    recipe.main(**settings, model=["sgru"])
    recipe.main(**settings, model=["sgru", "cgru"], figures=tmp_path / "figures")  # the first is there already
    siamese, coupled = lines_of(out)
    assert [line["model"] for line in (siamese, coupled)] == ["sgru", "cgru"]
    for line in (siamese, coupled):
        assert len(line["losses"]) == len(line["accuracies"]) == 2
        assert line["pairs"] == 12 * 63
        assert len(line["noise"]["positive"]) == len(measures.NOISE)
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
    recipe.main(data_dir=tmp_path, part="folds", fold=[2], model=["cgru-4"], steps=2, batch_size=18)
    line = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (line["kind"], line["number"], line["pairs"]) == ("fold", 2, 9 * 54)
    assert "noise" not in line


def test_the_size_of_shl_runs_small(tmp_path, capsys):
    recipe.main(
        data="shl_synthetic", items=48, steps=1, part="test", seeds=1, model=["cgru"], noise=False, batch_size=6
    )
    line = json.loads(capsys.readouterr().out.splitlines()[0])
    assert line["hidden"] == [100, 100]
    train, _ = data.synthetic(tmp_path, 16)
    assert train.sequences.values.shape == (16, 300, 36)


def training(model="cgru", graphs=True, device="cpu", **settings):
    """A training on 24 random sequences of three classes."""
    random = torch.Generator().manual_seed(0)
    y = torch.arange(24) % 3
    x = 0.3 * torch.randn(24, 8, 9, generator=random) + y[:, None, None]
    chosen = Settings(model=model, hidden=(4,), batch_size=6, **settings)
    torch.manual_seed(1)
    distance, validation = recipe.build(chosen, 9).to(device), (x[:9].to(device), y[:9], x[9:].to(device), y[9:])
    return Training(chosen, distance, x.to(device), y.to(device), validation, seed=2, graphs=graphs)


@pytest.mark.parametrize("model", ["sgru", "cgru"])
def test_a_training_is_a_plain_loop_of_adam(model):
    found = training(model, steps=7, val_every=7, average=0.0)
    plain = copy.deepcopy(found.distance)
    train_together([found, training(model, steps=3)])  # another beside it changes nothing
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-2, weight_decay=1e-4)
    loss = lw.losses.Structural(1.0, 1.0, global_weight=0.1)
    generator, left = torch.Generator().manual_seed(2), []
    for step in range(7):
        left = left or list(torch.randperm(24, generator=generator).split(6))
        chosen = left.pop(0)
        value = loss(plain.matrix(found.x[chosen]), found.y[chosen])
        if model == "cgru":
            value = value + 0.01 * plain.cells[0].weight_hc.norm()
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 6.0)
        optimizer.param_groups[0]["lr"] = 1e-2 * min(1.0, (7 - step) / 3.5)
        optimizer.step()
        torch.testing.assert_close(found.losses[step], value.detach())
    for a, b in zip(found.distance.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert found.record.steps == [7]


def test_averaged_weights_are_validated_and_kept():
    plain, found = training(steps=5, val_every=5, decay=0.0), training(steps=5, val_every=1, decay=0.0, average=0.75)
    expected = [each.detach().clone() for each in found.parameters]
    for done in range(5):
        plain.advance(done)
        expected = [0.75 * mean + 0.25 * each.detach() for mean, each in zip(expected, plain.parameters, strict=True)]
        found.advance(done)
        found.validate(done + 1, 0.0)  # which leaves the weights that are trained as they are
        torch.testing.assert_close(found.averages, expected)
    assert all(map(torch.equal, found.parameters, plain.parameters))
    train_together([found := training(steps=3, val_every=3, average=0.75)])
    torch.testing.assert_close([each.detach() for each in found.parameters], found.averages)


def test_the_best_weights_are_kept_and_patience_ends(monkeypatch):
    found, accuracies, weights = training(steps=20, val_every=2, patience=2), iter([0.5, 0.9, 0.1, 0.8]), []

    def score(distance, queries, references):
        weights.append({name: value.clone() for name, value in distance.state_dict().items()})
        return SimpleNamespace(accuracy=next(accuracies), map=0.0)

    monkeypatch.setattr(lw, "evaluate", score)
    train_together([found])
    assert found.record.steps == [2, 4, 6, 8]
    assert (found.record.best_step, found.record.best) == (4, (0.9, 0.0))
    assert len(found.record.norms) == len(found.record.losses) == 4
    assert all(torch.equal(value, weights[1][name]) for name, value in found.distance.state_dict().items())


def test_steps_are_recorded_once_and_replayed(monkeypatch):
    """The order of things on a GPU, played on the CPU."""
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    replayed = []

    def recorded(self):
        return SimpleNamespace(replay=lambda: (replayed.append(int(self.taken)), self.step()))

    monkeypatch.setattr(Training, "_recorded", recorded)
    plain, found = training(steps=8, val_every=4), training(steps=8, val_every=4)
    found.stream, found.graphs = object(), True
    train_together([plain, found])
    assert replayed == [3, 4, 5, 6, 7]
    assert torch.equal(plain.losses, found.losses)
    assert found.graph is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("model", ["sgru", "cgru"])
def test_a_recorded_step_is_the_same_step(model):
    plain = training(model, graphs=False, steps=12, val_every=6)
    recorded = [training(model, graphs=graphs, device="cuda", steps=12, val_every=6) for graphs in (True, False, True)]
    train_together(recorded)
    train_together([plain])
    for found in recorded:
        torch.testing.assert_close(found.losses.cpu(), plain.losses, rtol=1e-3, atol=1e-3)
        assert found.record.steps == [6, 12]
    assert [found.graphs for found in recorded] == [True, False, True]


@pytest.mark.parametrize("model", ["sgru", "cgru"])
def test_a_step_reads_no_number_and_stays_on_its_device(model, monkeypatch):
    """A CUDA graph could record it: tensors without numbers, on a device of their own, go through a whole step."""
    monkeypatch.setattr(_check, "numbers_hidden", lambda: True)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # which the device has not
    distance = recipe.build(Settings(model=model, hidden=(4,)), 9)
    with FakeTensorMode():
        for module in distance.modules():
            for name, parameter in list(module._parameters.items()):
                setattr(module, name, torch.nn.Parameter(torch.empty(parameter.shape, device="meta")))
        x, y = torch.empty(24, 8, 9, device="meta"), torch.empty(24, dtype=torch.int64, device="meta")
        found = Training(Settings(batch_size=6, steps=4), distance, x, y, (x, y, x, y), seed=0)
        monkeypatch.setattr(found.optimizer, "step", lambda: None)  # reads no number on a GPU only
        found.step()
    assert all(parameter.grad.device.type == "meta" for parameter in distance.parameters())
    assert found.losses.device.type == "meta"


def test_batches_are_shuffled_again_and_again():
    found = shuffled(10, 3, steps=7, seed=0)
    assert found.shape == (7, 3)
    for epoch in (found[:3], found[3:6]):
        assert len(epoch.unique()) == 9
    assert not torch.equal(found[:3], found[3:6])
    assert shuffled(2, 36, steps=2, seed=0).shape == (2, 2)


def test_rates_fall_at_the_end():
    torch.testing.assert_close(falling(2.0, 0.0, 3), torch.full((3,), 2.0))
    torch.testing.assert_close(falling(1.0, 1.0, 4), torch.tensor([1.0, 0.75, 0.5, 0.25]))


def test_many_pairs_are_thinned():
    assert recipe.thinning(100, 100, None) == recipe.thinning(100, 100, 10_000) == (1, 1)
    assert recipe.thinning(5472, 15660, 400_000) == (15, 15)


def test_settings_are_swept_and_told_apart(tmp_path, capsys):
    tiny(tmp_path)
    sweep = {"data_dir": tmp_path, "part": "folds", "fold": [0, 1], "model": ["sgru", "cgru"], "steps": 2}
    sweep |= {"batch_size": 18, "lr": [1e-3, 1e-2]}
    recipe.main(**sweep, together=3)
    printed = capsys.readouterr().out
    assert len([line for line in printed.splitlines() if line.startswith("{")]) == 8
    assert "cgru lr 0.01 - sgru lr 0.01, map" in printed
    with pytest.raises(SystemExit, match="error: --folder has room for one network a run"):
        recipe.main(**sweep, folder=tmp_path)


def test_all_models_start_from_the_same_gru():
    built = {}
    for name in recipe.MODELS:
        torch.manual_seed(3)
        built[name] = recipe.build(Settings(model=name), 9)
    siamese = built["sgru"]
    assert isinstance(siamese, SiameseGRU)
    for name in ("cgru", "cgru-4"):
        twin = SiameseGRU.of(built[name])
        assert all(map(torch.equal, twin.parameters(), siamese.parameters()))
        assert float(built[name].cells[0].bias_hc[0].detach()) == recipe.MODELS[name]


def test_folds_cut_subjects():
    groups = torch.arange(1, 22).repeat(2)
    given = lw.Dataset(lw.Batch(torch.zeros(42, 3, 9)), torch.zeros(42, dtype=torch.int64), ("a",), groups)
    every = torch.stack([data.left_out(given, fold) for fold in range(data.FOLDS)])
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
        recipe.main(fold=[7], data_dir=tmp_path)
    with pytest.raises(SystemExit, match="is not there; give --data-dir"):
        recipe.main(data_dir=tmp_path)


def test_the_real_data_are_as_described(shared_data):
    train, test = data.read_har(shared_data, None)
    assert (len(train), len(test), train.sequences.channels) == (7352, 2947, 9)
    assert len(train.groups.unique()) == 21
    assert replace(Settings(), model="sgru").hidden == (20,)
