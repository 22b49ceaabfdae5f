import pytest
import torch
from pytorch_metric_learning import losses as pml

import likewise as lw
from likewise.losses import AMSoftmax, Angular, ProxyNCA, VectorLoss, from_pml_vectors
from tests.losses.problems import vectors

LOSSES = [ProxyNCA(4, 5), AMSoftmax(4, 5), Angular(), from_pml_vectors(pml.ProxyAnchorLoss(4, 5))]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_contract(loss):
    x, labels = vectors(dtype=torch.float32)
    kept = x.clone()
    value = loss(x.requires_grad_(), labels)
    assert value.ndim == 0
    assert value.isfinite()
    assert torch.equal(x, kept), "the loss changed x"
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(loss(x[order], labels[order]), value)
    for form in (labels.tolist(), labels.numpy(), labels.int()):
        assert torch.equal(loss(x, form), value)
    half = loss(x.half(), labels)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, value, rtol=1e-2, atol=1e-2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(loss(x, labels), value), "mixed precision"
    (slope,) = torch.autograd.grad(value, x)
    assert slope.isfinite().all()
    assert loss(x[:0], labels[:0]) == 0
    for part in (x[:1], torch.zeros(3, 5)):
        found = loss(part.detach().requires_grad_(), labels[: len(part)])
        assert found.isfinite()
        assert found.requires_grad


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_refusals(loss):
    x, labels = vectors(dtype=torch.float32)
    with pytest.raises(ValueError, match=r"expected x of shape \(N, C\), got \(5,\)"):
        loss(x[0], labels)
    with pytest.raises(ValueError, match=r"expected labels of shape \(9,\), got \(3,\)"):
        loss(x, labels[:3])
    with pytest.raises(TypeError, match="expected labels to be whole numbers or names, got torch"):
        loss(x, labels.float())
    with pytest.raises(TypeError, match="an encoder must reduce sequences to vectors"):
        loss(lw.Batch(torch.zeros(2, 3, 5)), labels[:2])
    broken = x.clone()
    broken[3, 2] = torch.nan
    with pytest.raises(ValueError, match=r"x\[3, 2\] is nan"):
        loss(broken, labels)


@pytest.mark.parametrize("loss", LOSSES[:2], ids=lambda loss: loss.name)
def test_classes_and_features_are_checked(loss):
    x, labels = vectors(dtype=torch.float32)
    with pytest.raises(ValueError, match=r"labels hold 7, but there are 4 classes, counted from 0; number them from 0"):
        loss(x, labels + 4 * (labels == 3))
    with pytest.raises(ValueError, match="expected x with 5 features, got 3"):
        loss(x[:, :3], labels)
    with pytest.raises(ValueError, match="classes must be a whole number of 2 or more"):
        type(loss)(1, 5)


def test_what_a_subclass_must_write():
    with pytest.raises(NotImplementedError, match=r"VectorLoss\.value"):
        VectorLoss()(torch.zeros(1, 2), [0])
