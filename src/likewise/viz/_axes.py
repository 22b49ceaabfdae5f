"""Axes: new figures, panels along the sides, and the colours that all plots share."""

from typing import Any

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpec, GridSpecBase
from matplotlib.ticker import MaxNLocator

# Okabe and Ito's colours, which are distinguishable with colour blindness.
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "0.6"
X_COLOR, Y_COLOR, PATH_COLOR = BLUE, VERMILION, "black"


def ensure_axes(op: str, ax: Axes | None, width: float, height: float) -> Axes:
    """Return ax, or the axes of a new figure of that size, in inches."""
    if ax is None:
        return pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise TypeError(f"{op}: expected ax to be a matplotlib Axes or None, got {type(ax).__name__}")
    return ax


def add_sides(ax: Axes) -> tuple[Axes, Axes]:
    """Divide the space of ax: it keeps the upper right, with panels below and to the left that share its axes.

    Their scales are on the outer sides, to keep the corner between them free.
    """
    grid = divide(ax, 2, 2, width_ratios=(2, 5), height_ratios=(5, 2), wspace=0.04, hspace=0.04)
    ax.set_subplotspec(grid[0, 1])
    below = ax.figure.add_subplot(grid[1, 1], sharex=ax)
    left = ax.figure.add_subplot(grid[0, 0], sharey=ax)
    ax.tick_params(labelbottom=False, labelleft=False)
    below.yaxis.tick_right()
    below.yaxis.set_label_position("right")
    left.xaxis.tick_top()
    left.xaxis.set_label_position("top")
    below.yaxis.set_major_locator(round_numbers(3))
    left.xaxis.set_major_locator(round_numbers(2))
    below.tick_params(axis="y", labelsize="small")
    left.tick_params(axis="x", labelsize="small")
    return below, left


def divide(ax: Axes, rows: int, columns: int, **shares: Any) -> GridSpecBase:
    """A grid in the space of ax; shares: further arguments of ``GridSpec``."""
    place = ax.get_subplotspec()
    if place is not None:
        return place.subgridspec(rows, columns, **shares)
    box = ax.get_position()  # axes that are not part of a grid
    return GridSpec(rows, columns, left=box.x0, right=box.x1, bottom=box.y0, top=box.y1, **shares)


def stacked(ax: Axes, heights: tuple[float, ...], *, share: bool = False, gap: float | None = None) -> list[Axes]:
    """Divide the space of ax into panels below each other: it keeps the first; the others are returned.

    share: they share its horizontal axis. gap: the space between two panels, as a share of their height.
    """
    if len(heights) == 1:
        return []
    grid = divide(ax, len(heights), 1, height_ratios=heights, hspace=gap)
    ax.set_subplotspec(grid[0, 0])
    return [ax.figure.add_subplot(grid[row, 0], sharex=ax if share else None) for row in range(1, len(heights))]


def round_numbers(most: int) -> MaxNLocator:
    """Ticks at round numbers, spaced 1, 2 or 5 times a power of ten."""
    return MaxNLocator(most, steps=[1, 2, 5, 10])


def whole_numbers(most: int) -> MaxNLocator:
    """Ticks at round integers; a single one if there is no room for two."""
    return MaxNLocator(most, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)


def frame_cells(ax: Axes, x_steps: int, y_steps: int) -> None:
    """Set axes in steps, where cell (i, j) is the unit square around the point (i, j)."""
    ax.set_xlim(-0.5, x_steps - 0.5)
    ax.set_ylim(-0.5, y_steps - 0.5)
    ax.xaxis.set_major_locator(whole_numbers(6))
    ax.yaxis.set_major_locator(whole_numbers(6))
