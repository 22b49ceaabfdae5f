"""The drill: training that is killed, interrupted or obstructed at any time resumes to the same weights, bit by bit."""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch

from likewise.training.checkpoint import CHECKPOINT
from likewise.training.options import Checkpoints
from tests.training.problems import metric, problem, train, weights

ROOT = Path(__file__).parents[2]


def drill(folder, what):
    seed = random.SystemRandom().randrange(1 << 30)  # other moments each time
    command = [sys.executable, "-m", "tests.training.drill", what, str(seed), str(folder)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, f"seed {seed}: {found.stderr[-3000:]}"
    return json.loads(found.stdout.splitlines()[-1])


@pytest.fixture
def folder(tmp_path):
    """A folder where flushing is fast, if there is one: the drill is about processes, not disks."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_kill_at_twenty_moments(folder):
    found = drill(folder, "kill")  # four in each of the five kinds of step
    assert (found["hits"], found["equal"]) == (20, 20)


def test_signals_and_a_folder_that_takes_no_more(folder):
    found = drill(folder, "others")
    for name in ("SIGINT", "SIGTERM"):  # once in each kind of step
        assert (found[name]["hits"], found[name]["equal"]) == (5, 5), name
    for name, kind in (("full", "OSError"), ("readonly", "PermissionError")):
        assert found[name]["error"] == {"type": kind, "file": str(folder / name / "run" / CHECKPOINT)}
        assert found[name]["equal"], name


def test_a_clock_that_goes_back(tmp_path, monkeypatch):
    whole = metric()
    train(whole, val=problem(9, seed=1))
    now = [2e9]

    def back():
        now[0] -= 3600
        return now[0]

    monkeypatch.setattr(time, "time", back)
    m = metric()
    train(m, checkpoints=Checkpoints(tmp_path, every=1), val=problem(9, seed=1), epochs=2)
    os.utime(tmp_path / CHECKPOINT, (4e9, 4e9))  # written in the future
    m = metric(seed=7)
    history = train(m, checkpoints=Checkpoints(tmp_path, every=1, resume=True), val=problem(9, seed=1))
    assert torch.equal(weights(m), weights(whole))
    assert all(seconds >= 0 for seconds in history.seconds)
