"""The cells of an alignment: its path, alone or over a matrix of costs or probabilities."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patheffects import Normal, Stroke
from torch import Tensor

from likewise import _check
from likewise.viz._axes import GREY, PATH_COLOR, VERMILION, ensure_axes, frame_cells
from likewise.viz._inputs import Aligned, read_lengths, read_path, to_numpy

MOST_PIXELS = 500  # side of the image; larger matrices are reduced block by block


def plot_path(alignment: Aligned, item: int = 0, *, ax: Axes | None = None) -> Axes:
    """Draw the path of an item, with the straight line between its ends as a faint reference.

    Example:
        >>> from likewise import DTW, viz
        >>> from matplotlib.figure import Figure
        >>> alignment = DTW().align([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        >>> viz.plot_path(alignment, ax=Figure().subplots()).get_xlabel()
        'step of x'
    """
    cells, (x_steps, y_steps) = read_path("plot_path", alignment, item), read_lengths("plot_path", alignment, item)
    ax = ensure_axes("plot_path", ax, 4.2, 4.0)
    draw_straight(ax, cells)
    draw_path(ax, cells, x_steps, y_steps)
    ax.set_xlabel("step of x")
    ax.set_ylabel("step of y")
    return ax


def plot_density(
    alignment: Aligned, item: int = 0, *, cost: Tensor | np.ndarray | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the plan of an item, or its cost matrix, as an image with the path over it.

    cost: (Tx, Ty), or (B, Tx, Ty) from which item selects one; without it, the alignment's plan is drawn.

    A matrix with more than 500 rows or columns is drawn in blocks: means of a cost, maxima of a plan.

    Example:
        >>> from likewise import SoftDTW, viz
        >>> from matplotlib.figure import Figure
        >>> alignment = SoftDTW(gamma=0.1).align([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        >>> len(viz.plot_density(alignment, ax=Figure().subplots()).images)
        1
    """
    cells, (x_steps, y_steps) = (
        read_path("plot_density", alignment, item),
        read_lengths("plot_density", alignment, item),
    )
    values = _read_matrix(alignment.plan if cost is None else cost, item, x_steps, y_steps)
    # The mean of a block would hide a path that is one cell wide.
    values = reduce_blocks(values, np.maximum if cost is None else np.add)
    ax = ensure_axes("plot_density", ax, 4.9, 4.0)
    image = ax.imshow(
        values.T,
        cmap="Blues" if cost is None else "viridis",
        origin="lower",
        aspect="auto",
        vmin=0 if cost is None else None,
        vmax=max(values.max(initial=0.0), 1e-9) if cost is None else None,  # the values of a plan may be tiny
        extent=(-0.5, x_steps - 0.5, -0.5, y_steps - 0.5),
    )
    ax.figure.colorbar(image, ax=ax, label="share matched" if cost is None else "cost")
    line = draw_path(ax, cells, x_steps, y_steps)
    if cost is None:  # thin, so that it does not hide the cells below
        line.set(color=VERMILION, linewidth=0.8, marker="")
    else:  # visible on dark and light cells
        line.set_path_effects([Stroke(linewidth=3.0, foreground="white"), Normal()])
    ax.set_xlabel("step of x")
    ax.set_ylabel("step of y")
    return ax


def draw_path(ax: Axes, cells: np.ndarray, x_steps: int, y_steps: int) -> Line2D:
    """Draw a path (K, 2) with limits that show every cell of both series."""
    line = ax.plot(cells[:, 0], cells[:, 1], color=PATH_COLOR, linewidth=1.4, zorder=3)[0]
    if len(cells) <= 60:  # few enough to show each cell
        line.set(marker="o", markersize=3)
    frame_cells(ax, x_steps, y_steps)
    return line


def draw_straight(ax: Axes, cells: np.ndarray) -> None:
    """Draw the straight line between the ends of a path (K, 2), faintly."""
    ax.plot(*cells[[0, -1]].T, color=GREY, linewidth=0.8, linestyle=(0, (4, 4)), zorder=1)


def reduce_blocks(values: np.ndarray, reduce: np.ufunc) -> np.ndarray:
    """At most 500 rows and columns: the sums (np.add, as means) or the maxima (np.maximum) of equal blocks."""
    for axis, size in enumerate(values.shape):
        block = -(-size // MOST_PIXELS)
        if block > 1:
            starts = np.arange(0, size, block)
            values = reduce.reduceat(values, starts, axis=axis)
            if reduce is np.add:
                counts = np.diff(np.append(starts, size))
                values = values / np.expand_dims(counts, 1 - axis)
    return values


def _read_matrix(cost: Tensor | np.ndarray, item: int, x_steps: int, y_steps: int) -> np.ndarray:
    if not isinstance(cost, (Tensor, np.ndarray)):
        raise TypeError(f"plot_density: expected cost to be an array or a tensor, got {type(cost).__name__}")
    values = to_numpy(cost[item] if cost.ndim == 3 else cost)
    if values.ndim != 2 or values.shape[0] < x_steps or values.shape[1] < y_steps:
        shape = f"({x_steps}, {y_steps})"
        _check.refuse("plot_density", f"expected cost of shape {shape} or (B, Tx, Ty), got {tuple(cost.shape)}")
    return values[:x_steps, :y_steps].astype(np.float32)  # the rest is padding
