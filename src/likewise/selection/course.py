"""Course: the usual number of steps of a metric's training, and how long they take."""

import time

import torch
from torch import Tensor

from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.models.metric import Metric, take

TRIED = 8  # items of the trial that predicts how long an epoch takes
TRIALS, LONG = 3, 0.5  # the maximum number of trials, and the seconds after which a trial is not repeated


class Course:
    """The usual length of a metric's training on some items; ``steps``, if given, replaces the usual number."""

    def __init__(self, metric: Metric, items: int, steps: float | None = None) -> None:
        defaults = metric.training_defaults
        self.metric, self.batch_size = metric, min(defaults.batch_size, items)
        self.per_epoch = max(1, items // self.batch_size)
        self.epochs = max(1, round((defaults.steps if steps is None else steps) / self.per_epoch))
        steps = self.epochs * self.per_epoch
        usual = defaults.average is not None and steps > 10
        self.average = min(defaults.average, 1 - 10 / steps) if usual else 0.0  # type: ignore[type-var]

    def predict(self, data: Dataset, pairs: int, device: str) -> tuple[float, float]:
        """The seconds of an epoch, and of a score of that many pairs, from trials with a few of the longest items.

        Rather an underestimate: training stops in time by itself, and a trial may be slow by chance.
        """
        if not isinstance(data.items, Batch) or device != "cpu":
            return 0.0, 0.0
        few = take(data.items, data.items.lengths.argsort(descending=True, stable=True)[:TRIED])
        if self.metric.unprepared:
            self.metric.prepare(few)
        two, all_ = (self._trial(take(few, slice(0, count))) for count in (2, len(few)))
        if all_ <= two:
            return 0.0, 0.0
        pair = (all_ - two) / (len(few) ** 2 - 4)
        return pair * self.batch_size**2 * self.per_epoch, pair * pairs / 3  # a score has no backward

    def _trial(self, items: Batch | Tensor) -> float:
        """The least seconds that all distances between some items and their gradients took, of a few trials."""
        parameters = [parameter for parameter in self.metric.parameters() if parameter.requires_grad]
        found: list[float] = []
        while len(found) < TRIALS and sum(found) < LONG:
            start = time.monotonic()
            torch.autograd.grad(self.metric.matrix(items).sum(), parameters, allow_unused=True)
            found.append(time.monotonic() - start)
        return min(found)
