"""Which searcher a distance and its rules allow."""

from torch import Tensor

from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.models.metric import Metric
from likewise.search.exhaustive import Exhaustive, Items
from likewise.search.exhaustive_windows import ExhaustiveStretches, ExhaustiveWindows
from likewise.search.found import Searcher
from likewise.search.options import Options


def choose(distance: Distance, items: Items, options: Options) -> Searcher:
    """The quickest searcher that is exact for this distance; exhaustive search where there is no other."""
    if options.windows:
        assert isinstance(items, Batch)
        return _of_windows(distance, items, options)
    if has_free_ends(distance):
        assert isinstance(items, Batch)
        return ExhaustiveStretches(distance, items)
    return Exhaustive(comparing(distance), items)


def _of_windows(distance: Distance, items: Batch, options: Options) -> Searcher:
    normalize = options.normalize == "window"
    return ExhaustiveWindows(distance, items, options.length, normalize=normalize, stretch=options.stretch)


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
