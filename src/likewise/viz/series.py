"""Plots of two series and their alignment: joined step by step, or along the sides of the path."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from likewise import _check
from likewise.viz._axes import GREY, X_COLOR, Y_COLOR, add_sides, ensure_axes, round_numbers, whole_numbers
from likewise.viz._inputs import Aligned, Series, read_path, read_series
from likewise.viz.cells import draw_path, draw_straight


def plot_two_way(
    x: Series,
    y: Series,
    alignment: Aligned,
    item: int = 0,
    *,
    channel: int | None = None,
    offset: float | None = None,
    matches: int = 100,
    ax: Axes | None = None,
) -> Axes:
    """Draw x above y over time, with thin lines between matched steps.

    x, y: (T, C) or (T,), or a Batch, (B, T, C) or a list, from which item selects one.
    channel: the channel to draw; by default all.
    offset: how far y is shifted down; by default enough to keep the two apart. The right axis shows the values of y.
    matches: the maximum number of lines between x and y, spread evenly over the path.

    Example:
        >>> from likewise import Batch, DTW, viz
        >>> from matplotlib.figure import Figure
        >>> x, y = Batch.from_list([[0.0, 1.0, 2.0]]), Batch.from_list([[0.0, 2.0]])
        >>> ax = viz.plot_two_way(x, y, DTW().align(x, y), ax=Figure().subplots())
        >>> [len(line.get_xdata()) for line in ax.lines]
        [3, 2]
    """
    first, second = _read_channels("plot_two_way", x, y, alignment, item, channel)
    cells = read_path("plot_two_way", alignment, item)
    if isinstance(matches, bool) or not isinstance(matches, int) or matches < 0:
        _check.refuse("plot_two_way", f"matches must be a whole number, 0 or more, got {matches!r}")
    shift = _apart(first, second) if offset is None else float(offset)
    if not np.isfinite(shift):
        _check.refuse("plot_two_way", f"offset must be finite, got {offset}")
    ax = ensure_axes("plot_two_way", ax, 7.0, 3.4)
    lowered = second - shift
    kept = np.linspace(0, len(cells) - 1, min(matches, len(cells))).round().astype(int)
    i, j = cells[kept].T
    # With several channels, lines run from the lowest of x to the highest of y; with one, from point to point.
    ends = np.stack([np.stack([i, first[i].min(1)], 1), np.stack([j, lowered[j].max(1)], 1)], 1)
    ax.add_collection(LineCollection(list(ends), colors=GREY, linewidths=0.5, zorder=1))
    _draw_series(ax, first, X_COLOR)
    _draw_series(ax, lowered, Y_COLOR)
    ax.set_xlim(-0.5, max(len(first), len(second)) - 0.5)
    ax.xaxis.set_major_locator(whole_numbers(8))
    ax.set_xlabel("step")
    low, high = min(first.min(), lowered.min()), max(first.max(), lowered.max())
    margin = 0.06 * (high - low) or 0.5
    ax.set_ylim(low - margin, high + margin)
    # Each scale has ticks and a label only beside its series.
    right = ax.secondary_yaxis("right", functions=(lambda v: np.add(v, shift), lambda v: np.subtract(v, shift)))
    for axis, name, values, down, color, side in (
        (ax, "x", first, 0, X_COLOR, "right"),
        (right, "y", second, shift, Y_COLOR, "left"),
    ):
        middle = (values.min() + values.max()) / 2 - down
        height = (middle - low + margin) / (high - low + 2 * margin)
        axis.set_yticks(_marks(values))
        axis.set_ylabel(name, color=color, y=height, rotation=0, va="center", ha=side)
        axis.tick_params(axis="y", colors=color)
    return ax


def plot_three_way(
    x: Series,
    y: Series,
    alignment: Aligned,
    item: int = 0,
    *,
    channel: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the path, with x below it and y to its left.

    x, y: (T, C) or (T,), or a Batch, (B, T, C) or a list, from which item selects one.
    channel: the channel to draw; by default all.
    ax: divided into three panels; it keeps the path.

    Example:
        >>> from likewise import Batch, DTW, viz
        >>> from matplotlib.figure import Figure
        >>> x, y = Batch.from_list([[0.0, 1.0, 2.0]]), Batch.from_list([[0.0, 2.0]])
        >>> ax = viz.plot_three_way(x, y, DTW().align(x, y), ax=Figure().subplots())
        >>> len(ax.figure.axes)
        3
    """
    first, second = _read_channels("plot_three_way", x, y, alignment, item, channel)
    cells = read_path("plot_three_way", alignment, item)
    ax = ensure_axes("plot_three_way", ax, 5.4, 5.4)
    below, left = add_sides(ax)
    draw_straight(ax, cells)
    draw_path(ax, cells, len(first), len(second))
    ax.grid(color="0.9", linewidth=0.6)
    _draw_series(below, first, X_COLOR)
    _draw_series(left, second, Y_COLOR, upright=True)
    below.set_xlabel("step of x")
    below.set_ylabel("x", color=X_COLOR, rotation=0, va="center", ha="left")
    left.set_xlabel("y", color=Y_COLOR)
    left.set_ylabel("step of y")
    for panel in (below, left):
        panel.grid(color="0.9", linewidth=0.6)
    return ax


def _read_channels(
    op: str, x: Series, y: Series, alignment: Aligned, item: int, channel: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Both series of an item, with all channels or a selected one."""
    first, second = read_series(op, x, y, alignment, item)
    if channel is None:
        return first, second
    for name, values in (("x", first), ("y", second)):
        if isinstance(channel, bool) or not isinstance(channel, int):
            raise TypeError(f"{op}: expected channel to be an int or None, got {type(channel).__name__}")
        if not -values.shape[1] <= channel < values.shape[1]:
            _check.refuse(op, f"channel {channel} is out of range: {name} has {values.shape[1]} channels")
    return first[:, [channel]], second[:, [channel]]


def _draw_series(ax: Axes, values: np.ndarray, color: str, *, upright: bool = False) -> None:
    """Draw the channels of (T, C) over time, which runs upwards if upright."""
    steps, channels = np.arange(len(values)), values.shape[1]
    marker = "o" if len(values) <= 60 and channels <= 3 else "_" if len(values) == 1 else None
    ax.plot(
        *((values, steps) if upright else (steps, values)),
        color=color,
        linewidth=0.7 if len(values) > 500 else 1.4 if channels == 1 else 1.0,  # thin where steps are dense
        alpha=1.0 if channels == 1 else max(0.4, 0.9 - 0.05 * channels),
        marker=marker,
        markersize=3,
    )


def _apart(first: np.ndarray, second: np.ndarray) -> float:
    """How far to shift the second series down to leave a gap below the first."""
    gap = 0.35 * max(np.ptp(first), np.ptp(second)) or 1.0
    return float(second.max() - first.min() + gap)


def _marks(values: np.ndarray) -> np.ndarray:
    """A few round numbers between the smallest and the largest value."""
    low, high = values.min(), values.max()
    marks = round_numbers(4).tick_values(low, high)
    inside = marks[(marks >= low) & (marks <= high)]
    return inside if len(inside) else np.array([low])
