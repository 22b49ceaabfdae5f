"""A transport plan, as lines between two series."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from likewise import _check
from likewise.viz._axes import GREY, X_COLOR, Y_COLOR, ensure_axes
from likewise.viz._inputs import Aligned, Series, read_series, to_numpy

MOST_LINES = 4000  # keep the largest masses; more lines would merge into a grey block


def plot_plan(
    alignment: Aligned,
    x: Series,
    y: Series,
    item: int = 0,
    *,
    channel: int = 0,
    least: float = 0.05,
    ax: Axes | None = None,
) -> Axes:
    """Draw one channel of both series, y above x, and a line from frame to frame as dark as the mass it moves.

    Lines may cross, as in the plan of an optimal transport, which ``plot_path`` cannot show. ``plot_density`` draws the
    same plan as an image.

    least: leave out lines with less than this share of the largest mass; at most 4,000 lines are drawn.

    Example:
        >>> from likewise import viz
        >>> from likewise.distances.emd import EMD
        >>> from matplotlib.figure import Figure
        >>> x, y = [[0.0, 1.0, 2.0]], [[2.0, 0.0, 1.0]]
        >>> ax = plot_plan(EMD().align(x, y), x, y, ax=Figure().subplots())
        >>> len(ax.collections[0].get_segments())
        3
    """
    x_values, y_values = read_series("plot_plan", x, y, alignment, item)
    if not -x_values.shape[1] <= channel < x_values.shape[1]:
        _check.refuse("plot_plan", f"channel {channel} is out of range for {x_values.shape[1]} channels")
    if not 0 <= _check.number("plot_plan", "least", least) <= 1:
        _check.refuse("plot_plan", f"least must be between 0 and 1, got {least}")
    mass = to_numpy(alignment.plan[item])[: len(x_values), : len(y_values)].astype(np.float64)  # (Tx, Ty)
    heaviest = max(mass.max(initial=0.0), np.finfo(np.float64).tiny)
    i, j = np.nonzero(mass >= max(least * heaviest, np.finfo(np.float64).tiny))
    order = np.argsort(mass[i, j])[-MOST_LINES:]  # draw the heaviest last
    i, j = i[order], j[order]
    below, above = x_values[:, channel], y_values[:, channel]
    above = above + (below.max() - above.min()) + 0.5 * (np.ptp(below) + np.ptp(above)) + 1e-9  # room for the lines
    ax = ensure_axes("plot_plan", ax, 6.4, 3.6)
    ends = np.stack([np.stack([i, below[i]], 1), np.stack([j, above[j]], 1)], 1)  # (lines, 2, 2)
    shades = np.clip(mass[i, j] / heaviest, 0, 1)
    ax.add_collection(LineCollection(list(ends), colors=GREY, alpha=shades, linewidths=0.8, zorder=1))
    for values, color, label in ((below, X_COLOR, "x"), (above, Y_COLOR, "y")):
        ax.plot(values, color=color, linewidth=1.4, label=label, marker="o" if len(values) <= 60 else "", markersize=3)
    ax.set_xlabel("step")
    ax.set_yticks([])
    ax.legend(loc="upper right", frameon=False)
    return ax
