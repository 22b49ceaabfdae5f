"""Plots of retrieval: precision against recall, and distances within and between classes."""

from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from likewise import _check
from likewise._labels import number_labels, read_labels
from likewise.viz._axes import BLUE, VERMILION, ensure_axes
from likewise.viz._classes import EIGHT
from likewise.viz._inputs import to_numpy


class Curve(Protocol):
    """The result of ``likewise.evaluation.precision_recall_curve``."""

    @property
    def recall(self) -> Any:
        """(P,)."""
        ...

    @property
    def precision(self) -> Any:
        """(P,)."""
        ...


def plot_precision_recall(curve: Curve, *, label: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw precision against recall; the legend shows the area under the line, the mean average precision.

    curve: the result of ``precision_recall_curve``. label: its name in the legend. To compare several curves, draw them
    into the same ax.

    Example:
        >>> import torch
        >>> from likewise import viz
        >>> from likewise.evaluation.curves import precision_recall_curve
        >>> from matplotlib.figure import Figure
        >>> curve = precision_recall_curve(torch.tensor([[0.1, 0.2]]), torch.tensor([1]), torch.tensor([1, 0]))
        >>> ax = viz.plot_precision_recall(curve, label="DTW", ax=Figure().subplots())
        >>> ax.get_legend().get_texts()[0].get_text()
        'DTW: 1.000'
    """
    op = "plot_precision_recall"
    if not hasattr(curve, "recall") or not hasattr(curve, "precision"):
        raise TypeError(f"{op}: expected the result of precision_recall_curve, got {type(curve).__name__}")
    recall, precision = to_numpy(curve.recall), to_numpy(curve.precision)
    if recall.ndim != 1 or recall.shape != precision.shape or recall.size == 0:
        _check.refuse(op, f"expected recall and precision of shape (P,), got {recall.shape} and {precision.shape}")
    ax = ensure_axes(op, ax, 4.8, 4.0)
    # Points are the middles of steps: extend the line to both edges.
    ends = np.concatenate([[0.0], recall, [1.0]]), np.concatenate([precision[:1], precision, precision[-1:]])
    area = f"{precision.mean():.3f}"
    color = EIGHT[len(ax.lines) % len(EIGHT)]
    ax.plot(*ends, color=color, linewidth=1.8, label=area if label is None else f"{label}: {area}")
    ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="recall", ylabel="precision")
    ax.grid(color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.legend(title="mean average precision", loc="best", frameon=False, alignment="left")
    return ax


def plot_distance_histogram(
    D: Tensor | np.ndarray,
    row_labels: object,
    col_labels: object | None = None,
    *,
    bins: int = 60,
    ax: Axes | None = None,
) -> Axes:
    """Draw histograms of the distances within classes and between classes.

    D: distances (N, M). row_labels: (N,). col_labels: (M,); without them, rows and columns are the same items, and the
    diagonal is left out. Each histogram has area 1; dashed lines are medians. Infinite distances are left out.

    Example:
        >>> from likewise import viz
        >>> from matplotlib.figure import Figure
        >>> D = np.array([[0.0, 1.0, 5.0], [1.0, 0.0, 4.0], [5.0, 4.0, 0.0]])
        >>> ax = viz.plot_distance_histogram(D, [0, 0, 1], ax=Figure().subplots())
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['same class: 2 pairs', 'two classes: 4 pairs']
    """
    op = "plot_distance_histogram"
    same, other = _split(op, to_numpy(D), row_labels, col_labels)
    bins = _check.whole(op, "bins", bins)
    ax = ensure_axes(op, ax, 5.4, 3.6)
    every = [part for part in (same, other) if part.size]
    if not every:
        _check.refuse(op, "every distance is infinite")
    low, high = min(part.min() for part in every), max(part.max() for part in every)
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    for part, name, color in ((same, "same class", BLUE), (other, "two classes", VERMILION)):
        text = f"{name}: {part.size:,} pair{'s' * (part.size != 1)}"
        if not part.size:
            ax.fill_between([], [], color=color, alpha=0.35, label=text)
            continue
        heights = np.histogram(part, edges, density=True)[0]
        ax.stairs(heights, edges, fill=True, color=color, alpha=0.35, label=text)
        ax.stairs(heights, edges, color=color, linewidth=1.2)
        ax.axvline(float(np.median(part)), color=color, linewidth=1.2, linestyle=(0, (4, 3)))
    ax.set(xlim=(edges[0], edges[-1]), xlabel="distance", ylabel="density")
    ax.set_ylim(bottom=0)
    ax.set_yticks([])
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.legend(frameon=False)
    return ax


def _split(op: str, D: np.ndarray, row_labels: object, col_labels: object | None) -> tuple[np.ndarray, np.ndarray]:
    """The finite distances within classes, and those between classes."""
    if D.ndim != 2 or D.size == 0:
        _check.refuse(op, f"expected D of shape (N, M), not empty, got {D.shape}")
    if np.isnan(D).any():
        _check.refuse(op, f"D holds NaN in row {int(np.isnan(D).any(1).argmax())}")
    if col_labels is None and D.shape[0] != D.shape[1]:
        _check.refuse(op, f"without col_labels, D must be square, got {D.shape}")
    parts = [read_labels(op, "row_labels", row_labels, D.shape[0])]
    if col_labels is not None:
        parts.append(read_labels(op, "col_labels", col_labels, D.shape[1]))
    codes = number_labels(*parts)[1]
    rows, columns = codes[0], codes[-1]
    same, counted = rows[:, None] == columns, np.isfinite(D)
    if col_labels is None:
        np.fill_diagonal(counted, False)
    return D[same & counted], D[~same & counted]
