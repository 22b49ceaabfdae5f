"""Attention weights over an image, or along time."""

import numpy as np
from matplotlib.axes import Axes

from likewise import _check
from likewise.viz._axes import BLUE, ensure_axes, whole_numbers
from likewise.viz._inputs import to_numpy

MOST_LINES = 12  # the most channels of a series that are drawn


def plot_attention(weights: object, x: object, *, ax: Axes | None = None) -> Axes:
    """Draw the attention weights of one item over the item.

    weights: (h, w) for an image, (t,) for a series, not negative: ``features.attend(batch).maps[layer][item]``.
    x: the image, (H, W) or (C, H, W) with one or three channels, of any range; or the series, (T, C) or (T,), without
        its padding. Weights are stretched to the size of x; those of a padded series are cut off at T.

    An image fades where attention is low; a series has a background that is dark where attention is high. Both are
    relative to the largest weight.

    Example:
        >>> import torch
        >>> from matplotlib.figure import Figure
        >>> ax = plot_attention(torch.rand(7, 7), torch.rand(3, 96, 96), ax=Figure().subplots())
        >>> len(ax.images)
        2
        >>> plot_attention(torch.rand(20), torch.randn(20, 3), ax=Figure().subplots()).get_xlabel()
        'step'
    """
    cells, item = to_numpy(weights).astype(np.float64), to_numpy(x).astype(np.float64)
    if cells.ndim not in (1, 2) or 0 in cells.shape:
        _check.refuse("plot_attention", f"expected weights of shape (h, w) or (t,), got {cells.shape}")
    if not np.isfinite(cells).all() or (cells < 0).any():
        _check.refuse("plot_attention", "weights must be finite and not negative")
    if not np.isfinite(item).all():
        _check.refuse("plot_attention", "x holds NaN or infinity; leave its padding out")
    if cells.ndim == 2:
        return _over_image(cells, item, ensure_axes("plot_attention", ax, 4.0, 4.0))
    return _along_time(cells, item, ensure_axes("plot_attention", ax, 6.4, 2.8))


def _over_image(weights: np.ndarray, image: np.ndarray, ax: Axes) -> Axes:
    if image.ndim == 3 and len(image) in (1, 3):
        image = np.moveaxis(image, 0, -1)
    elif image.ndim != 2:
        got = image.shape
        _check.refuse("plot_attention", f"expected an image (H, W) or (C, H, W) of one or three channels, got {got}")
    height, width = image.shape[:2]
    spread = image.max() - image.min()
    shown = (image - image.min()) / (spread if spread else 1)
    place = (-0.5, width - 0.5, height - 0.5, -0.5)
    ax.imshow(shown if shown.ndim == 2 or shown.shape[2] == 3 else shown[..., 0], cmap="gray", extent=place)
    share = weights / (weights.max() or 1)
    # Cover the image where attention is low.
    cover = np.zeros((*weights.shape, 4))
    cover[..., 3] = 0.85 * (1 - share)
    cover[..., :3] = 1.0
    ax.imshow(cover, extent=place, interpolation="bilinear")
    ax.set(xlim=place[:2], ylim=place[2:], xticks=[], yticks=[])
    return ax


def _along_time(weights: np.ndarray, series: np.ndarray, ax: Axes) -> Axes:
    if series.ndim not in (1, 2) or 0 in series.shape:
        _check.refuse("plot_attention", f"expected a series (T, C) or (T,), got {series.shape}")
    series = series.reshape(len(series), -1)
    steps = len(series)
    if len(weights) > steps:
        if weights[steps:].any():
            _check.refuse("plot_attention", f"there are weights for {len(weights)} steps, but x has {steps}")
        weights = weights[:steps]
    low, high = series.min(), series.max()
    room = 0.05 * (high - low) or 0.5
    place = (-0.5, steps - 0.5, low - room, high + room)
    ax.imshow(weights[None], extent=place, aspect="auto", cmap="Greys", vmin=0, vmax=1.6 * (weights.max() or 1))
    shown = min(series.shape[1], MOST_LINES)
    for channel in range(shown):
        ax.plot(series[:, channel], color=BLUE, linewidth=1.2, alpha=1 if shown == 1 else 0.6)
    ax.set(xlim=place[:2], ylim=place[2:], xlabel="step", ylabel="x")
    ax.xaxis.set_major_locator(whole_numbers(8))
    return ax
