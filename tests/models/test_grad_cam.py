import pytest
import torch
from torch import nn

import likewise as lw
from likewise.models import Embedder, SmallCNN, grad_cam


class Pooled(nn.Module):
    """Two linear features of a map, averaged, whose derivative is known."""

    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(1, 2, 1, bias=False)
        self.outward = nn.Linear(2, 1, bias=False)
        with torch.no_grad():
            self.features.weight.copy_(torch.tensor([1.0, -1.0]).reshape(2, 1, 1, 1))
            self.outward.weight.copy_(torch.tensor([[3.0, 5.0]]))

    def forward(self, x):
        return self.outward(self.features(x).mean((2, 3)))


def test_by_hand():
    # F = (x, -x), the score is mean(3 x - 5 x): a = (3, 5) / 4, the map relu((3 x - 5 x) / 4).
    x = torch.tensor([[[[1.0, -2.0], [0.0, -4.0]]]])
    found = grad_cam(Pooled(), x, "features", lambda scores: scores[:, 0])
    assert found.tolist() == [[[0.0, 1.0], [0.0, 2.0]]]


def test_equal_to_autograd_through_the_whole_network():
    torch.manual_seed(0)
    encoder = Embedder(SmallCNN(3, out=8), 4).eval()
    images = torch.rand(3, 3, 12, 10)
    reference = torch.randn(4)
    kept = {}
    handle = encoder.backbone.convolutions[2].register_forward_hook(lambda m, g, output: kept.update(map=output))
    scores = encoder(images) @ reference
    handle.remove()
    slope = torch.autograd.grad(scores.sum(), kept["map"])[0]
    expected = (slope.mean((2, 3), keepdim=True) * kept["map"]).sum(1).relu()
    found = grad_cam(encoder, images, "backbone.convolutions.2", lambda vectors: vectors @ reference)
    torch.testing.assert_close(found, expected.detach())
    assert not found.requires_grad


def test_frozen_weights_no_grad_and_training_mode():
    encoder = Embedder(SmallCNN(3, out=8), 4).requires_grad_(False).train()
    images = torch.rand(2, 3, 8, 8)
    with torch.no_grad():
        found = grad_cam(encoder, images, "backbone.convolutions.0", lambda vectors: vectors[:, 0])
    assert found.shape == (2, 8, 8)
    assert encoder.training
    assert not encoder.backbone.convolutions[0]._forward_hooks


def test_sequences_do_not_see_their_padding():
    torch.manual_seed(0)
    encoder = lw.TCN(2, 8, steps=False).eval()
    values = torch.randn(2, 9, 2)
    filled = values.clone()
    filled[1, 5:] = 1e3
    a, b = (
        grad_cam(encoder, lw.Batch(each, [9, 5]), "convolutions.1", lambda found: found[:, 0])
        for each in (values, filled)
    )
    torch.testing.assert_close(a, b)
    assert a.shape == (2, 9)
    assert (a[1, 5:] == 0).all()


def test_refusals():
    network, x = Pooled(), torch.rand(2, 1, 4, 4)
    with pytest.raises(ValueError, match="Pooled has no layer 'feature'; similar names are features"):
        grad_cam(network, x, "feature", lambda scores: scores[:, 0])
    with pytest.raises(ValueError, match="one number for each of 2 items, got \\(2, 1\\)"):
        grad_cam(network, x, "features", lambda scores: scores)
    with pytest.raises(ValueError, match="outward returns vectors"):
        grad_cam(network, x, "outward", lambda scores: scores[:, 0])
    with pytest.raises(ValueError, match="does not depend"):
        grad_cam(network, x, "features", lambda scores: torch.zeros(2))
