"""Every window of long series under Euclidean: a convolution gives all distances, the distance itself decides."""

import math
import time

import numpy as np
import torch
from torch import Tensor

from likewise._modes import evaluating
from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.distances.euclidean import Euclidean
from likewise.ops.ground import at_least_float32
from likewise.search.exhaustive_windows import select
from likewise.search.found import Found, Stats, keep_apart
from likewise.search.mass import mass, moments
from likewise.search.normalization import window_lengths, znormalize

SLACK = 1e-5  # of distances in float32
LARGEST = 1e15  # from here on squares overflow, or lose what is small beside them


class EuclideanWindowSearch:
    """The nearest windows of every item under Euclidean, exactly: equal to comparing each query with every window.

    The squared distances of all windows come from one convolution in float64, in O(T log T). They are off by rounding:
    windows that may be among the matches are compared by the distance itself. Arguments as for ``ExhaustiveWindows``.

    Example:
        >>> series = Batch.from_list([[0.0, 0.0, 1.0, 2.0, 0.0]])
        >>> found = EuclideanWindowSearch(Euclidean(), series).search(
        ...     Batch.from_list([[1.0, 2.0]]), k=1, within=None, exclude=0.5
        ... )
        >>> found.starts, found.ends
        (tensor([[2]]), tensor([[4]]))

    Reference: Mueen et al. (2017), MASS.
    """

    method = "convolution, re-ranked"

    def __init__(
        self,
        distance: Euclidean,
        items: Batch,
        length: int | None = None,
        *,
        normalize: bool = False,
        stretch: tuple[float, float] | None = None,
    ) -> None:
        self.distance = distance
        self.items = Batch(at_least_float32(items.values), items.lengths)
        self.length = length
        self.normalize = normalize
        self.stretch = stretch

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
        """The hits of each query. Memory: one distance a window, for one query at a time."""
        start, seen, compared, rows = time.perf_counter(), 0, 0, []
        with torch.no_grad(), evaluating(self.distance):
            for q, query in enumerate(queries):
                lengths = window_lengths(self.length or len(query), self.stretch)
                rough, error, places = self._rough(query, lengths, -1 if skip is None else int(skip[q]))
                near = self._near(rough, error, places, k, within, exclude)
                D = self._exact(query, places[:, near])
                seen, compared = seen + len(rough), compared + len(D)
                rows.append(select(D, places[:, near], self.items.lengths.tolist(), k, within, exclude))
        stats = Stats(self.method, seen, {"convolution": seen - compared}, seconds=time.perf_counter() - start)
        return Found.from_rows(rows, stats, self.items.dtype)

    def _rough(self, query: Tensor, lengths: list[int], skip: int) -> tuple[Tensor, Tensor, Tensor]:
        """Squared distances of all windows and their largest errors, (W,) each, and their places (3, W)."""
        parts, errors, places = [], [], []
        for item, series in enumerate(self.items):
            for length in lengths if item != skip else ():
                if length > len(series):
                    continue
                # Euclidean compares the steps that both have, after both were normalised.
                steps = min(length, len(query))
                squared, error = self._squares(query, series, length, steps)
                first = torch.arange(len(series) - length + 1)
                parts.append(squared[: len(first)])
                errors.append(error[: len(first)])
                places.append(torch.stack([torch.full_like(first, item), first, first + length]))
        if not parts:
            return torch.empty(0), torch.empty(0), torch.empty(3, 0, dtype=torch.int64)
        squared, error, where = torch.cat(parts), torch.cat(errors), torch.cat(places, 1)
        if len(lengths) > 1:  # by item, start and end
            order = where[2].argsort(stable=True)
            order = order[where[1][order].argsort(stable=True)]
            order = order[where[0][order].argsort(stable=True)]
            squared, error, where = squared[order], error[order], where[:, order]
        return squared, error, where

    def _squares(self, query: Tensor, series: Tensor, length: int, steps: int) -> tuple[Tensor, Tensor]:
        x, y = query.double().numpy(), series.double().numpy()
        count = len(y) - length + 1
        other = steps < max(len(query), length)
        if self.normalize and other:  # no convolution: all are compared
            return torch.zeros(count), torch.full((count,), math.inf)
        if max(np.abs(x).max(initial=0), np.abs(y).max(initial=0)) > LARGEST:
            return torch.zeros(count), torch.full((count,), math.inf)
        squared = mass(x[:steps], y, normalize=self.normalize)
        error = rounding(x[:steps], y, normalize=self.normalize)
        return torch.from_numpy(squared), torch.from_numpy(error)

    def _near(
        self, squared: Tensor, error: Tensor, places: Tensor, k: int | None, within: float | None, exclude: float
    ) -> Tensor:
        """Positions of the windows that may be among the matches."""
        low, high = (squared - error).clamp(min=0).sqrt(), (squared + error).sqrt()
        most = math.inf
        if k is not None:
            # Of 2 k - 1 windows that lie apart, k remain whatever else is found: one match drops two of them at most.
            wanted = 2 * k - 1 if exclude > 0 else k
            order = high.argsort(stable=True)
            order = order[high[order] < math.inf]
            items, starts, ends = places[:, order]
            kept = keep_apart(items, starts, ends, self.items.lengths.tolist(), exclude, wanted)
            if len(kept) == wanted:
                most = float(high[order[kept[-1]]])
        if within is not None:
            most = min(most, math.sqrt(max(within, 0.0)) if self.distance.squared else within)
        numbers = int((places[2] - places[1]).max()) * self.items.channels if places.shape[1] else 0
        rounded = SLACK * 0.1 * math.sqrt(numbers) if self.normalize else 0.0  # normalised samples in float32
        return (low <= most * (1 + SLACK + 1e-7 * numbers) + rounded).nonzero()[:, 0]

    def _exact(self, query: Tensor, places: Tensor) -> Tensor:
        """Distances (K,) of a query to the windows at these places, as the distance itself computes them."""
        query = (znormalize(query) if self.normalize else query)[None]
        D = query.new_empty(places.shape[1])
        lengths = places[2] - places[1]
        for length in lengths.unique().tolist():
            for rows in (lengths == length).nonzero()[:, 0].split(4096):
                windows = self.items.values[places[0, rows][:, None], places[1, rows][:, None] + torch.arange(length)]
                windows = znormalize(windows) if self.normalize else windows
                D[rows] = self.distance.matrix(query, windows)[0]
        return D


