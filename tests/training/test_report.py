import io
import sys

from likewise.training.history import Score
from likewise.training.report import Report
from likewise.training.validation import Validation
from tests.training.problems import metric, problem, train


def test_lines_without_a_terminal(capfd):
    train(metric(), epochs=2, verbose=True)
    said = capfd.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("epoch 1/2: loss 0.")
    train(metric(), epochs=4, val=Validation(problem(6, seed=1), every=2), verbose=True)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "epoch 4/4: loss" in lines[1]
    assert ", accuracy " in lines[1]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    train(metric(), epochs=2, verbose=True)
    said = sys.stderr.getvalue()
    assert "Training" in said
    assert "2/2" in said


def test_lines_by_hand(capfd):
    report = Report(10, verbose=True, every=5)
    report.start(0)
    for epoch in range(1, 11):
        report.epoch(epoch, 1.0, 0.5, Score(3, 9, {"error": 2.0}) if epoch == 3 else None)
    report.close()
    assert capfd.readouterr().err.splitlines() == [
        "epoch 3/10: loss 1, error 2.0000, 0.5 s",
        "epoch 5/10: loss 1, 0.5 s",
        "epoch 10/10: loss 1, 0.5 s",
    ]
    Report(1, verbose=False).say("nothing")
    assert capfd.readouterr().err == ""
