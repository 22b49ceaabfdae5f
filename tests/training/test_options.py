from pathlib import Path

import pytest
import torch
from torch import nn

from likewise.training.options import Checkpoints, Optimization, falling


def test_an_optimization_makes_its_optimizer():
    options, make = Optimization.of(Optimization(torch.optim.SGD, weight_decay=0.5), 0.25)
    optimizer = make([nn.Parameter(torch.zeros(1))])
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert optimizer.param_groups[0]["weight_decay"] == 0.5
    assert options.clip is None
    own = Optimization.of(lambda parameters: torch.optim.Adam(parameters, 0.125), 9.0)[1]
    assert own([nn.Parameter(torch.zeros(1))]).param_groups[0]["lr"] == 0.125


def test_a_rate_that_falls():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    schedule, rates = falling(0.25, 8)(optimizer), []
    for _ in range(8):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == [2.0] * 7 + [1.0]
    assert optimizer.param_groups[0]["lr"] == 0


def test_checkpoints():
    assert Checkpoints.of(None) is None
    assert Checkpoints.of("run").folder == Path("run")
    given = Checkpoints("run", every=5, resume=True)
    assert Checkpoints.of(given) is given
    assert given == Checkpoints(Path("run"), 5, True)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Optimization(weight_decay=-1), ValueError, "Optimization: weight_decay must be 0 or more, got -1"),
        (lambda: Optimization(clip=-1.0), ValueError, "Optimization: clip must be positive"),
        (lambda: Optimization("adam"), TypeError, "Optimization: expected make to be a function, got str"),
        (lambda: Optimization(schedule=3), TypeError, "Optimization: expected schedule to be a function, got int"),
        (lambda: Checkpoints("run", every=0), ValueError, "Checkpoints: every must be a whole number of 1 or more"),
        (lambda: Checkpoints(3), TypeError, "Checkpoints: expected folder to be a path, got int"),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()
