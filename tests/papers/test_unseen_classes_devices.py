"""A training step of each addition, and its scores, where items and weights live on a device and labels do not."""

import pytest
import torch

import likewise as lw
from likewise.losses.vector_loss import VectorLoss
from likewise.recipes.unseen_classes import settings_for
from likewise.recipes.unseen_classes_data import Part
from likewise.recipes.unseen_classes_parts import make_additions, make_encoder, make_loss, scores
from likewise.training.step import take_step
from tests.recipes.foreign import second_device

CHANNELS = {"omniglot": 1, "utd_mhad": 6, "sad": 3}


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
    settings = settings_for(data, loss, add, {"embedding": 4, "crop": 12})
    metric, base = lw.Metric(make_encoder(settings, CHANNELS[data]), lw.Euclidean()), make_loss(settings, 4)
    terms, adversary = make_additions(settings, base)
    labels = torch.arange(8) % 4
    with second_device():
        for part in (metric, base, *terms):
            if isinstance(part, torch.nn.Module):
                part.to("meta")
        if data == "omniglot":
            items = torch.randint(256, (8, 1, 16, 16), dtype=torch.uint8).to("meta")
        else:
            items = lw.Batch(torch.randn(8, 9, CHANNELS[data]).to("meta"), [9, 9, 4, 5, 9, 9, 1, 2])
        if adversary is not None:
            adversary.prepare(metric, items, labels)
            terms = [*terms, adversary]
        names = sorted({name for term in terms for name in term.layers})
        vectors = isinstance(base, VectorLoss)
        step = take_step(metric.train(), items, labels, matrix=not vectors, layers=names)
        total = base(step.features, step.labels) if vectors else base(step.D, step.labels)
        for term in terms:
            total = total + term(step)
        total.backward()
        assert total.device.type == "meta"
        with torch.no_grad():
            found = scores(metric.eval(), Part(items, labels, None if data == "omniglot" else labels // 2), starts=1)
    assert 0 <= found["recall"]["1"] <= 1
