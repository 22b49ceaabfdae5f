"""Motifs and discords: the nearest other window of every window, the matrix profile, under DTW or Euclidean."""

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from likewise import _check
from likewise._progress import track
from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.distances.dtw import DTW
from likewise.distances.euclidean import Euclidean
from likewise.ops.ground import at_least_float32
from likewise.ops.search import normalize as normalize_windows
from likewise.search import whole
from likewise.search.found import Found, Stats
from likewise.search.mass import euclidean_profile
from likewise.search.windows import WindowSearch

QUERIES_AT_ONCE = 64


@dataclass(frozen=True)
class Profile:
    """The nearest other windows of every window.

    items, starts: (W,), the windows, in order. length: theirs. distances, neighbor_items and neighbor_starts (W, k):
    the k nearest other windows of each, padded with inf and -1. stats: how they were found.
    """

    items: Tensor
    starts: Tensor
    length: int
    radius: int
    distances: Tensor
    neighbor_items: Tensor
    neighbor_starts: Tensor
    stats: Stats

    def motifs(self, count: int = 1) -> list[tuple[float, tuple[int, int], tuple[int, int]]]:
        """The nearest pairs: (distance, (item, start), (item, start)), no two near each other.

        Both windows of a pair lie apart from those of the pairs before it.
        """
        order = self.distances[:, 0].argsort(stable=True).tolist() if self.distances.shape[1] else []
        used: list[tuple[int, int]] = []
        found = []
        for i in order:
            if len(found) == count or not math.isfinite(self.distances[i, 0]):
                break
            pair = (
                (int(self.items[i]), int(self.starts[i])),
                (int(self.neighbor_items[i, 0]), int(self.neighbor_starts[i, 0])),
            )
            if any(self._near(place, other) for place in pair for other in used):
                continue
            used += pair
            found.append((float(self.distances[i, 0]), *pair))
        return found

    def discords(self, count: int = 1) -> list[tuple[float, int, int]]:
        """The windows farthest from their nearest neighbours: (distance, item, start), no two near each other."""
        last = self.distances.shape[1] - 1
        if last < 0:
            return []
        far = self.distances[:, last].masked_fill(~self.distances[:, last].isfinite(), -torch.inf)
        used: list[tuple[int, int]] = []
        found = []
        for i in far.argsort(descending=True, stable=True).tolist():
            if len(found) == count or not math.isfinite(far[i]):
                break
            place = (int(self.items[i]), int(self.starts[i]))
            if not any(self._near(place, other) for other in used):
                used.append(place)
                found.append((float(far[i]), *place))
        return found

    def _near(self, a: tuple[int, int], b: tuple[int, int]) -> bool:
        return a[0] == b[0] and abs(a[1] - b[1]) < self.radius


def self_join(
    distance: Distance,
    items: Batch,
    length: int,
    *,
    normalize: bool = False,
    k: int = 1,
    exclude: float = 0.5,
    threads: int | None = None,
    progress: bool = False,
) -> Profile:
    """The k nearest other windows of every window of the items: the matrix profile.

    distance: a DTW, searched with bounds, or Euclidean, whose profile of one neighbour comes from FFT and running
    products. exclude: windows of one item that start less than this share of the length apart are not neighbours, and
    the k neighbours of a window lie as far apart. normalize: z-normalise every window.

    Example:
        >>> wave = torch.sin(torch.arange(60) * 0.9)[None, :, None]
        >>> profile = self_join(DTW(band=1), Batch(wave), 8)
        >>> tuple(profile.distances.shape), profile.motifs()[0][0] < 0.1
        ((53, 1), True)
    """
    _check.whole("self_join", "length", length)
    _check.whole("self_join", "k", k)
    items = Batch(at_least_float32(items.values), items.lengths)
    counts = (items.lengths - length + 1).clamp(min=0)
    item = torch.arange(len(items)).repeat_interleave(counts)
    start = torch.cat([torch.arange(count) for count in counts.tolist()]) if len(items) else counts
    radius = max(1, math.ceil(_check.not_negative("self_join", "exclude", exclude) * length))
    if isinstance(distance, Euclidean) and k == 1 and len(items) == 1:
        return _euclidean(distance, items, length, radius, normalize, item, start)
    reason = whole.refusal(distance)
    if isinstance(distance, Euclidean):
        reason = f"it is Euclidean with {len(items)} series and k={k}"
    if reason is not None:
        _check.refuse("self_join", f"expected a DTW, or Euclidean with one series and k=1: {reason}")
    assert isinstance(distance, DTW)
    searcher = WindowSearch(distance, items, length, normalize=normalize)
    parts = []
    blocks = torch.arange(len(item)).split(QUERIES_AT_ONCE) if len(item) else ()
    for rows in track(blocks, f"self_join: {len(item):,} windows") if progress else blocks:
        windows = torch.stack(
            [items.values[i, s : s + length] for i, s in zip(item[rows].tolist(), start[rows].tolist(), strict=True)]
        )
        parts.append(
            searcher.search(
                Batch(windows),
                k=k,
                within=None,
                exclude=exclude,
                skip=item[rows],
                skip_start=start[rows],
                threads=threads,
            )
        )
    empty = Found.from_rows([], Stats(searcher.method, 0), items.dtype)
    found = Found.cat(parts) if parts else empty
    return Profile(item, start, length, radius, found.distances, found.items, found.starts, found.stats)


def _euclidean(
    distance: Euclidean, items: Batch, length: int, radius: int, normalize: bool, item: Tensor, start: Tensor
) -> Profile:
    begin = time.perf_counter()
    series = items[0]
    _, nearest = euclidean_profile(series.numpy(), length, radius, normalize=normalize)
    neighbor = torch.from_numpy(nearest)[:, None]
    values = series.new_full((len(start), 1), torch.inf)
    real = neighbor[:, 0] >= 0
    if len(start):  # the distance itself, of what was found
        windows = series.unfold(0, length, 1).mT
        for rows in real.nonzero()[:, 0].split(4096):
            x, y = windows[rows].contiguous(), windows[neighbor[rows, 0]].contiguous()
            x, y = (normalize_windows(x), normalize_windows(y)) if normalize else (x, y)
            values[rows, 0] = distance(x, y)
    stats = Stats("running products", len(start) * len(start), seconds=time.perf_counter() - begin)
    neighbor_items = torch.where(real, 0, -1)[:, None]
    return Profile(item, start, length, radius, values, neighbor_items, neighbor, stats)
