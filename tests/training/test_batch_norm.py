"""Batch normalisation over processes, with one process in place of several; test_processes.py has real ones."""

import pytest
import torch
from torch import nn

from likewise.training import batch_norm
from likewise.training.ranks import Ranks


class Several(Ranks):
    """Claims to be one of two processes."""

    size = 2

    def __init__(self):
        pass


@pytest.fixture
def alone(monkeypatch):
    """The other process has nothing to add to a sum."""
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda total: None)


@pytest.mark.parametrize("settings", [{}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}])
@pytest.mark.parametrize("training", [True, False])
def test_equals_that_of_pytorch(alone, settings, training):
    torch.manual_seed(0)
    ours, theirs = nn.BatchNorm1d(3, **settings), nn.BatchNorm1d(3, **settings)
    for module in (ours, theirs):
        module.train(training)
    for _ in range(2):
        x = torch.randn(5, 3, 7)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        with batch_norm.together(ours, Several()):
            found = ours(a)
        expected = theirs(b)
        torch.testing.assert_close(found, expected)
        found.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-4)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)


def test_half_precision_is_computed_in_float32(alone):
    module = nn.BatchNorm1d(2)
    x = (1000 + torch.randn(64, 2, generator=torch.Generator().manual_seed(0))).half()
    with batch_norm.together(module, Several()):
        found = module(x)
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.float(), nn.BatchNorm1d(2)(x.float()), atol=2e-3, rtol=2e-3)


def test_it_leaves_no_trace(alone):
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    before = dict(vars(module[1]))
    with pytest.raises(RuntimeError), batch_norm.together(module, Several()):
        raise RuntimeError
    assert vars(module[1]).keys() == before.keys()
    assert "forward" not in vars(module[1])
