"""Every window of long series under DTW, on a GPU."""

import importlib
import math
import time
from typing import Any

import torch
from torch import Tensor

from likewise.data.batch import Batch
from likewise.distances.dtw import DTW
from likewise.ops.dispatch import HAS_TRITON
from likewise.ops.ground import at_least_float32, euclidean
from likewise.ops.search import prepared
from likewise.search import whole
from likewise.search.found import Found, Stats, keep_apart
from likewise.search.whole import as_found

GPU = "likewise.ops.search.gpu"  # needs Triton
PLACES_AT_ONCE = 1 << 26  # pairs of a query and a block between two comparisons: 12 bytes each
BOUNDS_AT_ONCE = 1 << 26  # bounds of single windows
NUMBERS_AT_ONCE = 1 << 27  # numbers in the windows that DTW compares at once
FIRST = 16  # windows of each query that are compared first, for a threshold, beside four for each match


class DeviceWindowSearch:
    """The nearest windows of every item under DTW, on the items' device, exactly.

    Like ``WindowSearch``: the matches are those of comparing each query with every window on this device. Pass by pass
    over the series: the least bound of each block of 512 windows with each query; DTW of the windows of the least
    bounds, for a threshold; the bounds of every window of the blocks that are left; DTW of the windows that those
    leave, the least bounds first. Memory: the series, 8 bytes for each of its
    samples and 1 for each of its steps; a search adds two copies of the series and about 1 GB.

    distance, length and normalize as for ``WindowSearch``. It needs Triton.
    """

    method = "bounds of windows, on the device"

    def __init__(self, distance: DTW, items: Batch, length: int | None = None, *, normalize: bool = False) -> None:
        self.distance = distance
        self.items = Batch(at_least_float32(items.values).contiguous(), items.lengths)
        self.length = length
        self.normalize = normalize
        self._largest = self._largest_value()
        self._kept: Any = None
        if length is not None:
            self._prepared(length)

    def search(
        self,
        queries: Batch,
        *,
        k: int | None,
        within: float | None,
        exclude: float,
        skip: Tensor | None = None,
        threads: int | None = None,
    ) -> Found:
        """The hits of each query."""
        start = time.perf_counter()
        values: list[Tensor] = [torch.empty(0)] * len(queries)
        places: list[Tensor] = [torch.empty(0, 3, dtype=torch.int64)] * len(queries)
        parts = [Stats(self.method, 0)]
        for steps in queries.lengths.unique().tolist():
            rows = (queries.lengths == steps).nonzero()[:, 0]
            x = at_least_float32(queries.values[rows.to(queries.device), :steps])
            group = _Group(self, x, k, within, exclude, None if skip is None else skip[rows])
            with torch.no_grad():
                group.run()
            parts.append(group.stats())
            for i, q in enumerate(rows.tolist()):
                values[q], places[q] = group.matches(i)
        return as_found(values, places, Stats.total(parts), queries.to("cpu"), start)

    def _prepared(self, length: int) -> Any:
        """The windows of some length, in blocks; those of one length are kept."""
        gpu = importlib.import_module(GPU)

        if self._kept is None or self._kept.length != length:
            self._kept = gpu.blocks_of(self.items.values, self.items.lengths, length, normalize=self.normalize)
        return self._kept

    def _largest_value(self) -> float:
        values, mask = self.items.values, self.items.mask.to(self.items.device)
        return float(values[mask].abs().max()) if mask.any() else 0.0


