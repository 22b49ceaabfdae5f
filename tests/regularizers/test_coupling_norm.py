import pytest
import torch
from torch import nn

from likewise import CoupledGRU, Metric
from likewise.regularizers import coupling_norm


def test_it_is_the_norm_of_all_coupling_weights():
    network = CoupledGRU(3, hidden=(4, 2))
    expected = sum(cell.weight_hc.square().sum() for cell in network.cells).sqrt()
    torch.testing.assert_close(coupling_norm(network), expected)
    torch.testing.assert_close(coupling_norm(Metric(None, network)), expected)


def test_no_slope_at_zero():
    network = CoupledGRU(3, hidden=(4,))
    nn.init.zeros_(network.cells[0].weight_hc)
    coupling_norm(network).backward()
    assert torch.equal(network.cells[0].weight_hc.grad, torch.zeros_like(network.cells[0].weight_hc))


def test_other_modules_are_refused():
    with pytest.raises(ValueError, match="coupling_norm: Linear has no coupling weights; give it a CoupledGRU"):
        coupling_norm(nn.Linear(2, 2))
