"""divide: split the items into those that train the candidates and those that validate them."""

import math
from dataclasses import dataclass, replace

import torch

from likewise import _check
from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.data.split import HeldOutClasses, split_items

LEAST_HELD, SHARE, MOST_SHARE = 50, 0.2, 0.4  # validation items of small sets, and the share of others
MOST_CELLS, MOST_IMAGES = 1 << 35, 2000  # of the tables of alignments, and images, that a score may take


@dataclass(frozen=True)
class Parts:
    """The training items, the validation items, and the references of these: None for one another.

    groups: of the validation items, if the data were divided by them.
    """

    train: Dataset
    held: Dataset
    references: Dataset | None
    groups: tuple[str, ...] | None = None

    @property
    def pairs(self) -> int:
        """The number of pairs that a score compares."""
        return len(self.held) * len(self.held if self.references is None else self.references)


def divide(data: Dataset, val: float | HeldOutClasses | None, groups: object, seed: int) -> Parts:
    """Divide data for training and for validation.

    Of large data, a sample of the validation items is scored, among a sample of the training items, so that a score
    does not take longer than some ten seconds.
    """
    if val is None:
        val = min(MOST_SHARE, max(SHARE, LEAST_HELD / len(data)))
    if groups is not None:
        data = replace(data, groups=groups)
    if isinstance(val, HeldOutClasses):
        train, held = data.split(val)
        held = _sample(held, math.isqrt(_affordable(data)), seed)
        return Parts(train, held, None, None if groups is None else tuple(map(str, held.groups)))
    train, held = data.split(val, seed=seed, groups=groups)
    known = torch.isin(held.codes, train.codes)  # type: ignore[arg-type]
    if not known.all():  # a class of a single subject
        held = held[known]
    if not len(held):
        _check.refuse("select", "no class is in both parts; hold out classes with val=HeldOutClasses(0.2)")
    pairs = _affordable(data)
    held = _sample(held, max(LEAST_HELD, math.isqrt(pairs) // 2), seed)
    references = _sample(train, max(LEAST_HELD, pairs // len(held)), seed)
    return Parts(train, held, references, None if groups is None else tuple(map(str, held.groups)))


def _affordable(data: Dataset) -> int:
    """How many pairs of these items a score may compare."""
    if not isinstance(data.items, Batch):
        return (MOST_IMAGES // 2) ** 2
    return int(MOST_CELLS / float(data.items.lengths.double().mean()) ** 2)


def _sample(data: Dataset, most: int, seed: int) -> Dataset:
    """At most that many items, drawn by class."""
    if len(data) <= most:
        return data
    return data[split_items("select", data.labels, len(data), most / len(data), seed=seed)[1]]
