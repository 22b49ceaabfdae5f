import random

import numpy as np
import pytest
import torch
from torch import nn

from likewise import DTW, Euclidean
from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.data.episodes import Episodes
from likewise.data.loading import Loader, collate
from likewise.distances.siamese_gru import SiameseGRU
from likewise.evaluation.evaluate import evaluate
from likewise.evaluation.few_shot import few_shot_accuracy
from likewise.models.frame_mlp import FrameMLP
from likewise.models.metric import Metric


class Walks(torch.utils.data.Dataset):
    """Random walks that are generated on access; ``held`` is the largest number alive at once."""

    def __init__(self, count=30, seed=0):
        self.seed = seed
        self.labels = [f"class {i % 3}" for i in range(count)]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(self.seed + i)
        return torch.randn(4 + i % 5, 2, generator=generator).cumsum(0) + i % 3, self.labels[i]


class Noise(Walks):
    """Items that are drawn at random each time."""

    def __getitem__(self, i):
        drawn = [torch.rand(()).item(), np.random.rand(), random.random()]  # noqa: NPY002
        return torch.tensor([drawn]), self.labels[i]


def in_memory(walks):
    return Dataset([walks[i][0] for i in range(len(walks))], walks.labels)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_the_order_asked_for(workers):
    walks = Walks()
    asked = [[3, 1], [29], [7, 7, 0], list(range(10))]
    for index, batch in zip(asked, Loader(walks, workers).batches(asked), strict=True):
        assert batch == Batch.from_list([walks[i][0] for i in index])
    assert sum(map(len, Loader(walks, workers).pieces(8))) == 30


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_drawn_does_not_depend_on_the_workers(workers):
    asked = [[i, i + 1] for i in range(8)]
    torch.manual_seed(0)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    alone = [batch.values for batch in Loader(Noise(), seed=5).batches(asked)]
    after = torch.get_rng_state(), np.random.get_state()[1], random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert np.array_equal(before[1], after[1])
    assert before[2] == after[2]
    together = [batch.values for batch in Loader(Noise(), workers, seed=5).batches(asked)]
    assert torch.equal(torch.stack(alone), torch.stack(together))
    resumed = [batch.values for batch in Loader(Noise(), workers, seed=5).batches(asked[3:], first=3)]
    assert torch.equal(torch.stack(alone[3:]), torch.stack(resumed))
    assert not torch.equal(alone[0], alone[1])
    assert not torch.equal(alone[0], next(Loader(Noise(), seed=6).batches(asked)).values)


def test_indices_are_read_lazily():
    def forever():
        while True:
            yield [0, 1]

    batches = Loader(Walks(), 1).batches(forever())
    assert [len(next(batches)) for _ in range(5)] == [2] * 5


def test_collate():
    images = collate([torch.zeros(3, 4, 4, dtype=torch.uint8), np.ones((3, 4, 4), np.uint8)])
    assert (images.shape, images.dtype) == ((2, 3, 4, 4), torch.uint8)
    assert collate([torch.zeros(3), [1.0, 2.0]]).lengths.tolist() == [3, 2]
    with pytest.raises(ValueError, match="images of a batch must have the same size and type"):
        collate([torch.zeros(3, 4, 4), torch.zeros(3, 4, 5)])


class NoPairs(Walks):
    def __getitem__(self, i):
        return torch.zeros(3, 2)


class Broken(Walks):
    def __getitem__(self, i):
        raise ValueError(f"item {i} is broken")


@pytest.mark.parametrize("workers", [0, 1])
def test_objects_that_are_not_datasets(workers):
    with pytest.raises(TypeError, match="expected a map-style dataset, with labels, len and"):
        Loader(torch.zeros(3, 2, 1))
    with pytest.raises(TypeError, match="expected a map-style dataset"):
        Loader(Dataset(torch.zeros(3, 2, 1)))
    with pytest.raises(TypeError, match=r"expected \[0\] of the dataset to be \(item, label\), got Tensor"):
        list(Loader(NoPairs(), workers).pieces())
    with pytest.raises(ValueError, match="item 0 is broken"):
        list(Loader(Broken(), workers).pieces())
    with pytest.raises(ValueError, match="workers must be a whole number of 0 or more"):
        Loader(Walks(), -1)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_metric_embeds_what_does_not_fit_in_memory(workers):
    walks, metric = Walks(), Metric(FrameMLP(2, hidden=8), DTW())
    whole = metric.embed(in_memory(walks))
    assert metric.embed(walks, workers=workers, chunk=7) == whole
    with torch.no_grad():
        assert torch.equal(metric.matrix(walks), metric.matrix(in_memory(walks)))


@pytest.mark.parametrize(
    "metric", [Metric(FrameMLP(2, hidden=8), DTW()), SiameseGRU(2), DTW()], ids=["metric", "embeds", "distance"]
)
def test_evaluation_of_what_does_not_fit_in_memory(metric):
    walks, others = Walks(), Walks(12, seed=100)
    workers = 2 if hasattr(metric, "embed") else 0
    found = evaluate(metric, walks, workers=workers)
    expected = evaluate(metric, in_memory(walks))
    assert found.as_dict() == expected.as_dict()
    assert found.classes == ("class 0", "class 1", "class 2")
    mixed = evaluate(metric, others, in_memory(walks), chunk=5)
    expected = evaluate(metric, in_memory(others), in_memory(walks))
    assert mixed.map == pytest.approx(expected.map)  # summed chunk by chunk
    assert torch.equal(mixed.predicted, expected.predicted)
    episodes = Episodes(walks, 3, 1, 2)
    score = few_shot_accuracy(metric, walks, episodes, count=20, workers=workers)
    assert score.accuracy == few_shot_accuracy(metric, in_memory(walks), episodes, count=20).accuracy


def test_a_distance_reads_some_at_a_time():
    held = []

    class Watched(Walks):
        def __getitem__(self, i):
            held.append(i)
            return super().__getitem__(i)

    class Sizes(DTW):
        def all_pairs(self, x, y, x_lengths, y_lengths):
            assert len(x) <= 256
            return super().all_pairs(x, y, x_lengths, y_lengths)

    watched = Watched(300)
    D = Sizes().matrix(watched)
    assert D.shape == (300, 300)
    assert torch.allclose(D, DTW().matrix(in_memory(Walks(300))))
    assert Euclidean().matrix(Walks(5), in_memory(Walks(3))).shape == (5, 3)


class Squares(torch.utils.data.Dataset):
    labels = np.arange(20) % 4

    def __len__(self):
        return 20

    def __getitem__(self, i):
        return torch.full((1, 4, 4), int(self.labels[i]) * 20, dtype=torch.uint8), self.labels[i]


class Means(nn.Module):
    def forward(self, x):
        return x.float().mean((2, 3))


def test_images():
    metric = Metric(Means(), Euclidean())
    assert evaluate(metric, Squares(), workers=1).accuracy == 1
    assert metric.embed(Squares()).shape == (20, 1)
