"""Search under a metric: the triangle inequality rules out items by their distances from a few pivots."""

import time
from typing import Any

import torch
from torch import Tensor

from likewise._modes import evaluating
from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.models.metric import take
from likewise.ops.rules import NONE
from likewise.search.exhaustive import Exhaustive, Pairs, join, lengths_of
from likewise.search.found import Found, Stats

PIVOTS = 8
FEWEST = 64  # items from which pivots are worth their distances
QUERIES_AT_ONCE = 64
FIRST = 64  # items that are compared with a query before its limit is known
WORTH = 0.5  # share of the pairs that may remain; comparing more of them pair by pair is slower than comparing all
SLACK = 1e-4  # of the distances: rounding in float32 must not cost a hit


class PivotSearch:
    """The nearest whole items under a metric with ``some_pairs(x, y, pairs, limits)``, such as MSM, TWE and ERP.

    |d(q, p) - d(p, x)| <= d(q, x) for every pivot p. The distances of a few pivots, far from each other, to all items
    are computed here. A query is compared with the pivots, then with the items of the least bounds, which gives a
    limit, and then with those whose bound is within the limit; pairs are abandoned once they exceed it. If too many
    remain, all pairs are compared, which is then faster. The result is that of exhaustive search.

    Example:
        >>> import likewise as lw
        >>> class Own(lw.Euclidean):
        ...     metric = True
        ...     def some_pairs(self, x, y, pairs, limits=None):
        ...         return self(x[pairs[:, 0]], y[pairs[:, 1]])
        >>> x = Batch(torch.arange(300.0).reshape(100, 3, 1))
        >>> PivotSearch(Own(), x).search(x[2:3], k=2, within=None).items
        tensor([[2, 1]])
    """

    method = "pivots"

    def __init__(self, distance: Distance, items: Batch) -> None:
        self.distance: Any = distance
        self.items = items
        with torch.no_grad(), evaluating(distance):
            self.pivots, self.table = self._chosen()

    def search(
        self,
        queries: Batch,
        *,
        k: int | None,
        within: float | None,
        exclude: float = 0.0,
        skip: Tensor | None = None,
        threads: int | None = None,
    ) -> Found:
        """The hits of each query; ``exclude`` does not apply to whole items."""
        start, parts, killed = time.perf_counter(), [], 0
        with torch.no_grad(), evaluating(self.distance):
            for some in torch.arange(len(queries)).split(QUERIES_AT_ONCE):
                group = take(queries, some)
                found, left_out = self._group(group, k, within, None if skip is None else skip[some])
                parts += found
                killed += left_out
        pairs = len(queries) * len(self.items)
        stats = Stats(self.method, pairs, {"pivots": killed}, seconds=time.perf_counter() - start)
        return join(parts, stats, lengths_of(self.items))

    def _group(self, queries: Any, k: int | None, within: float | None, skip: Tensor | None) -> tuple[list[Pairs], int]:
        """The hits of some queries, one by one, and how many pairs were never compared."""
        to_pivots = self.distance.matrix(queries, take(self.items, self.pivots)).cpu().T[..., None]  # (P, Q, 1)
        bound = torch.zeros(len(queries), len(self.items))
        for row, column in zip(to_pivots, self.table, strict=True):
            bound = torch.maximum(bound, (row - column).abs() - SLACK * (row + column))
        if skip is not None:
            rows = (skip >= 0).nonzero()[:, 0]
            bound[rows, skip[rows]] = torch.inf
        limit = torch.full((len(queries),), torch.inf if within is None else within, dtype=torch.float64)
        near, D = None, None
        if k is not None:
            near = bound.topk(min(max(FIRST, 2 * k), bound.shape[1]), largest=False).indices  # (Q, n)
            near = _pairs_of(near, bound.gather(1, near) < torch.inf)
            D = self.distance.some_pairs(queries, self.items, near).cpu()
            limit = torch.minimum(limit, _kth(near[:, 0], D, len(queries), k))
        wanted = bound <= limit[:, None]
        wanted &= bound < torch.inf
        if near is not None:
            wanted[near[:, 0], near[:, 1]] = False
        if int(wanted.sum()) > WORTH * wanted.numel():
            found = Exhaustive(self.distance, self.items).search(queries, k=k, within=within, skip=skip)
            return [(found.distances, found.items)], 0
        pairs = wanted.nonzero()
        more = self.distance.some_pairs(queries, self.items, pairs, limit[pairs[:, 0]].to(queries.dtype)).cpu()
        if near is not None and D is not None:
            pairs, more = torch.cat([near, pairs]), torch.cat([D, more])
        return _selected(pairs, more, len(queries), k, within), wanted.numel() - len(pairs)

    def _chosen(self) -> tuple[Tensor, Tensor]:
        """Pivots far from each other, (P,), each the farthest from those before it, and their distances (P, N)."""
        chosen: list[int] = [0]
        rows: list[Tensor] = []
        for _ in range(PIVOTS):
            one = take(self.items, slice(chosen[-1], chosen[-1] + 1))
            rows.append(self.distance.matrix(one, self.items)[0].cpu())
            nearest = torch.stack(rows).amin(0)
            if float(nearest.max()) == 0:
                break
            chosen.append(int(nearest.argmax()))
        return torch.tensor(chosen[: len(rows)]), torch.stack(rows)


def refusal(distance: Distance, items: object) -> str | None:
    """Why pivots do not apply; None if they do. A window may break the triangle inequality."""
    if getattr(distance, "metric", False) is not True or not callable(getattr(distance, "some_pairs", None)):
        return f"{distance.name} is not known to be a metric"
    rules = getattr(distance, "rules", None)
    if rules is not None and (rules.window.kind != NONE or rules.open_begin or rules.open_end):
        return "its paths are restricted: the triangle inequality may fail"
    if not isinstance(items, Batch) or len(items) < FEWEST:
        return f"there are fewer than {FEWEST} sequences"
    return None


def _pairs_of(columns: Tensor, there: Tensor) -> Tensor:
    """(K, 2) positions (row, column) of columns (Q, n), where ``there``."""
    rows = torch.arange(len(columns))[:, None].expand_as(columns)
    return torch.stack([rows[there], columns[there]], 1)


def _kth(rows: Tensor, D: Tensor, count: int, k: int) -> Tensor:
    """The k-th smallest of each row's distances, (Q,); infinity if it has fewer."""
    limit = torch.full((count,), torch.inf, dtype=torch.float64)
    for q in range(count):
        own = D[rows == q]
        if len(own) >= k:
            limit[q] = own.kthvalue(k).values
    return limit


def _selected(pairs: Tensor, D: Tensor, count: int, k: int | None, within: float | None) -> list[Pairs]:
    """The hits of each query, by distance and then by item."""
    found = []
    order = pairs[:, 1].argsort(stable=True)
    order = order[D[order].argsort(stable=True)]
    rows, columns, values = pairs[order, 0], pairs[order, 1], D[order]
    near = values.isfinite() if within is None else values <= within
    for q in range(count):
        own = ((rows == q) & near).nonzero()[:, 0][:k]
        found.append((values[own][None], columns[own][None]))
    return found
