import math

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import likewise as lw
from likewise.sklearn import swmd
from likewise.sklearn.swmd import SWMD
from tests.training.problems import problem


def data(count=18, fill=0.0):
    x, y = problem(count)
    return lw.Batch(x.values.double().masked_fill(~x.mask[..., None], fill), x.lengths), y.numpy()


def draw(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_loops(D, labels):
    """The loss, item by item."""
    terms = []
    for a in range(len(D)):
        same = [b for b in range(len(D)) if b != a and labels[b] == labels[a]]
        if same:
            total = sum(math.exp(-D[a, b]) for b in range(len(D)) if b != a)
            terms.append(-math.log(sum(math.exp(-D[a, b]) for b in same) / total))
    return sum(terms) / len(terms)


def test_loss_equals_plain_loops():
    D, labels = draw(6, 6), torch.tensor([0, 0, 1, 1, 1, 2])
    assert float(swmd.neighbour_loss(D, labels)) == pytest.approx(by_loops(D.numpy(), labels.tolist()))
    assert swmd.neighbour_loss(D, torch.arange(6)) is None


def by_sinkhorn(cost, a, b, reg, rounds=3000):
    """Potentials and plan, by plain iterations."""
    f, g = torch.zeros_like(a), torch.zeros_like(b)
    for _ in range(rounds):
        f = -reg * ((g[:, None] - cost) / reg + b.log()[:, None]).logsumexp(2)
        g = -reg * ((f[:, :, None] - cost) / reg + a.log()[:, :, None]).logsumexp(1)
    return f, g, a[:, :, None] * b[:, None] * ((f[:, :, None] + g[:, None] - cost) / reg).exp()


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_value_and_potentials_are_those_of_plain_iterations(monkeypatch, scale):
    monkeypatch.setattr(swmd, "TOLERANCE", 1e-13)
    cost, a, b = scale * draw(3, 4, 5), draw(3, 4, seed=1), draw(3, 5, seed=2)
    a, b = a / a.sum(1, keepdim=True), b / b.sum(1, keepdim=True)
    reg = 0.1 * scale**0.5
    f, g, plan = by_sinkhorn(cost, a, b, reg)
    divergence = (plan * (plan / (a[:, :, None] * b[:, None])).clamp(min=1e-300).log()).sum((1, 2))
    expected = (plan * cost).sum((1, 2)) + reg * divergence
    torch.testing.assert_close(swmd.transport_value(cost, a, b, reg), expected, rtol=1e-6, atol=1e-8)
    found = swmd.potentials(plan, cost, a, b, reg)
    for mine, theirs in zip(found, (f, g), strict=True):  # up to a constant
        difference = mine - theirs
        torch.testing.assert_close(difference, difference[:, :1].expand_as(difference), rtol=1e-6, atol=1e-6 * scale)


def test_derivatives_of_costs_and_importances(monkeypatch):
    monkeypatch.setattr(swmd, "TOLERANCE", 1e-13)
    words, lengths = torch.tensor([[0, 1, 2, 0], [2, 1, 0, 0]]), torch.tensor([4, 2])
    mask = torch.arange(4) < lengths[:, None]

    def value(cost, importances):
        mass = swmd.masses(importances, words, mask)
        return swmd.transport_value(cost, mass[:1], mass[1:], 0.3, lengths[:1], lengths[1:])

    cost, importances = draw(1, 4, 4).requires_grad_(), draw(3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(value, (cost, importances))


def test_whitening_decorrelates_and_scales():
    frames = torch.randn(500, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    frames[:, 1] = 0.6 * frames[:, 0] + 0.5 * frames[:, 1]
    mapped = frames @ swmd.whitening(frames)
    assert abs(float(torch.corrcoef(mapped.T)[0, 1])) < abs(float(torch.corrcoef(frames.T)[0, 1])) / 3
    assert float(torch.cdist(mapped, mapped).square().mean()) == pytest.approx(swmd.SPREAD)


def test_finds_the_channel_that_tells_classes_apart():
    generator = torch.Generator().manual_seed(0)
    labels = np.arange(32) % 2
    series = [
        torch.stack([label + 0.4 * torch.randn(5, generator=generator), 3 * torch.randn(5, generator=generator)], 1)
        for label in labels
    ]
    train, test = (series[:20], labels[:20]), (series[20:], labels[20:])
    learner = SWMD(codewords=4, epochs=15, lr=0.05).fit(*train)
    assert learner.losses_[-1] < learner.losses_[0] / 2
    assert learner.score(*test) >= lw.evaluate(lw.EMD(), test, train).accuracy
    assert learner.importances_.shape == (4,)
    assert (learner.importances_ != 1).any()


def test_padding_does_not_matter():
    (x, y), (filled, _) = data(9), data(9, fill=7.0)
    a, b = (SWMD(lw.DTW(), codewords=3, epochs=2).fit(each, y) for each in (x, filled))
    assert (a.weight_ == b.weight_).all()
    assert (a.importances_ == b.importances_).all()


def test_can_be_cloned_saved_and_asked_only_once_fitted(tmp_path):
    x, y = data(9)
    learner = clone(SWMD(lw.DTW(), codewords=3, epochs=1))
    with pytest.raises(NotFittedError):
        learner.predict(x)
    learner.fit(x, y)
    learner.metric_.save(tmp_path / "metric")
    torch.testing.assert_close(lw.Metric.load(tmp_path / "metric").matrix(x), learner.metric_.matrix(x))
    for found, item in zip(learner.transform(x), x, strict=True):
        torch.testing.assert_close(found, item @ learner.weight_)


@pytest.mark.parametrize(
    ("options", "labels", "message"),
    [({"reg": 0}, [0, 0, 1], "reg"), ({"codewords": 0}, [0, 0, 1], "codewords"), ({}, [0, 0, 0], "two classes")],
)
def test_refusals(options, labels, message):
    with pytest.raises(ValueError, match=message):
        SWMD(**options).fit([[[0.0]], [[1.0]], [[2.0]]], labels)
