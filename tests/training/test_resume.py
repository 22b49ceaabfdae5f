import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from likewise.data.samplers import HardBatch
from likewise.models import storage
from likewise.models.metric import Metric
from likewise.training.checkpoint import CHECKPOINT
from likewise.training.options import Checkpoints, Optimization
from tests.training.problems import metric, problem, train, weights

OPTIONS = {"epochs": 4, "val": problem(9, seed=1)}


def into(folder, every=3, resume=False):
    return Checkpoints(folder, every=every, resume=resume)


def tensors(path):
    return storage.read_tensors(path, storage.read_shapes(path), limit=1 << 30)


class CrashError(Exception):
    """Stands in for a crash."""


def crash_at(total):
    def term(step):
        if step.total == total:
            raise CrashError
        return step.features.values.sum() * 0

    return term


def uninterrupted(tmp_path, **options):
    m = metric()
    history = train(m, checkpoints=into(tmp_path / "whole"), **OPTIONS | options)
    return m, history


PROGRAM = """
import sys, time, torch
torch.set_num_threads(1)
from tests.training.problems import metric, train, problem
def slow(step):
    print(step.total, flush=True)
    if step.total == 9:
        time.sleep(600)  # until it is killed
    return step.features.values.sum() * 0
from likewise.training.options import Checkpoints
train(metric(), checkpoints=Checkpoints(sys.argv[1], every=3), epochs=4, val=problem(9, seed=1), terms=[slow])
"""


def test_a_killed_process_ends_in_the_same_weights(tmp_path):
    folder = tmp_path / "killed"
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if int(line) == 9:  # an epoch has 4 steps: this is the third one's second, after the checkpoint of step 9
                break
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    with safe_open(folder / CHECKPOINT, "pt") as file:
        progress = json.loads(file.metadata()["note"])["progress"]
    assert (progress["epoch"], progress["step"]) == (2, 1), "in mid-epoch"
    resumed = metric(seed=7)  # other weights: the checkpoint's count
    history = train(resumed, checkpoints=into(folder, resume=True), **OPTIONS)
    whole, expected = uninterrupted(tmp_path)
    assert torch.equal(weights(resumed), weights(whole))
    assert history.losses == expected.losses
    assert history.scores == expected.scores
    assert torch.equal(weights(Metric.load(folder)), weights(whole))
    last, expected_last = tensors(folder / CHECKPOINT), tensors(tmp_path / "whole" / CHECKPOINT)
    assert set(last) == set(expected_last)
    assert all(torch.equal(last[name], expected_last[name]) for name in last), "last weights, moments of Adam"
    assert (folder / "log.csv").read_text().count("\n") == 5


@pytest.mark.parametrize("total", [0, 2, 4, 11, 15])
def test_resume_after_a_crash_anywhere(tmp_path, total):
    with pytest.raises(CrashError):
        train(metric(), checkpoints=into(tmp_path / "run"), terms=[crash_at(total)], **OPTIONS)
    m = metric(seed=7)
    history = train(m, checkpoints=into(tmp_path / "run", resume=True), terms=[crash_at(99)], **OPTIONS)
    whole, expected = uninterrupted(tmp_path, terms=[crash_at(99)])
    assert torch.equal(weights(m), weights(whole))
    assert history.losses == expected.losses


def test_resume_after_the_end_and_for_longer(tmp_path):
    m, history = uninterrupted(tmp_path)
    again = metric(seed=7)
    assert train(again, checkpoints=into(tmp_path / "whole", resume=True), **OPTIONS).losses == history.losses
    assert torch.equal(weights(again), weights(m))
    train(again, checkpoints=into(tmp_path / "whole", resume=True), **OPTIONS | {"epochs": 6})
    longer = metric()
    train(longer, checkpoints=into(tmp_path / "longer"), **OPTIONS | {"epochs": 6})
    assert torch.equal(weights(again), weights(longer))


