"""Course: how long a metric is usually trained, and how long that takes."""

import time

import torch

from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.models.metric import Metric, take

TRIED = 8  # items of the trial that predicts how long an epoch takes


class Course:
    """How long a metric is usually trained."""

    def __init__(self, metric: Metric, items: int) -> None:
        defaults = metric.training_defaults
        self.metric, self.batch_size = metric, min(defaults.batch_size, items)
        self.per_epoch = max(1, items // self.batch_size)
        self.epochs = max(1, round(defaults.steps / self.per_epoch))
        steps = self.epochs * self.per_epoch
        usual = defaults.average is not None and steps > 10
        self.average = min(defaults.average, 1 - 10 / steps) if usual else 0.0  # type: ignore[type-var]

    def predict(self, data: Dataset, device: str) -> float:
        """The seconds of an epoch, from a trial with a few of the longest items, forward and backward."""
        if not isinstance(data.items, Batch) or device != "cpu":
            return 0.0
        few = take(data.items, data.items.lengths.argsort(descending=True, stable=True)[:TRIED])
        if self.metric.unprepared:
            self.metric.prepare(few)
        parameters = [parameter for parameter in self.metric.parameters() if parameter.requires_grad]
        times = []
        for count in (2, len(few)):
            start = time.monotonic()
            torch.autograd.grad(self.metric.matrix(take(few, slice(0, count))).sum(), parameters, allow_unused=True)
            times.append(time.monotonic() - start)
        pairs = self.batch_size**2 / len(few) ** 2
        return times[-1] * pairs * self.per_epoch if times[-1] > times[0] else 0.0
