"""A map of embedded items."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from likewise import _check
from likewise._labels import number_labels, read_labels
from likewise.viz._axes import ensure_axes
from likewise.viz._classes import MOST_NAMED, class_colors, read_names
from likewise.viz._inputs import to_numpy


def plot_embeddings(
    points: Tensor | np.ndarray, labels: object, names: Sequence[object] | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw items as points of a plane, coloured by class.

    points: (N, C). More than two columns are projected on their first two principal axes, and the axis labels show the
    explained variance. labels: (N,). names: one for each class, in the order of the sorted labels.

    Up to 20 classes are listed in a legend; with more, colours follow the rainbow.

    Example:
        >>> from likewise import viz
        >>> from matplotlib.figure import Figure
        >>> points = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [5.0, 1.0, 1.0]])
        >>> viz.plot_embeddings(points, [0, 0, 1], ["walk", "run"], ax=Figure().subplots()).get_xlabel()
        'first axis, 96 % of the variance'
    """
    op = "plot_embeddings"
    values = to_numpy(points).astype(np.float64)
    if values.ndim != 2 or len(values) == 0 or values.shape[1] < 2:
        _check.refuse(op, f"expected points of shape (N, C), not empty, C at least 2, got {values.shape}")
    if not np.isfinite(values).all():
        _check.refuse(op, f"points holds NaN or infinity in row {int((~np.isfinite(values)).any(1).argmax())}")
    found, (codes,) = number_labels(read_labels(op, "labels", labels, len(values)))
    texts, colors = read_names(op, names, found), np.array(class_colors(len(found)), dtype=object)
    ax = ensure_axes(op, ax, 6.0 if len(found) <= MOST_NAMED else 4.8, 4.6)
    if values.shape[1] > 2:
        values, shares = _principal(values)
        for axis, word, share in ((ax.xaxis, "first", shares[0]), (ax.yaxis, "second", shares[1])):
            axis.set_label_text(f"{word} axis, {share:.0%} of the variance".replace("%", " %"))
    # Draw in random order, so that no class covers the others.
    order = np.random.default_rng(0).permutation(len(values))
    size = float(np.clip(6000 / len(values), 6, 30))
    ax.scatter(*values[order].T, c=list(colors[codes[order]]), s=size, linewidths=0.2, edgecolors="white", alpha=0.85)
    if len(found) <= MOST_NAMED:
        handles = [ax.scatter([], [], c=[color], s=30, label=text) for color, text in zip(colors, texts, strict=True)]
        ax.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def _principal(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates (N, 2) along the two axes of largest variance, and their shares of the variance, (2,)."""
    centered = values - values.mean(0)
    variances, axes = np.linalg.eigh(centered.T @ centered)  # ascending
    axes = axes[:, [-1, -2]]
    # Fix the sign of each axis by its largest component, so that plots are reproducible.
    axes = axes * np.sign(axes[np.abs(axes).argmax(0), [0, 1]])
    return centered @ axes, np.clip(variances[[-1, -2]], 0, None) / max(variances.sum(), 1e-300)
