import pytest
import torch

import likewise as lw
from likewise.clusters import interpolate

X, Y = torch.tensor([0.0, 0.0, 4.0, 1.0]), torch.tensor([0.0, 3.0, 0.0, 0.0, 2.0, 2.0])


@pytest.mark.parametrize("distance", [lw.DTW(), lw.DTW(band=1), lw.SoftDTW(0.1), lw.GDTW(), lw.Euclidean()], ids=repr)
def test_from_one_to_the_other(distance):
    y = X.flip(0) if isinstance(distance, lw.Euclidean) else Y
    between = interpolate(distance, X, y, [0.0, 0.5, 1.0])
    torch.testing.assert_close(between[0][:, 0], X)
    torch.testing.assert_close(between[2][:, 0], y)
    assert len(between[1]) == round((len(X) + len(y)) / 2)


def test_by_hand():
    # The path (0,0) (1,0) (2,1): halfway, frames 0, 0, 3 at times 0, 0.5, 1.5; two steps at 0 and 1.5... lengths 2.5.
    between = interpolate(lw.DTW(), [0.0, 0.0, 4.0], [0.0, 2.0], [0.5])
    assert lw.DTW().align([[0.0, 0.0, 4.0]], [[0.0, 2.0]]).path(0).tolist() == [[0, 0], [1, 0], [2, 1]]
    times = torch.linspace(0, 1.5, len(between[0]))
    expected = torch.where(times <= 0.5, 0.0, 3 * (times - 0.5))
    torch.testing.assert_close(between[0][:, 0], expected)


def test_channels_a_stretch_and_a_metric():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(5, 3, generator=generator), torch.randn(9, 3, generator=generator)
    ends = interpolate(lw.DTW(subsequence=True), x, torch.cat([y, x, y]), [0.0, 1.0])
    torch.testing.assert_close(ends[0], x)
    torch.testing.assert_close(ends[1], x, msg="the stretch that is matched")
    metric = lw.Metric(lw.FrameMLP(3, hidden=4, out=2), lw.DTW())
    assert interpolate(metric, x, y)[2].shape == (7, 2)
    assert interpolate(lw.DTW(), [1.0], [3.0], [0.5])[0].tolist() == [[2.0]]


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="interpolate: expected shares between 0 and 1"):
        interpolate(lw.DTW(), X, Y, [1.5])
    with pytest.raises(TypeError, match="expected distance to be a Distance, got str"):
        interpolate("dtw", X, Y)
    with pytest.raises(ValueError, match="the metric's encoder returns vectors"):
        interpolate(lw.Metric(lw.GRUEncoder(1, 4), lw.Euclidean()), X, Y)
