"""Confusion matrices."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from likewise import _check
from likewise.viz._axes import ensure_axes, whole_numbers
from likewise.viz._classes import MOST_NAMED, read_names
from likewise.viz._inputs import to_numpy


def plot_confusion(
    counts: Tensor | np.ndarray, names: Sequence[object] | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw a confusion matrix (K, K): row i, column j counts the items of class i that were classified as class j.

    names: one for each class; without them, the classes are numbered. Colours show shares of a row. With up to 20
    classes, nonzero counts are written in the cells.

    Example:
        >>> from likewise import viz
        >>> from matplotlib.figure import Figure
        >>> ax = viz.plot_confusion(np.array([[8, 2], [1, 9]]), ["walk", "run"], ax=Figure().subplots())
        >>> [text.get_text() for text in ax.texts]
        ['8', '2', '1', '9']
    """
    values = to_numpy(counts)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or values.size == 0:
        _check.refuse("plot_confusion", f"expected counts of shape (K, K), not empty, got {values.shape}")
    if not (values >= 0).all():
        _check.refuse("plot_confusion", "counts must be 0 or more")
    size = len(values)
    labels = read_names("plot_confusion", names, np.arange(size))
    shares = values / np.maximum(values.sum(1, keepdims=True), 1e-30)
    side = min(8.0, 2.6 + 0.32 * size)
    ax = ensure_axes("plot_confusion", ax, side + 0.9, side)
    image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    ax.figure.colorbar(image, ax=ax, label="share of the class")
    if size <= MOST_NAMED:
        _write_counts(ax, values, shares)
        crowded = max(map(len, labels)) * size > 30
        turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
        ax.set_xticks(range(size), labels, **turned)
        ax.set_yticks(range(size), labels)
        ax.tick_params(length=0)
    else:
        ax.xaxis.set_major_locator(whole_numbers(6))
        ax.yaxis.set_major_locator(whole_numbers(6))
    ax.set(xlabel="predicted class", ylabel="class")
    return ax


def _write_counts(ax: Axes, values: np.ndarray, shares: np.ndarray) -> None:
    fontsize = "small" if len(values) <= 12 else "x-small"
    for i, j in np.argwhere(values > 0):
        color = "white" if shares[i, j] > 0.55 else "black"
        ax.text(j, i, f"{values[i, j]:g}", ha="center", va="center", color=color, fontsize=fontsize)
