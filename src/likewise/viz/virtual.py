"""Plots of virtual sequences, to which RVSML learns to map each class, and how a sequence matches them."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from likewise import _check
from likewise.viz._axes import GREY, PATH_COLOR, ensure_axes, whole_numbers
from likewise.viz._inputs import Aligned, Series, read_lengths, read_series, to_numpy
from likewise.viz.cells import reduce_blocks

LEAST_SHARE = 0.02  # matches below this share of the largest are not drawn


def plot_virtual_alignment(
    encoded: Series,
    virtual: Series,
    alignment: Aligned,
    item: int = 0,
    *,
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw an encoded sequence over time, and the row of its class's virtual sequence that each frame is matched with.

    encoded: (T, rK), or several from which item selects one, as returned by ``RVSML.transform``.
    virtual: (r, rK), rows that are unit vectors, or several: row j of class c is 1 in channel cr + j alone.
    alignment: between the two. names: of the K classes.

    Channels run upwards, r per class, between faint lines. A circle at (i, channel of row j) means that frame i is
    matched with row j; its area is their share of the plan. A good map is dark under the circles and pale elsewhere.

    Example:
        >>> from likewise import DTW
        >>> from likewise.sklearn import RVSML
        >>> from matplotlib.figure import Figure
        >>> series = [[0.1, 0.2, 0.3], [0.1, 0.3], [5.0, 5.1], [5.2, 5.0, 5.1, 5.3]]
        >>> learner = RVSML(steps=2).fit(series, [0, 0, 1, 1])
        >>> encoded, virtual = learner.transform(series), learner.virtual_[[0, 0, 1, 1]]
        >>> ax = plot_virtual_alignment(
        ...     encoded, virtual, DTW().align(encoded, virtual), 3, names=["low", "high"], ax=Figure().subplots()
        ... )
        >>> [text.get_text() for text in ax.get_yticklabels()]
        ['low', 'high']
    """
    op = "plot_virtual_alignment"
    frames, rows = read_series(op, encoded, virtual, alignment, item)
    steps, channels = read_lengths(op, alignment, item)[0], frames.shape[1]
    if rows.shape[1] != channels or channels % len(rows):
        shapes = f"{rows.shape} for frames of {channels} channels"
        _check.refuse(op, f"expected virtual rows of as many channels, a multiple of their number, got {shapes}")
    if not ((rows == 1).sum(1) == 1).all() or np.count_nonzero(rows) != len(rows):
        _check.refuse(op, "expected virtual rows that are unit vectors, 1 in one channel and 0 elsewhere")
    classes = channels // len(rows)
    if names is not None and len(names) != classes:
        _check.refuse(op, f"expected {classes} names, one for each class, got {len(names)}")
    ax = ensure_axes(op, ax, 7.0, 3.8)
    values = reduce_blocks(frames, np.add)
    largest = max(np.abs(values).max(), 1e-9)
    image = ax.imshow(
        values.T,
        cmap="RdBu_r",
        origin="lower",
        aspect="auto",
        vmin=-largest,
        vmax=largest,
        extent=(-0.5, steps - 0.5, -0.5, channels - 0.5),
    )
    ax.figure.colorbar(image, ax=ax, label="encoded")
    for edge in range(1, classes):
        ax.axhline(edge * len(rows) - 0.5, color=GREY, linewidth=0.8)
    plan = to_numpy(alignment.plan[item])[:steps, : len(rows)]
    i, j = np.nonzero(plan > LEAST_SHARE * plan.max())
    ax.scatter(
        i, rows.argmax(1)[j], s=28 * plan[i, j] / plan.max(), facecolors="none", edgecolors=PATH_COLOR, linewidths=0.8
    )
    ax.set_xlim(-0.5, steps - 0.5)
    ax.set_ylim(-0.5, channels - 0.5)
    ax.xaxis.set_major_locator(whole_numbers(8))
    middles = (np.arange(classes) + 0.5) * len(rows) - 0.5
    ax.set_yticks(middles, labels=[str(c) for c in range(classes)] if names is None else list(names))
    ax.set_xlabel("step")
    ax.set_ylabel("class")
    return ax
