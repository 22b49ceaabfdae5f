import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

from likewise import DTW, Batch, SoftDTW, viz
from likewise.viz.cells import reduce_blocks

X, Y = torch.tensor([0.0, 1.0, 3.0, 2.0]), torch.tensor([0.0, 3.0, 2.0, 1.0, 2.0])
BOTH = [viz.plot_path, viz.plot_density]


@pytest.fixture
def ax():
    return Figure().subplots()


def several():
    x = Batch.from_list([X, X[:2], X[:1]])
    y = Batch.from_list([Y[:2], Y, Y[:1]])
    return x, y


def test_path_is_drawn_over_the_straight_line_between_its_ends(ax):
    x, y = several()
    alignment = DTW().align(x, y)
    viz.plot_path(alignment, 1, ax=ax)
    straight, path = ax.lines
    np.testing.assert_array_equal(straight.get_data(), [[0, 1], [0, 4]])
    np.testing.assert_array_equal(np.stack(path.get_data(), 1), alignment.path(1).numpy())
    assert (ax.get_xlim(), ax.get_ylim()) == ((-0.5, 1.5), (-0.5, 4.5))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step of x", "step of y")


@pytest.mark.parametrize("item", [0, 1, 2, -1])
def test_density_shows_the_plan_without_padding(item, ax):
    x, y = several()
    alignment = SoftDTW(gamma=0.5).align(x, y)
    viz.plot_density(alignment, item, ax=ax)
    (image,) = ax.images
    n, m = int(x.lengths[item]), int(y.lengths[item])
    np.testing.assert_allclose(image.get_array(), alignment.plan[item, :n, :m].T)
    assert image.get_extent() == [-0.5, n - 0.5, -0.5, m - 0.5]
    assert image.origin == "lower"
    assert image.get_clim() == (0, 1)
    (line,) = ax.lines
    np.testing.assert_array_equal(np.stack(line.get_data(), 1), alignment.path(item).numpy())
    assert ax.figure.axes[1].get_ylabel() == "share matched"


@pytest.mark.parametrize("kind", ["one", "several", "array", "bfloat16"])
def test_density_shows_the_cost_that_is_given(kind, ax):
    x, y = several()
    alignment = DTW().align(x, y)
    cost = (x.values - y.values.mT).square()
    cost[1, 2:] = torch.nan  # padding
    given = {"one": cost[1, :2, :5], "several": cost, "array": cost.numpy(), "bfloat16": cost.bfloat16()}[kind]
    before = given[1].copy() if kind == "array" else given.clone()
    viz.plot_density(alignment, 1, cost=given, ax=ax)
    np.testing.assert_array_equal(ax.images[0].get_array(), cost[1, :2, :5].T)
    assert ax.figure.axes[1].get_ylabel() == "cost"
    np.testing.assert_array_equal(given[1] if kind == "array" else given.float(), torch.as_tensor(before).float())


def test_density_of_long_series_keeps_every_step_of_the_path(ax):
    x = torch.linspace(0, 1, 1500)[None, :, None]
    alignment = DTW().align(x, x[:, ::2])
    viz.plot_density(alignment, ax=ax)
    values = np.asarray(ax.images[0].get_array())
    assert values.shape == (375, 500)
    assert (values.max(0) == 1).all()
    assert ax.images[0].get_extent() == [-0.5, 1499.5, -0.5, 749.5]


def test_blocks_are_means_or_maxima():
    values = np.arange(1003.0 * 2).reshape(1003, 2)
    starts = range(0, 1003, 3)
    np.testing.assert_allclose(reduce_blocks(values, np.add), [values[i : i + 3].mean(0) for i in starts])
    np.testing.assert_allclose(reduce_blocks(values, np.maximum), [values[i : i + 3].max(0) for i in starts])
    np.testing.assert_array_equal(reduce_blocks(values[:500], np.add), values[:500])


@pytest.mark.parametrize("plot", BOTH)
@pytest.mark.parametrize("lengths", [(1, 1), (1, 9), (70, 2)])
def test_odd_lengths_are_drawn(plot, lengths, ax):
    x, y = (torch.linspace(0, 1, n)[None, :, None] for n in lengths)
    plot(SoftDTW().align(x, y), ax=ax)
    ax.figure.canvas.draw()


@pytest.mark.parametrize("plot", BOTH)
def test_ax_goes_in_and_comes_out(plot, ax):
    assert plot(DTW().align([X], [Y]), ax=ax) is ax
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize("plot", BOTH)
def test_without_ax_a_figure_is_made(plot):
    ax = plot(DTW().align([X], [Y]))
    try:
        assert [pyplot.figure(number) for number in pyplot.get_fignums()] == [ax.figure]
    finally:
        pyplot.close(ax.figure)


class Given:
    """An alignment of another library: a plan and a path, without lengths."""

    def __init__(self, path):
        self.plan = torch.full((1, 4, 5), 0.5)
        self._path = torch.tensor(path)

    def path(self, b):
        return self._path


@pytest.mark.parametrize("plot", BOTH)
def test_any_alignment_with_a_plan_and_a_path_is_drawn(plot, ax):
    plot(Given([[0, 0], [3, 4]]), ax=ax)
    assert (ax.get_xlim(), ax.get_ylim()) == ((-0.5, 3.5), (-0.5, 4.5))


@pytest.mark.parametrize("plot", BOTH)
@pytest.mark.parametrize(
    ("alignment", "item", "error", "message"),
    [
        (DTW().align([X], [Y]), 1, IndexError, "item 1 is out of range for 1 alignments"),
        (DTW().align([X], [Y]), -2, IndexError, "item -2 is out of range for 1 alignments"),
        (DTW().align([X], [Y]), True, TypeError, "expected item to be an int, got bool"),
        (X, 0, TypeError, "expected an Alignment, which has .path and .plan, got Tensor"),
        (Given([0, 1]), 0, ValueError, "expected alignment.path(0) of shape (K, 2), got (2,)"),
        (Given([[0, 0], [4, 4]]), 0, ValueError, "alignment.path(0) leaves the 4 x 5 cells of x and y"),
        (Given([[0, -1]]), 0, ValueError, "alignment.path(0) leaves the 4 x 5 cells of x and y"),
    ],
)
def test_bad_input_is_refused(plot, alignment, item, error, message, ax):
    with pytest.raises(error) as caught:
        plot(alignment, item, ax=ax)
    assert str(caught.value) == f"{plot.__name__}: {message}"


@pytest.mark.parametrize("plot", BOTH)
def test_a_bad_ax_is_refused(plot):
    with pytest.raises(TypeError, match=r"^plot_(path|density): expected ax to be a matplotlib Axes or None, got str$"):
        plot(DTW().align([X], [Y]), ax="ax")


@pytest.mark.parametrize(
    ("cost", "error", "message"),
    [
        (torch.zeros(3, 5), ValueError, "plot_density: expected cost of shape (4, 5) or (B, Tx, Ty), got (3, 5)"),
        (torch.zeros(5, 4), ValueError, "plot_density: expected cost of shape (4, 5) or (B, Tx, Ty), got (5, 4)"),
        (torch.zeros(4), ValueError, "plot_density: expected cost of shape (4, 5) or (B, Tx, Ty), got (4,)"),
        ([[0.0]], TypeError, "plot_density: expected cost to be an array or a tensor, got list"),
    ],
)
def test_a_bad_cost_is_refused(cost, error, message, ax):
    with pytest.raises(error) as caught:
        viz.plot_density(DTW().align([X], [Y]), cost=cost, ax=ax)
    assert str(caught.value) == message
