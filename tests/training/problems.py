"""A small problem that trains in milliseconds, for the tests of this folder and their subprocesses."""

import torch
from torch import nn

import likewise as lw
from likewise.models.metric import Metric
from likewise.models.tcn import TCN
from likewise.training.fit import fit
from likewise.training.options import Optimization


def problem(count=24, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    items = []
    for label in labels:
        n = int(torch.randint(3, 9, (1,), generator=generator))
        items.append(torch.randn(n, 2, generator=generator) + 2 * label)
    return lw.Batch.from_list(items), labels


def metric(seed=0, distance=None, dropout=0.3):
    """Dropout: randomness that a resumed run must reproduce."""
    torch.manual_seed(seed)
    return Metric(TCN(2, 4, layers=2, dropout=dropout, standardize=False), distance or lw.SoftDTW(0.5))


def spread(D, labels, columns=None):
    """Not a sum over rows: every distance enters every derivative."""
    same = labels[:, None] == (labels if columns is None else columns)
    return nn.functional.softplus(D[same].mean() - D[~same].mean()) + 0.1 * (D.std() - 1) ** 2


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def train(m, **options):
    quick = {"lr": 0.01, "batch_size": 5, "epochs": 3, "verbose": False, "accelerator": "cpu"}
    return fit(m, problem(), spread, **quick | {"optimizer": Optimization()} | options)
