import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from sklearn.metrics import silhouette_samples

import likewise as lw
from likewise import viz
from likewise.clusters import interpolate
from likewise.sklearn import Hierarchical

MEMBERS = lw.Batch.from_list([[0.0, 0.0, 2.0, 0.0], [0.0, 2.0, 0.0], [0.0, 1.0, 2.0, 0.0, 0.0], [9.0, 8.0, 9.0]])
LABELS = np.array(["low", "low", "low", "high"])
CENTERS = [[0.0, 2.0, 0.0], [9.0, 8.0, 9.0]]


@pytest.fixture
def ax():
    return Figure().subplots()


def aligned(center, members):
    return lw.DTW().align([center] * len(members), members)


def members_of(ax):
    (collection,) = [one for one in ax.collections if isinstance(one, LineCollection)]
    return [np.asarray(segment)[:, 1] for segment in collection.get_segments()]


def test_an_average_over_its_members(ax):
    viz.plot_barycenter(CENTERS[0], MEMBERS[:3], ax=ax)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), CENTERS[0])
    for drawn, item in zip(members_of(ax), MEMBERS, strict=False):
        np.testing.assert_array_equal(drawn, item[:, 0])
    assert ax.get_xlim() == (-0.5, 4.5)
    low, high = ax.get_ylim()
    assert low <= 0
    assert high >= 2


def test_the_density_of_the_alignments(ax):
    alignment = aligned(CENTERS[0], MEMBERS[:3])
    viz.plot_barycenter(CENTERS[0], MEMBERS[:3], alignment, ax=ax)
    below = ax.figure.axes[1]
    shares = below.images[0].get_array().T  # (steps, bins)
    expected = np.zeros_like(shares)
    for k in range(3):
        for i, place in {(i, min(int(60 * j / (len(MEMBERS[k]) - 1)), 59)) for i, j in alignment.path(k).tolist()}:
            expected[i, place] += 1 / 3
    np.testing.assert_allclose(shares, expected)
    assert below.get_xlabel() == "step of the average"


def test_many_members_are_thinned(ax):
    viz.plot_barycenter(np.zeros(4), np.zeros((900, 4, 1)), ax=ax)
    assert len(members_of(ax)) == 200


def test_interpolation(ax):
    between = interpolate(lw.DTW(), MEMBERS[0], MEMBERS[2])
    viz.plot_interpolation(between, ax=ax)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["0", "0.25", "0.5", "0.75", "1"]
    first = ax.lines[0].get_ydata()
    np.testing.assert_allclose(first, MEMBERS[0][:, 0])
    assert [len(line.get_ydata()) for line in ax.lines] == [len(item) for item in between]


@pytest.mark.parametrize("with_alignments", [False, True])
def test_a_sheet_of_clusters(ax, with_alignments):
    groups = [MEMBERS[3:], MEMBERS[:3]]
    centers = CENTERS[::-1]  # in the order of the sorted labels
    alignments = [aligned(*pair) for pair in zip(centers, groups, strict=True)] if with_alignments else None
    viz.plot_clusters(MEMBERS, LABELS, centers, alignments, ax=ax)
    panels = [panel for panel in ax.figure.axes if panel.get_title()]
    assert [panel.get_title() for panel in panels] == ["high: 1 item", "low: 3 items"]
    assert len(ax.figure.axes) == (4 if with_alignments else 2)
    assert panels[0].get_ylim() == panels[1].get_ylim()
    np.testing.assert_array_equal(panels[1].lines[0].get_ydata(), CENTERS[0])
    viz.plot_clusters(MEMBERS, LABELS, None, names=["one", "two"], ax=Figure().subplots())


def test_silhouettes(ax):
    D = lw.DTW().matrix(MEMBERS)
    labels = [0, 1, 0, 1]
    viz.plot_silhouette(D, labels, ["a", "b"], ax=ax)
    scores = silhouette_samples(D.double().numpy(), labels, metric="precomputed")
    widths = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(widths, [*np.sort(scores[[0, 2]]), *np.sort(scores[[1, 3]])])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]
    assert f"{scores.mean():.2f}" in ax.get_xlabel()


def test_a_dendrogram(ax):
    model = Hierarchical(lw.DTW(), 2).fit(MEMBERS)
    viz.plot_dendrogram(model.linkage_, LABELS, threshold=10.0, ax=ax)
    assert sorted(text.get_text() for text in ax.get_xticklabels()) == sorted(LABELS)
    joins = [len(one.get_segments()) for one in ax.collections]
    assert sum(joins) == 3
    unnamed = viz.plot_dendrogram(model.linkage_, ax=Figure().subplots())
    assert unnamed.get_xlabel() == "4 items"


def test_new_figures():
    for call in (
        lambda: viz.plot_barycenter(CENTERS[0], MEMBERS[:3], aligned(CENTERS[0], MEMBERS[:3])),
        lambda: viz.plot_clusters(MEMBERS, LABELS, CENTERS),
        lambda: viz.plot_silhouette(lw.DTW().matrix(MEMBERS), [0, 1, 0, 1]),
    ):
        figure = call().figure
        figure.canvas.draw()
        pyplot.close(figure)


def test_axes_that_were_placed_by_hand():
    ax = Figure().add_axes((0.1, 0.1, 0.8, 0.8))
    viz.plot_clusters(MEMBERS, LABELS, CENTERS[::-1], ax=ax)
    viz.plot_barycenter(CENTERS[0], MEMBERS[:3], aligned(CENTERS[0], MEMBERS[:3]), ax=Figure().add_axes((0, 0, 1, 1)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: viz.plot_barycenter([0.0], [], ax=None), ValueError, "there are no items to draw"),
        (lambda: viz.plot_barycenter(torch.zeros(3, 1), MEMBERS, channel=1), ValueError, "channel 1 is out of range"),
        (lambda: viz.plot_barycenter([0.0], MEMBERS, channel=0.5), TypeError, "expected channel to be an int"),
        (lambda: viz.plot_clusters(MEMBERS, LABELS, CENTERS[:1]), ValueError, "there are 2 clusters, but 1 centers"),
        (lambda: viz.plot_clusters(MEMBERS, LABELS[:2], CENTERS), ValueError, r"expected labels of shape \(4,\)"),
        (lambda: viz.plot_interpolation(MEMBERS, [0.5]), ValueError, r"expected shares of shape \(4,\)"),
        (lambda: viz.plot_silhouette(np.zeros((2, 3)), [0, 1]), ValueError, r"expected D of shape \(N, N\)"),
        (lambda: viz.plot_silhouette(-np.ones((2, 2)), [0, 1]), ValueError, "D holds values that are negative"),
        (lambda: viz.plot_silhouette(np.zeros((3, 3)), [0, 0, 0]), ValueError, "expected 2 to 2 clusters, got 1"),
        (lambda: viz.plot_dendrogram(np.zeros((3, 2))), ValueError, r"expected linkage of shape \(N - 1, 4\)"),
        (lambda: viz.plot_dendrogram(np.zeros((3, 4)), ["a"]), ValueError, "expected 4 names, got 1"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
