"""The outcome of a selection: the scores of each candidate, and the winner."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from likewise.evaluation.intervals import bootstrap_interval
from likewise.evaluation.significance import paired_test
from likewise.models.metric import Metric

REAL = 0.05  # the p-value below which a difference is called real
SCORES = {"map": "MAP", "accuracy": "1-NN accuracy"}  # by which a metric may be chosen


@dataclass(frozen=True)
class Result:
    """The scores of a candidate on the validation items.

    map, interval: mean average precision, and its 95 % bootstrap interval. accuracy: of the nearest neighbour.
    precision: the average precision of each validation item; None where no reference is of its class. right: whether
        its nearest neighbour is of its class.
    epochs, steps, seconds: of training so far, validation included; best_steps: those before the best score.
    pace, scoring: the seconds of an epoch, and of a score. rounds: how many it took part in.
    left_out: why it was not tried; its numbers are then 0.

    Example:
        >>> Result("tap", "TAP between frames", True, map=0.9).as_dict()["map"]
        0.9
    """

    name: str
    about: str
    learns: bool
    map: float = 0.0
    interval: tuple[float, float] = (0.0, 0.0)
    accuracy: float = 0.0
    epochs: int = 0
    steps: int = 0
    best_steps: int = 0
    seconds: float = 0.0
    pace: float = 0.0
    scoring: float = 0.0
    rounds: int = 0
    left_out: str | None = None
    precision: tuple[float | None, ...] = ()
    right: tuple[bool, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """All but the scores of each item, for JSON."""
        return {name: value for name, value in asdict(self).items() if name not in ("precision", "right")}

    def scores(self, by: str) -> tuple[float, float]:
        """The score to choose by, and the one that decides between equals."""
        return (self.map, self.accuracy) if by == "map" else (self.accuracy, self.map)

    def of_items(self, score: str) -> tuple[float | None, ...]:
        """The average precision of each validation item, or 1 and 0 for a right and a wrong nearest neighbour."""
        return self.precision if score == "map" else tuple(map(float, self.right))


@dataclass(frozen=True)
class Difference:
    """How much better one result is than another on the same items: mean, 95 % interval, and p.

    p: of the sign-flip permutation test over items; see ``paired_test``. With groups, the interval draws whole groups,
    and the test flips the signs of whole groups.

    Example:
        >>> Difference(0.1, (0.05, 0.15), 0.003).is_real
        True
    """

    mean: float
    interval: tuple[float, float]
    p: float

    @property
    def is_real(self) -> bool:
        """Whether chance is an unlikely explanation: p below 0.05."""
        return self.p < REAL


def compare(one: Result, other: Result, groups: Sequence[str] | None = None, score: str = "map") -> Difference:
    """Compare two results item by item, by their "map" or "accuracy".

    Example:
        >>> a = Result("a", "", True, precision=(1.0, 0.9, 0.8, 1.0, 0.9, 0.8))
        >>> b = Result("b", "", True, precision=(0.5, 0.6, 0.7, 0.6, 0.5, 0.6))
        >>> compare(a, b).is_real, round(compare(a, b).mean, 3)
        (True, 0.317)
    """
    pairs = [
        (i, x, y)
        for i, (x, y) in enumerate(zip(one.of_items(score), other.of_items(score), strict=True))
        if x is not None and y is not None
    ]
    differences = torch.tensor([x - y for _, x, y in pairs], dtype=torch.float64)
    if groups is None:
        p = paired_test([x for _, x, _ in pairs], [y for _, _, y in pairs]).permutation
        return Difference(float(differences.mean()), bootstrap_interval(differences), p)
    names = [groups[i] for i, _, _ in pairs]
    sums: dict[str, float] = dict.fromkeys(names, 0.0)
    for name, difference in zip(names, differences.tolist(), strict=True):
        sums[name] += difference
    p = paired_test(list(sums.values()), [0.0] * len(sums)).permutation
    return Difference(float(differences.mean()), bootstrap_interval(differences, groups=names), p)


@dataclass(frozen=True, eq=False)
class Selection:
    """The result of ``select``.

    metric: the best candidate, with its best weights, trained for ``refit`` more steps with all items. validated: the
    metric without these steps; None if there were none. results: all candidates, best first. queries: how many items
    they were scored on. groups: of these items, or None. by: the score that chose. complete: whether the search ended
    by itself. log: the log.csv of the winner's training, or None.

    Example:
        >>> from likewise.distances import DTW
        >>> results = Result("dtw", "DTW", False, 0.9, (0.8, 1.0), 0.95, precision=(0.8, 1.0)),
        >>> print(Selection(Metric(None, DTW()), results, 2, 1.0))
        dtw (DTW) is the best: MAP 0.900 (95 % interval 0.800 to 1.000) and 1-NN accuracy 0.950 on 2 validation items.
    """

    metric: Metric
    results: tuple[Result, ...]
    queries: int
    seconds: float
    complete: bool = True
    log: Path | None = None
    groups: tuple[str, ...] | None = None
    by: str = "map"
    validated: Metric | None = None
    refit: int = 0

    @property
    def scored(self) -> Metric:
        """The metric that the scores belong to."""
        return self.metric if self.validated is None else self.validated

    @property
    def best(self) -> Result:
        """The winner."""
        return self.results[0]

    @property
    def tried(self) -> tuple[Result, ...]:
        """The results that have numbers, best first."""
        return tuple(result for result in self.results if result.left_out is None)

    def against(self, other: Result, score: str | None = None) -> Difference:
        """How much better the winner is than another result, by the deciding score or another one."""
        return compare(self.best, other, self.groups, self.by if score is None else score)

    def __str__(self) -> str:
        """One paragraph: which won, by how much, and whether the difference is real."""
        best, others = self.best, self.tried[1:]
        low, high = best.interval
        text = (
            f"{best.name} ({best.about}) is the best: MAP {best.map:.3f} (95 % interval {low:.3f} to {high:.3f}) and "
            f"1-NN accuracy {best.accuracy:.3f} on {self.queries} validation items."
        )
        untrained = next((other for other in others if not other.learns), None)
        if untrained is not None:
            text += f" {self._said(untrained, ', which learns nothing,')}"
        following = next((other for other in others if other is not untrained), None)
        if following is not None:
            text += f" {self._said(following, ', the next best,' if following is others[0] else '')}"
        text += self._said_of_the_other_score()
        if len(self.tried) > 1:
            text += " The winner was chosen on these items, so expect slightly less on new ones."
        if self.refit:
            text += f" Then it was trained for {self.refit:,} more steps with all items, including these."
        return text if self.complete else f"{text} The search was stopped before its end."

    def _said(self, other: Result, what: str) -> str:
        difference = self.against(other)
        return (
            f"{other.name}{what} reaches {other.scores(self.by)[0]:.3f}: the difference of {difference.mean:.3f} "
            f"{_verdict(difference)}."
        )

    def _said_of_the_other_score(self) -> str:
        """Which candidate is ahead by the other score, if one is."""
        score = "accuracy" if self.by == "map" else "map"
        first = max(self.tried, key=lambda result: result.scores(score))
        if first.scores(score)[0] <= self.best.scores(score)[0]:
            return ""
        difference = self.against(first, score)
        return (
            f" By {SCORES[score]}, {first.name} is ahead with {first.scores(score)[0]:.3f}: the difference of "
            f"{-difference.mean:.3f} {_verdict(difference, turned=True)}."
        )


def _verdict(difference: Difference, *, turned: bool = False) -> str:
    low, high = (-end for end in reversed(difference.interval)) if turned else difference.interval
    p = "p < 0.001" if difference.p < 1e-3 else f"p = {difference.p:.2g}"
    real = "is real" if difference.is_real else "could be chance"
    return f"({low:.3f} to {high:.3f}) {real} ({p}, paired permutation test)"
