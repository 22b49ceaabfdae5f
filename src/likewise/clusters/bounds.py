"""Bounds on a distance under one setting, from its values under other settings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from likewise.distances.distance import Distance
from likewise.distances.soft_dtw import SoftDTW, SoftDTWDivergence

Factor = Callable[[object, object, int], float]
SLACK = 1e-5  # relative: bounds hold for real numbers, not for rounded ones


@dataclass(frozen=True)
class Interval:
    """Bounds (N, N) float64 of the distances under one setting: low <= D <= high, equal where D is known."""

    distance: Distance
    low: np.ndarray
    high: np.ndarray


def interval(wanted: Distance, known: Sequence[Interval], longest: int, count: int) -> Interval:
    """Bounds of all distances under another setting: from -infinity or 0 to infinity where nothing is known.

    Example:
        >>> from likewise import MSM
        >>> def at(cost, value):
        ...     return Interval(MSM(cost), np.full((1, 1), value), np.full((1, 1), value))
        >>> found = interval(MSM(0.2), [at(0.1, 1.0), at(0.4, 1.6)], 9, 1)
        >>> found.low.round(3), found.high.round(3)
        (array([[1.2]]), array([[1.6]]))
    """
    low, high = np.full((count, count), -np.inf), np.full((count, count), np.inf)
    # Of settings that bound by a factor, the two tightest on average.
    below = [(factor, k) for k in known if (factor := lower_factor(k.distance, wanted, longest)) > 0]
    above = [(factor, k) for k in known if (factor := lower_factor(wanted, k.distance, longest)) > 0]
    for factor, k in sorted(below, key=lambda pair: -pair[0] * _mean(pair[1].low))[:2]:
        np.maximum(low, k.low * factor, out=low)
    for factor, k in sorted(above, key=lambda pair: _mean(pair[1].high) / pair[0])[:2]:
        np.minimum(high, k.high / factor, out=high)
    exact = low == high  # between two equal values
    for name in LINEAR.get(type(wanted).__name__, ()):
        _bend(wanted, name, known, low, high)
    low, high = np.where(exact, low, low - SLACK * np.abs(low)), np.where(exact, high, high + SLACK * np.abs(high))
    return Interval(wanted, low, np.maximum(low, high))


def _bend(wanted: Distance, name: str, known: Sequence[Interval], low: np.ndarray, high: np.ndarray) -> None:
    """Tighten bounds by concavity: a concave function of a setting lies above its chords and below their extensions.

    The cost of every path is linear in the setting; the distance, their minimum, is concave.
    """
    config = wanted.config()  # type: ignore[operator]
    others = {key: value for key, value in config.items() if key != name}
    line: dict[float, Interval] = {}
    for k in known:
        settings = k.distance.config()  # type: ignore[operator]
        if all(settings[key] == value for key, value in others.items()):
            line[float(settings[name])] = k
    at = float(config[name])
    left = sorted((value for value in line if value < at), reverse=True)[:2]
    right = sorted(value for value in line if value > at)[:2]
    if left and right:
        share = (at - left[0]) / (right[0] - left[0])
        np.maximum(low, (1 - share) * line[left[0]].low + share * line[right[0]].low, out=low)
    for side in (left, right):
        if len(side) == 2:
            near, far = side
            beyond = (at - near) / (near - far)
            one, other = (1 + beyond) * line[near].high, beyond * line[far].low
            np.minimum(high, one - other + SLACK * (np.abs(one) + np.abs(other)), out=high)


def _mean(bounds: np.ndarray) -> float:
    return float(bounds.mean())


def lower_factor(known: Distance, wanted: Distance, longest: int) -> float:
    """The largest known f with wanted(x, y) >= f known(x, y) for all sequences of up to ``longest`` steps.

    0 if nothing is known. Settings that differ are compared one by one, and their factors multiply.

    Example:
        >>> from likewise import DTW
        >>> lower_factor(DTW(band=10), DTW(band=3), 100), lower_factor(DTW(band=3), DTW(band=10), 100)
        (1.0, 0.0)
    """
    if type(known) is not type(wanted) or not hasattr(known, "config"):
        return 0.0
    if any(True for _ in known.parameters()):
        return 0.0
    a, b = known.config(), wanted.config()  # type: ignore[operator]
    factor = 1.0
    for name in a:
        if a[name] is b[name] or a[name] == b[name]:
            continue
        rule = _rule(wanted, name)
        factor *= 0.0 if rule is None else rule(a[name], b[name], longest)
    return factor


def _rule(distance: Distance, name: str) -> Factor | None:
    kind = type(distance).__name__
    if isinstance(distance, SoftDTWDivergence):
        return None
    if name == "band":
        return _band
    if isinstance(distance, SoftDTW) and name == "gamma":
        return _falling  # a softer minimum is lower
    return RULES.get((kind, name))


def _band(a: object, b: object, longest: int) -> float:
    """A narrower band leaves fewer paths."""
    if a is None:
        return 1.0
    if b is None or isinstance(a, float) != isinstance(b, float):
        return 0.0
    return float(b <= a)  # type: ignore[operator]


def _falling(a: object, b: object, longest: int) -> float:
    """The distance falls as the setting grows."""
    return float(isinstance(a, (int, float)) and isinstance(b, (int, float)) and b <= a)


def _penalty(a: object, b: object, longest: int) -> float:
    """The cost of a path is a constant plus a multiple of the penalty."""
    assert isinstance(a, (int, float))
    assert isinstance(b, (int, float))
    return 1.0 if b >= a else b / a


def _steepness(a: object, b: object, longest: int) -> float:
    """All costs are weighted: the factor is the smallest ratio of the weights."""
    assert isinstance(a, (int, float))
    assert isinstance(b, (int, float))
    apart = torch.arange(-longest, longest + 1, dtype=torch.float64) / 2
    return float((torch.sigmoid(b * apart) / torch.sigmoid(a * apart)).min())


# By class name. A distance that is not listed is computed anew for every setting.
RULES: dict[tuple[str, str], Factor] = {
    ("ADTW", "penalty"): _penalty,
    ("EDR", "epsilon"): _falling,
    ("LCSS", "epsilon"): _falling,
    ("MSM", "cost"): _penalty,
    ("TWE", "penalty"): _penalty,
    ("TWE", "stiffness"): _penalty,
    ("WDDTW", "steepness"): _steepness,
    ("WDTW", "steepness"): _steepness,
}

# Settings that every path's cost is a linear function of.
LINEAR: dict[str, tuple[str, ...]] = {
    "ADTW": ("penalty",),
    "MSM": ("cost",),
    "TWE": ("penalty", "stiffness"),
}
