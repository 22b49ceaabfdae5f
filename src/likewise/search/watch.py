"""Watch: the matches of a query in a stream, as they are completed."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from likewise import _check
from likewise.data.batch import Batch, as_sequences
from likewise.distances.dtw import DTW
from likewise.ops.ground import at_least_float32, euclidean
from likewise.ops.search import Stream
from likewise.search import stretches, whole
from likewise.search.windows import WindowSearch


@dataclass(frozen=True, order=True)
class Sighting:
    """A match in a stream: its distance, and its steps [start, end), counted from the first sample."""

    distance: float
    start: int
    end: int


class Watch:
    """Look for one query in samples as they come.

    distance: a DTW, over windows of the query's length, or DTW(subsequence=True), over stretches of any length. query:
    a sequence (T, C) or (T,). within: the largest distance of a match. exclude: matches start at least this share of
    the query's length apart; of those that do not, the nearest remains. normalize: z-normalise the query and each
    window.

    ``push`` returns the matches that no later sample can change, and ``finish`` those that are still open at the end of
    the stream. Together they equal ``search(query, k=None, within=within)`` of the whole stream, digit by digit.
    Memory: the last samples of one window or, with open ends, two numbers for each step of the query; and each
    candidate of an unbroken run in which each overlaps with a nearer one.

    Example:
        >>> watch = Watch(DTW(band=1), [0.0, 5.0, 0.0], within=0.5)
        >>> watch.push([0.0, 0.0, 5.0, 0.0, 0.0])
        [Sighting(distance=0.0, start=1, end=4)]
        >>> watch.push([5.0]), watch.push([0.0, 1.0, 1.0])
        ([], [Sighting(distance=0.0, start=4, end=7)])
    """

    def __init__(
        self, distance: DTW, query: object, *, within: float, exclude: float = 0.5, normalize: bool = False
    ) -> None:
        values, lengths = as_sequences("Watch", "query", [query])
        self.query = Batch(at_least_float32(values), lengths)
        self.distance = distance
        self.within = _check.not_negative("Watch", "within", within)
        self.exclude = _check.not_negative("Watch", "exclude", exclude)
        self.normalize = normalize
        self.position = 0  # samples so far
        self._radius = math.ceil(exclude * values.shape[1])
        self._pending: list[Sighting] = []
        self._kept: list[int] = []  # starts of matches near which others are still dropped
        self._tail = self.query.values.new_empty(0, values.shape[2])
        self._stream: Stream | None = None
        open_ends = distance.rules.open_begin or distance.rules.open_end
        reason = stretches.refusal(distance) if open_ends else whole.refusal(distance)
        if reason is None and open_ends and (normalize or distance.normalize is not None):
            reason = "a stretch with open ends is not normalised"
        if reason is not None:
            _check.refuse("Watch", f"{type(distance).__name__} cannot be watched: {reason}")
        if open_ends:
            self._stream = Stream(self.query.values, root=distance.ground is euclidean)

    def push(self, samples: object) -> list[Sighting]:
        """Take samples (T, C) or (T,), one or many; return the matches that are complete now, by their start."""
        x, _ = as_sequences("Watch.push", "samples", [samples])
        x = x[0].to(self.query.dtype)
        if x.shape[1] != self.query.channels:
            _check.refuse("Watch.push", f"samples have {x.shape[1]} channels and the query has {self.query.channels}")
        _check.finite("Watch.push", "samples", x[None], None)
        self._pending += self._ends(x) if self._stream else self._windows(x)
        self.position += len(x)
        return self._settle(final=False)

    def finish(self) -> list[Sighting]:
        """End the stream; return the matches that were still open."""
        return self._settle(final=True)

    def _windows(self, x: Tensor) -> list[Sighting]:
        """Windows that end in the new samples, and are near enough."""
        steps = self.query.values.shape[1]
        seen = torch.cat([self._tail, x])
        first = self.position - len(self._tail)
        self._tail = seen[max(0, len(seen) - steps + 1) :].clone() if steps > 1 else seen[:0]
        if len(seen) < steps:
            return []
        searcher = WindowSearch(self.distance, Batch(seen[None]), steps, normalize=self.normalize)
        found = searcher.search(self.query, k=None, within=self.within, exclude=0.0, threads=1)
        hits = zip(found.distances[0].tolist(), found.starts[0].tolist(), found.ends[0].tolist(), strict=True)
        return [Sighting(distance, first + start, first + end) for distance, start, end in hits]

    def _ends(self, x: Tensor) -> list[Sighting]:
        """Stretches that end in the new samples, and are near enough: of those that start together, the nearest."""
        assert self._stream is not None
        values, starts = x.new_empty(len(x)), torch.empty(len(x), dtype=torch.int64)
        self._stream.push(x, values, starts)
        near = (values <= self.within).nonzero()[:, 0]
        hits = zip(values[near].tolist(), starts[near].tolist(), near.tolist(), strict=True)
        found = [Sighting(distance, start, self.position + end + 1) for distance, start, end in hits]
        if self._radius == 0:
            return found
        best = {one.start: one for one in sorted(self._pending + found, reverse=True)}
        self._pending = []
        return list(best.values())

    def _complete(self, one: Sighting, final: bool) -> bool:
        """Whether every match that may yet replace this one is known."""
        if final:
            return True
        steps = self.query.values.shape[1]
        if self._stream is None:
            return self.position - steps >= one.start + self._radius - 1
        if self.position < one.start + self._radius:
            return False
        near = (self._stream.starts - one.start).abs() < self._radius
        return not (self._stream.column[near] <= one.distance).any()

    def _settle(self, final: bool) -> list[Sighting]:
        """Decide what can be decided, nearest first; an open candidate keeps those near it open."""
        found, still, radius = [], [], self._radius
        for one in sorted(self._pending):
            if any(abs(one.start - start) < radius for start in self._kept):
                continue
            blocked = any(abs(one.start - other.start) < radius for other in still)
            if blocked or (radius > 0 and not self._complete(one, final)):
                still.append(one)
                continue
            found.append(one)
            self._kept.append(one.start)
        self._pending = still
        # A later match starts after this, or where a pending one or a cell of the column does.
        starts = [one.start for one in still] + [self.position - self.query.values.shape[1] + 1]
        if self._stream is not None:
            starts = [*starts[:-1], self.position, *self._stream.starts.tolist()]
        self._kept = [start for start in self._kept if start + radius > min(starts)] if radius else []
        return sorted(found, key=lambda one: (one.start, one.end))
