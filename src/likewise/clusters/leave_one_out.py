"""Whether each item's nearest other item has its label, computed from as few distances as possible."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from likewise.clusters.bounds import SLACK, Interval
from likewise.clusters.members import take
from likewise.data.batch import Batch
from likewise.distances.distance import PAIRED_NUMBERS, Distance

MANY = 0.4  # share of all pairs from which on the whole matrix is quicker than a choice of pairs


@dataclass(frozen=True)
class Outcome:
    """correct: (N,) bool. bounds: of all distances, exact where they were computed, 0 on the diagonal.

    computed: the number of distances that were computed.
    """

    correct: np.ndarray
    bounds: Interval
    computed: int


def nearest_are_right(
    distance: Distance, x: Tensor, lengths: Tensor | None, labels: np.ndarray, bounds: Interval | None
) -> Outcome:
    """Leave-one-out 1-NN of items (N, T, C) with labels (N,), given bounds (N, N) of the distances, if any.

    The result is that of the whole matrix; of equally near items, the first counts. Without bounds the matrix is
    computed. With them, only pairs that can still decide whether an item's nearest neighbour has its label.
    """
    if bounds is not None:
        return _Race(distance, x, lengths, labels, bounds).run()
    D = _whole_matrix(distance, x, lengths)
    correct = labels[D.argmin(1)] == labels
    np.fill_diagonal(D, 0)
    return Outcome(correct, Interval(distance, D, D), _pairs_of(distance, len(x)))


@dataclass(frozen=True)
class Searched:
    """correct: (N,) bool. computed: the number of distances that were."""

    correct: np.ndarray
    computed: int


def nearest_by_index(distance: Distance, x: Tensor, lengths: Tensor | None, labels: np.ndarray) -> Searched | None:
    """The same, by an index; None if no index is both exact and quick under this distance."""
    from likewise.search.choice import quick  # imports much

    items = Batch(x, lengths)
    searcher = quick(distance, items, 1)
    if searcher is None:
        return None
    found = searcher.search(items, k=1, within=None, exclude=0.0, skip=torch.arange(len(items)))
    return Searched(labels[found.items[:, 0].numpy()] == labels, found.stats.compared)


class _Race:
    """Distances are computed in the order of their bounds, until the class of every item's nearest neighbour is known.

    NumPy is used instead of PyTorch, whose threads would spin on the cores that we need.
    """

    def __init__(
        self, distance: Distance, x: Tensor, lengths: Tensor | None, labels: np.ndarray, bounds: Interval
    ) -> None:
        self.distance, self.x, self.lengths = distance, x, lengths
        self.known = bounds.low == bounds.high  # (N, N), where low and high are the distance
        np.fill_diagonal(self.known, True)
        np.fill_diagonal(low := bounds.low.copy(), np.inf)
        np.fill_diagonal(high := bounds.high.copy(), np.inf)
        self.low, self.high = low, high
        self.same = labels[:, None] == labels
        self.labels, self.computed = labels, 0

    def run(self) -> Outcome:
        """Compute what is needed."""
        count = len(self.x)
        rows, share = np.arange(count), 1  # the undecided items, and the pairs computed for each per round
        while True:
            right, wrong = self._decided(rows)
            rows = rows[~(right | wrong)]
            low = self._open(rows)
            pairs = self._candidates(rows, low, share)
            if not len(pairs):
                break
            if share > 1 and np.isfinite(low).sum() > MANY * count * count:  # all at once is quicker
                self.low = _whole_matrix(self.distance, self.x, self.lengths)
                self.high = self.low.copy()
                self.known[:] = True
                self.computed += _pairs_of(self.distance, count)
                break
            self._compute(pairs)
            share = min(2 * share, count)
        right, wrong = self._decided(np.arange(count))
        first = self.labels[np.where(self.known, self.high, np.inf).argmin(1)] == self.labels  # of equally near items
        correct = np.where(right | wrong, right, first)
        np.fill_diagonal(self.low, 0)
        np.fill_diagonal(self.high, 0)
        return Outcome(correct, Interval(self.distance, self.low, self.high), self.computed)

    def _decided(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which items' nearest neighbours certainly have the same label, and which certainly have another."""
        same, low, high = self.same[rows], self.low[rows], self.high[rows]
        same_low, other_low = (np.where(side, low, np.inf).min(1) for side in (same, ~same))
        same_high, other_high = (np.where(side, high, np.inf).min(1) for side in (same, ~same))
        return same_high < other_low, other_high < same_low

    def _open(self, rows: np.ndarray) -> np.ndarray:
        """The bounds of the unknown pairs that may be the nearest of these items; infinite elsewhere."""
        low = self.low[rows]
        reach = self.high[rows].min(1, keepdims=True, initial=np.inf)
        return np.where(self.known[rows] | (low > reach), np.inf, np.maximum(low, np.finfo(np.float64).min))

    def _candidates(self, rows: np.ndarray, low: np.ndarray, share: int) -> np.ndarray:
        """For each of these items its open pairs of the least bounds, (P, 2)."""
        share = min(share, low.shape[1] - 1)
        column = np.argpartition(low, share, 1)[:, :share]
        wanted = np.isfinite(np.take_along_axis(low, column, 1))
        i, j = np.broadcast_to(rows[:, None], column.shape)[wanted], column[wanted]
        if self.distance.symmetric:
            i, j = np.minimum(i, j), np.maximum(i, j)
        chosen = np.unique(i * len(self.low) + j)
        return np.stack(np.divmod(chosen, len(self.low)), 1)

    def _compute(self, pairs: np.ndarray) -> None:
        i, j = pairs.T
        reach = self.high.min(1)
        limits = np.maximum(reach[i], reach[j]) if self.distance.symmetric else reach[i]
        found = some_pairs(self.distance, self.x, self.lengths, torch.from_numpy(pairs), torch.from_numpy(limits))
        values = found.double().cpu().numpy()
        self.computed += len(pairs)
        given_up = np.isinf(values)
        # An abandoned pair is farther than its limit. It is not needed again, because reach never grows.
        low = np.where(given_up, np.nextafter(limits, np.inf), values)
        for a, b in ((i, j), (j, i)) if self.distance.symmetric else ((i, j),):
            self.low[a, b] = np.where(given_up, np.maximum(self.low[a, b], low), low)
            self.high[a, b] = np.where(given_up, np.maximum(self.high[a, b], low + SLACK * np.abs(low)), values)
            self.known[a, b] = ~given_up


