"""Plots of GDTW's solver: grids that shrink around a warp."""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes

from likewise import _check
from likewise.viz._axes import PATH_COLOR, ensure_axes, round_numbers, stacked
from likewise.viz._inputs import to_numpy


class GridPass(Protocol):
    """The attributes of a pass, such as those of ``likewise.GDTW.passes``. All are tensors or arrays."""

    @property
    def times(self) -> Any:
        """(m,), the knots."""
        ...

    @property
    def grid(self) -> Any:
        """(m, M), the values that the warp may take at each knot, increasing."""
        ...

    @property
    def costs(self) -> Any:
        """(m, M), the cost of each node."""
        ...

    @property
    def warp(self) -> Any:
        """(m,), the best path through the nodes."""
        ...

    @property
    def value(self) -> Any:
        """The objective of that path."""
        ...


def plot_solver(passes: Iterable[GridPass], warp: object | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw the passes of GDTW's solver over its grids, such as ``GDTW().passes(x, y)``, and the resulting warp.

    Above, in ``ax``: the nodes of the first grid, darker where they cost more, each pass's best path, and the warp.
    Below, in a panel that shares the knots' axis: the refined grids, as bands, and their paths, both minus the warp.
    They show how far each pass could search and how close to the warp it came.
    warp: (m,), the solution, such as the polished one; by default the path of the best pass.
    Reference: Xu et al. (2023), arXiv:2303.10778, Figure 6.

    Example:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from matplotlib.figure import Figure
        >>> knots, nodes = np.array([0.0, 1.0]), np.array([[0.0, 0.5, 1.0], [0.0, 0.5, 1.0]])
        >>> first = SimpleNamespace(times=knots, grid=nodes, costs=nodes**2, warp=np.array([0.0, 0.5]), value=0.25)
        >>> plot_solver([first], ax=Figure().subplots()).get_ylabel()
        'time of y'
    """
    steps = list(passes)
    if not steps:
        _check.refuse("plot_solver", "expected at least one pass, got none")
    for k, step in enumerate(steps):
        _check_pass(k, step, len(getattr(steps[0], "times", ())))
    times, values = to_numpy(steps[0].times), [float(step.value) for step in steps]
    paths = [to_numpy(step.warp) for step in steps]
    solution = paths[int(np.argmin(values))] if warp is None else to_numpy(warp)
    if solution.shape != times.shape:
        _check.refuse("plot_solver", f"expected warp of shape {times.shape}, got {solution.shape}")
    ax = ensure_axes("plot_solver", ax, 5.2, 6.0)
    below = _panel_below(ax)
    colors = colormaps["viridis"](np.linspace(0.05, 0.85, len(steps)))
    _draw_nodes(ax, times, to_numpy(steps[0].grid), to_numpy(steps[0].costs))
    for k, (step, path, value, color) in enumerate(zip(steps, paths, values, colors, strict=True)):
        ax.plot(times, path, color=color, linewidth=1.0, label=f"pass {k + 1}: {value:.5g}")
        below.plot(times, path - solution, color=color, linewidth=1.0)
        if k:
            grid = to_numpy(step.grid)
            band = grid[:, 0] - solution, grid[:, -1] - solution
            below.fill_between(times, *band, color=color, alpha=0.15, linewidth=0)
    ax.plot(times, solution, color=PATH_COLOR, linewidth=1.6, linestyle=(0, (4, 2)), label="warp")
    below.axhline(0, color=PATH_COLOR, linewidth=1.0, linestyle=(0, (4, 2)))
    ax.legend(frameon=True, framealpha=0.8, fontsize="small", loc="upper left")
    ax.set_ylabel("time of y")
    below.set_xlabel("time of x")
    below.set_ylabel("minus the warp")
    below.yaxis.set_major_locator(round_numbers(4))
    return ax


def _draw_nodes(ax: Axes, times: np.ndarray, grid: np.ndarray, costs: np.ndarray) -> None:
    """Draw nodes as dots if they are far enough apart, else as a surface."""
    if grid.size <= 3000:
        at = np.broadcast_to(times[:, None], grid.shape)
        ax.scatter(at.ravel(), grid.ravel(), c=costs.ravel(), cmap="Greys", s=6, linewidths=0, zorder=0)
    else:
        at = np.broadcast_to(times[:, None], grid.shape)
        ax.pcolormesh(at, grid, costs, cmap="Greys", shading="gouraud", zorder=0, rasterized=True)


def _panel_below(ax: Axes) -> Axes:
    """Divide the space of ax: it keeps the upper two thirds, and a panel below shares its horizontal axis."""
    (below,) = stacked(ax, (2, 1), share=True, gap=0.06)
    ax.tick_params(labelbottom=False)
    return below


def _check_pass(k: int, step: GridPass, knots: int) -> None:
    for name in ("times", "grid", "costs", "warp", "value"):
        if not hasattr(step, name):
            kind = type(step).__name__
            raise TypeError(f"plot_solver: expected passes with a grid, but passes[{k}], a {kind}, has no {name}")
    nodes = tuple(step.grid.shape)
    if len(nodes) != 2 or nodes[0] != knots or tuple(step.costs.shape) != nodes or len(step.warp) != knots:
        shapes = f"grid {nodes}, costs {tuple(step.costs.shape)}, warp {tuple(step.warp.shape)}"
        _check.refuse("plot_solver", f"passes[{k}] does not fit {knots} knots: {shapes}")
