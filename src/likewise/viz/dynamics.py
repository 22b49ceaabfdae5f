"""Plots of training, robustness to noise, and synchronisation of coupled networks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from likewise import _check
from likewise.viz._axes import BLUE, GREY, VERMILION, ensure_axes, whole_numbers
from likewise.viz._inputs import to_numpy

COLORS = (BLUE, VERMILION, "#009E73", "#CC79A7", "#E69F00")  # Okabe and Ito's colours


def plot_coupling_norm(norms: Any, accuracies: Any = None, *, epochs: Any = None, ax: Axes | None = None) -> Axes:
    """Draw the norm of the coupling weights over the epochs, with a dot where the validation was the best so far.

    norms (E,): after each epoch, or after the epochs (E,) that are given, which need not be whole numbers.
    accuracies (E,): of the validation at the same times. Figure 3a of the coupled-GRU paper.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = plot_coupling_norm([2.0, 2.5, 3.1], [0.7, 0.8, 0.75], ax=Figure().subplots())
        >>> ax.collections[0].get_offsets().tolist()
        [[1.0, 2.0], [2.0, 2.5]]
    """
    values = _curve("plot_coupling_norm", "norms", norms)
    times = np.arange(1, len(values) + 1)
    if epochs is not None:
        times = _curve("plot_coupling_norm", "epochs", epochs, len(values))
    ax = ensure_axes("plot_coupling_norm", ax, 5.0, 3.4)
    ax.plot(times, values, color=BLUE, linewidth=1.4)
    if accuracies is not None:
        scores = _curve("plot_coupling_norm", "accuracies", accuracies, len(values))
        before = np.concatenate([[-np.inf], np.maximum.accumulate(scores)[:-1]])
        best = scores > before
        ax.scatter(times[best], values[best], color=VERMILION, s=16, zorder=3, label="best validation so far")
        ax.legend(frameon=False)
    ax.set_xlabel("epoch")
    ax.set_ylabel("norm of the coupling weights")
    ax.xaxis.set_major_locator(whole_numbers(8))
    return ax


def plot_loss_by_coupling(
    norms: Any, losses: Any, *, first: int | None = None, epochs: Any = None, ax: Axes | None = None
) -> Axes:
    """Draw the loss of each epoch over the norm of the coupling weights, with a line through the first epochs.

    norms (E,): after each epoch, or after the epochs (E,) that are given. losses (E,): of the same epochs. first: the
    number of points that the line is fitted to; by default, those up to the largest norm. The line's label shows their
    correlation. Figure 3b of the coupled-GRU paper, whose correlation is -0.984.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = plot_loss_by_coupling([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], ax=Figure().subplots())
        >>> ax.get_legend().get_texts()[0].get_text()
        'first 3 epochs: correlation -1.000'
    """
    op = "plot_loss_by_coupling"
    x = _curve(op, "norms", norms)
    y = _curve(op, "losses", losses, len(x))
    first = int(x.argmax()) + 1 if first is None else _check.whole(op, "first", first, most=len(x))
    ax = ensure_axes(op, ax, 5.0, 3.4)
    ax.scatter(x, y, color=BLUE, s=14)
    if first > 1 and np.ptp(x[:first]) > 0 and np.ptp(y[:first]) > 0:
        slope, height = np.polyfit(x[:first], y[:first], 1)
        ends = np.array([x[:first].min(), x[:first].max()])
        correlation = np.corrcoef(x[:first], y[:first])[0, 1]
        last = first if epochs is None else _curve(op, "epochs", epochs, len(x))[first - 1]
        label = f"first {last:.0f} epochs: correlation {correlation:.3f}"
        ax.plot(ends, slope * ends + height, color=VERMILION, linewidth=1.2, label=label)
        ax.legend(frameon=False)
    ax.set_xlabel("norm of the coupling weights")
    ax.set_ylabel("loss")
    return ax


def plot_noise(levels: Any, distances: Mapping[str, tuple[Any, Any]], *, ax: Axes | None = None) -> Axes:
    """Draw mean distances of positive and negative pairs as noise grows; the gap between them is the margin.

    levels (S,): standard deviations of the noise. distances: for each method, those of positive pairs (S,) and of
    negative pairs (S,). Figure 4 of the coupled-GRU paper.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = plot_noise([0.0, 1.0], {"CGRU": ([0.1, 0.5], [1.0, 0.6])}, ax=Figure().subplots())
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['CGRU, negative pairs', 'CGRU, positive pairs']
    """
    x = _curve("plot_noise", "levels", levels)
    ax = ensure_axes("plot_noise", ax, 5.4, 3.6)
    for color, (name, (positive, negative)) in zip(_cycle(len(distances)), distances.items(), strict=True):
        low = _curve("plot_noise", f"positive distances of {name}", positive, len(x))
        high = _curve("plot_noise", f"negative distances of {name}", negative, len(x))
        ax.plot(x, high, color=color, linewidth=1.4, label=f"{name}, negative pairs")
        ax.plot(x, low, color=color, linewidth=1.4, linestyle=(0, (4, 2)), label=f"{name}, positive pairs")
        ax.fill_between(x, low, high, color=color, alpha=0.1, linewidth=0)
    ax.set_xlabel("deviation of the noise")
    ax.set_ylabel("mean distance")
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_synchronization(
    errors: Any, lengths: Any = None, *, labels: Sequence[str] = (), log: bool = False, ax: Axes | None = None
) -> Axes:
    """Draw the distance between two trajectories at each step, one line per pair.

    errors (T,) or (N, T): from ``dynamics.synchronization_error``. lengths (N,): real steps of each.
    labels: names of the lines. log: a logarithmic axis, on which a transverse exponent is a slope.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = plot_synchronization([[1.0, 0.5, 0.2], [1.0, 2.0, 9.0]], [3, 2], ax=Figure().subplots())
        >>> [len(line.get_xdata()) for line in ax.lines]
        [3, 2]
    """
    op = "plot_synchronization"
    values = np.atleast_2d(to_numpy(errors)).astype(np.float64)
    if values.ndim != 2 or 0 in values.shape:
        _check.refuse(op, f"expected errors of shape (T,) or (N, T), not empty, got {values.shape}")
    steps = np.full(len(values), values.shape[1]) if lengths is None else to_numpy(lengths)
    if steps.shape != (len(values),) or (steps < 1).any() or (steps > values.shape[1]).any():
        _check.refuse(op, f"expected lengths of shape ({len(values)},), between 1 and {values.shape[1]}")
    if labels and len(labels) != len(values):
        _check.refuse(op, f"there are {len(labels)} labels for {len(values)} lines")
    ax = ensure_axes(op, ax, 5.4, 3.4)
    colors = _cycle(len(values)) if len(values) <= len(COLORS) else [GREY] * len(values)
    for i, (line, count) in enumerate(zip(values, steps.astype(int), strict=True)):
        shown = _curve(op, f"errors[{i}]", line[:count])
        ax.plot(np.arange(1, count + 1), shown, color=colors[i], linewidth=1.2, label=labels[i] if labels else None)
    if log:
        ax.set_yscale("log")
    if labels:
        ax.legend(frameon=False)
    ax.set_xlabel("step")
    ax.set_ylabel("synchronisation error")
    return ax


def _cycle(count: int) -> list[str]:
    return [COLORS[i % len(COLORS)] for i in range(count)]


def _curve(op: str, name: str, values: Any, count: int | None = None) -> np.ndarray:
    curve = to_numpy(values).astype(np.float64)
    if curve.ndim != 1 or not len(curve):
        _check.refuse(op, f"expected {name} of shape (N,), not empty, got {curve.shape}")
    if count is not None and len(curve) != count:
        _check.refuse(op, f"expected {count} {name}, got {len(curve)}")
    if not np.isfinite(curve).all():
        _check.refuse(op, f"{name} hold {curve[~np.isfinite(curve)][0]}")
    return curve
