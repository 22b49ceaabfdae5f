import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

import likewise as lw
from likewise.models.attended_features import AttendedFeatures
from likewise.viz.attention import plot_attention


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.mark.parametrize("shape", [(9, 8), (1, 9, 8), (3, 9, 8)])
def test_an_image_fades_where_no_attention_is(shape, ax):
    weights = torch.tensor([[0.0, 0.1], [0.4, 0.5]])
    assert plot_attention(weights, 7 * torch.rand(shape) - 3, ax=ax) is ax
    image, cover = ax.images
    assert image.get_extent() == cover.get_extent() == [-0.5, 7.5, 8.5, -0.5]
    shown = image.get_array()
    assert shown.min() == 0
    assert shown.max() == 1
    np.testing.assert_allclose(cover.get_array()[..., 3], 0.85 * (1 - weights.numpy() / 0.5), rtol=1e-6)


def test_a_series_has_its_weights_behind_it(ax):
    series = torch.randn(6, 2)
    plot_attention(torch.tensor([0.1, 0.2, 0.3]), series, ax=ax)
    assert len(ax.lines) == 2
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), series[:, 1])
    assert ax.images[0].get_extent()[:2] == [-0.5, 5.5]
    np.testing.assert_allclose(ax.images[0].get_array(), [[0.1, 0.2, 0.3]], rtol=1e-6)


def test_attended_features_are_drawn(ax):
    batch = lw.Batch.from_list([torch.randn(5, 2), torch.randn(3, 2)])
    features = AttendedFeatures(lw.TCN(2, 4), ["convolutions.1"])
    maps = features.attend(batch).maps["convolutions.1"]
    plot_attention(maps[1], batch[1], ax=ax)
    assert ax.images[0].get_array().shape == (1, 3)
    images = torch.rand(2, 3, 20, 24)
    maps = AttendedFeatures(lw.models.SmallCNN(3), ["norms.2"]).attend(images).maps["norms.2"]
    new = plot_attention(maps[0], images[0])
    assert len(new.images) == 2
    pyplot.close(new.figure)


def test_constant_items(ax):
    plot_attention(torch.zeros(2, 2), torch.zeros(4, 4), ax=ax)
    plot_attention(torch.zeros(3), torch.zeros(3), ax=Figure().subplots())


def test_bad_arguments_are_refused(ax):
    image, weights = torch.rand(3, 4, 4), torch.rand(2, 2)
    with pytest.raises(ValueError, match=r"expected weights of shape \(h, w\) or \(t,\), got \(1, 2, 2\)"):
        plot_attention(weights[None], image, ax=ax)
    with pytest.raises(ValueError, match="weights must be finite and not negative"):
        plot_attention(-weights, image, ax=ax)
    with pytest.raises(ValueError, match="x holds NaN or infinity; leave its padding out"):
        plot_attention(weights, image / 0, ax=ax)
    with pytest.raises(ValueError, match=r"of one or three channels, got \(2, 4, 4\)"):
        plot_attention(weights, image[:2], ax=ax)
    with pytest.raises(ValueError, match="there are weights for 4 steps, but x has 3"):
        plot_attention(torch.ones(4), torch.rand(3), ax=ax)
    with pytest.raises(ValueError, match=r"expected a series \(T, C\) or \(T,\), got \(3, 4, 4\)"):
        plot_attention(torch.ones(4), image, ax=ax)
    with pytest.raises(TypeError, match="expected ax to be a matplotlib Axes or None, got str"):
        plot_attention(weights, image, ax="ax")
