"""Exact search under DTW on the CPU: lower bounds settle most candidates, DTW the rest, abandoned as soon as it may be.

``Prepared`` holds items with their envelopes, built once for a band. ``whole`` searches whole items, ``windows`` every
window of a given length, which is never laid out. Both return ``Outcome``: the k nearest, or all within a distance, in
the order of (value, item, start, length), as if every value had been computed by the kernel of ``dtw_matrix``.

The stages, and what each costs a candidate: the query's and the data's ends and Keogh's bound of the data with the
query's envelope, some 20 operations for 16 samples; Keogh's bound of the query with the data's envelope, the same;
then DTW in lanes in the order of the bounds, abandoned when the least cell of a row and the bound of what follows
exceed the k-th best so far, which all threads share. Rounding never settles a candidate: see Limit in bounds.h.

Reference: Keogh & Ratanamahatana (2005); Rakthanmanon et al. (2012), the UCR suite; Herrmann & Webb (2021).
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise.ops import cpu
from likewise.ops.rules import FRACTION, ITAKURA, NONE, Rules, Window

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

STAGES = ("ends", "query envelope", "data envelope")
WINDOWS_AT_ONCE = 1 << 14  # of one call: their samples, envelopes and moments fit a core's cache
CANDIDATES_AT_ONCE = 1 << 24  # windows of all queries between two comparisons: at most 16 bytes each
SEED_STRIDE = 8  # one block of windows in so many is looked at first, for a threshold
LARGEST = 1e15  # beyond this, squares of float32 copies may overflow: there are no bounds


@dataclass(frozen=True)
class Prepared:
    """Items (N, T, C) with their lengths (N,), float32 copies and envelopes, each (N, C, padded).

    length: of the windows; None for whole items. error: how far the float32 copies are off.
    """

    values: Tensor
    lengths: Tensor
    window: Window
    length: int | None
    plane: Tensor
    upper: Tensor
    lower: Tensor
    error: float


@dataclass(frozen=True)
class Wanted:
    """What to look for.

    k: the most matches of a query; None for all. within: the largest value. radius: matches start at least so many
    steps apart, by ``likewise.search.found.keep_apart``, which the caller applies; k matches then remain. skip: the
    item that each query must not find, (Q,) int64, -1 for none; with skip_start and skip_radius, only those of its
    windows that start less than skip_radius from there. by_lengths: values are divided by the sum of the lengths.
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
    """Matches of each query in order: values (K,) and places (K, 3), item, start and end; and how they were found."""

    values: list[Tensor]
    places: list[Tensor]
    killed: dict[str, int]
    candidates: int
    cells: int


def refusal(rules: Rules) -> str | None:
    """Why the bounds do not apply to these rules; None if they do.

    Example:
        >>> refusal(Rules.of("dtw", subsequence=True))
        'the ends are open'
    """
    if rules.open_begin or rules.open_end:
        return "the ends are open"
    return "the window is a parallelogram" if rules.window.kind == ITAKURA else None


