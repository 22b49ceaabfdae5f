import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

from likewise import DTW, Batch, SoftDTW
from likewise.sklearn.rvsml import RVSML, virtual_sequences
from likewise.viz.virtual import plot_virtual_alignment


@pytest.fixture
def ax():
    return Figure().subplots()


def encoded():
    generator = torch.Generator().manual_seed(0)
    batch = Batch.from_list([torch.randn(n, 6, generator=generator) for n in (7, 4)])
    return Batch(batch.values.masked_fill(~batch.mask[..., None], torch.nan), batch.lengths)


VIRTUAL = virtual_sequences(3, 2)[[2, 0]]


@pytest.mark.parametrize(("item", "steps", "first"), [(0, 7, 4), (1, 4, 0), (-1, 4, 0)])
def test_the_frames_and_their_matches_are_drawn(item, steps, first, ax):
    x = encoded()
    alignment = DTW().align(x, VIRTUAL)
    assert plot_virtual_alignment(x, VIRTUAL, alignment, item, ax=ax) is ax
    np.testing.assert_allclose(ax.images[0].get_array(), x[item].T)
    circles = ax.collections[0]
    expected = np.add(alignment.path(item).numpy(), [0, first])
    np.testing.assert_array_equal(circles.get_offsets(), expected)
    np.testing.assert_array_equal(circles.get_sizes(), 28.0)
    assert (ax.get_xlim(), ax.get_ylim()) == ((-0.5, steps - 0.5), (-0.5, 5.5))
    assert len(ax.lines) == 2  # between three classes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["0", "1", "2"]
    ax.figure.canvas.draw()


def test_circles_have_the_area_of_their_share(ax):
    x = encoded()
    alignment = SoftDTW(0.5).align(x, VIRTUAL)
    plot_virtual_alignment(x, VIRTUAL, alignment, names=["a", "b", "c"], ax=ax)
    plan = alignment.plan[0].numpy()
    shown = plan[plan > 0.02 * plan.max()]
    np.testing.assert_allclose(ax.collections[0].get_sizes(), 28 * shown / plan.max(), rtol=1e-6)


def test_the_map_of_rvsml_is_drawn():
    x, y = [torch.randn(5 + i, 3) + i % 2 for i in range(8)], np.arange(8) % 2
    learner = RVSML(max_iter=3).fit(x, y)
    alignment = DTW().align(learner.transform(x), learner.virtual_[y])
    ax = plot_virtual_alignment(learner.transform(x), learner.virtual_[y], alignment, 3, names=["a", "b"])
    assert ax.get_ylim() == (-0.5, 7.5)
    pyplot.close(ax.figure)


def test_bad_arguments_are_refused(ax):
    x = encoded()
    alignment = DTW().align(x, VIRTUAL)
    with pytest.raises(ValueError, match="plot_virtual_alignment: expected 3 names, one for each class, got 2"):
        plot_virtual_alignment(x, VIRTUAL, alignment, names=["a", "b"], ax=ax)
    with pytest.raises(ValueError, match="plot_virtual_alignment: expected virtual rows that are unit vectors"):
        plot_virtual_alignment(x, VIRTUAL / 2, alignment, ax=ax)
    with pytest.raises(ValueError, match="plot_virtual_alignment: expected virtual rows of as many channels"):
        plot_virtual_alignment(x, VIRTUAL[..., :5], alignment, ax=ax)
    with pytest.raises(ValueError, match="x has 4 steps, but 7 were aligned"):
        plot_virtual_alignment(x.to_list()[::-1], VIRTUAL, alignment, ax=ax)
    with pytest.raises(IndexError, match="item 2 is out of range"):
        plot_virtual_alignment(x, VIRTUAL, alignment, 2, ax=ax)
