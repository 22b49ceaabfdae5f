"""Episodes: small classification tasks with a few examples of each class."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise._labels import number_labels, read_labels
from likewise.data.samplers import BatchSampler, _members


class Episodes(BatchSampler):
    """Batches of N-way K-shot tasks: ``ways`` classes with ``shots`` examples and ``queries`` queries each.

    An episode draws its classes and their items at random, without repetition. A batch lists its episodes one after the
    other; each episode lists the shots of each class, then its queries. ``support`` and ``query`` are their positions
    in the batch. Like every sampler, it is seeded and can be resumed.

    labels: (N,), numbers or names, or a Dataset.
    per_batch: episodes per batch. batches: batches per epoch.
    groups: (N,), the subject or speaker of each item: the queries of a class then come from other subjects than its
        shots.

    Example:
        >>> labels = [0, 0, 0, 1, 1, 1, 2, 2, 2]
        >>> episodes = Episodes(labels, ways=2, shots=1, queries=2, batches=3)
        >>> first = next(iter(episodes))
        >>> len(first), [labels[i] == labels[first[0]] for i in first]
        (6, [True, True, True, False, False, False])
        >>> episodes.support.tolist(), episodes.query.tolist()
        ([[[0], [3]]], [[[1, 2], [4, 5]]])
    """

    def __init__(
        self,
        labels: object,
        ways: int = 5,
        shots: int = 1,
        queries: int = 5,
        *,
        per_batch: int = 1,
        batches: int = 100,
        groups: object | None = None,
        seed: int = 0,
    ) -> None:
        self.ways = _check.whole(self.name, "ways", ways, least=2)
        self.shots = _check.whole(self.name, "shots", shots)
        self.queries = _check.whole(self.name, "queries", queries)
        self.per_batch = _check.whole(self.name, "per_batch", per_batch)
        size = self.per_batch * self.ways * (self.shots + self.queries)
        super().__init__(size, seed=seed, rank=0, world_size=1)
        self.batches = _check.whole(self.name, "batches", batches)
        self.classes, self._members = _members(self.name, labels)
        if len(self.classes) < self.ways:
            count = len(self.classes)
            _check.refuse(self.name, f"{ways} ways need {ways} classes, but there are {count}; lower ways")
        self._groups = None if groups is None else self._read_groups(groups)
        for position in range(len(self.classes)):
            self._check_class(position)

    @property
    def support(self) -> Tensor:
        """(episodes, ways, shots) int64, the positions of the shots in a batch."""
        return self._places[:, :, : self.shots]

    @property
    def query(self) -> Tensor:
        """(episodes, ways, queries) int64, the positions of the queries in a batch."""
        return self._places[:, :, self.shots :]

    def draw(self, random: np.random.Generator) -> Iterator[np.ndarray]:
        """The batches of an epoch."""
        for _ in range(len(self)):
            yield np.concatenate([self._episode(random) for _ in range(self.per_batch)])

    def take(self, count: int) -> tuple[Tensor, Tensor]:
        """Draw ``count`` episodes, as item indices: (count, ways, shots) and (count, ways, queries) int64.

        They depend only on the seed and do not advance the sampler, so several distances can be compared on them.
        """
        random = np.random.default_rng([self.seed])
        drawn = [self._episode(random) for _ in range(_check.whole(self.name, "count", count))]
        items = torch.from_numpy(np.stack(drawn)).reshape(count, self.ways, -1)
        return items[:, :, : self.shots], items[:, :, self.shots :]

    @property
    def _places(self) -> Tensor:
        return torch.arange(self.batch_size).reshape(self.per_batch, self.ways, -1)

    def _episode(self, random: np.random.Generator) -> np.ndarray:
        classes = random.permutation(len(self.classes))[: self.ways]
        return np.concatenate([self._items(k, random) for k in classes])

    def _items(self, position: int, random: np.random.Generator) -> np.ndarray:
        """The shots of a class, followed by its queries."""
        members = random.permutation(self._members[position])
        if self._groups is None:
            return members[: self.shots + self.queries]
        while True:  # terminates: _check_class made sure that a split exists
            # Shuffle the subjects and cut them in two at random, so that both parts have enough items.
            rank = random.permutation(self._groups.max() + 1)[self._groups[members]]
            ordered = np.sort(rank)
            cuts = np.flatnonzero(np.diff(ordered)) + 1
            cuts = cuts[(cuts >= self.shots) & (len(members) - cuts >= self.queries)]
            if len(cuts):
                first = rank < ordered[random.choice(cuts)]
                return np.concatenate([members[first][: self.shots], members[~first][: self.queries]])

    def _check_class(self, position: int) -> None:
        members, label = self._members[position], self.classes[position]
        need = f"{self.shots} shot{'s' * (self.shots > 1)} and {self.queries} quer{'ies' if self.queries > 1 else 'y'}"
        if len(members) < self.shots + self.queries:
            _check.refuse(self.name, f"class {label} has {len(members)} items, too few for {need}; leave it out")
        if self._groups is None:
            return
        sums = 1  # bit s: some subset of the groups has s members
        for size in np.unique(self._groups[members], return_counts=True)[1].tolist():
            sums |= sums << size
        most = len(members) - self.queries
        if not (sums >> self.shots) & ((1 << (most - self.shots + 1)) - 1):
            _check.refuse(
                self.name, f"the groups of class {label} cannot be split into {need} of different groups; leave it out"
            )

    def _read_groups(self, groups: object) -> np.ndarray:
        return number_labels(read_labels(self.name, "groups", groups, sum(map(len, self._members))))[1][0]
