import json

import pytest
import torch

from likewise.models import storage
from likewise.training.checkpoint import CHECKPOINT, Checkpoint, Progress, optimizer_state, put_optimizer_state
from likewise.training.history import History, Score
from likewise.training.options import Checkpoints
from tests.training.problems import metric, problem, train


def into(folder, resume=True):
    return Checkpoints(folder, resume=resume)


def parts(path):
    shapes = storage.read_shapes(path)
    return storage.read_tensors(path, shapes, limit=1 << 30), json.loads(storage.read_note(path))


def test_round_trip_of_written_files(tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(module.parameters(), amsgrad=True)
    module(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    history = History([1.5], [0.25], [Score(0.5, 3, {"map": 0.75})], best_step=3)
    done = Progress(1, 2, 6, 0.5, 0.125, 1, 4, True, history)
    state, best = module.state_dict(), {name: 2 * tensor for name, tensor in module.state_dict().items()}
    average = {name: 3 * tensor for name, tensor in state.items()}
    sampler = {"seed": 3, "known": torch.arange(4.0)}
    written = Checkpoint(done, state, best, average, optimizer_state(optimizer), sampler, {"scale": 2.0}, {"seed": 0})
    written.write(tmp_path / CHECKPOINT)
    found = Checkpoint.read(tmp_path / CHECKPOINT, state, {"seed": 0})
    assert found.progress == done
    for name in state:
        assert torch.equal(found.model[name], state[name])
        assert torch.equal(found.best[name], best[name])
        assert torch.equal(found.average[name], average[name])
    assert found.precision == {"scale": 2.0}
    assert found.sampler["seed"] == 3
    assert torch.equal(found.sampler["known"], torch.arange(4.0))
    other = torch.optim.Adam(module.parameters(), amsgrad=True)
    put_optimizer_state("file", other, found.optimizer)
    for position, values in optimizer_state(optimizer).items():
        for name, value in values.items():
            assert torch.equal(optimizer_state(other)[position][name], value)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train(metric(), checkpoints=folder, epochs=2, val=problem(9, seed=1))
    return folder / CHECKPOINT


def change_note(key, value):
    def change(tensors, note):
        *path, last = key.split("/")
        place = note
        for name in path:
            place = place[name]
        place[last] = value

    return change


def set_tensor(name, value):
    return lambda tensors, note: tensors.__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, note: note.clear(), "not a checkpoint of likewise"),
        (change_note("likewise", 2), "not a checkpoint of likewise"),
        (change_note("settings", 3), "its settings are damaged"),
        (change_note("progress", []), "its progress is damaged"),
        (change_note("progress/epoch", -1), "epoch is -1"),
        (change_note("progress/epoch", "1"), "its epoch is damaged"),
        (change_note("progress/step", True), "its step is damaged"),
        (change_note("progress/ended", 1), "its ended is damaged"),
        (change_note("progress/judged", -2), "judged is -2"),
        (change_note("progress/loss_sum", None), "its loss_sum is damaged"),
        (change_note("progress/history", {"losses": []}), "its history is damaged"),
        (change_note("progress/history/losses", [1.0]), "its history is damaged"),
        (change_note("progress/history/losses", ["x", "y"]), "its losses is damaged"),
        (change_note("progress/history/scores", 1), "its scores are damaged"),
        (change_note("progress/history/scores", [{"epoch": 1}]), "its score is damaged"),
        (change_note("numbers", {"x.y": 1}), "its optimiser is damaged"),
        (change_note("numbers", {"0.step": [1]}), "its optimiser is damaged"),
        (change_note("precision", {"scale": "x"}), "its precision is damaged"),
        (change_note("average", True), "lacks .* of the model's tensors, such as 'average"),
        (
            change_note("progress/history/scores", [{"epoch": 1, "step": 4, "numbers": {"map": "x"}}]),
            "its map is damaged",
        ),
        (change_note("best", False), "has .* tensors that the model does not have, such as 'best"),
        (lambda tensors, note: tensors.pop("model.metric.encoder.inward.weight"), "lacks 1 of the model's tensors"),
        (set_tensor("extra", torch.zeros(1)), "tensors that the model does not have, such as 'extra'"),
        (set_tensor("model.metric.encoder.inward.weight", torch.zeros(3, 3)), r"has shape \(3, 3\)"),
        (set_tensor("optimizer.x.exp_avg", torch.zeros(1)), "its optimiser is damaged: 'x.exp_avg'"),
        (set_tensor("optimizer.99.exp_avg", torch.zeros(1)), "has a state for parameter 99, but there are"),
        (set_tensor("optimizer.0.exp_avg", torch.zeros(1000)), r"exp_avg of parameter 0 has shape \(1000,\)"),
    ],
)
def test_a_hostile_checkpoint_is_refused(made, tmp_path, change, message):
    tensors, note = parts(made)
    change(tensors, note)
    storage.write_tensors(tmp_path / CHECKPOINT, tensors, json.dumps(note))
    with pytest.raises(ValueError, match=message) as caught:
        train(metric(), checkpoints=into(tmp_path), epochs=3, val=problem(9, seed=1))
    assert CHECKPOINT in str(caught.value)


@pytest.mark.parametrize("cut", [0, 7, 100, 3000, -1])
def test_a_cut_checkpoint_is_refused(made, tmp_path, cut):
    (tmp_path / CHECKPOINT).write_bytes(made.read_bytes()[:cut])
    with pytest.raises(ValueError, match="damaged, or not a safetensors file"):
        train(metric(), checkpoints=into(tmp_path))
    (tmp_path / CHECKPOINT).write_bytes(b"\x80\x04cos\nsystem\n.")
    with pytest.raises(ValueError, match="damaged, or not a safetensors file"):
        train(metric(), checkpoints=into(tmp_path))


@pytest.mark.parametrize("state", [[1], {"seed": 0}, {"seed": -1, "epoch": 0, "position": 0, "batches": 4}])
def test_a_hostile_state_of_the_sampler_is_refused(made, tmp_path, state):
    tensors, note = parts(made)
    storage.write_tensors(tmp_path / CHECKPOINT, tensors, json.dumps(note | {"sampler": state}))
    with pytest.raises(ValueError, match="the sampler cannot load the state of the checkpoint"):
        train(metric(), checkpoints=into(tmp_path), epochs=3, val=problem(9, seed=1))


def test_a_state_must_be_plain_data(tmp_path):
    class Odd:
        def state_dict(self):
            return {"rounds": 1, "seen": {1, 2}}

        def __iter__(self):
            return iter([[0, 1, 2]])

    with pytest.raises(TypeError, match="state_dict of the sampler must consist of plain numbers"):
        train(metric(), checkpoints=tmp_path, sampler=Odd())
