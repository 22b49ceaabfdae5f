import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from likewise import DTW, Batch, Euclidean, SoftDTW, viz

X = np.array([0.0, 1.0, 3.0, 2.0])
Y = np.array([0.0, 3.0, 3.0, 2.0, 1.0, 2.0])
BOTH = [viz.plot_two_way, viz.plot_three_way]


@pytest.fixture
def ax():
    return Figure().subplots()


def several(channels=3):
    """Three pairs of unequal length, with NaN for padding."""
    generator = torch.Generator().manual_seed(0)
    x = Batch(torch.randn(3, 9, channels, generator=generator), [9, 4, 7])
    y = Batch(torch.randn(3, 8, channels, generator=generator), [5, 8, 1])
    for batch in (x, y):
        batch.values[~batch.mask] = torch.nan
    return x, y


def lines(ax):
    """The data of the lines of an axes, as (steps, values)."""
    return [tuple(np.asarray(values, float) for values in line.get_data()) for line in ax.lines]


def matches(ax):
    (collection,) = [one for one in ax.collections if isinstance(one, LineCollection)]
    return np.array(collection.get_segments()).reshape(-1, 2, 2)


def test_two_way_draws_x_above_y_and_joins_matched_steps(ax):
    alignment = DTW().align([X], [Y])
    viz.plot_two_way(X, Y, alignment, ax=ax)
    (x_steps, x_values), (y_steps, y_values) = lines(ax)
    np.testing.assert_array_equal(x_steps, np.arange(4))
    np.testing.assert_array_equal(x_values, X)
    np.testing.assert_array_equal(y_steps, np.arange(6))
    shift = Y[0] - y_values[0]
    np.testing.assert_allclose(y_values, Y - shift)
    assert y_values.max() < x_values.min()
    i, j = alignment.path(0).numpy().T
    np.testing.assert_allclose(matches(ax)[:, 0], np.stack([i, X[i]], 1))
    np.testing.assert_allclose(matches(ax)[:, 1], np.stack([j, Y[j] - shift], 1))


def test_two_way_scales_are_those_of_the_series(ax):
    viz.plot_two_way(X, Y + 100, DTW().align([X], [Y + 100]), ax=ax)
    (right,) = ax.child_axes
    assert ax.get_xlim() == (-0.5, 5.5)
    assert ax.get_xlabel() == "step"
    assert (ax.get_ylabel(), right.get_ylabel()) == ("x", "y")
    left_marks, right_marks = ax.get_yticks(), right.get_yticks()
    assert left_marks.min() >= 0
    assert left_marks.max() <= 3
    assert right_marks.min() >= 100
    assert right_marks.max() <= 103
    low, high = ax.get_ylim()
    for _, values in lines(ax):
        assert low < values.min()
        assert values.max() < high


def test_two_way_offset_shifts_y(ax):
    viz.plot_two_way(X, Y, DTW().align([X], [Y]), offset=0, ax=ax)
    np.testing.assert_array_equal(lines(ax)[1][1], Y)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_two_way_draws_at_most_so_many_matches(ax, count):
    alignment = DTW().align([X], [Y])
    path = alignment.path(0).numpy()
    viz.plot_two_way(X, Y, alignment, matches=count, ax=ax)
    drawn = matches(ax)
    assert len(drawn) == min(count, len(path))
    if count >= 2:  # from the first to the last
        assert drawn[0, :, 0].tolist() == path[0].tolist()
        assert drawn[-1, :, 0].tolist() == path[-1].tolist()


def test_two_way_joins_the_sides_that_face_each_other_with_several_channels(ax):
    x, y = several()
    viz.plot_two_way(x, y, DTW().align(x, y), ax=ax)
    assert len(ax.lines) == 6
    i = matches(ax)[:, 0, 0].astype(int)
    np.testing.assert_allclose(matches(ax)[:, 0, 1], x[0].amin(1).numpy()[i])


