import copy
import math

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners

import likewise as lw
from likewise.losses import AMSoftmax, Angular, ProxyNCA, VectorLoss, from_pml_vectors


def vectors(count=9, channels=5, classes=4, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.randn(count, channels, generator=generator, dtype=dtype)
    return x, torch.arange(count) % classes


def unit(v):
    return v / v.norm()


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
    with pytest.raises(ValueError, match=r"expected labels of shape \(9,\), as x has it, got \(3,\)"):
        loss(x, labels[:3])
    with pytest.raises(TypeError, match="expected labels to be integers, got torch"):
        loss(x, labels.float())
    with pytest.raises(TypeError, match="an encoder must sum its sequences up"):
        loss(lw.Batch(torch.zeros(2, 3, 5)), labels[:2])
    broken = x.clone()
    broken[3, 2] = torch.nan
    with pytest.raises(ValueError, match=r"x\[3, 2\] is nan"):
        loss(broken, labels)


@pytest.mark.parametrize("loss", LOSSES[:2], ids=lambda loss: loss.name)
def test_classes_and_features_are_checked(loss):
    x, labels = vectors(dtype=torch.float32)
    with pytest.raises(ValueError, match=r"labels hold 7, but there are 4 classes, from 0 on; number them from 0"):
        loss(x, labels + 4 * (labels == 3))
    with pytest.raises(ValueError, match="expected x with 5 features, got 3"):
        loss(x[:, :3], labels)
    with pytest.raises(ValueError, match="classes must be a whole number of 2 or more"):
        type(loss)(1, 5)


# ---- Proxy-NCA


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_proxy_nca_against_loops(smoothing):
    x, labels = vectors()
    loss = ProxyNCA(4, 5, smoothing=smoothing, scale=2.0, proxy_scale=1.5).double()
    total = 0.0
    for vector, label in zip(x, labels.tolist(), strict=True):
        D = [(2 * unit(vector) - 1.5 * unit(proxy)).square().sum() for proxy in loss.proxies]
        bottom = sum(torch.exp(-d) for d in D)
        targets = [1 - smoothing if k == label else smoothing / 3 for k in range(4)]
        assert sum(targets) == pytest.approx(1)
        total -= sum(t * torch.log(torch.exp(-d) / bottom) for t, d in zip(targets, D, strict=True))
        row = loss.distances(vector[None])[0]
        torch.testing.assert_close(row, torch.stack(D))
    torch.testing.assert_close(loss(x, labels), total / len(x))


def test_proxy_nca_is_that_of_pytorch_metric_learning():
    x, labels = vectors()
    ours = ProxyNCA(4, 5, smoothing=0, scale=3, proxy_scale=2).double()
    theirs = pml.ProxyNCALoss(4, 5, softmax_scale=6).double()
    theirs.proxies.data = ours.proxies.data.clone()
    torch.testing.assert_close(ours(x, labels), theirs(x, labels))


def test_proxies_are_columns():
    x, labels = vectors()
    loss = ProxyNCA(4, 5, smoothing=0).double()
    columns = lw.losses.SoftNearestNeighbor(temperature=1.0)(loss.distances(x), labels, torch.arange(4))
    torch.testing.assert_close(columns, loss(x, labels))


# ---- AM-softmax


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
    assert [name for name, _ in loss.named_parameters()] == ["loss.W"]


def test_shared_cosines_are_computed_once():
    x, labels = vectors()
    x.requires_grad_()
    loss = AMSoftmax(4, 5).double()
    apart = loss(x, labels), loss.cosines(x).square().sum()
    expected = torch.autograd.grad(sum(apart), [x, loss.centers])
    calls = []
    loss.loss.distance.register_forward_hook(lambda *_: calls.append(1))
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


# ---- Angular


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 2, 2]])
def test_angular_against_loops(labels):
    x, _ = vectors(6)
    x = torch.stack([unit(v) for v in x])
    t = math.tan(math.radians(40)) ** 2
    losses = []
    for a in range(6):
        for p in range(6):
            if a == p or labels[a] != labels[p]:
                continue
            s = [
                math.exp(4 * t * ((x[a] + x[p]) @ x[n]).item() - 2 * (1 + t) * (x[a] @ x[p]).item())
                for n in range(6)
                if labels[n] != labels[a]
            ]
            losses.append(math.log(1 + sum(s)))
    expected = sum(losses) / len(losses)
    assert Angular(40)(x, labels).item() == pytest.approx(expected)
    assert Angular(40)(3 * x, labels).item() == pytest.approx(expected)
    assert Angular(40, scale_free=False)(3 * x, labels).item() != pytest.approx(expected)
    theirs = pml.AngularLoss(alpha=40)(x.float(), torch.tensor(labels))
    assert theirs.item() == pytest.approx(expected, rel=1e-4)


def test_angular_of_singletons_and_of_one_class_is_zero():
    x, labels = vectors(4)
    assert Angular()(x, labels) == 0
    assert Angular()(x, torch.zeros(4, dtype=torch.int64)) == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="less than 90 degrees"):
        Angular(90)


# ---- Vectors through pytorch-metric-learning


def test_any_loss_of_vectors():
    x, labels = vectors(dtype=torch.float32)
    theirs, miner = pml.CircleLoss(), miners.MultiSimilarityMiner()
    found = from_pml_vectors(theirs, miner)(x, labels)
    torch.testing.assert_close(found, theirs(x, labels, miner(x, labels)))
    assert from_pml_vectors(theirs)(x.requires_grad_(), torch.zeros(9, dtype=torch.int64)).requires_grad
    with pytest.raises(TypeError, match="expected loss to be a loss of pytorch-metric-learning, got Linear"):
        from_pml_vectors(torch.nn.Linear(2, 2))


def test_what_a_subclass_must_write():
    with pytest.raises(NotImplementedError, match=r"VectorLoss\.value"):
        VectorLoss()(torch.zeros(1, 2), [0])


def test_repr():
    assert repr(ProxyNCA(4, 5)) == "ProxyNCA(4, 5, smoothing=0.1, scale=3.0, proxy_scale=3.0)"
    assert repr(AMSoftmax(4, 5)).startswith("AMSoftmax(\n  4, 5, margin=0.1, scale=20.0")
    assert repr(Angular()) == "Angular(angle=45.0, scale_free=True)"
