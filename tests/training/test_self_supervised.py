"""SelfSupervised, against the paper's equation 10, one pair at a time."""

import pytest
import torch

from likewise import DTW, Batch
from likewise.data.augment import RandomBlurOrMerge
from likewise.distances.tap import TAP
from likewise.evaluation.evaluate import evaluate
from likewise.models.frame_mlp import FrameMLP
from likewise.models.metric import Metric
from likewise.testing import assert_close
from likewise.training.fit import fit
from likewise.training.self_supervised import SelfSupervised
from likewise.training.step import Step


def test_it_is_the_mean_of_distances_and_squared_errors():
    torch.manual_seed(0)
    metric = Metric(None, TAP(4).double())
    batch = Batch.from_list([torch.randn(n, 2, dtype=torch.float64) for n in (9, 1, 4, 12)])
    augmented = RandomBlurOrMerge()(batch, torch.Generator().manual_seed(0))
    step = Step(metric, batch, torch.arange(4), augment=lambda batch, generator: augmented)
    total = 0
    for b in range(4):
        x, y = batch[b][None], augmented.batch[b][None]
        plan = augmented.plans[b, : x.shape[1], : y.shape[1]]
        total += metric(x, y) + metric(y, x)
        total += (metric.distance.attention(x, y)[0][0] - plan).square().mean()
        total += (metric.distance.attention(y, x)[0][0] - plan.T).square().mean()
    assert_close(SelfSupervised(weight=3.0)(step)[None], 3 * total / 4, 1e-10, "equation 10")


def test_training_on_it_alone_brings_the_plans_closer():
    torch.manual_seed(0)
    tap, x = TAP(8), torch.randn(32, 14, 3).cumsum(1)
    history = fit(
        tap, x, augment=RandomBlurOrMerge(), step=SelfSupervised(), epochs=6, batch_size=8, lr=3e-3, verbose=False
    )  # fmt: skip
    assert history.losses[-1] < 0.8 * history.losses[0]


def test_alone_it_does_not_collapse():
    """An encoder that learned from it made all frames equal; now D is fixed, and training it warns."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(48) % 3
    waves = torch.sin(torch.linspace(0, 6, 16)[:, None] * (1 + labels)[:, None, None]) * torch.tensor([1.0, -1.0])
    data = waves + 0.3 * torch.randn(48, 16, 2, generator=generator)
    torch.manual_seed(0)
    metric = Metric(FrameMLP(2, hidden=8, out=4), TAP(8))
    before = evaluate(metric, (data[::2], labels[::2]), (data[1::2], labels[1::2])).accuracy
    settings = {"augment": RandomBlurOrMerge(), "step": SelfSupervised(), "epochs": 5, "batch_size": 12, "lr": 3e-3}
    with pytest.warns(UserWarning, match="SelfSupervised without another loss .* freeze the encoder"):
        fit(metric, data, verbose=False, **(settings | {"epochs": 1}))
    metric.encoder.requires_grad_(False)
    frames = metric.embed(data).values
    fit(metric, data, verbose=False, **settings)
    assert torch.equal(metric.embed(data).values, frames)
    after = evaluate(metric, (data[::2], labels[::2]), (data[1::2], labels[1::2])).accuracy
    assert after >= before - 0.05


def test_missing_requirements_are_named():
    x = torch.randn(4, 6, 2)
    labels = torch.arange(4)
    with pytest.raises(ValueError, match=r"SelfSupervised: needs fit\(augment=...\)"):
        SelfSupervised()(Step(Metric(None, TAP(2)), Batch(x), labels))
    with pytest.raises(ValueError, match=r"SelfSupervised: needs a distance with an attention .*; got DTW"):
        SelfSupervised()(Step(Metric(None, DTW()), Batch(x), labels, augment=RandomBlurOrMerge()))