def test_three_way_puts_x_below_and_y_to_the_left(ax):
    alignment = DTW().align([X], [Y])
    viz.plot_three_way(X, Y, alignment, ax=ax)
    middle, below, left = ax.figure.axes
    assert middle is ax
    straight, path = lines(ax)
    np.testing.assert_array_equal(straight, [[0, 3], [0, 5]])
    np.testing.assert_array_equal(np.stack(path, 1), alignment.path(0).numpy())
    np.testing.assert_array_equal(lines(below), [[np.arange(4), X]])
    np.testing.assert_array_equal(lines(left), [[Y, np.arange(6)]])
    assert below.get_xlim() == ax.get_xlim() == (-0.5, 3.5)
    assert left.get_ylim() == ax.get_ylim() == (-0.5, 5.5)
    assert (below.get_xlabel(), below.get_ylabel()) == ("step of x", "x")
    assert (left.get_xlabel(), left.get_ylabel()) == ("y", "step of y")


@pytest.mark.parametrize("place", ["grid", "hand", "subfigure"])
def test_three_way_stays_in_the_space_of_its_ax(place):
    figure = Figure()
    if place == "hand":
        ax = figure.add_axes((0.2, 0.3, 0.5, 0.4))
    elif place == "grid":
        ax = figure.subplots(2, 2)[0, 1]
    else:
        ax = figure.subfigures(1, 2)[1].subplots()
    whole = ax.get_position()
    viz.plot_three_way(X, Y, DTW().align([X], [Y]), ax=ax)
    for panel in [*ax.figure.axes[-2:], ax]:
        box = panel.get_position()
        assert whole.x0 - 1e-9 <= box.x0 < box.x1 <= whole.x1 + 1e-9
        assert whole.y0 - 1e-9 <= box.y0 < box.y1 <= whole.y1 + 1e-9


def test_straight_line_joins_the_ends_of_a_subsequence(ax):
    x, y = Y[2:4], Y
    alignment = DTW(subsequence=True).align([x], [y])
    viz.plot_three_way(x, y, alignment, ax=ax)
    np.testing.assert_array_equal(lines(ax)[0], [[0, 1], [2, 3]])
    assert ax.get_ylim() == (-0.5, 5.5)


@pytest.mark.parametrize("plot", BOTH)
@pytest.mark.parametrize("item", [0, 1, 2, -1])
def test_item_and_channel_are_selected(plot, item, ax):
    x, y = several()
    alignment = DTW().align(x, y)
    plot(x, y, alignment, item, channel=1, ax=ax)
    drawn = lines(ax if plot is viz.plot_two_way else ax.figure.axes[1])[0]
    np.testing.assert_array_equal(drawn[1], x[item][:, 1].numpy())


@pytest.mark.parametrize("plot", BOTH)
def test_batch_tensor_array_and_list_draw_the_same(plot):
    x, y = several(channels=1)
    alignment = DTW().align(x, y)
    inputs = [
        (x, y),
        (x.to_list(), y.to_list()),
        (x[1], y[1]),
        (x[1][None].expand(3, -1, -1), y[1][None].expand(3, -1, -1)),
        (x[1].numpy(), y[1].numpy()),
        (x[1][:, 0].numpy(), y[1][:, 0]),
        (x[1].requires_grad_(), y[1].double()),
    ]
    axes = [plot(first, second, alignment, 1, ax=Figure().subplots()) for first, second in inputs]
    for drawn in axes[1:]:
        for panel, expected in zip(drawn.figure.axes, axes[0].figure.axes, strict=True):
            for line, other in zip(lines(panel), lines(expected), strict=True):
                np.testing.assert_array_equal(line, other)


@pytest.mark.parametrize("plot", BOTH)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_float_type_is_drawn(plot, dtype, ax):
    x, y = torch.tensor(X, dtype=dtype)[None, :, None], torch.tensor(Y, dtype=dtype)[None, :, None]
    plot(x, y, DTW().align(x, y), ax=ax)
    ax.figure.canvas.draw()


