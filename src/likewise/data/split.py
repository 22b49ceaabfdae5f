"""Which items train and which are held out: by class, by group, or whole classes."""

from dataclasses import dataclass

import numpy as np

from likewise import _check
from likewise._labels import number_labels, read_labels


@dataclass(frozen=True)
class HeldOutClasses:
    """Hold whole classes out: a share of them, at least two, that training never sees.

    Held-out items are compared with each other, each left out of its own references: how well the distance tells
    classes apart that it was not trained on.

    share: of the classes, between 0 and 1. seed: decides which.

    Example:
        >>> train, held_out = HeldOutClasses(0.4).split(["a", "a", "b", "b", "c", "c", "d", "d"])
        >>> len(train), len(held_out)
        (4, 4)
    """

    share: float
    seed: int = 0

    def __post_init__(self) -> None:
        _share("HeldOutClasses", self.share)
        _check.whole("HeldOutClasses", "seed", self.seed, least=0)

    def split(self, labels: object) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the training items, and of the items of the held-out classes, both ascending."""
        op = "HeldOutClasses"
        classes, (codes,) = number_labels(read_labels(op, "labels", labels))
        held = max(2, round(self.share * len(classes)))
        if len(classes) - held < 2:
            _check.refuse(op, f"{held} of {len(classes)} classes would be held out; training needs two, so lower share")
        chosen = np.random.default_rng(self.seed).permutation(len(classes))[:held]
        out = np.isin(codes, chosen)
        return np.flatnonzero(~out), np.flatnonzero(out)


def split_items(
    op: str, labels: object, size: int, share: float, *, seed: int = 0, groups: object = None
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the items that are kept and of the share that is held out, both ascending.

    Each class gives its share, rounded so that the total is right, and keeps one item at least. Without labels, or
    with targets of a regression set (floats), items are drawn from all. With groups (N,), whole groups are drawn, and
    no group is in both parts.

    Example:
        >>> split_items("op", ["a"] * 8 + ["b"] * 2, 10, 0.5)
        (array([0, 1, 3, 5, 8]), array([2, 4, 6, 7, 9]))
    """
    share = _share(op, share)
    random = np.random.default_rng(_check.whole(op, "seed", seed, least=0))
    if size < 2:
        _check.refuse(op, f"two parts need two items, and there are {size}")
    if groups is not None:
        names, (codes,) = number_labels(read_labels(op, "groups", groups, size))
        if len(names) < 2:
            _check.refuse(op, "all items are of one group, and no group may be in both parts")
        held = min(max(1, round(share * len(names))), len(names) - 1)
        out = np.isin(codes, random.permutation(len(names))[:held])
        return np.flatnonzero(~out), np.flatnonzero(out)
    total = min(max(1, round(share * size)), size - 1)
    values = None if labels is None else read_labels(op, "labels", labels, size)
    if values is None or values.dtype.kind == "f":
        out = np.sort(random.permutation(size)[:total])
        return np.setdiff1d(np.arange(size), out), out
    out = _by_class(number_labels(values)[1][0], total, random)
    if len(out) == 0:
        _check.refuse(op, "every class has one item, and keeps it: there is nothing to hold out")
    return np.setdiff1d(np.arange(size), out), out


def _by_class(codes: np.ndarray, total: int, random: np.random.Generator) -> np.ndarray:
    """So many positions, of each class its share: what is lost by rounding down goes to the largest remainders."""
    counts = np.bincount(codes)
    share = total / len(codes)
    given = np.minimum(np.floor(share * counts + 1e-9).astype(np.int64), counts - 1)
    rest = np.where(given < counts - 1, share * counts - given, -1.0)  # a class keeps one item
    order = np.lexsort((random.permutation(len(counts)), -rest))
    given[order[: min(total - given.sum(), int((rest >= 0).sum()))]] += 1
    mixed = random.permutation(len(codes))
    mixed = mixed[np.argsort(codes[mixed], kind="stable")]  # class after class, each in random order
    place = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(mixed[place < np.repeat(given, counts)])


def _share(op: str, share: object) -> float:
    value = _check.number(op, "share", share)
    if not 0 < value < 1:
        _check.refuse(op, f"share must be between 0 and 1, got {share!r}")
    return float(value)
