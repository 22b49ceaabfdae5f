"""Feature maps, such as spectrograms, along an alignment in seconds."""

import numpy as np
from matplotlib.axes import Axes

from likewise import _check
from likewise.viz._axes import PATH_COLOR, VERMILION, add_sides, ensure_axes, round_numbers, whole_numbers
from likewise.viz._inputs import Aligned, Series, read_path, read_series
from likewise.viz.cells import reduce_blocks


def plot_feature_map(
    x: Series,
    y: Series,
    alignment: Aligned,
    item: int = 0,
    *,
    hop_x: float,
    hop_y: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the path in seconds, with x's features below it and y's to its left.

    x, y: (T, C) or (T,), such as spectrograms of T frames; or a Batch, (B, T, C) or a list, from which item selects
        one.
    hop_x, hop_y: seconds from one frame to the next; hop_y defaults to hop_x.
    ax: divided into three panels; it keeps the path.

    Frame t is at second t * hop, as in librosa. Lines lead from round seconds of x to the path, and from there to the
    seconds of y, which are written out.

    Example:
        >>> import torch
        >>> from likewise import DTW, viz
        >>> from matplotlib.figure import Figure
        >>> score, performance = torch.rand(1, 40, 12), torch.rand(1, 50, 12)
        >>> alignment = DTW(ground="cosine").align(score, performance)
        >>> ax = viz.plot_feature_map(score, performance, alignment, hop_x=0.1, ax=Figure().subplots())
        >>> [panel.get_xlabel() for panel in ax.figure.axes]
        ['', 'x in seconds', 'feature of y']
    """
    hop_x = _check.positive("plot_feature_map", "hop_x", hop_x)
    hop_y = hop_x if hop_y is None else _check.positive("plot_feature_map", "hop_y", hop_y)
    first, second = read_series("plot_feature_map", x, y, alignment, item)
    cells = read_path("plot_feature_map", alignment, item)
    seconds = cells * (hop_x, hop_y)  # (K, 2)
    begin_x, end_x = -hop_x / 2, (len(first) - 0.5) * hop_x
    begin_y, end_y = -hop_y / 2, (len(second) - 0.5) * hop_y
    ax = ensure_axes("plot_feature_map", ax, 6.4, 6.4)
    below, left = add_sides(ax)
    _draw_map(below, first.T, (begin_x, end_x, -0.5, first.shape[1] - 0.5))
    _draw_map(left, second, (-0.5, second.shape[1] - 0.5, begin_y, end_y))
    line = ax.plot(seconds[:, 0], seconds[:, 1], color=PATH_COLOR, linewidth=1.6, zorder=3)[0]
    if len(cells) == 1:  # a line cannot show these
        line.set_marker("o")
    ax.set(xlim=(begin_x, end_x), ylim=(begin_y, end_y))
    ax.xaxis.set_major_locator(round_numbers(8))
    ax.yaxis.set_major_locator(round_numbers(8))
    _draw_guides(ax, below, left, seconds)
    below.set(xlabel="x in seconds", ylabel="feature of x")
    left.set(xlabel="feature of y", ylabel="y in seconds")
    below.yaxis.set_major_locator(whole_numbers(3))
    left.xaxis.set_major_locator(whole_numbers(2))
    return ax


def _draw_guides(ax: Axes, below: Axes, left: Axes, seconds: np.ndarray) -> None:
    """Draw lines from round seconds of x to the path (K, 2), and from there to the seconds of y, with their values."""
    x_seconds, start = np.unique(seconds[:, 0], return_index=True)
    # Where the path stays at one x, take the middle of its steps in y.
    y_seconds = np.add.reduceat(seconds[:, 1], start) / np.diff(np.append(start, len(seconds)))
    marks = round_numbers(8).tick_values(x_seconds[0], x_seconds[-1])
    corner_x, corner_y = ax.get_xlim()[0], ax.get_ylim()[0]
    room = 0.04 * (ax.get_ylim()[1] - corner_y)
    written = -np.inf
    for mark in marks[(marks > x_seconds[0]) & (marks <= x_seconds[-1])]:
        met = np.interp(mark, x_seconds, y_seconds)
        style = {"color": VERMILION, "linewidth": 0.8, "zorder": 2}
        ax.plot([mark, mark, corner_x], [corner_y, met, met], **style)
        below.axvline(mark, **style)
        left.axhline(met, **style)
        if met - written > room:  # the next number would overlap this one
            ax.annotate(
                f"{met:.2f}", (corner_x, met), (2, 1), textcoords="offset points", color=VERMILION, fontsize="small"
            )
            written = met


def _draw_map(ax: Axes, values: np.ndarray, extent: tuple[float, float, float, float]) -> None:
    ax.imshow(
        reduce_blocks(values, np.add),
        cmap="Greys",
        origin="lower",
        aspect="auto",
        extent=extent,
    )
