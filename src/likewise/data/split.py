"""Splits into training and held-out items: within classes, by group, or by whole classes."""

from dataclasses import dataclass

import numpy as np

from likewise import _check
from likewise._labels import number_labels, read_labels


@dataclass(frozen=True)
class HeldOutClasses:
    """Hold out whole classes: a share of them, at least two, that training never sees.

    Held-out items are compared with each other, never with themselves. This measures how well the
    distance separates classes that it was not trained on.

    share: the share of the classes to hold out, between 0 and 1. seed: determines which classes.

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
            _check.refuse(op, f"{held} of {len(classes)} classes would be held out; training needs two; lower share")
        chosen = np.random.default_rng(self.seed).permutation(len(classes))[:held]
        out = np.isin(codes, chosen)
        return np.flatnonzero(~out), np.flatnonzero(out)


def split_items(
    op: str, labels: object, size: int, share: float, *, seed: int = 0, groups: object = None
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the training items and of the held-out items, both ascending.

    The share is held out of each class, rounded so that the total is right; each class keeps at least one item. Without
    labels, or with regression targets (floats), the share is drawn from all items. With groups (N,), whole groups are
    drawn, and no group is in both parts.

    Example:
        >>> split_items("op", ["a"] * 8 + ["b"] * 2, 10, 0.5)
        (array([0, 1, 3, 5, 8]), array([2, 4, 6, 7, 9]))
    """
    share = _share(op, share)
    random = np.random.default_rng(_check.whole(op, "seed", seed, least=0))
    if size < 2:
        _check.refuse(op, f"a split needs at least two items, got {size}")
    if groups is not None:
        names, (codes,) = number_labels(read_labels(op, "groups", groups, size))
        if len(names) < 2:
            _check.refuse(op, "all items belong to one group, and no group may be in both parts")
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
        _check.refuse(op, "every class has only one item, so there is nothing to hold out")
    return np.setdiff1d(np.arange(size), out), out


def _by_class(codes: np.ndarray, total: int, random: np.random.Generator) -> np.ndarray:
    """Draw ``total`` positions, a share of each class; remainders of rounding go to the largest fractions."""
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
