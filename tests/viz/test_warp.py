import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

from likewise.distances.gdtw import GDTW
from likewise.distances.warp import Warp
from likewise.viz.warp import plot_warp


@pytest.fixture
def ax():
    return Figure().subplots()


def warps():
    times = torch.tensor([[0.0, 1.0, 2.0], [0.0, 2.0, torch.nan]])
    return Warp(times, torch.tensor([[0.0, 0.5, 2.0], [1.0, 3.0, torch.nan]]), torch.tensor([3, 2]))


@pytest.mark.parametrize(("item", "knots"), [(0, 3), (1, 2), (-1, 2)])
def test_the_knots_are_drawn_without_padding(item, knots, ax):
    warp = warps()
    assert plot_warp(warp, item, ax=ax) is ax
    straight, curve = ax.lines
    np.testing.assert_array_equal(curve.get_xdata(), warp.times[item, :knots])
    np.testing.assert_array_equal(curve.get_ydata(), warp.values[item, :knots])
    np.testing.assert_array_equal(straight.get_ydata(), curve.get_ydata()[[0, -1]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time of x", "time of y")
    assert ax.get_legend() is None


def test_a_truth_is_compared(ax):
    warp = warps()
    truth = Warp(torch.tensor([[0.0, 2.0]] * 2), torch.tensor([[0.0, 2.0]] * 2))
    plot_warp(warp, truth=truth, ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["truth", "error", "warp"]
    assert len(ax.collections) == 1


def test_warps_of_gdtw_are_drawn():
    y = torch.randn(1, 30, 2, generator=torch.Generator().manual_seed(0)).cumsum(1).requires_grad_()
    ax = plot_warp(GDTW().warp(y, y.detach().flip(0)))
    assert len(ax.lines[1].get_xdata()) == 30
    pyplot.close(ax.figure)


def test_bad_arguments_are_refused(ax):
    with pytest.raises(ValueError, match="plot_warp: item 2 is out of range for 2 warps"):
        plot_warp(warps(), 2, ax=ax)
    with pytest.raises(TypeError, match="plot_warp: expected a Warp, got Tensor, which has no times"):
        plot_warp(torch.zeros(3), ax=ax)
    with pytest.raises(TypeError, match="plot_warp: expected ax to be a matplotlib Axes or None, got str"):
        plot_warp(warps(), ax="ax")
