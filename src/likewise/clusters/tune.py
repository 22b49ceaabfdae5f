"""tune: the settings of a distance that classify the training set best."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise._labels import labelled, number_labels, read_labels
from likewise._modes import evaluating
from likewise._progress import track
from likewise.clusters.bounds import Interval, interval, lower_factor
from likewise.clusters.leave_one_out import nearest_are_right, nearest_by_index
from likewise.data.batch import as_sequences
from likewise.distances.distance import Distance
from likewise.models.metric import Metric

KEPT_NUMBERS = 1 << 27  # bounds of earlier settings that are kept
MANY_ITEMS = 1000  # items from which on an index may be faster
FEW = 0.1  # share of all pairs: an index whose bounds leave more is slower


@dataclass(frozen=True)
class Tuning:
    """The result of ``tune``.

    distance: with the best setting. setting: what of it was tuned. accuracy: its leave-one-out accuracy.
    settings: all of them, in the grid's order. accuracies: (S,) float64.
    computed: the number of distances that were computed. seconds: wall time.

    Example:
        >>> from likewise import DTW, tune
        >>> found = tune(DTW(), ([[0.0, 1.0], [1.0, 0.0], [0.0, 1.1]], ["up", "down", "up"]), {"band": [0, 1]})
        >>> found
        Tuning(DTW(ground='sqeuclidean', band=0), band=0: 66.7 % of 3, best of 2 settings)
        >>> found.rows()[0]
        {'band': 0, 'accuracy': 0.6666666666666666}
    """

    distance: Distance
    setting: Mapping[str, Any]
    accuracy: float
    settings: tuple[Mapping[str, Any], ...]
    accuracies: Tensor
    items: int
    computed: int
    seconds: float

    def rows(self) -> list[dict[str, Any]]:
        """One mapping for each setting, for tables, in the grid's order."""
        pairs = zip(self.settings, self.accuracies.tolist(), strict=True)
        return [{**setting, "accuracy": accuracy} for setting, accuracy in pairs]

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name}={value}" for name, value in self.setting.items()) or "as given"
        share = f"{100 * self.accuracy:.1f} % of {self.items:,}"
        count = len(self.settings)
        return f"Tuning({self.distance!r}, {chosen}: {share}, best of {count} setting{'s' * (count != 1)})"


