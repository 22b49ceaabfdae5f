"""Bounds between settings of one distance: what a distance under one setting says about it under another."""

from collections.abc import Callable

import torch

from likewise.distances.distance import Distance
from likewise.distances.soft_dtw import SoftDTW, SoftDTWDivergence

Factor = Callable[[object, object, int], float]


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
    """Every path costs something, and a number of times the penalty."""
    assert isinstance(a, (int, float))
    assert isinstance(b, (int, float))
    return 1.0 if b >= a else b / a


def _steepness(a: object, b: object, longest: int) -> float:
    """Every cost is weighted: the least ratio of the weights."""
    assert isinstance(a, (int, float))
    assert isinstance(b, (int, float))
    apart = torch.arange(-longest, longest + 1, dtype=torch.float64) / 2
    return float((torch.sigmoid(b * apart) / torch.sigmoid(a * apart)).min())


# By the names of the classes: a distance that is not listed is computed anew for every setting.
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