def _whole_matrix(distance: Distance, x: Tensor, lengths: Tensor | None) -> np.ndarray:
    """Distances (N, N) in float64, infinite on the diagonal."""
    with torch.no_grad():
        D = distance.all_pairs(x, None, lengths, None).cpu().numpy().astype(np.float64)
    np.fill_diagonal(D, np.inf)
    return D


def _pairs_of(distance: Distance, count: int) -> int:
    return count * (count - 1) // (2 if distance.symmetric else 1)


def some_pairs(
    distance: Distance, x: Tensor, lengths: Tensor | None, pairs: Tensor, limits: Tensor | None = None
) -> Tensor:
    """Distances (P,) of x[pairs[:, 0]] and x[pairs[:, 1]]; above its limit (P,), one may be infinite."""
    some = getattr(distance, "some_pairs", None)
    if callable(some):
        items = Batch(x, lengths)
        return some(items, items, pairs, None if limits is None else limits.to(x.dtype))  # type: ignore[no-any-return]
    chunk = max(1, PAIRED_NUMBERS // max(1, 2 * x.shape[1] * x.shape[2]))
    found = [x.new_empty(0)]
    for first in range(0, len(pairs), chunk):
        i, j = pairs[first : first + chunk].unbind(1)
        ends = (None, None) if lengths is None else (lengths[i], lengths[j])
        with torch.no_grad():
            found.append(distance.paired(take(x, i), take(x, j), *ends))
    return torch.cat(found)
