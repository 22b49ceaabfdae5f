"""Candidates: a cheap distance selects the pairs that an expensive one compares."""

import math
from typing import Any, Protocol

import torch
from torch import Tensor

from likewise import _check
from likewise._labels import is_map_style
from likewise.evaluation import ranking
from likewise.evaluation.labels import ready_strip

PAIRED_NUMBERS = {"cpu": 1 << 22, "cuda": 1 << 27}  # size limit for pairs that are compared at once


class HasMatrix(Protocol):
    """A distance, such as ``likewise.Distance``; it may also have ``embed`` and ``distance``, like a Metric."""

    def matrix(self, x: Any, y: Any, /) -> Tensor:
        """Distances (N, M)."""
        ...


class Candidates:
    """Retrieval without comparing every pair: a cheap distance selects references, an expensive one re-ranks them.

    metric: the cheap distance, between the same items; if it has ``embed`` and ``distance`` (a Metric, a SiameseGRU),
        every item is embedded once.
    keep: the number of references that each query keeps: a whole number, or a share between 0 and 1, rounded up.

    Pass it to ``evaluate`` or ``NearestNeighbors`` as ``candidates=``. References that were not kept rank after all
    others, in the order of the cheap distance; keeping all of them gives the ranking of the expensive distance. The
    cost is N M cheap distances and N ``keep`` expensive ones.

    Example:
        >>> from likewise import DTW, Euclidean, evaluate
        >>> x, labels = torch.randn(20, 8, 1).cumsum(1), torch.arange(20) % 2
        >>> evaluate(DTW(), (x, labels), candidates=Candidates(Euclidean(), keep=0.25)).queries
        20
    """

    def __init__(self, metric: HasMatrix, keep: int | float) -> None:
        if not callable(getattr(metric, "matrix", None)):
            raise TypeError(f"Candidates: expected metric to be a Distance, got {type(metric).__name__}")
        self.metric = metric
        self.keep = _check.number("Candidates", "keep", keep)
        if isinstance(self.keep, int):
            _check.whole("Candidates", "keep", keep)
        elif not 0 < self.keep <= 1:
            _check.refuse("Candidates", f"keep must be a whole number, or a share above 0 and up to 1, got {keep}")

    def count(self, references: int) -> int:
        """The number of references that each query keeps.

        Example:
            >>> from likewise import Euclidean
            >>> Candidates(Euclidean(), 0.1).count(25), Candidates(Euclidean(), 100).count(25)
            (3, 25)
        """
        if isinstance(self.keep, int):
            return min(self.keep, references)
        return min(references, math.ceil(self.keep * references - 1e-9))

    def __repr__(self) -> str:
        return f"Candidates({type(self.metric).__name__}, keep={self.keep})"


def embedded(metric: Any, items: Any, others: Any, workers: int = 0) -> tuple[Any, Any, Any]:
    """The operands, which are embeddings or the items themselves, and the distance between them."""
    if not callable(getattr(metric, "embed", None)):
        return items, others, metric

    def embed(part: Any) -> Any:
        return metric.embed(part, workers=workers) if is_map_style(part) else metric.embed(part)

    x = embed(items)
    return x, x if others is items else embed(others), metric.distance


def rerank(op: str, cheap: Tensor, distance: Any, x: Any, y: Any, keep: int) -> tuple[Tensor, Tensor]:
    """The ``keep`` nearest references of each row of ``cheap``, by position, and their expensive distances: (n, keep).

    cheap: (n, M), from ``ready_strip``. x: the n items; y: all M references. A distance with ``between``, such as
    CoupledGRU, gets the pairs as positions; others get the sequences of each pair.
    """
    chosen = ranking.nearest(cheap, keep).sort(1).values.cpu()
    D = compare(op, distance, x, y, chosen)
    return chosen.to(D.device), D


def compare(op: str, distance: Any, x: Any, y: Any, chosen: Tensor) -> Tensor:
    """Distances (n, keep) of each of n items to the references at its positions, chosen (n, keep)."""
    rows = torch.arange(len(chosen)).repeat_interleave(chosen.shape[1])
    columns, parts = chosen.flatten(), []
    between = getattr(distance, "between", None)
    for part in torch.arange(rows.numel()).split(max(1, rows.numel()) if between else _pairs_at_once(x, y)):
        if between:
            D = between(x, y, rows[part], columns[part])
        else:
            D = distance(_gathered(x, rows[part]), _gathered(y, columns[part]))
        if D.isnan().any():
            _check.refuse(op, "the metric returned NaN for a candidate")
        parts.append(D.float() if D.dtype in (torch.float16, torch.bfloat16) else D)
    return torch.cat(parts).reshape(chosen.shape)


def ranked_strip(op: str, cheap: Tensor, distance: Any, x: Any, y: Any, keep: int, first: int, own: bool) -> Tensor:
    """Ranks (n, M) in place of distances: candidates by the expensive distance, then all others by the cheap one.

    Equal distances have equal ranks; NaN marks each row's own column.
    """
    cheap = ready_strip(op, cheap, first, own)
    chosen, dear = rerank(op, cheap, distance, x, y, keep)
    dtype = torch.float32 if cheap.shape[1] < 1 << 24 else torch.float64  # represents all ranks exactly
    nearer = torch.searchsorted(cheap.sort(1).values.contiguous(), cheap.contiguous())
    ranks = nearer.clamp(min=keep).to(dtype)
    among = torch.searchsorted(dear.sort(1).values.contiguous(), dear.contiguous())
    ranks.scatter_(1, chosen.to(ranks.device), among.to(ranks.device, dtype))
    if own:
        ranks.diagonal(first).fill_(torch.nan)
    return ranks


def _pairs_at_once(x: Any, y: Any) -> int:
    """The number of pairs to compare at once, so that their frames fit in memory."""
    values = [items if isinstance(items, Tensor) else getattr(items, "values", None) for items in (x, y)]
    values = [items for items in values if isinstance(items, Tensor)]
    if len(values) < 2:
        return 1024  # lengths of items in lists and arrays are unknown
    each = sum(math.prod(items.shape[1:]) for items in values)
    return max(1, PAIRED_NUMBERS["cuda" if values[0].is_cuda else "cpu"] // max(each, 1))


def _gathered(items: Any, index: Tensor) -> Any:
    if isinstance(items, (list, tuple)):
        return [items[i] for i in index.tolist()]
    if isinstance(items, Tensor):
        return items[index.to(items.device)]
    return items[index if hasattr(items, "lengths") else index.numpy()]