@pytest.mark.parametrize("epochs", [2, 4])
def test_files_that_a_killed_process_left_are_removed(tmp_path, epochs):
    train(metric(), checkpoints=into(tmp_path), **OPTIONS | {"epochs": 2})
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name in (CHECKPOINT, "log.csv", "config.json", "model.safetensors"):
        (tmp_path / f".{name}.{dead.pid}-00112233.part").touch()
    train(metric(), checkpoints=into(tmp_path, resume=True), **OPTIONS | {"epochs": epochs})
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("per_step", [False, True])
def test_a_schedule_is_taken_up(tmp_path, per_step):
    def lower(optimizer):
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8 if per_step else 0.5)

    halve = Optimization(schedule=lower, per_step=per_step)
    with pytest.raises(CrashError):
        train(metric(), checkpoints=into(tmp_path / "run"), terms=[crash_at(10)], optimizer=halve, **OPTIONS)
    m = metric(seed=7)
    train(m, checkpoints=into(tmp_path / "run", resume=True), optimizer=halve, **OPTIONS)
    assert torch.equal(weights(m), weights(uninterrupted(tmp_path, optimizer=halve)[0]))
    assert not torch.equal(weights(m), weights(train_plain(tmp_path)))


def train_plain(tmp_path):
    m = metric()
    train(m, checkpoints=into(tmp_path / "plain"), **OPTIONS)
    return m


class Counting:
    """A sampler without set_epoch: its order depends on how often it was iterated, which it keeps."""

    def __init__(self):
        self.rounds = 0

    def state_dict(self):
        return {"rounds": self.rounds}

    def load_state_dict(self, state):
        self.rounds = state["rounds"]

    def set_epoch(self, epoch):
        self.rounds += 1

    def __iter__(self):
        order = torch.randperm(24, generator=torch.Generator().manual_seed(self.rounds)).tolist()
        return iter([order[:8], order[8:16], order[16:]])


def test_the_state_of_a_sampler_is_taken_up(tmp_path):
    with pytest.raises(CrashError):
        train(metric(), checkpoints=into(tmp_path / "run", 2), terms=[crash_at(8)], sampler=Counting(), **OPTIONS)
    m, whole = metric(seed=7), metric()
    train(m, checkpoints=into(tmp_path / "run", 2, resume=True), sampler=Counting(), **OPTIONS)
    train(whole, checkpoints=into(tmp_path / "whole", 2), sampler=Counting(), **OPTIONS)
    assert torch.equal(weights(m), weights(whole))


def test_an_earlier_run_is_not_overwritten(tmp_path):
    train(metric(), checkpoints=tmp_path, epochs=1)
    with pytest.raises(ValueError, match=r"has a checkpoint of an earlier run; resume it with .*resume=True"):
        train(metric(), checkpoints=tmp_path, epochs=1)
    with pytest.raises(ValueError, match="was made with seed=0, not 1; use that, or another folder"):
        train(metric(), checkpoints=into(tmp_path, resume=True), epochs=1, seed=1)
    with pytest.raises(ValueError, match="is from a run without average=; use that, or another folder"):
        train(metric(), checkpoints=into(tmp_path, resume=True), epochs=1, average=0.9)


def test_a_sampler_that_learns_from_distances_is_taken_up(tmp_path):
    def hard():
        return HardBatch(problem()[1], batch_size=4, per_class=2, hardness=1.0)

    with pytest.raises(CrashError):
        train(metric(), checkpoints=into(tmp_path / "run"), terms=[crash_at(8)], sampler=hard(), **OPTIONS)
    m, whole = metric(seed=7), metric()
    resumed = train(m, checkpoints=into(tmp_path / "run", resume=True), sampler=hard(), **OPTIONS)
    assert train(whole, checkpoints=into(tmp_path / "whole"), sampler=hard(), **OPTIONS).losses == resumed.losses
    assert torch.equal(weights(m), weights(whole))
