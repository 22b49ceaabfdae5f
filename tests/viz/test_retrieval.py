import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

from likewise import viz
from likewise.evaluation.curves import PrecisionRecall, precision_recall_curve

CURVE = PrecisionRecall(torch.tensor([0.25, 0.75]), torch.tensor([1.0, 0.5]))


@pytest.fixture
def ax():
    return Figure().subplots()


def test_a_curve_runs_from_edge_to_edge(ax):
    assert viz.plot_precision_recall(CURVE, ax=ax) is ax
    np.testing.assert_allclose(ax.lines[0].get_data(), [[0, 0.25, 0.75, 1], [1, 1, 0.5, 0.5]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("recall", "precision")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0.750"]


def test_several_curves_in_one_picture(ax):
    viz.plot_precision_recall(CURVE, label="DTW", ax=ax)
    D = torch.rand(10, 10, generator=torch.Generator().manual_seed(0))
    viz.plot_precision_recall(precision_recall_curve(D, torch.arange(10) % 2), label="chance", ax=ax)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[0] == "DTW: 0.750"
    assert texts[1].startswith("chance: 0.")
    assert ax.lines[0].get_color() != ax.lines[1].get_color()


def test_histograms_of_items_against_themselves(ax):
    D = torch.tensor([[0.0, 1.0, 5.0], [1.0, 0.0, torch.inf], [5.0, 4.0, 0.0]])
    before = D.clone()
    viz.plot_distance_histogram(D, torch.tensor([0, 0, 1]), bins=4, ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["same class: 2 pairs", "two classes: 3 pairs"]
    heights, edges, _ = ax.patches[0].get_data()
    np.testing.assert_allclose(edges, [1, 2, 3, 4, 5])
    np.testing.assert_allclose(heights, [1, 0, 0, 0])
    np.testing.assert_allclose(ax.patches[2].get_data()[0], [0, 0, 0, 1])
    assert [line.get_xdata()[0] for line in ax.lines] == [1, 5], "medians"
    assert torch.equal(D, before)


def test_histograms_of_queries_and_names(ax):
    viz.plot_distance_histogram(np.array([[1.0, 2.0]]), ["a"], ["a", "b"], ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["same class: 1 pair", "two classes: 1 pair"]


def test_one_class_and_equal_distances(ax):
    viz.plot_distance_histogram(torch.ones(3, 3).bfloat16(), [0, 0, 0], ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["same class: 6 pairs", "two classes: 0 pairs"]
    ax.figure.canvas.draw()


def test_a_new_figure():
    for ax in (viz.plot_precision_recall(CURVE), viz.plot_distance_histogram(np.ones((2, 2)), [0, 1])):
        assert pyplot.fignum_exists(ax.figure.number)
        pyplot.close(ax.figure)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(3), [0, 1, 2]), r"expected D of shape \(N, M\), not empty, got \(3,\)"),
        ((np.ones((2, 3)), [0, 1]), r"without col_labels, D must be square, got \(2, 3\)"),
        ((np.ones((2, 3)), [0, 1], [0]), r"expected col_labels of shape \(3,\), got \(1,\)"),
        ((np.ones((2, 2)), [0]), r"expected row_labels of shape \(2,\), got \(1,\)"),
        ((np.array([[0, 1], [np.nan, 0]]), [0, 1]), "D holds NaN in row 1"),
        ((np.full((2, 2), np.inf), [0, 1]), "every distance is infinite"),
    ],
)
def test_bad_matrices_are_refused(arguments, message, ax):
    with pytest.raises(ValueError, match=f"plot_distance_histogram: {message}"):
        viz.plot_distance_histogram(*arguments, ax=ax)


def test_bad_curves_are_refused(ax):
    with pytest.raises(
        TypeError, match="plot_precision_recall: expected the result of precision_recall_curve, got list"
    ):
        viz.plot_precision_recall([0.5], ax=ax)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected recall and precision of shape \(P,\), got \(2,\) and \(1,\)"):
        viz.plot_precision_recall(PrecisionRecall(torch.ones(2), torch.ones(1)), ax=ax)
    with pytest.raises(ValueError, match="bins must be a whole number of 1 or more, got 0"):
        viz.plot_distance_histogram(np.ones((2, 2)), [0, 1], bins=0, ax=ax)
