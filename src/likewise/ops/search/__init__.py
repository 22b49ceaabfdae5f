"""Exact search under DTW on the CPU: lower bounds rule out most candidates; DTW, abandoned early, compares the rest.

``Prepared`` holds items with their envelopes, built once for a band. ``whole`` searches whole items, ``windows`` every
window of a given length, which is never laid out. Both return ``Outcome``: the k nearest, or all within a distance, in
the order of (value, item, start, length), as if every value had been computed by the kernel of ``dtw_matrix``.

The stages for windows are the ends, Keogh's bound of the data with the query's envelope, and that of the query with the
data's envelope, about 20 operations each for 16 samples. Those for whole items are the bound of means over 8 steps with
the mean of the query's envelope, which takes an eighth of that work, and then Keogh's bounds. The last stage is DTW in
lanes, in the order of the bounds. It is abandoned when the least cell of a row and the bound of the remaining rows
together exceed the k-th best value so far, which all threads share. Many candidates of one length go through DTW in
stages of some rows, and lanes are refilled after each stage. Rounding rules out no candidate: see Limit in bounds.h.

Items of one length and six channels or more whose frames vary in few directions within an item are turned: they are
multiplied by an orthogonal matrix, so that the first four channels hold most of that. Means come first there, too, but
lanes are items, whose numbers lie side by side. Then DTW of the four channels alone, in whole numbers of 16 bits, and
the bound of the others, settle nearly all that is left. That goes by stages, too: while most lanes are left they go
on, otherwise they wait until they fill all lanes.

Reference: Zhu & Shasha (2003), the bound of means; Keogh & Ratanamahatana (2005); Rakthanmanon et al. (2012), the UCR
suite; Herrmann & Webb (2021).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise.ops import cpu
from likewise.ops.rules import ITAKURA, Rules
from likewise.ops.search.prepared import (
    BESIDE,
    LARGEST,
    TURNED_ERROR,
    Prepared,
    Turn,
    largest_value,
    ordered,
    prepare,
    radius_of,
    readable,
    turned,
    without_envelopes,
)
from likewise.ops.search.stream import Stream, stretches

__all__ = [
    "Outcome",
    "Prepared",
    "Stream",
    "Wanted",
    "normalize",
    "prepare",
    "refusal",
    "stretches",
    "whole",
    "windows",
    "without_envelopes",
]

STAGES = ("query envelope", "data envelope", "leading channels")  # after "segments" of whole items, "ends" of windows
WINDOWS_AT_ONCE = 1 << 14  # windows per call: their samples, envelopes and moments fit in a core's cache
CANDIDATES_AT_ONCE = 1 << 24  # windows of all queries between two comparisons: at most 16 bytes each
SEED_STRIDE = 8  # one block of windows in this many is compared first, for a threshold


@dataclass(frozen=True)
class Wanted:
    """The matches to find.

    k: the most matches of a query; None for all. within: the largest value. radius: matches start at least this many
    steps apart, by ``likewise.search.found.keep_apart``, which the caller applies; k matches then remain. skip: the
    item that each query must not find, (Q,) int64, -1 for none; with skip_start and skip_radius, only its windows
    that start less than skip_radius from skip_start. by_lengths: values are divided by the sum of the lengths.
    """

    k: int | None = None
    within: float | None = None
    radius: int = 0
    skip: Tensor | None = None
    skip_start: Tensor | None = None
    skip_radius: int = 0
    by_lengths: bool = False
    threads: int | None = None


@dataclass(frozen=True)
class Outcome:
    """Matches of each query in order: counts (Q,); values, items, starts and ends (Q, K), padded with inf and -1.

    killed: the number of candidates that each stage ruled out. cells: the number of DTW cells that were computed.
    """

    counts: Tensor
    values: Tensor
    items: Tensor
    starts: Tensor
    ends: Tensor
    killed: dict[str, int]
    candidates: int
    cells: int


def refusal(rules: Rules) -> str | None:
    """The reason why the bounds do not apply to these rules; None if they do.

    Example:
        >>> refusal(Rules.of("dtw", subsequence=True))
        'the ends are open'
    """
    if rules.open_begin or rules.open_end:
        return "the ends are open"
    return "the window is a parallelogram" if rules.window.kind == ITAKURA else None


def normalize(x: Tensor) -> Tensor:
    """Windows (B, T, C) with mean 0 and deviation 1 in each channel, computed in float64, as in ``windows``.

    A channel is constant if its deviation is at most 1e-7 of its largest absolute value; it becomes 0.

    Example:
        >>> normalize(torch.tensor([[[1.0], [3.0]], [[0.1], [0.1]]])).flatten()
        tensor([-1.,  1.,  0.,  0.])
    """
    x = readable("normalize", "x", x)
    count, steps, channels = x.shape
    result = torch.empty_like(x)
    if steps:
        double = x.dtype == torch.float64
        cpu.share_out(
            count,
            4 * steps * channels,
            lambda begin, end: cpu.native.search_normalize(
                cpu.INSTRUCTION_SET, x.data_ptr(), double, steps, channels, result.data_ptr(), begin, end
            ),
        )
    return result


def whole(queries: Tensor, lengths: Tensor | None, items: Prepared, wanted: Wanted, *, root: bool = False) -> Outcome:
    """The nearest whole items of queries (Q, T, C). root: the ground cost is Euclidean, not squared."""
    search = _Search(queries, lengths, items, wanted, root)
    order = torch.argsort(items.lengths, stable=True)
    count, found = len(queries), len(items.values)
    together = 64 if search.turned is not None else 16
    blocks = max(min(4, count), -(-count // together))  # blocks of about equally many queries
    together = max(1, -(-count // max(1, blocks)))
    blocks = -(-count // together)
    # Few queries: their items are split too, to give every thread work. Many: some share one pass over the items.
    parts = max(1, min(8 // max(1, count), found // 256))
    bounds = [found * part // parts // BESIDE * BESIDE for part in range(parts)] + [found]
    problem = search.problem()

    def work(begin: int, end: int) -> None:
        for task in range(begin, end):
            part, block = divmod(task, blocks)
            query, last = block * together, min((block + 1) * together, count)
            cpu.native.search_whole(
                cpu.INSTRUCTION_SET, problem, order.data_ptr(), bounds[part], bounds[part + 1], query, last
            )

    if found:
        cells = together * found * items.values.shape[1] * items.values.shape[2] // parts
        cpu.share_out(blocks * parts, cells, work, threads=wanted.threads)
    return search.outcome(count * found - _skipped(wanted.skip))


def windows(
    queries: Tensor, items: Prepared, wanted: Wanted, *, root: bool = False, normalized: bool = False
) -> Outcome:
    """The nearest windows of queries (Q, T, C), all of one length. With ``normalized``, queries must be, too."""
    length = items.length or 0
    search = _Search(queries, None, items, wanted, root, normalized)
    spans = [
        (item, first, min(first + WINDOWS_AT_ONCE, steps - length + 1))
        for item, steps in enumerate(items.lengths.tolist())
        for first in range(0, steps - length + 1, WINDOWS_AT_ONCE)
    ]
    if spans and len(queries) and queries.shape[1]:
        search.seed(spans)
        search.compare(spans)
    counts = (items.lengths - length + 1).clamp(min=0)
    candidates = int(counts.sum()) * len(queries)
    if wanted.skip is not None and wanted.skip_start is None:
        candidates -= int(counts[wanted.skip[wanted.skip >= 0]].sum())
    return search.outcome(candidates)


class _Search:
    """One call of ``whole`` or ``windows``; keeps the memory alive to which the kernels point."""

    def __init__(
        self,
        queries: Tensor,
        lengths: Tensor | None,
        items: Prepared,
        wanted: Wanted,
        root: bool,
        normalized: bool = False,
    ) -> None:
        queries = readable("search", "queries", queries)
        _check.agree("search", queries, items.values, paired=False)
        self.queries, self.items, self.wanted = queries, items, wanted
        self.root, self.normalized = root, normalized
        self.lengths = cpu.checked_lengths("search", "lengths", lengths, len(queries), queries.shape[1])
        cpu.check_finite("search", "queries", queries, self.lengths)
        within = np.inf if wanted.within is None else wanted.within
        if queries.dtype == torch.float32:
            within = float(np.float32(within))
        self.matches = cpu.native.Matches(len(queries), wanted.k or 0, within, wanted.radius)
        self.candidates = cpu.native.Candidates(len(queries))
        self.counts = torch.zeros(len(STAGES) + 4, dtype=torch.int64)
        self.kept: list[Tensor] = []
        self.largest = largest_value(queries, self.lengths)
        self.turned = None if items.turn is None else self._turned(items.turn)
        if self.turned is None and items.turn is not None:
            self.items = items.plain

    def problem(self) -> object:
        """The problem for the kernels."""
        items, wanted, largest = self.items, self.wanted, self.largest
        rows, x_steps, channels = self.queries.shape
        own = largest * 2.0**-24 if self.queries.dtype == torch.float64 else 0.0
        if self.turned is not None:
            largest = largest_value(self.turned, None)
            own = largest * TURNED_ERROR
        error = np.inf if self.largest > LARGEST else (own + items.error) * channels**0.5
        pairs = cpu.native.Problem(
            x=self.queries.data_ptr(),
            y=items.values.data_ptr(),
            cost=0,
            x_lengths=self.lengths.data_ptr(),
            y_lengths=items.lengths.data_ptr(),
            rows=rows,
            columns=len(items.values),
            x_steps=x_steps,
            y_steps=items.values.shape[1],
            channels=channels,
            all_pairs=True,
            float64=self.queries.dtype == torch.float64,
            ground=cpu.EUCLIDEAN if self.root else cpu.SQUARED,
            window=items.window.kind,
            window_size=items.window.size,
            open_begin=False,
            open_end=False,
            gamma=0.0,
        )
        parts = dict.fromkeys(
            ("steps", "channels", "ordered_upper", "ordered_lower", "ordered_query", "query_upper", "query_lower"), 0
        )
        if items.length is not None:
            parts = {name: self._keep(part) for name, part in ordered(self.queries, items, self.root).items()}
        skip, skip_start = (
            0 if given is None else self._keep(given.to("cpu", torch.int64).contiguous())
            for given in (wanted.skip, wanted.skip_start)
        )
        return cpu.native.SearchProblem(
            pairs=pairs,
            plane=items.plane.data_ptr(),
            upper=items.upper.data_ptr(),
            lower=items.lower.data_ptr(),
            padded=items.plane.shape[2],
            means=items.means[0].data_ptr(),
            means_upper=items.means[1].data_ptr(),
            means_lower=items.means[2].data_ptr(),
            coarse=items.means[0].shape[2],
            segment=items.segment,
            means_error=(largest + items.largest) * 2.0**-20 * channels**0.5 if items.segment > 1 else 0.0,
            turned=0 if self.turned is None else self.turned.data_ptr(),
            **_of_turn(items.turn),
            window=items.length or 0,
            **parts,
            normalize=self.normalized,
            error=error,
            by_lengths=wanted.by_lengths,
            skip=skip,
            skip_start=skip_start,
            skip_radius=wanted.skip_radius,
            matches=self.matches,
            candidates=self.candidates,
            counts=self.counts.data_ptr(),
        )

    def _turned(self, turn: Turn) -> Tensor | None:
        """Queries turned as the items are, (Q, C, T), if all have the length of the items: see turned.h."""
        rows, steps, channels = self.queries.shape
        alike = steps == self.items.values.shape[1] and bool((self.lengths.numpy() == steps).all())
        if not alike or self.largest > LARGEST:
            return None
        frames = np.empty((rows, channels, steps), np.float32)
        turned(self.queries, turn.axes, turn.centre, frames)
        return torch.from_numpy(frames)

    def _keep(self, tensor: Tensor) -> int:
        self.kept.append(tensor)
        return tensor.data_ptr()

    def seed(self, spans: list[tuple[int, int, int]]) -> None:
        """Find thresholds from the windows with the least bounds among one block in SEED_STRIDE."""
        count = len(self.queries)
        self.described = self.problem()
        if not self.matches.wanted() or self.matches.threshold(0) < np.inf:
            return
        self._bounds(spans, SEED_STRIDE)
        most = 4 * self.matches.wanted() + 16
        self._compare([self.candidates.sort(q, max(1, self.wanted.radius), most) for q in range(count)])
        self.matches.forget()
        self.candidates.clear()
        self.counts.zero_()

    def compare(self, spans: list[tuple[int, int, int]]) -> None:
        """Compute bounds, then DTW, for all windows, as many at once as memory allows."""
        count = len(self.queries)
        at_once = max(1, CANDIDATES_AT_ONCE // (WINDOWS_AT_ONCE * count))
        for first in range(0, len(spans), at_once):
            self._bounds(spans[first : first + at_once], 0)
            self._compare([self.candidates.sort(q, 0, 0) for q in range(count)])
            self.candidates.clear()

    def _bounds(self, spans: list[tuple[int, int, int]], stride: int) -> None:
        def work(begin: int, end: int) -> None:
            for span in spans[begin:end]:
                cpu.native.search_bounds(cpu.INSTRUCTION_SET, self.described, *span, stride)

        cells = WINDOWS_AT_ONCE * len(self.queries) * 16 // max(1, stride)
        cpu.share_out(len(spans), cells, work, threads=self.wanted.threads)

    def _compare(self, counts: list[int]) -> None:
        length = self.items.length or 0
        cells = max(1, length * min(length, 2 * int(radius_of(self.items.window, length, length)) + 1) // 4)
        block = max(64, 500_000 // cells // 16 * 16)
        tasks = [(q, first, min(first + block, n)) for q, n in enumerate(counts) for first in range(0, n, block)]

        def work(begin: int, end: int) -> None:
            for task in tasks[begin:end]:
                cpu.native.search_compare(cpu.INSTRUCTION_SET, self.described, *task)

        cpu.share_out(len(tasks), block * cells, work, threads=self.wanted.threads)

    def outcome(self, candidates: int) -> Outcome:
        """The matches found."""
        count = len(self.queries)
        counts = torch.empty(count, dtype=torch.int64)
        self.matches.count(counts.data_ptr())
        width = int(counts.max()) if count else 0
        values = torch.full((count, width), np.inf, dtype=torch.float64)
        places = torch.full((3, count, width), -1)
        items, starts, ends = places
        self.matches.copy(width, values.data_ptr(), items.data_ptr(), starts.data_ptr(), ends.data_ptr())
        if width and bool((values.isinf() & (items >= 0)).any()):
            _check.refuse("dtw", f"the value of a pair is not finite: the costs overflow {self.queries.dtype}")
        numbers = self.counts.tolist()
        first = "segments" if self.items.length is None else "ends"
        killed = dict(zip((first, *STAGES), numbers, strict=False))
        killed = {stage: killed[stage] for stage in (first, *(STAGES[2:] if self.turned is not None else STAGES[:2]))}
        return Outcome(counts, values.to(self.queries.dtype), items, starts, ends, killed, candidates, numbers[-1])


def _of_turn(turn: Turn | None) -> dict[str, float]:
    """What the kernel needs of turned items."""
    addresses = ("laid_means", "laid_upper", "laid_lower", "highest", "lowest", "leads")
    if turn is None:
        return dict.fromkeys(addresses, 0) | {"unit": 0.0}
    parts = (turn.means, turn.upper, turn.lower, turn.highest, turn.lowest, turn.leads)
    return {name: part.data_ptr() for name, part in zip(addresses, parts, strict=True)} | {"unit": turn.unit}


def _skipped(skip: Tensor | None) -> int:
    return 0 if skip is None else int((skip >= 0).sum())