def prepare(values: Tensor, lengths: Tensor | None, window: Window, length: int | None = None) -> Prepared:
    """Items (N, T, C) float32 or float64 with their envelopes, for whole items or for windows of some length.

    Example:
        >>> prepare(torch.tensor([[[0.0], [2.0], [1.0]]]), None, Window(1, 1.0), length=3).upper[0, 0, :3]
        tensor([2., 2., 2.])
    """
    values = _readable("search", "items", values)
    count, steps, _channels = values.shape
    lengths = cpu.checked_lengths("search", "lengths", lengths, count, steps)
    cpu.check_finite("search", "items", values, lengths)
    padded = -(-(steps + (0 if length is None else 64)) // 16) * 16
    plane, error = _plane(values, lengths, padded)
    each = lengths if length is None else torch.full_like(lengths, length)
    radius = _radius(window, each, each)
    upper, lower = (torch.empty_like(plane) for _ in range(2))
    _envelopes(plane, lengths, radius, radius, lengths, upper, lower)
    _fill_padding(lengths, upper, lower)
    if length is None and steps:  # a path joins first with first, and last with last
        items, ends = torch.arange(count), lengths - 1
        for envelope in (upper, lower):
            envelope[:, :, 0] = plane[:, :, 0]
            envelope[items, :, ends] = plane[items, :, ends]
    return Prepared(values, lengths, window, length, plane, upper, lower, error)


def without_envelopes(items: Prepared, length: int) -> Prepared:
    """The same items for windows of another length than the queries', which are not compared with envelopes."""
    return replace(items, length=length, upper=items.plane, lower=items.plane)


def normalize(x: Tensor) -> Tensor:
    """Windows (B, T, C) with mean 0 and deviation 1 in each channel, computed in float64, as ``windows`` does it.

    A channel is constant if its deviation is at most 1e-7 of its largest absolute value; it becomes 0.

    Example:
        >>> normalize(torch.tensor([[[1.0], [3.0]], [[0.1], [0.1]]])).flatten()
        tensor([-1.,  1.,  0.,  0.])
    """
    x = _readable("normalize", "x", x)
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
    # Few queries: their items are split, too, so that every thread has work. Many: some together read the items once.
    parts = max(1, min(16 // max(1, count), found // 512))
    bounds = [found * part // parts for part in range(parts + 1)]
    together = max(1, min(16, count // 16))
    blocks = -(-count // together)
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
    """The nearest windows of queries (Q, T, C), all of one length; ``normalized``: windows are, and queries must be."""
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


def stretches(
    query: Tensor, items: Tensor, lengths: Tensor | None = None, *, root: bool = False, threads: int | None = None
) -> tuple[Tensor, Tensor]:
    """For each step of each item, the best stretch that ends there: its value (N, T) and its start (N, T).

    query (1, n, C), items (N, T, C). The whole query is matched with the stretch, whose ends are free.

    Example:
        >>> value, start = stretches(torch.tensor([[[1.0], [2.0]]]), torch.tensor([[[1.0], [2.0], [0.0]]]))
        >>> value[0], start[0]
        (tensor([1., 0., 4.]), tensor([0, 0, 0]))
    """
    items = _readable("search", "items", items)
    count, steps, _ = items.shape
    lengths = cpu.checked_lengths("search", "lengths", lengths, count, steps)
    cpu.check_finite("search", "items", items, lengths)
    values, starts = items.new_full((count, steps), np.inf), torch.full((count, steps), -1)

    def work(begin: int, end: int) -> None:
        for item in range(begin, end):
            stream = Stream(query, root=root)
            stream.push(items[item, : int(lengths[item])], values[item], starts[item])

    cpu.share_out(count, query.shape[1] * steps, work, threads=threads)
    return values, starts


class Stream:
    """The best stretches of a series that comes piece by piece. Memory: 16 bytes for each step of the query."""

    def __init__(self, query: Tensor, *, root: bool = False) -> None:
        self.query = _readable("search", "query", query)
        self.position = 0
        _, steps, channels = query.shape
        self._lengths = cpu.checked_lengths("search", "lengths", None, 1, steps)
        cpu.check_finite("search", "query", self.query, self._lengths)
        self.column, self.starts = self.query.new_full((steps,), np.inf), torch.zeros(steps, dtype=torch.int64)
        self._problem = cpu.native.Problem(
            x=self.query.data_ptr(),
            y=0,
            cost=0,
            x_lengths=self._lengths.data_ptr(),
            y_lengths=0,
            rows=1,
            columns=1,
            x_steps=steps,
            y_steps=0,
            channels=channels,
            all_pairs=True,
            float64=query.dtype == torch.float64,
            ground=cpu.EUCLIDEAN if root else cpu.SQUARED,
            window=NONE,
            window_size=0.0,
            open_begin=True,
            open_end=True,
            gamma=0.0,
        )

    def push(self, samples: Tensor, values: Tensor, starts: Tensor) -> None:
        """Write the value and the start of the stretch that ends at each of the samples (T, C)."""
        samples = samples.contiguous()
        cpu.native.search_stretches(
            cpu.INSTRUCTION_SET,
            self._problem,
            0,
            samples.data_ptr(),
            len(samples),
            self.position,
            self.column.data_ptr(),
            self.starts.data_ptr(),
            values.data_ptr(),
            starts.data_ptr(),
        )
        self.position += len(samples)


class _Search:
    """One call of ``whole`` or ``windows``: keeps alive what the kernels point to."""

    def __init__(
        self,
        queries: Tensor,
        lengths: Tensor | None,
        items: Prepared,
        wanted: Wanted,
        root: bool,
        normalized: bool = False,
    ) -> None:
        queries = _readable("search", "queries", queries)
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
        self.counts = torch.zeros(len(STAGES) + 3, dtype=torch.int64)
        self.kept: list[Tensor] = []

    def problem(self) -> object:
        """What the kernels are given."""
        items, wanted = self.items, self.wanted
        rows, x_steps, channels = self.queries.shape
        largest = _largest(self.queries, self.lengths)
        own = largest * 2.0**-24 if self.queries.dtype == torch.float64 else 0.0
        error = np.inf if largest > LARGEST else (own + items.error) * channels**0.5
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
            parts = {name: self._keep(part) for name, part in _ordered(self.queries, items, self.root).items()}
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

    def _keep(self, tensor: Tensor) -> int:
        self.kept.append(tensor)
        return tensor.data_ptr()

    def seed(self, spans: list[tuple[int, int, int]]) -> None:
        """Thresholds from the windows of the least bounds among one block in some."""
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
        """Bounds, then DTW, of all windows, as many at once as memory allows."""
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
        cells = max(1, length * min(length, 2 * int(_radius_of(self.items.window, length, length)) + 1) // 4)
        block = max(64, 500_000 // cells // 16 * 16)
        tasks = [(q, first, min(first + block, n)) for q, n in enumerate(counts) for first in range(0, n, block)]

        def work(begin: int, end: int) -> None:
            for task in tasks[begin:end]:
                cpu.native.search_compare(cpu.INSTRUCTION_SET, self.described, *task)

        cpu.share_out(len(tasks), block * cells, work, threads=self.wanted.threads)

    def outcome(self, candidates: int) -> Outcome:
        values, places = [], []
        for q in range(len(self.queries)):
            count = self.matches.count(q)
            value, place = torch.empty(count, dtype=torch.float64), torch.empty(count, 3, dtype=torch.int64)
            self.matches.copy(q, value.data_ptr(), place.data_ptr())
            if count and not torch.isfinite(value[-1]):
                _check.refuse("dtw", f"the value of a pair is not finite: the costs overflow {self.queries.dtype}")
            values.append(value.to(self.queries.dtype))
            places.append(place)
        numbers = self.counts.tolist()
        return Outcome(values, places, dict(zip(STAGES, numbers, strict=False)), candidates, numbers[-1])


def _readable(op: str, name: str, x: Tensor) -> Tensor:
    _check.sequences(op, name, x)
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        _check.refuse(op, f"expected {name} in float32 or float64 on the CPU, got {x.dtype} on {x.device}")
    return x.detach().contiguous()


def _plane(values: Tensor, lengths: Tensor, padded: int) -> tuple[Tensor, float]:
    """Float32 copies (N, C, padded), zero behind the end, and how far they are off: infinite if there are no bounds."""
    count, steps, channels = values.shape
    full = bool((lengths == steps).all())
    largest = _largest(values, lengths)
    error = 0.0 if values.dtype == torch.float32 else largest * 2.0**-24
    if largest > LARGEST:
        return torch.zeros(count, channels, padded), np.inf
    if channels == 1 and full and padded == steps and values.dtype == torch.float32:
        return values.view(count, 1, steps), error
    plane = torch.zeros(count, channels, padded)
    plane[:, :, :steps] = values.mT
    if not full:
        plane.masked_fill_((torch.arange(padded) >= lengths[:, None])[:, None], 0)
    return plane, error


def _largest(values: Tensor, lengths: Tensor) -> float:
    if values.numel() == 0:
        return 0.0
    if bool((lengths == values.shape[1]).all()):
        return max(abs(float(end)) for end in values.aminmax())
    real = torch.arange(values.shape[1]) < lengths[:, None]
    return float(values.masked_fill(~real[..., None], 0).abs().max())


def _radius_of(window: Window, n: int, m: int) -> int:
    """Steps that a path of n rows and m columns may be off its diagonals."""
    if window.kind == NONE:
        return n + m
    return min(n + m, int(window.size * min(n, m) if window.kind == FRACTION else window.size))


def _radius(window: Window, n: Tensor, m: Tensor) -> Tensor:
    return torch.tensor([_radius_of(window, *pair) for pair in zip(n.tolist(), m.tolist(), strict=True)]).long()


def _envelopes(
    x: Tensor, lengths: Tensor, left: Tensor, right: Tensor, counts: Tensor, upper: Tensor, lower: Tensor
) -> None:
    """Write the greatest and the least of x[j - left..j + right], for j = 0..counts - 1: x (N, C, T), all else (N,)."""
    channels = x.shape[1]
    lengths, left, right, counts = (
        part.repeat_interleave(channels).contiguous() for part in (lengths, left, right, counts)
    )
    stride, to_stride = x.shape[2], upper.shape[2]
    cpu.share_out(
        len(counts),
        64 * int(counts.max()) if len(counts) else 1,
        lambda begin, end: cpu.native.search_envelopes(
            cpu.INSTRUCTION_SET,
            x.data_ptr(),
            lengths.data_ptr(),
            left.data_ptr(),
            right.data_ptr(),
            counts.data_ptr(),
            stride,
            to_stride,
            upper.data_ptr(),
            lower.data_ptr(),
            begin,
            end,
        ),
    )


def _fill_padding(counts: Tensor, upper: Tensor, lower: Tensor) -> None:
    """An envelope that holds everything, behind the end."""
    behind = (torch.arange(upper.shape[2]) >= counts[:, None])[:, None]
    if behind.any():
        upper.masked_fill_(behind, np.inf)
        lower.masked_fill_(behind, -np.inf)


def _ordered(queries: Tensor, items: Prepared, root: bool) -> dict[str, Tensor]:
    """The queries' envelopes for windows, and their points in the order in which they tell most: the ends first."""
    count, n, channels = queries.shape
    m = items.length or 0
    radius = _radius_of(items.window, n, m)
    plane = queries.mT.to(torch.float32).contiguous()  # (Q, C, n)
    shape = (count, channels, m)
    upper, lower = torch.empty(shape), torch.empty(shape)
    left, right = radius + max(0, m - n), radius + max(0, n - m)
    given = [torch.full((count,), size) for size in (n, left, right, m)]
    _envelopes(plane, given[0], given[1], given[2], given[3], upper, lower)
    if m > 1:
        for envelope in (upper, lower):
            envelope[:, :, 0], envelope[:, :, -1] = plane[:, :, 0], plane[:, :, -1]
    middle = (upper / 2 + lower / 2).numpy()
    weight = np.abs(middle - middle.mean(2, keepdims=True))
    if root:  # channels of a step stay together
        weight = np.broadcast_to(weight.sum(1, keepdims=True), weight.shape).copy()
    weight[:, :, 0] = np.inf
    weight[:, :, -1] = np.inf
    by_step = weight.swapaxes(1, 2).reshape(count, m * channels)
    order = torch.from_numpy(np.argsort(-by_step, axis=1, kind="stable"))  # (Q, m * C), channel = order % C
    steps, channel = order // channels, order % channels
    flat = channel * m + steps
    inside = channel * n + steps.clamp(max=n - 1)

    def taken(x: Tensor, at: Tensor) -> Tensor:
        return x.reshape(count, -1).gather(1, at).contiguous()

    return {
        "steps": steps.to(torch.int32).contiguous(),
        "channels": channel.to(torch.int32).contiguous(),
        "ordered_upper": taken(upper, flat),
        "ordered_lower": taken(lower, flat),
        "ordered_query": taken(plane, inside),
        "query_upper": upper,
        "query_lower": lower,
    }


def _skipped(skip: Tensor | None) -> int:
    return 0 if skip is None else int((skip >= 0).sum())