class _Group:
    """The search of some queries of one length."""

    def __init__(
        self,
        searcher: DeviceWindowSearch,
        queries: Tensor,
        k: int | None,
        within: float | None,
        exclude: float,
        skip: Tensor | None,
    ) -> None:
        gpu = importlib.import_module(GPU)

        self.gpu, self.searcher, self.distance = gpu, searcher, searcher.distance
        self.steps = queries.shape[1]
        self.length = searcher.length or self.steps
        self.device = searcher.items.device
        self.blocks = searcher._prepared(self.length)
        self.k, self.exclude = k, exclude
        self.radius = math.ceil(exclude * self.length)
        self.wanted = 0 if k is None else k if self.radius <= 1 else 2 * k - 1
        count = len(queries)
        self.queries = self._laid_out(queries)  # as they are compared
        self.limit = torch.full(
            (count,), math.inf if within is None else within, dtype=torch.float64, device=self.device
        )
        self.skip = torch.full((count,), -1) if skip is None else skip
        self.skip = self.skip.to(self.device)
        plane, above, below = prepared.query_envelopes(self.queries.cpu(), self.distance.rules.window, self.length)
        groups = -(-count // gpu.QUERIES) * gpu.QUERIES

        def filled(part: Tensor, value: float) -> Tensor:
            part = torch.nn.functional.pad(part.permute(2, 1, 0), (0, groups - count), value=value)
            return part.contiguous().to(self.device)

        upper = lower = self.blocks.values[:0]
        if self.steps == self.length:  # the data's envelope is for queries as long as the windows
            radius = prepared.radius_of(self.distance.rules.window, self.length, self.length)
            upper, lower = _sliding(searcher.items, min(radius, self.length))
        self.envelopes = gpu.Envelopes(
            filled(above, math.inf), filled(below, -math.inf), filled(plane, 0.0), upper, lower
        )
        self.found = torch.empty(4, 0, dtype=torch.float64, device=self.device)  # query, item, start, value
        self.seen = self.killed_blocks = self.killed_windows = self.compared = 0

    def run(self) -> None:
        """All matches up to the threshold."""
        each = max(1, PLACES_AT_ONCE // max(1, self.envelopes.upper.shape[2]))
        self.root = self.distance.ground is euclidean
        bounded = self._error() < math.inf
        for first in range(0, len(self.blocks.item), each):
            part = slice(first, first + each)
            least, place = self.gpu.block_bounds(self.blocks, part, self.envelopes, root=self.root)
            least, place = least[: len(self.queries)], place[: len(self.queries)]
            if not bounded:
                least.zero_()
            item = self.blocks.item[part]
            mine = item[None] == self.skip[:, None]
            least.masked_fill_(mine, math.inf)
            windows = self.blocks.count[part]
            self.seen += int(((~mine) * windows).sum())
            self._seed(least, place, item)
            query, block = _within(least, self._bar()).nonzero(as_tuple=True)
            self.killed_blocks += int(((~mine) * windows).sum()) - int(windows[block].sum())
            order = (least[query, block] / self._bar()[query]).argsort(stable=True)
            self._refine(query[order], block[order] + first, least[query, block][order], bounded)

    def _seed(self, least: Tensor, place: Tensor, item: Tensor) -> None:
        """A threshold from the windows of the least bounds, one of a block."""
        if not self.wanted or not least.numel():
            return
        best = least.topk(min(least.shape[1], 4 * self.wanted + FIRST), largest=False).indices
        query = torch.arange(len(best), device=self.device)[:, None].expand_as(best)
        real = least.gather(1, best) < math.inf
        query, column = query[real], best[real]
        start = place[query, column]
        known = torch.stack(
            [part.double() for part in (query, item[column], start, self._dtw(query, item[column], start))]
        )
        self._lower(torch.cat([self.found, known], 1))

    def _refine(self, query: Tensor, block: Tensor, least: Tensor, bounded: bool) -> None:
        """Bounds of every window of these blocks, and DTW of what they leave."""
        each, first = max(1, BOUNDS_AT_ONCE // self.gpu.BLOCK), 0
        some = min(each, max(256, 4 * len(self.queries)))  # few at first: thresholds fall
        while first < len(query):
            part = slice(first, first + some)
            first, some = first + some, min(each, 4 * some)
            q, b = query[part], block[part]
            alive = least[part] <= self._bar()[q]
            self.killed_blocks += int(self.blocks.count[b[~alive]].sum())
            q, b = q[alive], b[alive]
            bounds = self.gpu.pair_bounds(self.blocks, q, b, self.envelopes, root=self.root)
            if not bounded:
                real = torch.arange(self.gpu.BLOCK, device=self.device) < self.blocks.count[b][:, None]
                bounds = torch.where(real, 0.0, math.inf)
            pair, window = _within(bounds, self._bar()[q]).nonzero(as_tuple=True)
            self.killed_windows += int(self.blocks.count[b].sum()) - len(pair)
            order = bounds[pair, window].argsort(stable=True)
            pair, window = pair[order], window[order]
            self._compare(q[pair], self.blocks.item[b][pair], self.blocks.first[b][pair] + window)

    def _compare(self, query: Tensor, item: Tensor, start: Tensor) -> None:
        """DTW of these windows; those up to the threshold are kept."""
        self.compared += len(query)
        value = self._dtw(query, item, start)
        near = value <= self.limit[query]
        known = torch.stack([part[near].double() for part in (query, item, start, value)])
        self.found = torch.cat([self.found, known], 1)
        if self.wanted:
            self._lower(self.found)
            self.found = self.found[:, self.found[3] <= self.limit[self.found[0].long()]]

    def _lower(self, known: Tensor) -> None:
        """Lower the thresholds to the last wanted value of the known windows that lie apart, best first."""
        query, item, start, value = known
        query, count = query.long(), len(self.queries)
        value, last = value.clone(), value.new_full((count,), math.inf)
        for _ in range(self.wanted):
            last = value.new_full((count,), math.inf).scatter_reduce(0, query, value, "amin")
            at = torch.full_like(last, len(value), dtype=torch.int64)
            here = (value == last[query]) & (value < math.inf)
            at = at.scatter_reduce(
                0, query, torch.where(here, torch.arange(len(value), device=self.device), len(value)), "amin"
            )
            found = at < len(value)
            chosen = at.clamp(max=max(0, len(value) - 1))[query]
            close = (item == item[chosen]) & ((start - start[chosen]).abs() < max(1, self.radius))
            value = torch.where(found[query] & close, math.inf, value)
            last = torch.where(found, last, math.inf)
        # Kernels for few and for many pairs may differ in the last digits.
        self.limit = torch.minimum(self.limit, last * (1 + 1e-5))

    def _dtw(self, query: Tensor, item: Tensor, start: Tensor) -> Tensor:
        """Distances (P,) of queries to windows, as the distance itself computes them."""
        each = max(1, NUMBERS_AT_ONCE // max(1, self.length * self.queries.shape[2]))
        found = [self.limit.new_empty(0)]
        for part in torch.arange(len(query), device=self.device).split(each):
            window = self._windows(item[part], start[part])
            found.append(self.distance.paired(self.queries[query[part]], window, None, None).double())
        return torch.cat(found)

    def _windows(self, item: Tensor, start: Tensor) -> Tensor:
        return self.gpu.windows(self.blocks.values, item, start, self.length, normalize=self.searcher.normalize)

    def _laid_out(self, queries: Tensor) -> Tensor:
        """Queries as they are compared."""
        queries = queries.to(self.device).contiguous()
        if not self.searcher.normalize:
            return queries
        rows = torch.arange(len(queries), device=self.device)
        return self.gpu.windows(queries, rows, torch.zeros_like(rows), self.steps, normalize=True).contiguous()

    def _error(self) -> float:
        """How far a frame of the bounds may be off, beside rounding; infinite if there are no bounds."""
        channels, largest = self.queries.shape[2], self.searcher._largest
        own = float(self.queries.abs().max()) if self.queries.numel() else 0.0
        if max(largest, own) > prepared.LARGEST:
            return math.inf
        if self.searcher.normalize:
            error = self.gpu.RUNNING_ERROR + self.gpu.SCALED_ERROR * math.sqrt(self.length)
            return error * math.sqrt(channels)
        return (largest + own) * 2.0**-23 * math.sqrt(channels)

    def _bar(self) -> Tensor:
        """The greatest bound (Q,) that a window at the threshold can have; see Limit in bounds.h."""
        channels, frames = self.queries.shape[2], float(self.steps + self.length)
        relative = 6e-8 * (4 * frames + 4 * channels + self.length * channels + 64)
        error = min(self._error(), 1e30)
        total = self.limit * (frames * (1 + 1e-6) if self.distance.normalize == "lengths" else 1)
        if self.root:
            return ((total * (1 + relative) + frames * error) * (1 + 1e-6)).float()
        least = total.sqrt() * (1 + relative) + math.sqrt(frames) * error
        return (least.square() * (1 + 1e-6)).float()

    def matches(self, i: int) -> tuple[Tensor, Tensor]:
        """The hits of query i: values (K,), and places (K, 3)."""
        if not hasattr(self, "_sorted"):
            self._sorted = self.found.cpu()
            by = torch.arange(self._sorted.shape[1])
            for row in (2, 1, 3, 0):  # by query, value, item, start
                by = by[self._sorted[row][by].argsort(stable=True)]
            self._sorted = self._sorted[:, by]
            self._first = torch.searchsorted(self._sorted[0].contiguous(), torch.arange(len(self.queries) + 1).double())
        part = self._sorted[:, int(self._first[i]) : int(self._first[i + 1])]
        item, start = part[1:3].long()
        place = torch.stack([item, start, start + self.length], 1)
        lengths = self.searcher.items.lengths.tolist()
        kept = keep_apart(place[:, 0], place[:, 1], place[:, 2], lengths, self.exclude, self.k)
        return part[3][kept].to(self.queries.dtype), place[kept]

    def stats(self) -> Stats:
        """How many blocks and windows the bounds ruled out."""
        killed = {"blocks": self.killed_blocks, "envelopes": self.killed_windows}
        radius = prepared.radius_of(self.distance.rules.window, self.steps, self.length)
        width = min(self.length, 2 * radius + 1 + abs(self.steps - self.length))
        return Stats(self.searcher.method, self.seen, killed, cells=self.compared * self.steps * width)


def refusal(distance: DTW, items: Batch, stretch: tuple[float, float] | None = None) -> str | None:
    """Why windows are not searched on their device; None if they are.

    Example:
        >>> refusal(DTW(band=3), Batch(torch.zeros(1, 9, 1)))
        'the items are not on a GPU'
    """
    if items.device.type != "cuda":
        return "the items are not on a GPU"
    if not HAS_TRITON:
        return "Triton is not installed"
    if items.dtype not in (torch.float32, torch.float64):
        return f"the items are {items.dtype}"
    return "windows have several lengths" if stretch is not None else whole.refusal(distance)


def _within(bounds: Tensor, most: Tensor) -> Tensor:
    """Which bounds (P, n) are at most that of their row, and not infinite, which stands for no window."""
    return (bounds <= most[:, None]) & (bounds < math.inf)


def _sliding(items: Batch, radius: int) -> tuple[Tensor, Tensor]:
    """The greatest and the least of x[j - radius..j + radius], for every j, of series (N, T, C), without padding."""
    found, padding = [], ~items.mask.to(items.device)
    for pick, nothing in ((torch.maximum, -math.inf), (torch.minimum, math.inf)):
        steps, width, stands = items.values.shape[1], 2 * radius + 1, 1
        x = items.values.masked_fill(padding[..., None], nothing) if padding.any() else items.values
        x = torch.nn.functional.pad(x, (0, 0, radius, radius), value=nothing)
        while 2 * stands <= width:
            x = pick(x[:, : x.shape[1] - stands], x[:, stands:])
            stands *= 2
        found.append(pick(x[:, :steps], x[:, width - stands : width - stands + steps]).contiguous())
    return found[0], found[1]