@pytest.mark.parametrize("plot", BOTH)
@pytest.mark.parametrize("distance", [DTW(), SoftDTW(gamma=0.5), Euclidean(), DTW(subsequence=True)], ids=repr)
@pytest.mark.parametrize("lengths", [(1, 1), (1, 9), (70, 2)])
def test_odd_lengths_are_drawn(plot, distance, lengths, ax):
    x, y = (torch.linspace(0, 1, n)[None, :, None] for n in lengths)
    plot(x, y, distance.align(x, y), ax=ax)
    ax.figure.canvas.draw()


@pytest.mark.parametrize("plot", BOTH)
def test_ax_goes_in_and_comes_out(plot, ax):
    assert plot(X, Y, DTW().align([X], [Y]), ax=ax) is ax
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize("plot", BOTH)
def test_without_ax_a_figure_is_made(plot):
    ax = plot(X, Y, DTW().align([X], [Y]))
    try:
        assert [pyplot.figure(number) for number in pyplot.get_fignums()] == [ax.figure]
    finally:
        pyplot.close(ax.figure)


@pytest.mark.parametrize("plot", BOTH)
def test_nothing_passed_in_is_changed(plot, ax):
    x, y = several()
    alignment = DTW().align(x, y)
    before = [x.values.clone(), y.values.clone(), alignment.path(0).clone()]
    plot(x, y, alignment, ax=ax)
    for now, then in zip([x.values, y.values, alignment.path(0)], before, strict=True):
        assert torch.equal(now.nan_to_num(7), then.nan_to_num(7))


@pytest.mark.parametrize("plot", BOTH)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": "text"}, TypeError, "expected x to be an array or a tensor (T, C), a Batch or a list, got str"),
        ({"x": X[:3]}, ValueError, "x has 3 steps, but 4 were aligned in item 0"),
        ({"y": Y[:, None, None, None]}, ValueError, "expected y of shape (T, C) or (T,), not empty, got (6, 1, 1, 1)"),
        ({"x": [X], "item": 1}, IndexError, "item 1 is out of range for 1 alignments"),
        ({"x": []}, IndexError, "item 0 is out of range for the 0 sequences of x"),
        ({"x": [0.0, 1.0]}, ValueError, "expected x of shape (T, C) or (T,), not empty, got ()"),
        ({"y": np.where(Y == 1, np.nan, Y)}, ValueError, "y holds nan at step 4, channel 0"),
        ({"item": 0.0}, TypeError, "expected item to be an int, got float"),
        ({"channel": 1}, ValueError, "channel 1 is out of range: x has 1 channels"),
        ({"channel": 0.5}, TypeError, "expected channel to be an int or None, got float"),
        ({"alignment": X}, TypeError, "expected an Alignment, which has .path and .plan, got ndarray"),
        ({"ax": 3}, TypeError, "expected ax to be a matplotlib Axes or None, got int"),
    ],
)
def test_bad_input_is_refused(plot, change, error, message):
    given = {"x": X, "y": Y, "alignment": DTW().align([X], [Y]), "ax": Figure().subplots()} | change
    with pytest.raises(error) as caught:
        plot(**given)
    assert str(caught.value) == f"{plot.__name__}: {message}"
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"matches": -1}, "plot_two_way: matches must be a whole number, 0 or more, got -1"),
        ({"matches": True}, "plot_two_way: matches must be a whole number, 0 or more, got True"),
        ({"offset": float("nan")}, "plot_two_way: offset must be finite, got nan"),
    ],
)
def test_two_way_refuses_bad_options(option, message, ax):
    with pytest.raises(ValueError) as caught:
        viz.plot_two_way(X, Y, DTW().align([X], [Y]), ax=ax, **option)
    assert str(caught.value) == message
