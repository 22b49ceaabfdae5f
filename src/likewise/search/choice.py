"""Which searcher a distance and its rules allow."""

import torch
from torch import Tensor

from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.distances.dtw import DTW
from likewise.models.metric import Metric
from likewise.search import stretches, whole
from likewise.search.exhaustive import Exhaustive, Items
from likewise.search.exhaustive_windows import ExhaustiveStretches, ExhaustiveWindows
from likewise.search.found import Searcher
from likewise.search.options import Options
from likewise.search.stretches import StretchSearch
from likewise.search.whole import WholeSearch
from likewise.search.windows import WindowSearch


def choose(distance: Distance, items: Items, options: Options) -> Searcher:
    """The quickest searcher that is exact for this distance; exhaustive search where there is no other."""
    if options.windows:
        assert isinstance(items, Batch)
        return _of_windows(distance, items, options)
    inner = comparing(distance)
    if has_free_ends(distance):
        assert isinstance(items, Batch)
        if isinstance(inner, DTW) and stretches.refusal(inner) is None and _quick(items):
            return StretchSearch(inner, items)
        return ExhaustiveStretches(distance, items)
    if isinstance(inner, DTW) and whole.refusal(inner) is None and isinstance(items, Batch) and _quick(items):
        return WholeSearch(inner, items)
    return Exhaustive(inner, items)


def _of_windows(distance: Distance, items: Batch, options: Options) -> Searcher:
    normalize = options.normalize == "window"
    if isinstance(distance, DTW) and whole.refusal(distance) is None and _quick(items):
        return WindowSearch(distance, items, options.length, normalize=normalize, stretch=options.stretch)
    return ExhaustiveWindows(distance, items, options.length, normalize=normalize, stretch=options.stretch)


def _quick(items: Batch) -> bool:
    """Whether the kernels of the quick searchers take these items."""
    return items.device.type == "cpu" and items.dtype in (torch.float32, torch.float64)


def comparing(distance: Distance) -> Distance:
    """What compares encoded items: the distance of a Metric, or the distance itself."""
    return distance.distance if isinstance(distance, Metric) else distance


def has_free_ends(distance: Distance) -> bool:
    """Whether a match is a stretch of an item, whose ends the alignment chooses."""
    inner = comparing(distance)
    rules = getattr(inner, "rules", None)
    return bool(
        getattr(inner, "subsequence", False) or getattr(rules, "open_begin", False) or getattr(rules, "open_end", False)
    )


def encoded(distance: Distance, items: Items) -> Items:
    """Items as ``comparing`` takes them: encoded once, if there is an encoder."""
    found = distance.embed(items) if isinstance(distance, Metric) else items
    assert isinstance(found, (Batch, Tensor))
    return found