def rounding(query: np.ndarray, series: np.ndarray, *, normalize: bool) -> np.ndarray:
    """What rounding may do to ``mass``, at most: (T - m + 1,).

    A convolution by FFT of T points is off by a few epsilons log2 T times the norms of what is convolved.
    """
    count, length = len(series) - len(query) + 1, len(query)
    centred = series - series.mean(0)
    digits = 2.3e-16 * 64 * math.log2(2 + len(series) + length)
    norm = np.sqrt((centred**2).sum(0))  # of each channel
    if not normalize:
        moved = query - series.mean(0)
        size = norm * np.sqrt((moved**2).sum(0)) + norm**2 + (moved**2).sum(0)
        return np.full(count, digits * float(size.sum()))
    _, deviation = moments(series, length)
    largest = np.abs(series).max(0, initial=0)
    own = math.sqrt(length)
    lost = digits * (norm + length * largest) * own
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(deviation > 0, 2 * lost / np.where(deviation > 0, deviation, 1), 0)
    return each.sum(1) + 1e-12 * length * series.shape[1]


def refusal(distance: Distance, items: Batch) -> str | None:
    """Why windows are not compared by convolution; None if they are.

    Example:
        >>> from likewise import DTW
        >>> refusal(DTW(), Batch(torch.zeros(1, 4, 1))), refusal(Euclidean(), Batch(torch.zeros(1, 4, 1)))
        ('it is DTW, not Euclidean', None)
    """
    if type(distance) is not Euclidean:
        return f"it is {type(distance).__name__}, not Euclidean"
    if items.device.type != "cpu" or items.dtype not in (torch.float32, torch.float64):
        return "items are not float32 or float64 on the CPU"
    return None
