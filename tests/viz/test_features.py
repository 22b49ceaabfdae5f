import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

from likewise import DTW, Batch, viz

generator = torch.Generator().manual_seed(0)
X, Y = torch.rand(40, 12, generator=generator), torch.rand(50, 12, generator=generator)


@pytest.fixture
def ax():
    return Figure().subplots()


def align(x=X, y=Y):
    return DTW().align([x], [y])


def test_path_is_drawn_in_seconds(ax):
    alignment = align()
    viz.plot_feature_map(X, Y, alignment, hop_x=0.1, hop_y=0.02, ax=ax)
    np.testing.assert_allclose(np.stack(ax.lines[0].get_data(), 1), alignment.path(0).numpy() * [0.1, 0.02])
    np.testing.assert_allclose(ax.get_xlim(), (-0.05, 3.95))
    np.testing.assert_allclose(ax.get_ylim(), (-0.01, 0.99))


def test_features_are_drawn_along_the_sides(ax):
    viz.plot_feature_map(X, Y, align(), hop_x=0.1, ax=ax)
    _, below, left = ax.figure.axes
    np.testing.assert_allclose(below.images[0].get_array(), X.T)
    np.testing.assert_allclose(below.images[0].get_extent(), (-0.05, 3.95, -0.5, 11.5))
    np.testing.assert_allclose(left.images[0].get_array(), Y)
    np.testing.assert_allclose(left.images[0].get_extent(), (-0.5, 11.5, -0.05, 4.95))
    assert below.get_xlim() == ax.get_xlim()
    assert left.get_ylim() == ax.get_ylim()
    assert (below.get_xlabel(), below.get_ylabel()) == ("x in seconds", "feature of x")
    assert (left.get_xlabel(), left.get_ylabel()) == ("feature of y", "y in seconds")


def test_guides_lead_from_round_seconds_of_x_to_those_of_y(ax):
    # y is x at half the speed: second t of x is second 2 t of y, or one frame after it.
    steps = torch.arange(0, 60.0)
    viz.plot_feature_map(steps, steps.repeat_interleave(2), align(steps, steps.repeat_interleave(2)), hop_x=0.1, ax=ax)
    guides = [line.get_data() for line in ax.lines[1:]]
    np.testing.assert_allclose([x[0] for x, _ in guides], [1, 2, 3, 4, 5])
    np.testing.assert_allclose([y[1] for _, y in guides], [2.05, 4.05, 6.05, 8.05, 10.05])
    assert [text.get_text() for text in ax.texts] == ["2.05", "4.05", "6.05", "8.05", "10.05"]
    _, below, left = ax.figure.axes
    np.testing.assert_allclose([line.get_xdata()[0] for line in below.lines], [1, 2, 3, 4, 5])
    np.testing.assert_allclose([line.get_ydata()[0] for line in left.lines], [2.05, 4.05, 6.05, 8.05, 10.05])


def test_numbers_are_not_written_over_each_other(ax):
    # All of x but its last step is matched with the beginning of y.
    x, y = torch.cat([torch.zeros(99), torch.ones(1)]), torch.cat([torch.zeros(2), torch.ones(60)])
    viz.plot_feature_map(x, y, align(x, y), hop_x=0.1, ax=ax)
    assert len(ax.lines) > 3
    heights = sorted(text.xy[1] for text in ax.texts)
    low, high = ax.get_ylim()
    assert (np.diff(heights) > 0.03 * (high - low)).all()


@pytest.mark.parametrize("lengths", [(1, 1), (1, 9), (70, 2), (1200, 3)])
def test_odd_lengths_are_drawn(lengths, ax):
    x, y = (torch.linspace(0, 1, n)[:, None] for n in lengths)
    viz.plot_feature_map(x, y, align(x, y), hop_x=0.01, ax=ax)
    ax.figure.canvas.draw()
    assert ax.lines[0].get_marker() == ("o" if lengths == (1, 1) else "None")


def test_batch_tensor_array_and_list_draw_the_same():
    x, y = Batch.from_list([X[:5], X]), Batch.from_list([Y[:7], Y])
    alignment = DTW().align(x, y)
    for first, second in [
        (x, y),
        (X, Y),
        (X.numpy(), Y.numpy()),
        ([X[:5], X], [Y[:7], Y]),
        (X.expand(2, -1, -1), Y.expand(2, -1, -1).double().numpy()),
    ]:
        ax = viz.plot_feature_map(first, second, alignment, 1, hop_x=0.1, ax=Figure().subplots())
        np.testing.assert_allclose(ax.figure.axes[1].images[0].get_array(), X.T)
        np.testing.assert_allclose(ax.figure.axes[2].images[0].get_array(), Y)


def test_ax_goes_in_and_comes_out(ax):
    x, y = X.clone(), Y.clone()
    assert viz.plot_feature_map(x, y, align(), hop_x=0.1, ax=ax) is ax
    assert pyplot.get_fignums() == []
    assert torch.equal(x, X)
    assert torch.equal(y, Y)


def test_without_ax_a_figure_is_made():
    ax = viz.plot_feature_map(X, Y, align(), hop_x=0.1)
    try:
        assert [pyplot.figure(number) for number in pyplot.get_fignums()] == [ax.figure]
    finally:
        pyplot.close(ax.figure)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"hop_x": 0}, ValueError, "hop_x must be positive and finite, got 0"),
        ({"hop_x": "1"}, TypeError, "expected hop_x to be a number, got str"),
        ({"hop_y": float("inf")}, ValueError, "hop_y must be positive and finite, got inf"),
        ({"x": Y}, ValueError, "x has 50 steps, but 40 were aligned in item 0"),
        ({"y": None}, TypeError, "expected y to be an array or a tensor (T, C), a Batch or a list, got NoneType"),
        ({"item": 3}, IndexError, "item 3 is out of range for 1 alignments"),
        ({"ax": "ax"}, TypeError, "expected ax to be a matplotlib Axes or None, got str"),
    ],
)
def test_bad_input_is_refused(change, error, message, ax):
    given = {"x": X, "y": Y, "alignment": align(), "hop_x": 0.1, "ax": ax} | change
    with pytest.raises(error) as caught:
        viz.plot_feature_map(**given)
    assert str(caught.value) == f"plot_feature_map: {message}"
