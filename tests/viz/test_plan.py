import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from likewise.distances.emd import EMD
from likewise.distances.sinkhorn import Sinkhorn
from likewise.viz.plan import MOST_LINES, plot_plan


def draw(*arguments, **options):
    return plot_plan(*arguments, ax=Figure().subplots(), **options)


def test_each_line_joins_what_is_matched():
    x, y = [[0.0, 1.0, 2.0], [5.0, 4.0]], [[2.0, 0.0, 1.0], [4.0, 5.0, 5.0]]
    alignment = EMD().align(x, y)
    ax = draw(alignment, x, y)
    ends = {(int(a[0]), int(b[0])) for a, b in ax.collections[0].get_segments()}
    assert ends == {(0, 1), (1, 2), (2, 0)}
    below, above = (line.get_ydata() for line in ax.lines)
    assert np.allclose(below, x[0])
    assert np.allclose(np.diff(above), np.diff(y[0]))
    assert above.min() > below.max()
    # Two frames of mass 1/2 fill three of 1/3: one is shared.
    assert len(draw(alignment, x, y, item=1).collections[0].get_segments()) == 4


def test_light_lines_are_left_out():
    torch.manual_seed(0)
    x, y = torch.randn(1, 90, 2), torch.randn(1, 80, 2)
    alignment = Sinkhorn(5.0).align(x, y)
    assert len(draw(alignment, x, y, least=0).collections[0].get_segments()) == MOST_LINES
    few = draw(alignment, x, y, least=0.9, channel=1).collections[0]
    assert 0 < len(few.get_segments()) < MOST_LINES
    assert (np.asarray(few.get_alpha()) >= 0.9).all()


def test_constant_and_single_frames():
    assert len(draw(EMD().align([[1.0]], [[1.0, 1.0]]), [[1.0]], [[1.0, 1.0]]).lines) == 2


def test_bad_input():
    x = [[0.0, 1.0]]
    alignment = EMD().align(x, x)
    with pytest.raises(ValueError, match="channel 1 is out of range for 1 channels"):
        draw(alignment, x, x, channel=1)
    with pytest.raises(ValueError, match="least must be between 0 and 1, got 2"):
        draw(alignment, x, x, least=2)
    with pytest.raises(IndexError, match="item 3"):
        draw(alignment, x, x, item=3)
