"""Runs with every kind of step, whose results must be equal in one process and in several, for test_processes.py."""

import os

import torch

import likewise as lw
from likewise import losses
from likewise.data.augment import RandomBlurOrMerge
from likewise.data.episodes import Episodes
from likewise.training.cross_batch_memory import CrossBatchMemory
from likewise.training.fit import fit
from likewise.training.options import Checkpoints, Optimization
from likewise.training.self_supervised import SelfSupervised
from tests.training.drill import aligned
from tests.training.problems import metric, problem, spread, weights

QUICK = {"verbose": False, "accelerator": "cpu", "epochs": 2, "lr": 0.01, "loggers": [], "optimizer": Optimization()}


class FromDisk(torch.utils.data.Dataset):
    """Items that are read one by one, and counted in each process."""

    def __init__(self):
        batch, self.labels = problem()
        self.held, self.read = batch.to(torch.float64), 0

    def __len__(self):
        return len(self.held)

    def __getitem__(self, i):
        self.read += 1
        return self.held[i], self.labels[i]


def doubled():
    items, labels = problem()
    return items.to(torch.float64), labels


def matrix(**options):
    m = metric(dropout=0.0).double()
    fit(m, doubled(), spread, batch_size=7, **options)
    return weights(m)


def vector(**options):
    torch.manual_seed(0)
    m = lw.Metric(lw.Embedder(lw.GRUEncoder(2, 4), 4), lw.Euclidean()).double()
    loss = losses.AMSoftmax(3, 4).double()
    fit(m, doubled(), loss, batch_size=6, **options)
    return torch.cat([weights(m), weights(loss)])


def path(**options):
    torch.manual_seed(0)
    m = lw.Metric(lw.FrameMLP(2, 4, normalize=False), lw.SoftDTW(0.1)).double()
    fit(m, aligned(), losses.Dilate(0.5), batch_size=5, **options)
    return weights(m)


def episode(**options):
    torch.manual_seed(0)
    m = lw.Metric(lw.FrameMLP(2, 4, normalize=False), lw.SoftDTW(0.1)).double()
    fit(m, doubled(), sampler=Episodes(problem()[1], ways=3, shots=1, queries=2, batches=4), **options)
    return weights(m)


def self_supervised(**options):
    torch.manual_seed(0)
    tap = lw.TAP(3, (3, 3)).double()
    fit(tap, doubled()[0], augment=RandomBlurOrMerge(), step=SelfSupervised(), batch_size=6, **options)
    return weights(tap)


def batch_norm(**options):
    torch.manual_seed(0)
    encoder = lw.FrameMLP(2, 4, depth=2, batch_norm=True)
    m = lw.Metric(encoder, lw.SoftDTW(0.5)).double()
    fit(m, doubled(), spread, batch_size=7, **options)
    return torch.cat([weights(m), *[buffer.flatten().double() for buffer in m.buffers()]])


def memory(**options):
    m, kept = metric(dropout=0.0).double(), CrossBatchMemory(batches=3, weight=0.7, start=1)
    fit(m, doubled(), spread, terms=[kept], batch_size=5, **options)
    assert len(kept) == 15
    return weights(m)


def from_disk(**options):
    m, data = metric(dropout=0.0).double(), FromDisk()
    fit(m, data, spread, batch_size=7, **options)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    rows = [7 // size + (rank < 7 % size) for rank in range(size)]
    assert data.read == 6 * rows[int(os.environ.get("LOCAL_RANK", "0"))], "a process reads its share only"
    return weights(m)


KINDS = (matrix, vector, path, episode, self_supervised, batch_norm, memory, from_disk)


def run_all(place, **options):
    torch.save({kind.__name__: kind(**QUICK | options) for kind in KINDS}, place)


def killed_once(folder):
    """For torchrun: the second process dies in the middle of the first attempt."""

    def die(step):
        if step.total == 5 and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), 9)
        return step.features.values.sum() * 0

    kept = CrossBatchMemory(batches=3)
    m = metric(dropout=0.0).double()
    checkpoints = Checkpoints(f"{folder}/run", every=2, resume=True)
    fit(
        m,
        doubled(),
        spread,
        terms=[kept, die],
        batch_size=5,
        devices=2,
        checkpoints=checkpoints,
        **QUICK | {"epochs": 3},
    )
    torch.save(weights(m), f"{folder}/weights.{os.environ['RANK']}")
