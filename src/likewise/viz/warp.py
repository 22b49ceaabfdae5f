"""A warp as a curve over time."""

from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes

from likewise import _check
from likewise.viz._axes import GREY, PATH_COLOR, X_COLOR, ensure_axes
from likewise.viz._inputs import to_numpy


class Warped(Protocol):
    """The attributes of a warp, such as those of ``likewise.distances.Warp``. All are tensors or arrays."""

    times: Any  # (B, M)
    values: Any  # (B, M)
    lengths: Any  # (B,)


def plot_warp(warp: Warped, item: int = 0, *, truth: Warped | None = None, ax: Axes | None = None) -> Axes:
    """Draw the warp of an item: x's time runs to the right, y's time upwards.

    A faint straight line joins the ends. truth: a warp to compare with; the same item of it is drawn, and the area
    between the two is shaded.

    Example:
        >>> import torch
        >>> from matplotlib.figure import Figure
        >>> from likewise.distances.warp import Warp
        >>> warp = Warp(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[0.0, 0.5, 2.0]]))
        >>> plot_warp(warp, ax=Figure().subplots()).get_ylabel()
        'time of y'
    """
    times, values = _read(warp, item)
    compared = None if truth is None else _read(truth, item)
    ax = ensure_axes("plot_warp", ax, 4.2, 4.0)
    ax.plot(times[[0, -1]], values[[0, -1]], color=GREY, linewidth=0.8, linestyle=(0, (4, 4)), zorder=1)
    if compared is not None:
        ax.plot(*compared, color=X_COLOR, linewidth=1.2, zorder=2, label="truth")
        ax.fill_between(
            times, values, np.interp(times, *compared), color=X_COLOR, alpha=0.2, linewidth=0, label="error", zorder=1
        )
    line = ax.plot(times, values, color=PATH_COLOR, linewidth=1.4, zorder=3, label="warp")[0]
    if len(times) <= 60:  # few enough to show each knot
        line.set(marker="o", markersize=3)
    if compared is not None:
        ax.legend(frameon=False, loc="upper left")
    ax.set_xlabel("time of x")
    ax.set_ylabel("time of y")
    ax.margins(0.02)
    return ax


def _read(warp: Warped, item: int) -> tuple[np.ndarray, np.ndarray]:
    for name in ("times", "values", "lengths"):
        if not hasattr(warp, name):
            raise TypeError(f"plot_warp: expected a Warp, got {type(warp).__name__}, which has no {name}")
    count = len(warp.times)
    if not -count <= item < count:
        _check.refuse("plot_warp", f"item {item} is out of range for {count} warps")
    knots = int(warp.lengths[item])
    return to_numpy(warp.times[item])[:knots], to_numpy(warp.values[item])[:knots]