def tune(
    distance: Distance,
    train: object,
    grid: Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]],
    *,
    most: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Tuning:
    """Choose settings of a distance by the accuracy of 1-NN on the training set, each item left out of its own.

    distance: any distance; settings that the grid does not name stay as they are. Of a Metric, the settings of its
        distance are tuned, on items that are encoded once.
    train: a labelled Dataset, or a pair (items, labels).
    grid: values for each setting by name, all of whose combinations are tried; or a list of settings.
    most: use at most that many items, drawn at random by ``seed``.
    progress: draw a bar on stderr.

    The accuracies are those of the whole matrices of distances; of equally near items the first counts. Of equally
    accurate settings the first in the grid wins, so begin with what you prefer, such as the cheapest.

    A distance under some settings often bounds it under others: DTW only grows as its band narrows; MSM, TWE and ADTW
    are concave functions of their penalties. Then only pairs are computed that can still change an item's nearest
    class, and elastic distances abandon a pair that is too far. Other distances, and other settings, take one matrix
    each. Among 1,000 items or more, an index finds the nearest under DTW with a band, if its bounds rule out most
    pairs. Memory: bounds (N, N) of some settings, 1 GB at most, or of two.

    Example:
        >>> from likewise import DTW
        >>> items = [[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 1.0]]
        >>> found = tune(DTW(), (items, ["peak", "peak", "dip", "dip"]), {"band": [0, 1, 2]})
        >>> found.setting, found.accuracies.tolist()
        ({'band': 1}, [0.5, 1.0, 1.0])
    """
    began = time.perf_counter()
    if not isinstance(distance, Distance):
        raise TypeError(f"tune: expected distance to be a Distance, got {type(distance).__name__}")
    settings = read_grid(grid)
    inner = distance.distance if isinstance(distance, Metric) else distance
    candidates = [_with(inner, setting) for setting in settings]
    x, lengths, codes = _read_items(distance, train, most, seed)
    longest = x.shape[1] if lengths is None else int(lengths.max())
    factors = torch.tensor([[lower_factor(a, b, longest) for b in candidates] for a in candidates])
    correct, computed = torch.zeros(len(settings), len(x), dtype=torch.bool), 0
    known: list[Interval] = []
    indexed = len(x) >= MANY_ITEMS  # while bounds leave few pairs to compare
    room = max(2, KEPT_NUMBERS // max(1, 2 * len(x) ** 2))
    steps: Iterable[int] = order_of(settings, factors)
    if progress:
        steps = track(steps, f"{inner.name}: {len(settings):,} settings, {len(x):,} items", len(settings))
    with evaluating(distance, *candidates):
        for step in steps:
            if indexed:
                found = nearest_by_index(candidates[step], x, lengths, codes)
                if found is not None:
                    correct[step], computed = torch.from_numpy(found.correct), computed + found.computed
                    indexed = found.computed <= FEW * len(x) ** 2
                    continue
                indexed = False
            bounds = interval(candidates[step], known, longest, len(x))
            start = bounds if np.isfinite(bounds.low).any() else None
            found = nearest_are_right(candidates[step], x, lengths, codes, start)
            correct[step], computed = torch.from_numpy(found.correct), computed + found.computed
            known = [*known, found.bounds][-room:]
    accuracies = correct.double().mean(1)
    best = int(accuracies.argmax())  # the first
    chosen = candidates[best]
    return Tuning(
        Metric(distance.encoder, chosen) if isinstance(distance, Metric) else chosen,
        settings[best],
        float(accuracies[best]),
        tuple(settings),
        accuracies,
        len(x),
        computed,
        time.perf_counter() - began,
    )


def read_grid(grid: object) -> list[dict[str, Any]]:
    """All settings of a grid, in its order; the last name varies fastest.

    Example:
        >>> read_grid({"band": [0, 1], "normalize": [None]})
        [{'band': 0, 'normalize': None}, {'band': 1, 'normalize': None}]
    """
    if isinstance(grid, Mapping):
        values = {name: _values(str(name), given) for name, given in grid.items()}
        settings = [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
    elif isinstance(grid, Sequence) and not isinstance(grid, str) and all(isinstance(g, Mapping) for g in grid):
        settings = [dict(setting) for setting in grid]
    else:
        raise TypeError(
            f"tune: expected grid to be {{name: values}} or a list of {{name: value}}, got {type(grid).__name__}"
        )
    if not settings:
        _check.refuse("tune", "the grid has no settings")
    return settings


def order_of(settings: Sequence[Mapping[str, Any]], factors: Tensor) -> list[int]:
    """An order of the settings in which earlier ones bound later ones well, given ``lower_factor`` (S, S).

    It begins with the setting that bounds most others, and goes on with the one that is farthest from all before, as
    ranks in the grid: the ends first, then halfway between known ones.

    Example:
        >>> order_of([{"band": b} for b in (0, 1, 2, 3, 4)], torch.ones(5, 5).tril())
        [4, 0, 2, 1, 3]
    """
    names = list(settings[0])
    ranks = np.zeros((len(settings), len(names)))
    for column, name in enumerate(names):
        values: list[Any] = [setting.get(name) for setting in settings]
        if all(isinstance(value, (int, float)) for value in values):
            _, ranks[:, column] = np.unique(values, return_inverse=True)
        else:
            ranks[:, column] = [values.index(value) for value in values]
    ranks /= np.maximum(ranks.max(0), 1)
    order = [int(factors.sum(1).argmax())]
    apart = np.abs(ranks - ranks[order[0]]).sum(1)
    while len(order) < len(settings):
        apart[order] = -1
        order.append(int(apart.argmax()))
        apart = np.minimum(apart, np.abs(ranks - ranks[order[-1]]).sum(1))
    return order


def _values(name: str, given: object) -> list[Any]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise TypeError(f"tune: expected values for {name!r} in the grid, such as [1, 2], got {given!r}")
    return [value.item() if isinstance(value, (np.generic, Tensor)) else value for value in given]


def _with(distance: Distance, setting: Mapping[str, Any]) -> Distance:
    """A distance like this one with another setting."""
    config = dict(distance.config()) if hasattr(distance, "config") else {}  # type: ignore[operator]
    unknown = [name for name in setting if config and name not in config]
    if unknown:
        known = ", ".join(config)
        _check.refuse("tune", f"{distance.name} has no setting {unknown[0]!r}; it has {known}")
    try:
        return type(distance)(**{**config, **setting})
    except TypeError as error:
        raise TypeError(f"tune: {distance.name} does not take {dict(setting)}: {error}") from error


def _read_items(
    distance: Distance, train: object, most: int | None, seed: int
) -> tuple[Tensor, Tensor | None, np.ndarray]:
    """Items (N, T, C), their lengths, and the codes of their labels."""
    items, labels = labelled("tune", "train", train)
    if isinstance(distance, Metric):
        items = distance.embed(items)
        items = items[:, None] if isinstance(items, Tensor) and items.ndim == 2 else items
    x, lengths = as_sequences("tune", "train", items)
    _, (codes,) = number_labels(read_labels("tune", "labels", labels, len(x)))
    if len(x) < 2:
        _check.refuse("tune", f"expected at least two items, got {len(x)}")
    chosen = torch.arange(len(x))
    if most is not None and _check.whole("tune", "most", most, least=2) < len(x):
        chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:most].sort().values
    lengths = None if lengths is None else lengths[chosen]
    return x.detach()[chosen.to(x.device)], lengths, codes[chosen.numpy()]
