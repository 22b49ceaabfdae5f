"""A training step of each addition, and its scores, where items and weights live on a device and labels do not."""

import pytest
import torch

import likewise as lw
from likewise.losses.vector_loss import VectorLoss
from likewise.training import Step
from papers.unseen_classes.parts import Settings, make_encoder, make_loss, make_terms, scores
from papers.unseen_classes.run import completed
from tests.papers.foreign import second_device

CHANNELS = {"flowers102": 3, "utd_mhad": 6, "sad": 3}


@pytest.fixture(autouse=True)
def autocast_knows_no_such_place(monkeypatch):
    plain = torch.autocast

    class Autocast(plain):
        def __init__(self, device_type, **options):
            super().__init__("cpu" if device_type == "meta" else device_type, **options)

    monkeypatch.setattr(torch, "autocast", Autocast)


@pytest.mark.parametrize("data", CHANNELS)
@pytest.mark.parametrize(
    ("loss", "add"),
    [
        ("triplet", "gdfl+adapt_adv"),
        ("angular", "energy"),
        ("proxy_nca", "gdfl+soft_adv+jrd"),
        ("am_softmax", "jrd"),
        ("am_softmax", "mrd"),
        ("am_softmax", "jmmd"),
    ],
)
def test_a_step_of_each_addition(data, loss, add):
    torch.manual_seed(0)
    encoder = "small" if data == "flowers102" else None
    settings = completed(Settings(data, loss, add, encoder, embedding=4, crop=12), "cpu")
    labels = torch.arange(8) % 4
    if data == "flowers102":
        part = lw.ImageSet(torch.randint(256, (8, 3, 16, 16), dtype=torch.uint8), labels)
    else:
        items = lw.Batch(torch.randn(8, 9, CHANNELS[data]), [9, 9, 4, 5, 9, 9, 1, 2])
        part = lw.Dataset(items, labels, groups=labels // 2)
    metric, base = lw.Metric(make_encoder(settings, part), lw.Euclidean()), make_loss(settings, 4)
    terms, adversary = make_terms(settings, base)
    with second_device():
        for each in (metric, base, *terms):
            if isinstance(each, torch.nn.Module):
                each.to("meta")
        items = part.items.to("meta")
        if adversary is not None:
            adversary.prepare(metric, items, labels)
        names = tuple(sorted({name for term in terms for name in term.layers}))
        step = Step(metric.train(), items, labels, base, layers=names)
        vectors = isinstance(base, VectorLoss)
        total = base(step.features, step.labels) if vectors else base(step.D, step.labels)
        for term in terms:
            total = total + term(step)
        total.backward()
        assert total.device.type == "meta"
        object.__setattr__(part, "items", items)
        with torch.no_grad():
            found = scores(metric.eval(), part, starts=1)
    assert 0 <= found["recall"]["1"] <= 1
