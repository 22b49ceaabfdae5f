"""The choice of a searcher, by the distance and its rules."""

import torch
from torch import Tensor

from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.distances.dtw import DTW
from likewise.distances.euclidean import Euclidean
from likewise.distances.mean_frames import MeanFrames
from likewise.ops.ground import at_least_float32, zero_padding
from likewise.ops.rules import NONE
from likewise.search import device_windows, euclidean_windows, pivots, stretches, vectors, whole
from likewise.search.device_windows import DeviceWindowSearch
from likewise.search.euclidean_windows import EuclideanWindowSearch
from likewise.search.exhaustive import Exhaustive, Items, lengths_of
from likewise.search.exhaustive_windows import ExhaustiveStretches, ExhaustiveWindows
from likewise.search.found import Searcher
from likewise.search.options import Options
from likewise.search.pivots import PivotSearch
from likewise.search.rerank import EncodedSearch, RerankSearch
from likewise.search.stretches import StretchSearch
from likewise.search.vectors import VectorSearch
from likewise.search.whole import WholeSearch
from likewise.search.windows import WindowSearch

MANY_VECTORS = 4096  # from here on, candidates from a product are faster than all distances


def choose(distance: Distance, items: Items, options: Options) -> Searcher:
    """The fastest searcher that is exact for this distance: exhaustive search if there is no other.

    With ``candidates`` or ``approximate``, one that may miss some. Windows are never encoded as a whole.
    """
    if options.windows:
        assert isinstance(items, Batch)
        return _of_windows(distance, items, options)
    if options.candidates is not None:
        cheap = options.candidates.metric
        if not isinstance(cheap, Distance):
            raise TypeError(f"Index: expected the candidates' metric to be a Distance, got {type(cheap).__name__}")
        proposing = choose(cheap, items, Options(approximate=options.approximate))
        keep = options.candidates.count(len(items))
        return RerankSearch(proposing, comparing(distance), lambda x: encoded(distance, x), items, keep)
    if _embeds(distance):
        inner = choose(comparing(distance), encoded(distance, items), options)
        return EncodedSearch(lambda x: encoded(distance, x), inner, lengths_of(items))
    if type(distance) is MeanFrames and isinstance(items, Batch):
        inner = choose(Euclidean(squared=distance.squared), means(items), options)
        return EncodedSearch(means, inner, lengths_of(items))
    if has_free_ends(distance):
        assert isinstance(items, Batch)
        if isinstance(distance, DTW) and stretches.refusal(distance) is None and _quick(items):
            return StretchSearch(distance, items)
        return ExhaustiveStretches(distance, items)
    if isinstance(distance, DTW) and whole.refusal(distance) is None and isinstance(items, Batch) and _quick(items):
        return WholeSearch(distance, items)
    if vectors.refusal(distance, items) is None:
        assert isinstance(items, Tensor)
        return VectorSearch(distance, items, approximate=options.approximate)
    if isinstance(items, Batch) and _quick(items) and pivots.refusal(distance, items) is None:
        return PivotSearch(distance, items)
    return Exhaustive(distance, items)


def exhaustive(distance: Distance, items: Items) -> Searcher:
    """The searcher that compares every pair of whole items, with which the others must agree."""
    inner = Exhaustive(comparing(distance), encoded(distance, items))
    return EncodedSearch(lambda x: encoded(distance, x), inner, lengths_of(items))


def quick(distance: Distance, items: Items, k: int) -> Searcher | None:
    """A searcher of whole items that is exact and faster than computing all distances; otherwise None.

    For DTW with a band, whose bounds leave few pairs, and for many vectors, if k is small beside the number of items.
    """
    if 4 * k > len(items):
        return None
    if isinstance(distance, DTW) and whole.refusal(distance) is None and isinstance(items, Batch) and _quick(items):
        return WholeSearch(distance, items) if distance.rules.window.kind != NONE else None
    if isinstance(items, Tensor) and len(items) >= MANY_VECTORS and vectors.refusal(distance, items) is None:
        return VectorSearch(distance, items)
    return None


def _of_windows(distance: Distance, items: Batch, options: Options) -> Searcher:
    normalize = options.normalize == "window"
    if isinstance(distance, DTW) and whole.refusal(distance) is None and _quick(items):
        return WindowSearch(distance, items, options.length, normalize=normalize, stretch=options.stretch)
    if isinstance(distance, DTW) and device_windows.refusal(distance, items, options.stretch) is None:
        return DeviceWindowSearch(distance, items, options.length, normalize=normalize)
    if isinstance(distance, Euclidean) and euclidean_windows.refusal(distance, items) is None:
        return EuclideanWindowSearch(distance, items, options.length, normalize=normalize, stretch=options.stretch)
    return ExhaustiveWindows(distance, items, options.length, normalize=normalize, stretch=options.stretch)


def _quick(items: Batch) -> bool:
    """Whether the kernels of the quick searchers take these items."""
    return items.device.type == "cpu" and items.dtype in (torch.float32, torch.float64)


def comparing(distance: Distance) -> Distance:
    """The distance between encoded items: that of a Metric or a SiameseGRU, otherwise the distance itself."""
    return distance.distance if _embeds(distance) else distance  # type: ignore[return-value]


def has_free_ends(distance: Distance) -> bool:
    """Whether a match is a stretch of an item, whose ends the alignment chooses."""
    inner = comparing(distance)
    rules = getattr(inner, "rules", None)
    return bool(
        getattr(inner, "subsequence", False) or getattr(rules, "open_begin", False) or getattr(rules, "open_end", False)
    )


def encoded(distance: Distance, items: Items) -> Items:
    """Items as ``comparing`` takes them: encoded once, if there is an encoder."""
    found = distance.embed(items) if _embeds(distance) else items  # type: ignore[operator]
    assert isinstance(found, (Batch, Tensor))
    return found


def means(items: Items) -> Tensor:
    """Means over time, (N, C), as ``MeanFrames`` computes them."""
    assert isinstance(items, Batch)
    total = at_least_float32(zero_padding(items.values, items.lengths)).sum(1)
    return total / items.lengths[:, None].to(total.device)


def _embeds(distance: Distance) -> bool:
    return callable(getattr(distance, "embed", None))
