from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

from likewise.distances.gdtw import GDTW
from likewise.viz.solver import plot_solver


@pytest.fixture
def ax():
    return Figure().subplots()


def problem(grid, refinements, steps=12):
    """A distance, and a bump that is contained in a longer signal: a subsequence is sought."""
    times_x, times_y = torch.linspace(0, 1, steps).double(), torch.linspace(0, 2, 2 * steps).double()
    x, y = torch.sin(3 * (0.4 + times_x**1.5)), torch.sin(3 * times_y)
    distance = GDTW(1e-3, subsequence=True, grid=grid, refinements=refinements)
    return distance, (x[None, :, None], y[None, :, None], times_x, times_y)


def test_the_passes_are_the_search():
    distance, pair = problem(21, 3)
    passes = distance.passes(*pair)
    assert len(passes) >= 4
    assert passes[0].grid.shape == passes[0].costs.shape == (12, 21)
    best = min(passes, key=lambda each: each.value.item())
    assert (best.warp - distance.warp(*pair).values[0]).abs().max() < 0.01
    assert best.value >= distance(*pair).item() * (1 - 1e-12)
    widths = [(each.grid[:, -1] - each.grid[:, 0]).max().item() for each in passes]
    assert widths == sorted(widths, reverse=True)
    for each in passes:
        on_grid = (each.grid - each.warp[:, None]).abs().min(1).values
        assert on_grid.max() == 0


def test_grids_paths_and_the_warp_are_drawn(ax):
    distance, pair = problem(21, 2)
    passes = distance.passes(*pair)
    solution = distance.warp(*pair).values[0]
    assert plot_solver(iter(passes), solution, ax=ax) is ax
    below = ax.figure.axes[1]
    assert len(ax.lines) == len(below.lines) == len(passes) + 1
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), solution)
    np.testing.assert_array_equal(below.lines[0].get_ydata(), passes[0].warp - solution)
    assert len(below.collections) == len(passes) - 1  # a band for each refined grid
    assert ax.collections[0].get_offsets().shape == (12 * 21, 2)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[0] == f"pass 1: {passes[0].value.item():.5g}"
    assert labels[-1] == "warp"
    assert (ax.get_ylabel(), below.get_xlabel()) == ("time of y", "time of x")


def test_the_best_pass_stands_for_the_warp_and_many_nodes_become_a_surface():
    distance, pair = problem(301, 1)
    passes = distance.passes(*pair)
    ax = plot_solver([passes[1], replace(passes[0], value=passes[0].value + 1)])
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), passes[1].warp)
    assert type(plot_solver(passes).collections[0]).__name__ == "QuadMesh"
    pyplot.close("all")


def test_axes_put_by_hand_are_divided():
    ax = Figure().add_axes((0.2, 0.2, 0.6, 0.6))
    distance, pair = problem(7, 0, steps=5)
    plot_solver(distance.passes(*pair), ax=ax)
    above, below = (each.get_position() for each in ax.figure.axes)
    assert above.y0 > below.y1
    assert below.y0 == pytest.approx(0.2)


def test_bad_arguments_are_refused(ax):
    distance, pair = problem(7, 0, steps=5)
    first = distance.passes(*pair)[0]
    with pytest.raises(ValueError, match="plot_solver: expected at least one pass, got none"):
        plot_solver([], ax=ax)
    with pytest.raises(TypeError, match=r"passes\[0\], a Tensor, has no times"):
        plot_solver([torch.zeros(3)], ax=ax)
    with pytest.raises(ValueError, match=r"passes\[1\] does not fit 5 knots: grid \(4, 7\)"):
        plot_solver([first, replace(first, grid=first.grid[:4])], ax=ax)
    with pytest.raises(ValueError, match=r"plot_solver: expected warp of shape \(5,\), got \(4,\)"):
        plot_solver([first], first.warp[:4], ax=ax)
