"""The defaults of fit: each learned distance beats DTW on channels of unequal scale."""

import pytest
import torch

import likewise as lw
from likewise.distances.training_defaults import TrainingDefaults
from likewise.losses import Triplet
from likewise.training.fit import fit
from likewise.training.options import Checkpoints
from tests.training.test_resume import CrashError, crash_at

LEARNED = {
    "TAP": lambda: lw.Metric(lw.FrameMLP(2, 64), lw.TAP(4, (3, 3))),
    "TransformerTAP": lambda: lw.Metric(lw.FrameMLP(2, 64, out=16), lw.TransformerTAP(16)),
    "SoftDTW, FrameMLP": lambda: lw.Metric(lw.FrameMLP(2, 64), lw.SoftDTWDivergence()),
    "SoftDTW, TCN": lambda: lw.Metric(lw.TCN(2, 16), lw.SoftDTWDivergence()),
    "TCN": lambda: lw.Metric(lw.TCN(2, 16, steps=False), lw.Euclidean()),
    "GRUEncoder": lambda: lw.Metric(lw.GRUEncoder(2, 16), lw.Euclidean()),
    "CoupledGRU": lambda: lw.CoupledGRU(2),
    "SiameseGRU": lambda: lw.SiameseGRU(2),
}


def waves(count, seed):
    """Two classes, up or down in a small channel; a large one is noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    steps = torch.linspace(0, 3, 12)
    items = torch.randn(count, 12, 2, generator=generator) * torch.tensor([0.004, 100.0])
    items[..., 0] += 0.01 * (2 * labels[:, None] - 1) * torch.sin(steps + torch.rand(count, 1, generator=generator))
    return items, labels


@pytest.mark.parametrize("name", LEARNED)
def test_bare_fit_beats_untrained_dtw(name):
    train, test = waves(32, 0), waves(40, 1)
    torch.manual_seed(0)
    metric = LEARNED[name]()
    epochs = 10 if name == "TAP" else 30  # the defaults' steps would take too long here
    fit(metric, train, epochs=epochs, verbose=False, accelerator="cpu")
    assert lw.evaluate(metric, test, train).map > lw.evaluate(lw.DTW(), test, train).map + 0.15


def test_a_metric_has_its_parts_defaults():
    assert lw.Metric(lw.TCN(2), lw.SoftDTW()).training_defaults == lw.TCN.training_defaults
    assert lw.Metric(lw.Embedder(lw.GRUEncoder(2), 4), lw.Euclidean()).training_defaults.lr == 1e-2
    both = lw.Metric(lw.FrameMLP(2), lw.TransformerTAP(64)).training_defaults
    assert (both.lr, both.steps, both.average) == (1e-3, 1000, 0.99)
    assert lw.Metric(None, lw.DTW()).training_defaults == TrainingDefaults()


def test_channels_are_standardised_once():
    (x, y), metric = waves(32, 0), lw.Metric(lw.TCN(2, 4), lw.SoftDTW())
    fit(metric, (x, y), epochs=1, verbose=False, accelerator="cpu")
    scaling = metric.encoder.scaling
    torch.testing.assert_close(scaling.mean, x.flatten(0, 1).mean(0))
    assert scaling.frames == 32 * 12
    before = scaling.mean.clone()
    fit(metric, (x + 1000, y), epochs=1, verbose=False, accelerator="cpu")
    assert torch.equal(scaling.mean, before)


@pytest.mark.parametrize("make", [LEARNED["TAP"], LEARNED["CoupledGRU"]])
def test_a_run_with_defaults_is_resumed_bit_for_bit(make, tmp_path):
    options = {"epochs": 3, "batch_size": 8, "verbose": False, "accelerator": "cpu"}
    metrics = []
    for seed in (0, 0, 7):
        torch.manual_seed(seed)
        metrics.append(make())
    whole, broken, again = metrics
    with pytest.raises(CrashError):
        fit(broken, waves(32, 0), Triplet(), checkpoints=Checkpoints(tmp_path, every=1), terms=[crash_at(6)], **options)
    fit(again, waves(32, 0), Triplet(), checkpoints=Checkpoints(tmp_path, resume=True), **options)
    fit(whole, waves(32, 0), Triplet(), **options)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
