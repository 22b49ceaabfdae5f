import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure
from sklearn.decomposition import PCA

from likewise import viz


@pytest.fixture
def ax():
    return Figure().subplots()


def drawn(ax):
    return np.asarray(ax.collections[0].get_offsets())


def in_some_order(points):
    return sorted(map(tuple, np.round(np.asarray(points, dtype=np.float64), 9)))


def test_two_columns_are_drawn_as_they_are(ax):
    points = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 7.0]])
    assert viz.plot_embeddings(points, [5, 5, 2], ax=ax) is ax
    assert in_some_order(drawn(ax)) == in_some_order(points)
    assert ax.get_xlabel() == ""
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["2", "5"]


def test_more_are_projected_as_scikit_learn_does(ax):
    points = np.random.default_rng(0).standard_normal((30, 5)) * [5, 1, 3, 1, 1]
    viz.plot_embeddings(points, np.arange(30) % 3, ["a", "b", "c"], ax=ax)
    peer = PCA(2).fit(points)
    for found, expected in zip(drawn(ax).T, peer.transform(points).T, strict=True):
        np.testing.assert_allclose(np.sort(np.abs(found)), np.sort(np.abs(expected)), atol=1e-9)
    first, second = peer.explained_variance_ratio_
    assert ax.get_xlabel() == f"first axis, {100 * first:.0f} % of the variance"
    assert ax.get_ylabel() == f"second axis, {100 * second:.0f} % of the variance"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "c"]


def test_a_class_has_its_colour(ax):
    points = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 1.0], [6.0, 1.0]])
    viz.plot_embeddings(points, ["x", "x", "y", "y"], ax=ax)
    colors = {tuple(at): tuple(c) for at, c in zip(drawn(ax), ax.collections[0].get_facecolors(), strict=True)}
    assert colors[0, 0] == colors[1, 0] != colors[5, 1] == colors[6, 1]


@pytest.mark.parametrize("classes", [1, 8, 9, 20, 21, 60])
def test_any_number_of_classes(classes, ax):
    labels = torch.arange(120) % classes
    viz.plot_embeddings(torch.randn(120, 3, generator=torch.Generator().manual_seed(0)), labels, ax=ax)
    assert len(np.unique(ax.collections[0].get_facecolors(), axis=0)) == classes
    assert (ax.get_legend() is None) == (classes > 20)


def test_equal_points_and_a_single_one(ax):
    viz.plot_embeddings(torch.ones(3, 4).bfloat16(), [0, 1, 1], ax=ax)
    np.testing.assert_allclose(drawn(ax), 0, atol=1e-9)
    viz.plot_embeddings(torch.ones(1, 4), [0], ax=ax)


def test_a_new_figure():
    figure = viz.plot_embeddings(np.eye(3), [0, 1, 2]).figure
    assert pyplot.fignum_exists(figure.number)
    pyplot.close(figure)


@pytest.mark.parametrize(
    ("points", "labels", "message"),
    [
        (np.zeros((3, 1)), [0, 1, 2], r"expected points of shape \(N, C\), not empty, C at least 2, got \(3, 1\)"),
        (np.zeros((0, 2)), [], "not empty"),
        (np.zeros((3, 2)), [0, 1], r"expected labels of shape \(3,\), got \(2,\)"),
        (np.array([[0, 1], [np.inf, 0]]), [0, 1], "points holds NaN or infinity in row 1"),
    ],
)
def test_bad_input_is_refused(points, labels, message, ax):
    with pytest.raises(ValueError, match=f"plot_embeddings: .*{message}"):
        viz.plot_embeddings(points, labels, ax=ax)
