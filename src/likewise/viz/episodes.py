"""Accuracy of few-shot episodes."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes

from likewise import _check
from likewise.viz._axes import BLUE, GREY, ensure_axes


class Score(Protocol):
    """The result of ``likewise.few_shot_accuracy``."""

    @property
    def accuracy(self) -> float:
        """Between 0 and 1."""
        ...

    @property
    def interval(self) -> float:
        """Half the width of the 95 % interval."""
        ...


def plot_episode_accuracy(
    scores: Mapping[str, Score | tuple[float, float]], *, chance: float | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the mean accuracy of episodes by method, with its 95 % interval, the first method on top.

    scores: for each name, the result of ``few_shot_accuracy``, or (accuracy, interval) as shares of 1.
    chance: accuracy of guessing, 1 / ways, as a dashed line.

    Example:
        >>> from likewise import viz
        >>> from matplotlib.figure import Figure
        >>> scores = {"DTW": (0.9, 0.01), "TAP": (0.95, 0.005)}
        >>> ax = viz.plot_episode_accuracy(scores, chance=0.2, ax=Figure().subplots())
        >>> [text.get_text() for text in ax.texts]
        ['90.0 ± 1.0', '95.0 ± 0.5']
    """
    op = "plot_episode_accuracy"
    if not isinstance(scores, Mapping) or not scores:
        raise TypeError(f"{op}: expected a mapping from names to scores, not empty, got {type(scores).__name__}")
    pairs = [_pair(op, name, score) for name, score in scores.items()]
    accuracies, intervals = 100 * np.array(pairs).T
    rows = np.arange(len(pairs))
    ax = ensure_axes(op, ax, 5.0, 1.0 + 0.36 * len(pairs))
    ax.errorbar(accuracies, rows, xerr=intervals, fmt="o", color=BLUE, capsize=3, markersize=5)
    for row, (accuracy, interval) in enumerate(zip(accuracies, intervals, strict=True)):
        ax.annotate(
            f"{accuracy:.1f} ± {interval:.1f}", (accuracy, row), xytext=(0, 6), textcoords="offset points",
            ha="center", fontsize="small",
        )  # fmt: skip
    if chance is not None:
        ax.axvline(100 * chance, color=GREY, linestyle="--", linewidth=1)
    ax.set_yticks(rows, list(scores))
    ax.set_ylim(len(pairs) - 0.5, -0.7)
    ax.margins(x=0.15)
    ax.set_xlabel("accuracy of episodes in %, with the 95 % interval")
    ax.grid(axis="x", color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


def _pair(op: str, name: str, score: Any) -> tuple[float, float]:
    pair = (score.accuracy, score.interval) if hasattr(score, "accuracy") else tuple(score)
    if len(pair) != 2 or not 0 <= pair[0] <= 1 or not pair[1] >= 0:
        _check.refuse(op, f"expected {name} to have an accuracy in 0..1 and an interval of 0 or more, got {pair}")
    return pair
