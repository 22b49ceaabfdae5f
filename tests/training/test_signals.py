"""Signals, sent for real."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from likewise.models import storage
from likewise.training.checkpoint import CHECKPOINT
from likewise.training.options import Checkpoints
from likewise.training.signals import listening
from tests.training.problems import metric, problem, train, weights

PROGRAM = """
import sys, torch
torch.set_num_threads(1)
from tests.training.problems import metric, train, problem
from likewise.training.options import Checkpoints
def slow(step):
    print(step.total, flush=True)
    if step.total == 5:
        sys.stdin.readline()  # after the signal
    return step.features.values.sum() * 0
train(metric(), checkpoints=sys.argv[1], epochs=4, val=problem(9, seed=1), terms=[slow])
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_within_a_step_with_a_checkpoint(tmp_path, number, status):
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if int(line) == 5:  # in the second epoch's second step
                process.send_signal(number)
                break
        rest, said = process.communicate("\n", timeout=300)
    finally:
        process.kill()
        process.wait()
    assert rest == "", "no further step"
    assert process.returncode == status, said
    assert ("KeyboardInterrupt" in said) == (number == signal.SIGINT)
    note = json.loads(storage.read_note(tmp_path / "run" / CHECKPOINT))
    assert (note["progress"]["epoch"], note["progress"]["step"]) == (1, 2)
    resumed, whole = metric(seed=7), metric()
    options = {"epochs": 4, "val": problem(9, seed=1)}
    history = train(resumed, checkpoints=Checkpoints(tmp_path / "run", resume=True), **options)
    expected = train(whole, **options)
    assert torch.equal(weights(resumed), weights(whole))
    assert history.losses == expected.losses
    assert history.scores == expected.scores


class Interrupting:
    """A validation in which a signal comes."""

    def __init__(self, at):
        self.at, self.calls = at, 0

    def __call__(self, m):
        self.calls += 1
        if self.calls == self.at:
            os.kill(os.getpid(), signal.SIGTERM)
        return float(weights(m).sum())


def test_a_signal_ends_a_validation_at_once(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    m = metric()
    with pytest.raises(SystemExit) as caught:
        train(m, val=Interrupting(at=2), average=0.5, checkpoints=tmp_path)
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    note = json.loads(storage.read_note(tmp_path / CHECKPOINT))["progress"]
    assert (note["epoch"], note["step"], note["ended"], note["judged"]) == (1, 4, True, 4)
    whole = metric()
    history = train(m, val=Interrupting(at=99), average=0.5, checkpoints=Checkpoints(tmp_path, resume=True))
    expected = train(whole, val=Interrupting(at=99), average=0.5)
    assert history.scores == expected.scores
    assert history.losses == expected.losses
    assert torch.equal(weights(m), weights(whole))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_after_the_last_step_of_an_epoch(tmp_path, number):
    def kill(step):
        if step.total == 3:
            os.kill(os.getpid(), number)
        return step.features.values.sum() * 0

    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        train(metric(), terms=[kill], val=problem(9, seed=1), checkpoints=tmp_path)
    m, whole = metric(seed=7), metric()
    history = train(m, val=problem(9, seed=1), checkpoints=Checkpoints(tmp_path, resume=True))
    expected = train(whole, val=problem(9, seed=1))
    assert history.scores == expected.scores
    assert history.losses == expected.losses
    assert torch.equal(weights(m), weights(whole))


def test_the_second_signal_interrupts_at_once():
    said = []
    with listening(said.append) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal == signal.SIGINT
        assert said == ["fit: stopping after this step; a second signal stops immediately"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is not stop


def test_other_threads_are_left_alone():
    before, found = signal.getsignal(signal.SIGINT), []
    thread = threading.Thread(target=lambda: found.append(train(metric(), epochs=1)))
    thread.start()
    thread.join()
    assert len(found[0].losses) == 1
    assert signal.getsignal(signal.SIGINT) is before
