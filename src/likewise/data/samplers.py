"""Batch samplers, which choose the items of each batch. Pass one to a DataLoader as its ``batch_sampler``.

Each is seeded, can be resumed in the middle of an epoch, and divides every batch among several processes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from likewise import _check
from likewise._labels import class_names, has_labels, labelled, number_labels, read_labels


class BatchSampler(Sampler[list[int]]):
    """Base class of the samplers. Subclasses define ``draw`` and set ``batches``, the number of batches per epoch.

    batch_size: items in a batch, over all processes.
    seed: together with the epoch, determines every batch.
    rank, world_size: the index of this process and the number of processes. Each process gets its part of every batch,
        in the order of ranks, so batch_size must be a multiple of world_size. With Lightning, pass
        use_distributed_sampler=False.

    Each iteration is a new epoch with other batches: the next one, or the one given to ``set_epoch``. After
    ``load_state_dict``, the next iteration yields the batches that were left when the state was saved.

    Example:
        >>> sampler = Shuffled(5, batch_size=2)
        >>> batches = iter(sampler)
        >>> first, state = next(batches), sampler.state_dict()
        >>> again = Shuffled(5, batch_size=2)
        >>> again.load_state_dict(state)
        >>> list(again) == list(batches)
        True
    """

    batches: int

    def __init__(self, batch_size: int, *, seed: int, rank: int, world_size: int) -> None:
        op = self.name
        self.batch_size = _check.whole(op, "batch_size", batch_size)
        self.seed = _check.whole(op, "seed", seed, least=0)
        self.world_size = _check.whole(op, "world_size", world_size)
        self.rank = _check.whole(op, "rank", rank, least=0)
        if self.rank >= self.world_size:
            _check.refuse(op, f"rank must be between 0 and {world_size - 1}, got {rank}")
        if self.batch_size % self.world_size:
            _check.refuse(op, f"batch_size {batch_size} must be a multiple of world_size {world_size}")
        self.epoch, self.position = 0, 0  # the epoch, and how many of its batches have been yielded
        self._begun = False

    @property
    def name(self) -> str:
        """The name of this sampler in errors."""
        return type(self).__name__

    def draw(self, random: np.random.Generator) -> Iterator[np.ndarray]:
        """The batches of an epoch, each (batch_size,), over all processes."""
        raise NotImplementedError(f"{self.name}.draw")

    def begin(self) -> None:
        """Called when an epoch begins, before ``draw``."""

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        if self._begun or self.position >= self.batches:
            self.epoch, self.position = self.epoch + 1, 0
        if self.position == 0:
            self.begin()
        self._begun = True
        first = self.position
        for i, batch in enumerate(self.draw(np.random.default_rng([self.seed, self.epoch]))):
            if i >= first:
                self.position = i + 1
                start = len(batch) * self.rank // self.world_size
                end = len(batch) * (self.rank + 1) // self.world_size
                yield batch[start:end].tolist()

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration use this epoch. A state loaded in the middle of it is kept."""
        epoch = _check.whole(self.name, "epoch", epoch, least=0)
        if self._begun or epoch != self.epoch:
            self.epoch, self.position, self._begun = epoch, 0, False

    def state_dict(self, position: int | None = None) -> dict[str, Any]:
        """The position of the sampler.

        position: the number of batches of this epoch that training has finished. Pass it with a DataLoader that has
            workers: it reads ahead, so the sampler cannot know the number.
        """
        position = self.position if position is None else _check.whole(self.name, "position", position, least=0)
        return {"seed": self.seed, "epoch": self.epoch, "position": position, "batches": self.batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state; the number of processes may differ."""
        missing = self.state_dict().keys() - state.keys()
        if missing:
            _check.refuse(self.name, f"the state lacks {', '.join(sorted(missing))}")
        if state["batches"] != len(self):
            _check.refuse(
                self.name, f"the state has {state['batches']} batches per epoch, this sampler has {len(self)}"
            )
        self.seed = _check.whole(self.name, "seed", state["seed"], least=0)
        self.epoch = _check.whole(self.name, "epoch", state["epoch"], least=0)
        self.position = _check.whole(self.name, "position", state["position"], least=0)
        self._begun = False


class Shuffled(BatchSampler):
    """Draw all items, in a new order each epoch.

    size: the number of items.
    drop_last: leave out the last batch if it is smaller than the others. Otherwise processes get parts of it that
        differ by at most one item; it must have an item for each process.

    Example:
        >>> [len(batch) for batch in Shuffled(7, batch_size=3)]
        [3, 3, 1]
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        *,
        drop_last: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(batch_size, seed=seed, rank=rank, world_size=world_size)
        self.size = _check.whole(self.name, "size", size)
        whole, rest = divmod(self.size, self.batch_size)
        if drop_last and whole == 0:
            _check.refuse(
                self.name,
                f"{size} items are fewer than one batch of {batch_size}, and drop_last=True would leave them out",
            )
        if not drop_last and 0 < rest < self.world_size:
            _check.refuse(self.name, f"the last batch has {rest} items for {world_size} processes; pass drop_last=True")
        self.batches = whole + (rest > 0 and not drop_last)

    def draw(self, random: np.random.Generator) -> Iterator[np.ndarray]:
        """The batches of an epoch."""
        order = random.permutation(self.size)
        for i in range(self.batches):
            yield order[i * self.batch_size : (i + 1) * self.batch_size]


class ClassBalanced(BatchSampler):
    """Draw every class equally often, regardless of its size.

    Classes take turns, in a new order each round, so the counts of any two classes in a batch differ by at most two.
    The members of a class are drawn in random order, each once before any is repeated. Members of small classes occur
    more often, even within a batch if the class is smaller than its share.

    labels: (N,), numbers or names, or a Dataset.
    batches: batches per epoch; by default N // batch_size, at least one.

    Example:
        >>> labels = ["rare"] + 99 * ["common"]
        >>> next(iter(ClassBalanced(labels, batch_size=4))).count(0)
        2
    """

    def __init__(
        self,
        labels: object,
        batch_size: int,
        *,
        batches: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(batch_size, seed=seed, rank=rank, world_size=world_size)
        self.classes, self._members = _members(self.name, labels)
        self.batches = _batches(self.name, batches, self._members, self.batch_size)

    def draw(self, random: np.random.Generator) -> Iterator[np.ndarray]:
        """The batches of an epoch."""
        decks = [_Deck(members, random) for members in self._members]
        turns = _Deck(np.arange(len(decks)), random)
        for _ in range(len(self)):
            yield np.concatenate([decks[turns.take(1)[0]].take(1) for _ in range(self.batch_size)])


class MPerClass(BatchSampler):
    """Draw the same number of items of each class in a batch: batch_size / per_class classes, per_class items of each.

    All classes occur equally often over an epoch; each member of a class is drawn once before any is repeated.

    labels: (N,), numbers or names, or a Dataset.
    repeat: repeat the members of classes that have fewer than per_class. By default such classes raise an error: a
        repeated item would be its own positive, at distance 0.
    batches: batches per epoch; by default N // batch_size, at least one.

    Example:
        >>> labels = [0, 0, 0, 1, 1, 2, 2, 2]
        >>> batch = next(iter(MPerClass(labels, batch_size=4, per_class=2)))
        >>> labels[batch[0]] == labels[batch[1]] != labels[batch[2]] == labels[batch[3]]
        True
    """

    def __init__(
        self,
        labels: object,
        batch_size: int,
        per_class: int,
        *,
        repeat: bool = False,
        batches: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(batch_size, seed=seed, rank=rank, world_size=world_size)
        self.per_class = _check.whole(self.name, "per_class", per_class)
        if self.batch_size % self.per_class:
            _check.refuse(self.name, f"batch_size {batch_size} must be a multiple of per_class {per_class}")
        self.classes, self._members = _members(self.name, labels)
        together = self.batch_size // self.per_class
        if together > len(self.classes):
            _check.refuse(self.name, f"a batch needs {together} classes, but there are {len(self.classes)}")
        for label, members in zip(self.classes, self._members, strict=True):
            if len(members) < self.per_class and not repeat:
                _check.refuse(
                    self.name,
                    f"class {label} has {len(members)} of the {per_class} members that a batch needs; "
                    "leave it out, or pass repeat=True",
                )
        self.batches = _batches(self.name, batches, self._members, self.batch_size)

    def choose(self, turns: "_Deck", random: np.random.Generator) -> np.ndarray:
        """The classes of a batch, as positions in ``classes``."""
        return turns.take(self.batch_size // self.per_class)

    def draw(self, random: np.random.Generator) -> Iterator[np.ndarray]:
        """The batches of an epoch."""
        decks = [_Deck(members, random) for members in self._members]
        turns = _Deck(np.arange(len(decks)), random)
        for _ in range(len(self)):
            yield np.concatenate([decks[i].take(self.per_class) for i in self.choose(turns, random)])


class HardBatch(MPerClass):
    """Like ``MPerClass``, but the classes of a batch are close to each other, and so hard to tell apart.

    Classes take turns to begin a batch. A share ``hardness`` of its other classes are the closest ones to the first;
    the rest are drawn at random. Pass distances to ``update``: those of each training batch or, once, those of the
    whole set. Before that, batches are drawn at random.

    Updates take effect from the next epoch, so neither prefetching nor resuming changes a batch. With several
    processes, each must get the same distances. Memory is two numbers for each pair of classes.

    hardness: from 0 (all drawn at random) to 1 (only the closest classes).
    momentum: weight of the previous distance between two classes when they are seen again.

    Example:
        >>> sampler = HardBatch([0, 1, 2, 0, 1, 2], batch_size=4, per_class=2, hardness=1.0)
        >>> sampler.update(torch.tensor([[0.0, 9.0, 1.0], [9.0, 0.0, 8.0], [1.0, 8.0, 0.0]]), [0, 1, 2])
        >>> {frozenset(i % 3 for i in batch) for batch in (*sampler, *sampler, *sampler)} <= {
        ...     frozenset({0, 2}), frozenset({1, 2})}
        True
    """

    def __init__(
        self,
        labels: object,
        batch_size: int,
        per_class: int,
        *,
        hardness: float = 0.5,
        momentum: float = 0.9,
        repeat: bool = False,
        batches: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(
            labels, batch_size, per_class, repeat=repeat, batches=batches, seed=seed, rank=rank, world_size=world_size
        )
        self.hardness = _share(self.name, "hardness", hardness)
        self.momentum = _share(self.name, "momentum", momentum)
        # Mean distances between classes, inf if unknown: the latest ones, and those that this epoch uses.
        self._known = np.full((len(self.classes), len(self.classes)), np.inf, dtype=np.float32)
        self._used = self._known.copy()

    def update(self, D: Tensor, row_labels: object, col_labels: object | None = None) -> None:
        """Update class distances from D (N, M), between items with row_labels (N,) and col_labels (M,) or row_labels.

        The distance between two classes is the mean distance of their items, in either direction.
        """
        if _check.is_tensor(self.name, "D", D).ndim != 2:
            _check.refuse(self.name, f"expected D of shape (N, M), got {tuple(D.shape)}")
        rows = self._positions("row_labels", row_labels, D.shape[0])
        columns = self._positions("col_labels", row_labels if col_labels is None else col_labels, D.shape[1])
        cells, count = rows[:, None] != columns, len(self.classes)  # (N, M)
        distances = D.detach().to("cpu", torch.float64).numpy()[cells]
        if not np.isfinite(distances).all():
            _check.refuse(self.name, "D holds distances that are not finite")
        pairs = (np.minimum(rows[:, None], columns) * count + np.maximum(rows[:, None], columns))[cells]
        seen, which = np.unique(pairs, return_inverse=True)
        means = np.bincount(which, distances) / np.bincount(which) if len(seen) else np.empty(0)
        a, b = seen // count, seen % count
        before = self._known[a, b]
        before = np.where(np.isinf(before), means, before)
        self._known[a, b] = self._known[b, a] = self.momentum * before + (1 - self.momentum) * means

    def begin(self) -> None:
        """Use the latest distances for a whole epoch."""
        self._used = self._known.copy()

    def choose(self, turns: "_Deck", random: np.random.Generator) -> np.ndarray:
        """The classes of a batch, as positions in ``classes``."""
        others = self.batch_size // self.per_class - 1
        first = turns.take(1)
        away = self._used[first[0]]
        closest = np.argsort(away, kind="stable")[: round(self.hardness * others)]
        closest = closest[np.isfinite(away[closest])]
        rest = random.permutation(np.setdiff1d(np.arange(len(away)), np.append(closest, first)))
        return np.concatenate([first, closest, rest[: others - len(closest)]])

    def state_dict(self, position: int | None = None) -> dict[str, Any]:
        """The position of the sampler, and the distances between classes."""
        return super().state_dict(position) | {"known": torch.tensor(self._known), "used": torch.tensor(self._used)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state."""
        for name in ("known", "used"):
            if name in state and state[name].shape != self._known.shape:
                classes = len(state[name])
                _check.refuse(self.name, f"the state has {classes} classes, this sampler has {len(self.classes)}")
        super().load_state_dict(state)
        self._known, self._used = (state[name].float().cpu().numpy().copy() for name in ("known", "used"))

    def _positions(self, name: str, labels: object, count: int) -> np.ndarray:
        values = read_labels(self.name, name, labels, count)
        if "U" in (values.dtype.kind, self.classes.dtype.kind):
            values, classes = class_names(values), class_names(self.classes)
        else:
            classes = self.classes
        order = np.argsort(classes)  # sort numeric names as numbers
        found = order[np.searchsorted(classes, values, sorter=order).clip(max=len(classes) - 1)]
        unknown = classes[found] != values
        if unknown.any():
            _check.refuse(self.name, f"{name} hold {values[unknown][0]}, which is not one of the classes")
        return found


class _Deck:
    """Draw items in random order: each once before any is repeated, and none twice in one draw if there are enough."""

    def __init__(self, items: np.ndarray, random: np.random.Generator) -> None:
        self.items, self.random = items, random
        self.left = items[:0]

    def take(self, count: int) -> np.ndarray:
        """The next items, (count,)."""
        hand, self.left = self.left[:count], self.left[count:]
        while len(hand) < count:
            fresh = self.random.permutation(self.items)
            held = np.isin(fresh, hand)
            fresh = np.concatenate([fresh[~held], fresh[held]])
            missing = count - len(hand)
            hand, self.left = np.concatenate([hand, fresh[:missing]]), fresh[missing:]
        return hand


def _members(op: str, labels: object) -> tuple[np.ndarray, list[np.ndarray]]:
    """The classes (K,), sorted, and the positions of the members of each."""
    values = read_labels(op, "labels", labelled(op, "labels", labels)[1] if has_labels(labels) else labels)
    if len(values) == 0:
        _check.refuse(op, "there are no labels")
    classes, (which,) = number_labels(values)
    return classes, np.split(np.argsort(which, kind="stable"), np.bincount(which).cumsum()[:-1])


def _batches(op: str, batches: int | None, members: list[np.ndarray], batch_size: int) -> int:
    by_default = max(1, sum(map(len, members)) // batch_size)
    return by_default if batches is None else _check.whole(op, "batches", batches)


def _share(op: str, name: str, value: object) -> float:
    number = _check.number(op, name, value)
    if not 0 <= number <= 1:
        _check.refuse(op, f"{name} must be between 0 and 1, got {value}")
    return float(number)
