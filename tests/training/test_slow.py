import time
import warnings
from types import SimpleNamespace

import pytest
import torch

import likewise as lw
from likewise.training import slow
from likewise.training.source import Source
from tests.training.problems import metric, train


class Clock:
    """A clock on which only a Sleepy's pairs take time."""

    now = 0.0

    @classmethod
    def perf_counter(cls):
        return cls.now


class Sleepy(lw.Distance):
    """A distance with a fixed time per pair."""

    symmetric = False
    asked = 0

    def __init__(self, seconds):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.seconds = seconds

    def paired(self, x, y, x_lengths, y_lengths):
        Sleepy.asked += 1
        Clock.now += self.seconds * len(x)
        return self.weight * (x[:, 0] - y[:, 0]).square().sum(-1)


def long(count=64, steps=40):
    return Source.of("train", (torch.randn(count, steps, 2), torch.arange(count) % 2))


def test_a_step_of_minutes_is_announced_with_the_remedy(monkeypatch):
    monkeypatch.setattr(slow, "time", Clock)
    m = lw.Metric(None, Sleepy(0.02))
    with pytest.warns(UserWarning, match=r"a step of 64 .* takes about 1\.4 minutes on this CPU. Shorten the seq.*GPU"):
        slow.warn_if_slow(m, long(), 64, {"accelerator": "cpu"})


def test_quick_steps_are_not_announced_and_short_ones_not_tried(monkeypatch):
    monkeypatch.setattr(slow, "time", Clock)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slow.warn_if_slow(lw.Metric(None, Sleepy(1e-4)), long(), 64, {"accelerator": "cpu"})
        asked = Sleepy.asked
        slow.warn_if_slow(lw.Metric(None, Sleepy(9.0)), long(steps=20), 64, {"accelerator": "cpu"})
        slow.warn_if_slow(lw.Metric(None, Sleepy(9.0)), long(), 64, {"accelerator": "gpu"})
        slow.warn_if_slow(lw.Metric(None, Sleepy(9.0)), long(), 8, {"accelerator": "cpu"})
        assert Sleepy.asked == asked
        train(metric(), epochs=1)


def test_trying_leaves_no_trace():
    m = metric()
    m.train()
    before = {name: tensor.clone() for name, tensor in m.state_dict().items()}
    assert slow.step_time(m, lw.Batch(torch.randn(4, 9, 2)), 64) >= 0
    assert m.training
    assert all(parameter.grad is None for parameter in m.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in m.state_dict().items())


def test_tap_on_long_sequences_is_announced_before_it_starts(monkeypatch):
    """TAP itself, through fit, on a machine that is a hundred times slower."""
    import likewise.training.loop as loop

    started = []
    monkeypatch.setattr(slow, "time", SimpleNamespace(perf_counter=lambda: 100 * time.perf_counter()))
    monkeypatch.setattr(loop, "train", lambda plan: started.append(plan))
    items, labels = torch.randn(32, 400, 1), ["a", "b"] * 16
    with pytest.warns(UserWarning, match=r"a step of 32 sequences of up to 400 frames takes about [\d.]+ minutes"):
        lw.fit(lw.Metric(lw.FrameMLP(1), lw.TAP()), (items, labels), accelerator="cpu", verbose=False)
    assert len(started) == 1


def test_tap_on_short_sequences_is_not(monkeypatch):
    import likewise.training.loop as loop

    monkeypatch.setattr(loop, "train", lambda plan: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        items = torch.randn(32, 60, 1), ["a", "b"] * 16
        lw.fit(lw.Metric(lw.FrameMLP(1), lw.TAP()), items, accelerator="cpu", verbose=False)
