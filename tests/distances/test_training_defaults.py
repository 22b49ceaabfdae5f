import torch
from torch import nn

import likewise as lw
from likewise.distances.training_defaults import TrainingDefaults
from likewise.training.fit import fit


class Encoder(nn.Module):
    training_defaults = TrainingDefaults(lr=1e-2, batch_size=4, steps=6, clip=None, weight_decay=0.0, average=0.5)

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, batch):
        return lw.Batch(self.layer(batch.values), batch.lengths)


class Learned(lw.Distance):
    symmetric = True
    training_defaults = TrainingDefaults(
        lr=1e-3, batch_size=8, steps=3, clip=2.0, loss=lambda: lambda D, labels: D.mean()
    )

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def paired(self, x, y, x_lengths, y_lengths):
        return self.weight * (x[:, 0] - y[:, 0]).square().sum(-1)


def test_the_more_careful_of_two():
    found = lw.Metric(Encoder(), Learned()).training_defaults
    assert (found.lr, found.batch_size, found.steps, found.clip, found.average) == (1e-3, 4, 6, 2.0, 0.5)
    assert found.loss is Learned.training_defaults.loss


def test_a_distance_without_parameters_leaves_it_to_the_encoder():
    assert lw.Metric(Encoder(), lw.DTW()).training_defaults == Encoder.training_defaults
    assert lw.Metric(None, Learned()).training_defaults is Learned.training_defaults
    assert lw.Metric(nn.Identity(), Learned()).training_defaults is Learned.training_defaults


def test_fit_uses_them():
    seen = []

    def note(step):
        seen.append(len(step.batch))
        return step.features.values.sum() * 0

    data = torch.randn(16, 3, 2), torch.arange(16) % 2
    history = fit(lw.Metric(Encoder(), Learned()), data, terms=[note], verbose=False, accelerator="cpu")
    assert seen == [4] * 8, "6 steps are 2 epochs of 4 batches"
    assert len(history.losses) == 2
    seen.clear()
    fit(Learned(), data, epochs=1, batch_size=2, terms=[note], verbose=False, accelerator="cpu")
    assert seen == [2] * 8
