"""Rankings of rows of distances: the nearest columns, and the precision with which a row's class is found.

A strip (n, M) holds some rows of a matrix, from ``labels.ready_strip``. NaN marks a column that is ignored: exactly
one in each row, or none at all.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

VOTES_AT_ONCE = 1 << 22  # pairs of votes compared at once


def nearest(strip: Tensor, k: int) -> Tensor:
    """The k nearest columns of each row, (n, k), nearest first; ties are in the order of the columns."""
    values, columns = strip.topk(min(k + 1, strip.shape[1]), largest=False)
    columns = columns[:, :k].sort(1).values
    columns = columns.gather(1, strip.gather(1, columns).sort(dim=1, stable=True).indices)
    # topk breaks ties with the k-th column arbitrarily: in case of ties, sort the entire row.
    tied = (values[:, k - 1] == values[:, -1]).nonzero()[:, 0] if values.shape[1] > k else columns.new_empty(0)
    for some in tied.split(max(1, len(strip) // 8)):
        columns[some] = strip[some].sort(dim=1, stable=True).indices[:, :k]
    return columns


@dataclass(frozen=True)
class Precision:
    """Average precision of each row, (n,) in float64: over all columns, and over the R nearest; 0 where R is 0."""

    full: Tensor
    at_r: Tensor


def average_precision(strip: Tensor, rows: Tensor, columns: Tensor, relevant: Tensor) -> Precision:
    """Average precision of the rows of a strip, whose labels are ``rows`` (n,), among columns with labels (M,).

    relevant (n,): the number of a row's columns with its label. Equal distances count together.
    """
    if strip.device.type == "cpu":
        return _by_binary_search(strip, rows, columns, relevant)
    return _by_sorting(strip, rows, columns, relevant)


def _by_binary_search(strip: Tensor, rows: Tensor, columns: Tensor, relevant: Tensor) -> Precision:
    """Sort values, which in NumPy is much faster than sorting positions, and find the ranks of the relevant ones."""
    found = torch.zeros(2, len(strip), dtype=torch.float64)
    results, hits = found.numpy(), relevant.tolist()
    precision_of = hit_precision(strip, rows, columns, relevant)

    def work(part: range) -> None:
        for i in part:
            if hits[i]:
                precision, rank = precision_of(i)
                results[0, i] = precision.sum() / hits[i]
                results[1, i] = precision[: rank.searchsorted(hits[i], "right")].sum() / hits[i]

    threads = torch.get_num_threads()
    if threads == 1 or strip.numel() < 1 << 16:  # too little work to share
        work(range(len(strip)))
    else:
        with ThreadPoolExecutor(threads) as pool:  # sorting releases the interpreter's lock
            for _ in pool.map(work, (range(first, len(strip), threads) for first in range(threads))):
                pass
    return Precision(*found)


def hit_precision(strip: Tensor, rows: Tensor, columns: Tensor, relevant: Tensor) -> Callable[[int], tuple[Any, Any]]:
    """A function of a row's index: the precision at each of its R relevant columns, nearest first, and their ranks.

    Both are NumPy arrays (R,). A rank is the number of columns that are not farther: equal distances share the last
    rank.
    """
    distances = strip.numpy()
    by_label = columns.argsort(stable=True).numpy()
    ends = columns.bincount(minlength=int(rows.max()) + 1).cumsum(0).tolist()
    members = [by_label[first:last] for first, last in zip([0, *ends], ends, strict=False)]
    labels, hits = rows.tolist(), relevant.tolist()
    counted = torch.arange(1, len(columns) + 1, dtype=torch.float64).numpy()

    def precision_of(i: int) -> tuple[Any, Any]:
        found = distances[i][members[labels[i]]]
        found.sort()
        row = distances[i].copy()
        row.sort()
        rank = row.searchsorted(found[: hits[i]], "right")
        tied = (rank[1:] == rank[:-1]).any()
        return (rank.searchsorted(rank, "right") if tied else counted[: hits[i]]) / rank, rank

    return precision_of


def _by_sorting(strip: Tensor, rows: Tensor, columns: Tensor, relevant: Tensor) -> Precision:
    """Sort positions: fast on GPUs, which sort rows in parallel."""
    values, order = strip.sort(1)
    if values[0, -1].isnan():  # each row's own column is last
        values, order = values[:, :-1].contiguous(), order[:, :-1]
    hit = columns[order] == rows[:, None]
    rank = torch.searchsorted(values, values, right=True)  # the number of columns that are not farther
    precision = hit.cumsum(1).gather(1, rank - 1).double() / rank * hit
    most = relevant.clamp(min=1)
    return Precision(precision.sum(1) / most, (precision * (rank <= relevant[:, None])).sum(1) / most)


def vote(labels: Tensor) -> Tensor:
    """The most frequent (N,) of each row's labels (N, k); ties go to the smallest label."""
    parts = []
    for some in labels.split(max(1, VOTES_AT_ONCE // labels.shape[1] ** 2)):
        count = (some[:, :, None] == some[:, None]).sum(2)  # (n, k)
        rare = count < count.amax(1, keepdim=True)
        parts.append(some.masked_fill(rare, torch.iinfo(some.dtype).max).amin(1))
    return torch.cat(parts)
