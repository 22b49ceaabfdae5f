import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from likewise import DTW, Cosine, Index, viz


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture
def windows():
    series = torch.sin(torch.arange(300.0) / 8)[None, :, None] + torch.arange(300.0)[None, :, None] / 100
    return Index(DTW(band=2), series, length=40, normalize="window").search(series[:, 20:60], k=3)


@pytest.fixture
def whole():
    items = torch.randn(12, 15, 3, generator=torch.Generator().manual_seed(0)).cumsum(1)
    return Index(DTW(), (items, list("abc") * 4)).search(items[:2] + 0.1, k=4)


def panels(ax):
    return ax.figure.axes


def test_hits_are_drawn_below_their_query(ax, whole):
    assert viz.plot_hits(whole, 1, k=3, channel=2, ax=ax) is ax
    assert len(panels(ax)) == 4
    query = whole.query(1)[:, 2].numpy()
    for i, panel in enumerate(panels(ax)):
        np.testing.assert_allclose(panel.lines[0].get_ydata(), query)
        assert len(panel.lines) == 1 + (i > 0)
        assert panel.get_ylim() == ax.get_ylim()
    path = whole.explain(1, 0).path
    np.testing.assert_allclose(panels(ax)[1].lines[1].get_ydata(), whole.match(1, 0)[path[:, 1], 2])
    assert (np.diff(panels(ax)[1].lines[1].get_xdata()) >= 0).all()
    assert panels(ax)[1].get_title(loc="left").startswith(f"{whole.ids[1, 0]} ({whole.labels[1, 0]}): ")


def test_a_query_without_hits_is_drawn_alone(ax, whole):
    none = Index(DTW(), torch.zeros(2, 5, 1)).search(torch.ones(1, 5, 1), within=0.0)
    viz.plot_hits(none, ax=ax)
    assert len(panels(ax)) == 1
    with pytest.raises(ValueError, match="query 0 has no hits"):
        viz.plot_match(none)


def test_matches_are_drawn_on_their_series(ax, windows):
    assert viz.plot_match(windows, ax=ax) is ax
    series = windows.series(0).flatten().numpy()
    np.testing.assert_allclose(ax.lines[0].get_ydata(), series)
    for i, line in enumerate(ax.lines[1:]):
        start, end = int(windows.starts[0, i]), int(windows.ends[0, i])
        assert line.get_xdata().tolist() == list(range(start, end))
        np.testing.assert_allclose(line.get_ydata(), series[start:end])
    assert [text.get_text() for text in ax.texts] == ["0", "1", "2"]
    assert len(panels(ax)[1].lines) == 4


def test_a_long_series_is_thinned(ax):
    series = torch.randn(1, 50_000, 1, generator=torch.Generator().manual_seed(0))
    hits = Index(DTW(band=0), series[:, :50], length=10).search(series[:, 5:15], k=1)
    hits._items = type(hits._items)(series)
    viz.plot_match(hits, ax=ax)
    drawn = ax.lines[0].get_ydata()
    assert len(drawn) <= 4000
    assert (drawn.min(), drawn.max()) == (series.min(), series.max())


def test_an_explanation_has_a_ribbon_for_each_segment(ax, whole):
    why = whole.explain(0, 1)
    assert viz.plot_explanation(why, ax=ax) is ax
    ribbons = [patch for patch in ax.patches if isinstance(patch, Polygon)]
    assert len(ribbons) == len(why.segments)
    costs = panels(ax)[1]
    heights = np.array([bar.get_height() for bar in costs.patches]).reshape(3, 15)
    np.testing.assert_allclose(heights.T, why.cost)
    assert costs.lines[0].get_ydata() == pytest.approx(why.counterfactual.explanation.by_step.numpy())
    assert ax.get_title() == f"DTW {why.value:.4g} to {why.name}"
    one = viz.plot_explanation(why, channel=1)
    np.testing.assert_allclose(one.lines[0].get_ydata(), why.query[:, 1])


def test_a_new_figure(whole, windows):
    for ax in (viz.plot_hits(whole), viz.plot_match(windows), whole.explain().plot(), windows.explain().plot()):
        assert ax.figure in map(pyplot.figure, pyplot.get_fignums())
        ax.figure.canvas.draw()


def test_axes_placed_by_hand(whole):
    figure = Figure()
    ax = figure.add_axes((0.2, 0.3, 0.5, 0.4))
    viz.plot_hits(whole, k=2, ax=ax)
    boxes = [panel.get_position() for panel in figure.axes]
    assert min(box.y0 for box in boxes) == pytest.approx(0.3)
    assert max(box.x1 for box in boxes) == pytest.approx(0.7)


def test_mistakes(whole, ax):
    with pytest.raises(TypeError, match="expected Hits"):
        viz.plot_hits([1])
    with pytest.raises(TypeError, match="expected an Explanation"):
        viz.plot_explanation(whole)
    with pytest.raises(ValueError, match="query 7 is out of range"):
        viz.plot_hits(whole, 7)
    with pytest.raises(ValueError, match="channel must be a whole number from 0 to 2"):
        viz.plot_hits(whole, channel=3, ax=ax)
    vectors = Index(Cosine(), torch.eye(3)).search(torch.eye(3), k=1)
    with pytest.raises(ValueError, match="expected sequences"):
        viz.plot_hits(vectors, ax=ax)
