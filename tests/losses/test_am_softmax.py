import copy

import pytest
import torch
from pytorch_metric_learning import losses as pml

from likewise._check import full_precision
from likewise.losses import AMSoftmax, am_softmax
from tests.losses.problems import unit, vectors


@pytest.mark.parametrize("margin", [0.0, 0.1])
def test_am_softmax_against_loops(margin):
    x, labels = vectors()
    loss = AMSoftmax(4, 5, margin=margin, scale=20).double()
    total = 0.0
    for vector, label in zip(x, labels.tolist(), strict=True):
        cosines = torch.stack([unit(vector) @ unit(center) for center in loss.centers.T])
        torch.testing.assert_close(loss.cosines(vector[None])[0], cosines)
        cosines = cosines - margin * (torch.arange(4) == label)
        total -= torch.log_softmax(20 * cosines, 0)[label]
    torch.testing.assert_close(loss(x, labels), total / len(x))


def test_am_softmax_without_margin_is_the_normalised_softmax():
    x, labels = vectors()
    loss = AMSoftmax(4, 5, margin=0, scale=7).double()
    logits = 7 * torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(loss.centers, dim=0)
    torch.testing.assert_close(loss(x, labels), torch.nn.functional.cross_entropy(logits, labels))


def test_cosines_carry_gradients_to_the_centres():
    x, _ = vectors(dtype=torch.float32)
    loss = AMSoftmax(4, 5)
    loss.cosines(x).square().sum().backward()
    assert loss.centers.grad is not None
    assert [name for name, _ in loss.named_parameters()] == ["centers"]


def test_shared_cosines_are_computed_once(monkeypatch):
    x, labels = vectors()
    x.requires_grad_()
    loss = AMSoftmax(4, 5).double()
    apart = loss(x, labels), loss.cosines(x).square().sum()
    expected = torch.autograd.grad(sum(apart), [x, loss.centers])
    calls = []
    monkeypatch.setattr(am_softmax, "full_precision", lambda x: calls.append(1) or full_precision(x))
    for first in (loss.cosines, lambda x: loss(x, labels)):
        calls.clear()
        with loss.sharing():
            first(x)
            value, cosines = loss(x, labels), loss.cosines(x)
            assert len(calls) == 1
            loss.cosines(x.clone())
            assert len(calls) == 2, "other vectors"
        torch.testing.assert_close((value, cosines.square().sum()), apart)
        torch.testing.assert_close(torch.autograd.grad(value + cosines.square().sum(), [x, loss.centers]), expected)
    calls.clear()
    loss.cosines(x), loss.cosines(x)
    assert len(calls) == 2, "outside of the block"
    assert copy.deepcopy(loss)(x, labels) == loss(x, labels)


def test_cosines_of_other_types():
    x, _ = vectors()
    loss = AMSoftmax(4, 5)
    assert loss.cosines(x).dtype == torch.float64
    assert loss.cosines(x.half()).dtype == torch.float32
    with pytest.raises(ValueError, match="AMSoftmax: expected x with 5 features, got 3"):
        loss.cosines(x[:, :3])


def test_it_is_cos_face_of_pytorch_metric_learning():
    x, labels = vectors()
    ours, theirs = AMSoftmax(4, 5).double(), pml.CosFaceLoss(4, 5, margin=0.1, scale=20).double()
    theirs.W.data = ours.centers.data.clone()
    torch.testing.assert_close(ours(x, labels), theirs(x, labels))


def test_repr():
    assert repr(AMSoftmax(4, 5)) == "AMSoftmax(4, 5, margin=0.1, scale=20.0)"
