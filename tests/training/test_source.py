"""Data as the loop sees them, and training from files that are read one by one."""

import numpy as np
import pytest
import torch

import likewise as lw
from likewise.data.dataset import Dataset
from likewise.training.batches import Chosen
from likewise.training.fit import fit
from likewise.training.options import Checkpoints
from likewise.training.source import Source
from tests.training.problems import metric, problem, spread, weights
from tests.training.test_resume import CrashError, crash_at

QUIET = {"verbose": False, "accelerator": "cpu", "lr": 0.01}


class Files(torch.utils.data.Dataset):
    """Sequences in a folder, one file each; noise is drawn whenever one is read."""

    def __init__(self, folder, labels, noise=0.1):
        self.folder, self.labels, self.noise, self.most = folder, labels, noise, 0

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        item = torch.from_numpy(np.load(self.folder / f"{i}.npy"))
        return item + self.noise * torch.randn(item.shape), self.labels[i]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, generator = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    labels = [("walk", "run", "rest")[i % 3] for i in range(2000)]
    for i in range(2000):
        steps = int(generator.integers(3, 9))
        np.save(folder / f"{i}.npy", (generator.normal(size=(steps, 2)) + i % 3).astype(np.float32))
    return Files(folder, labels)


def test_two_thousand_files_train(files):
    m = metric(dropout=0.0)
    history = fit(m, files, spread, val=0.02, epochs=1, batch_size=64, workers=2, **QUIET)
    assert history.best.accuracy > 0.8
    assert history.losses[0] < 0.8


def test_it_is_training_in_memory(files):
    few = Files(files.folder, files.labels[:24], noise=0.0)
    inside = lw.Batch.from_list([few[i][0] for i in range(24)]), few.labels
    found = [metric(), metric()]
    histories = [
        fit(m, data, spread, val=0.25, epochs=2, batch_size=5, **QUIET)
        for m, data in zip(found, (few, inside), strict=True)
    ]
    assert torch.equal(weights(found[0]), weights(found[1]))
    assert histories[0].losses == histories[1].losses
    assert histories[0].scores == histories[1].scores


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_run_reads_the_same(files, tmp_path, workers):
    few = Files(files.folder, files.labels[:40])
    options = {"epochs": 3, "batch_size": 5, "val": 0.2, **QUIET}
    with pytest.raises(CrashError):
        fit(
            metric(),
            few,
            spread,
            terms=[crash_at(10)],
            checkpoints=Checkpoints(tmp_path, every=3),
            **options,
            workers=workers,
        )
    m, whole = metric(seed=7), metric()
    history = fit(m, few, spread, checkpoints=Checkpoints(tmp_path, resume=True), workers=2 - workers, **options)
    expected = fit(whole, few, spread, **options)
    assert history.losses == expected.losses, "noise and order, with any number of workers"
    assert torch.equal(weights(m), weights(whole))


def test_only_a_few_batches_are_read_ahead():
    read = []

    class Counted(torch.utils.data.Dataset):
        labels = [0, 1] * 50

        def __len__(self):
            return 100

        def __getitem__(self, i):
            read.append(i)
            return torch.ones(2, 2) * i, self.labels[i]

    source = Source.of("train", Counted())
    order = (Chosen(torch.arange(i, i + 10), last=i == 90) for i in range(0, 100, 10))
    batches = source.batches(order, seed=0)
    chosen, batch = next(batches)
    assert chosen.index.tolist() == list(range(10)) == batch.values[:, 0, 0].int().tolist()
    assert len(read) <= 20
    assert sum(len(batch) for _, batch in batches) == 90


def test_images_from_files():
    class Pictures(torch.utils.data.Dataset):
        labels = ["cat", "dog"] * 8

        def __len__(self):
            return 16

        def __getitem__(self, i):
            return np.full((1, 6, 6), 20 * (i % 2) + i, np.uint8), self.labels[i]

    m = lw.Metric(lw.models.SmallCNN(1, 4, widths=(4,)), lw.Cosine())
    assert len(fit(m, Pictures(), spread, val=0.25, epochs=2, batch_size=4, **QUIET).scores) == 2


def test_results_of_readers():
    images = lw.ImageSet(torch.randint(0, 255, (12, 1, 6, 6), dtype=torch.uint8), ["cat", "dog", "cow"] * 4)
    m = lw.Metric(lw.models.SmallCNN(1, 4, widths=(4,)), lw.Cosine())
    assert len(fit(m, images[:9], spread, val=images[9:], epochs=1, **QUIET).scores) == 1
    sequences = lw.Dataset(problem(40)[0], torch.arange(40) % 5)
    history = fit(metric(), sequences, spread, val=lw.HeldOutClasses(0.4), epochs=1, **QUIET)
    assert set(history.best.numbers) == {"recall@1", "map@r", "map"}


def test_labels_are_numbered_in_the_order_of_the_classes():
    x, y = problem(6)
    names = np.array(["b", "a", "c"])[y.numpy()]
    assert Source.of("train", (x, names)).codes.tolist() == [1, 0, 2, 1, 0, 2]
    assert Source.of("train", Dataset(x, names, classes=("c", "b", "a", "d"))).codes.tolist() == [1, 2, 0, 1, 2, 0]
    assert Source.of("train", (x, [10, 9, 2] * 2)).codes.tolist() == [2, 1, 0] * 2
    assert Source.of("train", x).codes.tolist() == list(range(6))
    half = Source.of("train", (x, names)).part(np.array([1, 4])).part(np.array([1]))
    assert half.codes.tolist() == [0]
    assert half.labels.tolist() == ["a"]
    assert half.take(slice(None))[0].tolist() == x[4].tolist()
