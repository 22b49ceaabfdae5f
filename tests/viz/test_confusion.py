import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from likewise import viz


@pytest.fixture
def ax():
    return Figure().subplots()


def test_rows_are_coloured_by_shares_and_numbered(ax):
    counts = torch.tensor([[6, 2, 0], [0, 4, 0], [0, 0, 0]])
    assert viz.plot_confusion(counts, ["a", "b", "c"], ax=ax) is ax
    np.testing.assert_allclose(ax.images[0].get_array(), [[0.75, 0.25, 0], [0, 1, 0], [0, 0, 0]])
    assert ax.images[0].get_clim() == (0, 1)
    written = {(text.get_position(), text.get_text()) for text in ax.texts}
    assert written == {((0, 0), "6"), ((1, 0), "2"), ((1, 1), "4")}, "x is the predicted class"
    assert [to_rgb(text.get_color()) for text in ax.texts] == [(1, 1, 1), (0, 0, 0), (1, 1, 1)]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "b", "c"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("predicted class", "class")
    assert ax.get_ylim() == (2.5, -0.5), "the first class on top"


def test_classes_are_numbered_without_names(ax):
    viz.plot_confusion(np.eye(3), ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "1", "2"]


def test_many_classes_are_not_numbered_in_full(ax):
    viz.plot_confusion(np.ones((21, 21)), ax=ax)
    assert not ax.texts


def test_one_class_and_long_names(ax):
    viz.plot_confusion(np.array([[3]]), ["the only one"], ax=ax)
    assert [text.get_text() for text in ax.texts] == ["3"]
    other = viz.plot_confusion(np.eye(4), ["a long name"] * 4, ax=Figure().subplots())
    assert other.get_xticklabels()[0].get_rotation() == 45


def test_a_new_figure():
    figure = viz.plot_confusion(np.eye(2)).figure
    assert pyplot.fignum_exists(figure.number)
    pyplot.close(figure)


@pytest.mark.parametrize(
    ("counts", "names", "message"),
    [
        (np.zeros((2, 3)), None, r"expected counts of shape \(K, K\), not empty, got \(2, 3\)"),
        (np.zeros((0, 0)), None, "not empty"),
        (np.array([[-1]]), None, "counts must be 0 or more"),
        (np.array([[np.nan]]), None, "counts must be 0 or more"),
        (np.eye(2), ["a"], "expected a name for each of the 2 classes, got 1"),
    ],
)
def test_bad_input_is_refused(counts, names, message, ax):
    with pytest.raises(ValueError, match=f"plot_confusion: .*{message}"):
        viz.plot_confusion(counts, names, ax=ax)


def test_axes_of_another_kind_are_refused():
    with pytest.raises(TypeError, match="plot_confusion: expected ax to be a matplotlib Axes or None, got str"):
        viz.plot_confusion(np.eye(2), ax="axes")  # type: ignore[arg-type]
