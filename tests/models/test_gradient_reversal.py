import copy

import pytest
import torch
from torch import nn

from likewise.models.class_head import ClassHead
from likewise.models.frozen_batch_norm import freeze_batch_norm
from likewise.models.gradient_reversal import GradientReversal, reverse_gradient


@pytest.mark.parametrize("scale", [1.0, 0.3, 0.0, -0.7])
def test_the_gradient_is_multiplied_by_minus_the_scale(scale):
    torch.manual_seed(0)
    x, above = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3)
    reversal = GradientReversal(scale)
    assert torch.equal(reversal(x), x)
    reversal(x).backward(above)
    assert torch.equal(x.grad, -scale * above)
    y = x.detach().requires_grad_()
    reverse_gradient(y, torch.tensor(scale)).backward(above)
    assert torch.equal(y.grad, x.grad)


@pytest.mark.parametrize("scale", [0.5, -0.5])
def test_layers_after_it_learn_as_usual(scale):
    torch.manual_seed(0)
    head, x = nn.Linear(3, 2), torch.randn(4, 3)
    expected = torch.autograd.grad(head(x).square().sum(), head.weight)[0]
    found = torch.autograd.grad(head(GradientReversal(scale)(x.requires_grad_())).square().sum(), head.weight)[0]
    assert torch.equal(found, expected)


def test_the_scale_can_be_set_and_is_checked():
    reversal = GradientReversal()
    reversal.scale = 0.25
    x = torch.ones(2, requires_grad=True)
    reversal(x).sum().backward()
    assert x.grad.tolist() == [-0.25, -0.25]
    assert repr(reversal) == "GradientReversal(0.25)"
    with pytest.raises(TypeError, match="expected scale to be a number, got str"):
        GradientReversal("half")


def test_a_class_head_is_two_layers_and_dropout():
    torch.manual_seed(0)
    head, x = ClassHead(4, 3, hidden=5, dropout=0.5), torch.randn(6, 4)
    first, last = head.layers[0], head.layers[3]
    assert not torch.equal(head(x), head(x)), "dropout"
    head.eval()
    torch.testing.assert_close(head(x), last(first(x).relu()))
    assert ClassHead(4, 3).hidden == 4
    linear = ClassHead(4, 3, hidden=0).eval()
    torch.testing.assert_close(linear(x), linear.layers[1](x))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x):
        return self.norm(self.inner(x).mean((2, 3)))


def test_frozen_batch_norm_does_not_look_at_the_batch():
    torch.manual_seed(0)
    network = Network()
    assert freeze_batch_norm(network) is network
    freeze_batch_norm(network)  # twice is once
    x = torch.randn(4, 1, 5, 5)
    expected = copy.deepcopy(network).eval()(x)
    for copied in (network, copy.deepcopy(network)):
        copied.train()
        assert torch.equal(copied(x), expected)
        assert torch.equal(copied.norm.running_mean, torch.zeros(2))
        assert copied.inner[1].num_batches_tracked == 0
        assert copied.training
    network(x).square().sum().backward()
    assert network.norm.weight.grad is not None, "weights are still learned"
