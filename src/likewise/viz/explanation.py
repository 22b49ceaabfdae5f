"""Plots of why two sequences match: their segments, and the cost of each step."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Polygon

from likewise import _check
from likewise.viz._axes import GREY, X_COLOR, Y_COLOR, ensure_axes, stacked, whole_numbers
from likewise.viz._classes import class_colors
from likewise.viz._inputs import to_numpy

MOST_CHANNELS = 8  # channels in the stack of costs; more are drawn as one
NARROWEST = 0.07  # share of the width below which a segment is not named


def plot_explanation(explanation: Any, *, channel: int | None = None, ax: Axes | None = None) -> Axes:
    """Draw an ``Explanation``: the query above its match, joined by segments, and below it the cost of each step.

    A segment is a ribbon from steps of the query to steps of the match, with its shift (steps) and its stretch. Costs
    are stacked by channel. A dotted line shows the costs of the steps for the nearest item of another class.

    explanation: from ``hits.explain``. channel: the one to draw; by default all. ax: divided into two panels; it keeps
    the upper one.

    Example:
        >>> from likewise import DTW, Index, viz
        >>> from matplotlib.figure import Figure
        >>> why = Index(DTW(), [[0.0, 1.0, 3.0], [5.0, 5.0, 5.0]]).search([[0.0, 1.0, 2.0]], k=1).explain()
        >>> ax = viz.plot_explanation(why, ax=Figure().subplots())
        >>> len(ax.figure.axes), ax.get_title()
        (2, 'DTW 1 to 0')
    """
    op = "plot_explanation"
    if not hasattr(explanation, "segments") or not hasattr(explanation, "by_step"):
        raise TypeError(f"{op}: expected an Explanation, from hits.explain, got {type(explanation).__name__}")
    query, match = (_frames(part) for part in (explanation.query, explanation.match))
    if channel is not None:
        channel = _check.whole(op, "channel", channel, least=0, most=query.shape[1] - 1)
        query, match = query[:, [channel]], match[:, [channel]]
    ax = ensure_axes(op, ax, 8.0, 4.6)
    lower = None if explanation.by_step is None else stacked(ax, (5, 2))[0]
    _draw_pair(ax, query, match, explanation)
    name = f" to {explanation.name}" if explanation.name else ""
    ax.set_title(f"{explanation.distance.name} {explanation.value:.4g}{name}")
    if lower is None:
        ax.set_xlabel("step")
    else:
        _draw_costs(lower, explanation)
        ax.tick_params(labelbottom=False)
        lower.set_xlim(ax.get_xlim())
        lower.set_xlabel("step of the query")
    return ax


def _draw_pair(ax: Axes, query: np.ndarray, match: np.ndarray, explanation: Any) -> None:
    height = max(np.ptp(query), np.ptp(match)) or 1.0
    gap = 0.45 * height
    top, bottom = query.min() - 0.04 * height, query.min() - gap
    lowered = match - match.max() + bottom - 0.04 * height
    steps = max(len(query), len(match))
    segments = explanation.segments
    for color, segment in zip(_hues(len(segments)), segments, strict=True):
        left, right = segment.start - 0.5, segment.end - 0.5
        below_left, below_right = segment.match_start - 0.5, segment.match_end - 0.5
        corners = [(left, top), (right, top), (below_right, bottom), (below_left, bottom)]
        ax.add_patch(Polygon(corners, facecolor=color, edgecolor="white", linewidth=0.8, alpha=0.55, zorder=1))
        share = (right - left + below_right - below_left) / 2 / steps
        if share >= NARROWEST:
            middle = (left + right + below_left + below_right) / 4
            text = _segment_text(segment, wide=share >= 2.5 * NARROWEST)
            ax.text(middle, (top + bottom) / 2, text, ha="center", va="center", fontsize="small", zorder=3)
    for values, color in ((query, X_COLOR), (lowered, Y_COLOR)):
        width = 0.8 if len(values) > 500 else 1.5
        alpha = 1.0 if values.shape[1] == 1 else max(0.4, 0.9 - 0.05 * values.shape[1])
        ax.plot(np.arange(len(values)), values, color=color, linewidth=width, alpha=alpha, zorder=2)
    ax.set_xlim(-0.5, steps - 0.5)
    ax.set_yticks([])
    ax.xaxis.set_major_locator(whole_numbers(8))
    for values, text, color in ((query, "query", X_COLOR), (lowered, "match", Y_COLOR)):
        middle = (values.min() + values.max()) / 2
        ax.annotate(
            text, (0, middle), xycoords=("axes fraction", "data"), xytext=(-6, 0), textcoords="offset points",
            color=color, ha="right", va="center", rotation=90,
        )  # fmt: skip
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)


def _draw_costs(ax: Axes, explanation: Any) -> None:
    cost = to_numpy(explanation.cost)
    other = explanation.counterfactual
    if cost.shape[1] > MOST_CHANNELS or cost.shape[1] == 1:
        cost = cost.sum(1, keepdims=True)
    colors = class_colors(cost.shape[1]) if cost.shape[1] > 1 else [GREY]
    steps, below = np.arange(len(cost)), np.zeros(len(cost))
    for c, color in enumerate(colors):
        name = f"channel {c}" if len(colors) > 1 else None
        ax.bar(steps, cost[:, c], bottom=below, width=1.0, color=color, label=name)
        below = below + cost[:, c]
    if other is not None and other.explanation.by_step is not None:
        there = to_numpy(other.explanation.by_step)
        ax.step(
            steps, there, where="mid", color="black", linewidth=1.0, linestyle=":", label=f"to {other.explanation.name}"
        )
    ax.set_ylabel("cost")
    if ax.get_legend_handles_labels()[1]:
        ax.legend(fontsize="small", frameon=False, ncols=2 if len(colors) > 3 else 1)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _segment_text(segment: Any, *, wide: bool) -> str:
    shift = f"{round(segment.shift):+d}" if round(segment.shift) else "0"
    stretch = f"{segment.stretch:.2f}" if abs(segment.stretch - 1) >= 0.05 else ""
    if wide:
        return f"shift {shift}" + (f", stretch {stretch}" if stretch else "")
    return shift + (f"\n* {stretch}" if stretch else "")


def _hues(count: int) -> list:
    """Pale colours, different for neighbouring segments."""
    wheel = matplotlib.colormaps["Pastel1"]
    return [wheel(i % 8) for i in range(count)]


def _frames(values: Any) -> np.ndarray:
    found = to_numpy(values).astype(np.float64)
    return found[:, None] if found.ndim == 1 else found.reshape(len(found), -1)
