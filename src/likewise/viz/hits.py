"""Plots of search results: matches with their query, and their places in a long series."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from likewise import _check
from likewise.viz._axes import GREY, X_COLOR, ensure_axes, round_numbers, stacked, whole_numbers
from likewise.viz._classes import class_colors
from likewise.viz._inputs import to_numpy

MOST_POINTS = 4000  # points drawn of a long series; longer ones are reduced to their extremes
HIT_COLORS = [
    *class_colors(8)[1:6],
    "#882255",
    "#7F7F00",
]  # neither the query's blue nor yellow, which is faint


def plot_hits(hits: Any, q: int = 0, *, k: int = 5, channel: int = 0, ax: Axes | None = None) -> Axes:
    """Draw a query above its k nearest matches, aligned with it step by step.

    hits: from ``index.search``. k: at most this many matches. channel: the one to draw. ax: divided into a panel for
    the query and one for each match, which show the query in grey; it keeps the first.

    Example:
        >>> from likewise import DTW, Index, viz
        >>> from matplotlib.figure import Figure
        >>> hits = Index(DTW(), [[0.0, 1.0, 3.0], [5.0, 5.0, 5.0]]).search([[0.0, 1.0, 2.0]], k=2)
        >>> ax = viz.plot_hits(hits, ax=Figure().subplots())
        >>> [one.get_title(loc="left") for one in ax.figure.axes]
        ['query 0', '0: 1', '1: 50']
    """
    op = "plot_hits"
    count = min(_read(op, hits, q), _check.whole(op, "k", k))
    query = _channel(op, hits.query(q), channel)
    ax = ensure_axes(op, ax, 6.5, 1.1 + 0.95 * (count + 1))
    panels = [ax, *stacked(ax, (1,) * (count + 1), share=True)]
    steps = np.arange(len(query))
    for i, panel in enumerate(panels):
        panel.plot(steps, query, color=GREY if i else X_COLOR, linewidth=1.0 if i else 1.5)
        panel.set_title(f"query {q}" if i == 0 else _name(hits, q, i - 1), loc="left", fontsize="small", pad=3)
        panel.tick_params(labelbottom=i == count, labelsize="small")
        panel.yaxis.set_major_locator(round_numbers(3))
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
        if i:
            match = _channel(op, hits.match(q, i - 1), channel)
            panel.plot(*_aligned(hits, q, i - 1, match), color=HIT_COLORS[(i - 1) % len(HIT_COLORS)], linewidth=1.5)
    low, high = min(panel.get_ylim()[0] for panel in panels), max(panel.get_ylim()[1] for panel in panels)
    for panel in panels:
        panel.set_ylim(low, high)
    ax.xaxis.set_major_locator(whole_numbers(8))
    panels[-1].set_xlabel("step of the query")
    return ax


def plot_match(hits: Any, q: int = 0, *, i: int = 0, channel: int = 0, ax: Axes | None = None) -> Axes:
    """Draw where a query was found on a long series, and below it the query with its matches.

    hits: from ``index.search``, with windows. i: the hit whose series is drawn, with all other hits on it. channel: the
    one to draw. ax: divided into two panels; it keeps the series.

    Example:
        >>> import torch
        >>> from likewise import DTW, Index, viz
        >>> from matplotlib.figure import Figure
        >>> series = torch.sin(torch.arange(200.0) / 8)[None, :, None]
        >>> hits = Index(DTW(band=2), series, length=30).search(series[:, 10:40], k=3)
        >>> ax = viz.plot_match(hits, ax=Figure().subplots())
        >>> ax.get_xlabel()
        'step of 0'
    """
    op = "plot_match"
    count = _read(op, hits, q)
    i = _check.whole(op, "i", i, least=0, most=max(0, count - 1))
    if not count:
        _check.refuse(op, f"query {q} has no hits")
    item = int(hits.items[q, i])
    here = [hit for hit in range(count) if int(hits.items[q, hit]) == item]
    series, query = _channel(op, hits.series(q, i), channel), _channel(op, hits.query(q), channel)
    ax = ensure_axes(op, ax, 8.0, 4.2)
    (below,) = stacked(ax, (3, 2))  # its axis is the query's time, not the series'
    ax.plot(*_thinned(series), color=GREY, linewidth=0.8, zorder=1)
    top = series.max() + 0.04 * (np.ptp(series) or 1.0)
    for place, hit in enumerate(here):
        start, end = int(hits.starts[q, hit]), int(hits.ends[q, hit])
        color = HIT_COLORS[place % len(HIT_COLORS)]
        ax.axvspan(start, end - 1, color=color, alpha=0.15, linewidth=0, zorder=0)
        ax.plot(np.arange(start, end), series[start:end], color=color, linewidth=1.4, zorder=2)
        ax.text((start + end) / 2, top, str(hit), color=color, ha="center", va="bottom", fontsize="small")
        match = _channel(op, hits.match(q, hit), channel)
        below.plot(*_aligned(hits, q, hit, match), color=color, linewidth=1.0, alpha=0.8)
    below.plot(np.arange(len(query)), query, color=X_COLOR, linewidth=1.8, label=f"query {q}")
    below.set_xlabel("step of the query")
    below.legend(loc="upper right", fontsize="small", frameon=False)
    ax.set_xlabel(f"step of {hits.ids[q, i]}")
    ax.tick_params(labelbottom=True)
    ax.margins(x=0.01, y=0.12)
    below.margins(x=0.01)
    for panel in (ax, below):
        panel.xaxis.set_major_locator(whole_numbers(8))
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    return ax


def _read(op: str, hits: Any, q: int) -> int:
    """The number of hits of a query."""
    if not hasattr(hits, "counts") or not hasattr(hits, "match"):
        raise TypeError(f"{op}: expected Hits, from index.search, got {type(hits).__name__}")
    if not 0 <= q < len(hits):
        _check.refuse(op, f"query {q} is out of range for {len(hits)} queries")
    return int(hits.counts[q])


def _channel(op: str, values: Any, channel: int) -> np.ndarray:
    found = to_numpy(values).astype(np.float64)
    if found.ndim != 2:
        _check.refuse(op, f"expected sequences (T, C), got items of shape {found.shape}")
    return found[:, _check.whole(op, "channel", channel, least=0, most=found.shape[1] - 1)]


def _aligned(hits: Any, q: int, i: int, match: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The match over the steps of the query: its values along the path."""
    path = hits.explain(q, i).path
    if path is None:
        return np.arange(len(match)), match
    cells = to_numpy(path)
    _, first, count = np.unique(cells[:, 0], return_index=True, return_counts=True)
    # Several steps of the match at one step of the query are spread over that step.
    place = np.arange(len(cells)) - np.repeat(first, count)
    return cells[:, 0] + np.where(np.repeat(count, count) > 1, place / np.repeat(count, count), 0.0), match[cells[:, 1]]


def _thinned(series: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A long series reduced to the extremes of its parts, which looks the same."""
    if len(series) <= MOST_POINTS:
        return np.arange(len(series)), series
    width = -(-len(series) // (MOST_POINTS // 2))
    parts = np.pad(series, (0, -len(series) % width), mode="edge").reshape(-1, width)
    steps = np.repeat(np.arange(len(parts)) * width, 2) + np.tile([0, width // 2], len(parts))
    return steps, np.stack([parts.min(1), parts.max(1)], 1).ravel()


def _name(hits: Any, q: int, i: int) -> str:
    label = "" if hits.labels is None else f" ({hits.labels[q, i]})"
    place = f", steps {int(hits.starts[q, i])}..{int(hits.ends[q, i]) - 1}" if int(hits.starts[q, i]) else ""
    return f"{hits.ids[q, i]}{label}{place}: {float(hits.distances[q, i]):.4g}"
