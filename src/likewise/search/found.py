"""Searcher, the interface of all searchers, and their results, Found and Stats."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor


class Searcher(Protocol):
    """An object that finds the nearest items, or windows of items, of some queries.

    Its items are given when it is built, and do not change.
    """

    def search(
        self,
        queries: Any,
        *,
        k: int | None,
        within: float | None,
        exclude: float,
        skip: Tensor | None = None,
        threads: int | None = None,
    ) -> "Found":
        """The hits of each query, sorted by distance, then item, then start, then end.

        queries: a Batch (Q, T, C), or vectors (Q, D) where the distance compares vectors.
        k: the most hits of a query, None for all of them. within: the largest distance of a hit, which may be equal to
            it; None for any. Both together: the k nearest of those within.
        exclude: for windows: in the order of the result, a window is dropped if it begins less than exclude times the
            length of an earlier hit from that hit's beginning, in the same item; see ``keep_apart``.
        skip: (Q,) int64, the item that each query must not find, -1 for none.
        threads: by default ``torch.get_num_threads()``.
        """
        ...


@dataclass(frozen=True)
class Stats:
    """How a search went.

    method: the searcher, such as "exhaustive".
    candidates: the number of pairs (query, item or window) that there were.
    killed: the pairs that each stage ruled out without a full comparison, by stage, in the order in which they ran.
    cells: cells of alignment tables that were computed; 0 where this is not counted.
    seconds: the time that the search took.
    exact: whether the result equals that of exhaustive search.

    Example:
        >>> stats = Stats("bounds", candidates=1000, killed={"ends": 700, "envelope": 250}, cells=40_000, seconds=0.001)
        >>> stats.compared, stats.shares
        (50, {'ends': 0.7, 'envelope': 0.25})
        >>> print(stats)
        bounds: 1,000 pairs in 0.001 s; ends 70 %, envelope 25 %, compared 5 %; 40,000 cells
    """

    method: str
    candidates: int
    killed: dict[str, int] = field(default_factory=dict)
    cells: int = 0
    seconds: float = 0.0
    exact: bool = True

    @property
    def compared(self) -> int:
        """The number of pairs that no stage ruled out: their distances were computed, or abandoned on the way."""
        return self.candidates - sum(self.killed.values())

    @property
    def shares(self) -> dict[str, float]:
        """The share of all pairs that each stage ruled out."""
        return {stage: count / max(1, self.candidates) for stage, count in self.killed.items()}

    @classmethod
    def total(cls, parts: Sequence["Stats"]) -> "Stats":
        """The sum of several searches; the method and the stages are those of the first that has them.

        Example:
            >>> Stats.total([Stats("bounds", 10, {"ends": 4}), Stats("bounds", 5, {"ends": 1}, cells=7)])
            Stats(method='bounds', candidates=15, killed={'ends': 5}, cells=7, seconds=0.0, exact=True)
        """
        killed: dict[str, int] = {}
        for part in parts:
            for stage, count in part.killed.items():
                killed[stage] = killed.get(stage, 0) + count
        return cls(
            parts[0].method if parts else "exhaustive",
            sum(part.candidates for part in parts),
            killed,
            sum(part.cells for part in parts),
            sum(part.seconds for part in parts),
            all(part.exact for part in parts),
        )

    def __str__(self) -> str:
        stages = [f"{stage} {_percent(share)}" for stage, share in self.shares.items()]
        stages += [f"compared {_percent(self.compared / max(1, self.candidates))}"]
        text = f"{self.method}: {self.candidates:,} pairs in {self.seconds:.3g} s; {', '.join(stages)}"
        text += f"; {self.cells:,} cells" if self.cells else ""
        return text if self.exact else f"{text}; approximate"


@dataclass(frozen=True)
class Found:
    """The hits of Q queries, sorted by (distance, item, start); K is the largest number of hits of any query.

    distances: (Q, K) float; padding: inf. items: (Q, K) int64, the position in the index; padding: -1.
    starts, ends: (Q, K) int64, the steps of the item that were matched, [start, end); padding: -1.
    counts: (Q,) int64, the number of hits of each query.

    Example:
        >>> rows = [[(0.5, 2, 0, 8), (0.7, 1, 0, 8)], []]
        >>> found = Found.from_rows(rows, Stats("exhaustive", 6))
        >>> found.items
        tensor([[ 2,  1],
                [-1, -1]])
        >>> found.counts
        tensor([2, 0])
    """

    distances: Tensor
    items: Tensor
    starts: Tensor
    ends: Tensor
    counts: Tensor
    stats: Stats

    @classmethod
    def from_rows(
        cls, rows: Sequence[Sequence[tuple[float, int, int, int]]], stats: Stats, dtype: torch.dtype = torch.float32
    ) -> "Found":
        """Pad lists of hits (distance, item, start, end), one list a query, sorted already."""
        counts = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        width = int(counts.max()) if len(rows) else 0
        distances = torch.full((len(rows), width), torch.inf, dtype=dtype)
        places = torch.full((3, len(rows), width), -1, dtype=torch.int64)
        for q, row in enumerate(rows):
            if row:
                distances[q, : len(row)] = torch.tensor([hit[0] for hit in row], dtype=dtype)
                places[:, q, : len(row)] = torch.tensor([hit[1:] for hit in row], dtype=torch.int64).T
        return cls(distances, places[0], places[1], places[2], counts, stats)

    @classmethod
    def cat(cls, parts: Sequence["Found"]) -> "Found":
        """Hits of several groups of queries as one, padded to the widest.

        Example:
            >>> one = Found.from_rows([[(0.5, 2, 0, 8)]], Stats("exhaustive", 6))
            >>> Found.cat([one, one]).items
            tensor([[2],
                    [2]])
        """
        width = max((part.items.shape[1] for part in parts), default=0)

        def joined(name: str, filler: float) -> Tensor:
            tensors = [getattr(part, name) for part in parts]
            return torch.cat([torch.nn.functional.pad(t, (0, width - t.shape[1]), value=filler) for t in tensors])

        return cls(
            joined("distances", torch.inf),
            joined("items", -1),
            joined("starts", -1),
            joined("ends", -1),
            torch.cat([part.counts for part in parts]),
            Stats.total([part.stats for part in parts]),
        )


def share_found(found: Found, truth: Found) -> float:
    """The share of the true hits that were found; one as near as the last of them counts as one of them.

    Example:
        >>> truth = Found.from_rows([[(0.5, 2, 0, 8), (0.7, 1, 0, 8)]], Stats("exhaustive", 6))
        >>> share_found(Found.from_rows([[(0.5, 2, 0, 8), (0.9, 0, 0, 8)]], Stats("graph", 6)), truth)
        0.5
    """
    right = 0
    for q, count in enumerate(truth.counts.tolist()):
        got = found.distances[q, : int(found.counts[q])]
        same = torch.isin(found.items[q, : len(got)], truth.items[q, :count])
        right += min(count, int((same | (got <= truth.distances[q, count - 1])).sum())) if count else 0
    return right / max(1, int(truth.counts.sum()))


def keep_apart(
    items: Tensor, starts: Tensor, ends: Tensor, steps: Sequence[int], exclude: float, k: int | None
) -> list[int]:
    """The hits that remain, of hits (W,) in the order of the result: this defines ``exclude``.

    A hit is dropped if it begins less than exclude times the length of a hit that remains from that one's beginning, in
    the same item. steps: the length of each item.

    Example:
        >>> starts = torch.tensor([10, 14, 15, 3])
        >>> keep_apart(torch.zeros(4, dtype=torch.int64), starts, starts + 10, [30], exclude=0.5, k=None)
        [0, 2, 3]
    """
    free: dict[int, Tensor] = {}
    kept: list[int] = []
    for place, (item, start, end) in enumerate(zip(items.tolist(), starts.tolist(), ends.tolist(), strict=True)):
        if len(kept) == k:
            break
        if item not in free:
            free[item] = torch.ones(steps[item], dtype=torch.bool)
        if free[item][start]:
            kept.append(place)
            radius = math.ceil(exclude * (end - start)) - 1
            if radius >= 0:
                free[item][max(0, start - radius) : start + radius + 1] = False
    return kept


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
