"""Plots of averages and clusters: members with their average, sheets of clusters, silhouettes, dendrograms."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from torch import Tensor

from likewise import _check
from likewise._labels import number_labels, read_labels
from likewise.viz._axes import (
    BLUE,
    GREY,
    X_COLOR,
    Y_COLOR,
    divide,
    ensure_axes,
    round_numbers,
    stacked,
    whole_numbers,
)
from likewise.viz._classes import class_colors, read_names
from likewise.viz._inputs import Aligned, Series, one_series, read_path, to_numpy

MOST_MEMBERS = 200  # more lines would merge into a grey block
BINS = 60  # bins of the members' time in the density


def plot_barycenter(
    average: Series,
    members: Any,
    alignment: Aligned | None = None,
    *,
    channel: int = 0,
    color: Any = BLUE,
    ax: Axes | None = None,
) -> Axes:
    """Draw an average over its members and, given their alignment, where in the members its frames are matched.

    average: (L, C) or (L,). members: a Batch, an array (N, T, C), or a list; beyond 200, some are drawn.
    alignment: of the average with each member, ``distance.align(average, member)`` for all pairs. A panel below then
        shows how many members match a frame of the average with each part of their own time: a thin line means
        agreement, the diagonal no warping.
    channel: the channel to draw. ax: divided into two panels if there is an alignment; it keeps the upper one.

    Example:
        >>> from likewise import Batch, DTW, barycenter, viz
        >>> from matplotlib.figure import Figure
        >>> members = Batch.from_list([[0.0, 0.0, 2.0, 0.0], [0.0, 2.0, 0.0], [0.0, 1.0, 2.0]])
        >>> found = barycenter(DTW(), members)
        >>> alignment = DTW().align([found.sequence] * 3, members)
        >>> ax = viz.plot_barycenter(found.sequence, members, alignment, ax=Figure().subplots())
        >>> len(ax.figure.axes)
        2
    """
    op = "plot_barycenter"
    if isinstance(average, (list, tuple)):
        average = np.asarray(average)
    center = _channel(op, "average", one_series(op, "average", average, 0), channel)
    lines = _members(op, members, channel)
    ax = ensure_axes(op, ax, 6.4, 3.2 if alignment is None else 4.8)
    if alignment is None:
        draw_average(ax, center, lines, color)
        ax.set_xlabel("step")
        return ax
    (below,) = stacked(ax, (3, 2), share=True, gap=0.08)
    paths = _paths(op, alignment, len(lines), len(center))
    draw_matches(below, paths, [len(line) for line in lines], len(center), color)
    draw_average(ax, center, lines, color)  # and the limits of both panels
    ax.tick_params(labelbottom=False)
    return ax


def plot_interpolation(
    between: Any, shares: Sequence[float] | None = None, *, channel: int = 0, ax: Axes | None = None
) -> Axes:
    """Draw sequences on the way from x to y, as ``clusters.interpolate`` gives them, below each other.

    between: a Batch, or a list of sequences. shares: of each; by default evenly from 0 to 1. channel: the one to draw.

    Example:
        >>> from likewise import DTW, viz
        >>> from likewise.clusters import interpolate
        >>> from matplotlib.figure import Figure
        >>> between = interpolate(DTW(), [0.0, 0.0, 4.0, 0.0], [0.0, 4.0, 0.0, 0.0])
        >>> len(viz.plot_interpolation(between, ax=Figure().subplots()).lines)
        5
    """
    op = "plot_interpolation"
    lines = _members(op, between, channel)
    given = np.linspace(0, 1, len(lines)) if shares is None else np.asarray(shares, dtype=np.float64)
    if given.shape != (len(lines),):
        _check.refuse(op, f"expected shares of shape ({len(lines)},), got {given.shape}")
    ax = ensure_axes(op, ax, 6.4, min(8.0, 1.2 + 0.7 * len(lines)))
    shades = LinearSegmentedColormap.from_list("from x to y", [to_rgb(X_COLOR), to_rgb(Y_COLOR)])
    apart = 0.6 * max(np.ptp(line) for line in lines) or 1.0
    marks = []
    for k, (line, share) in enumerate(zip(lines, given, strict=True)):
        ax.plot(line - k * apart, color=shades(share), linewidth=1.6)
        marks.append(float(line[0]) - k * apart)
    ax.set_yticks(marks, [f"{share:.2g}" for share in given])
    ax.set_ylabel("share of y")
    ax.set_xlabel("step")
    ax.xaxis.set_major_locator(whole_numbers(8))
    return ax


def plot_clusters(
    items: Any,
    labels: object,
    centers: Any,
    alignments: Sequence[Aligned] | None = None,
    *,
    names: Sequence[object] | None = None,
    channel: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw a panel for each cluster, with its members behind its average.

    items: a Batch, an array (N, T, C), or a list. labels: (N,), the cluster of each. centers: one for each cluster, in
    the order of the sorted labels; None leaves them out. alignments: one for each cluster, of its centre with each of
    its members, in order: a panel below then shows where its frames are matched, as in ``plot_barycenter``.
    names: of the clusters. ax: divided into panels; it keeps the first.

    Example:
        >>> from likewise import DTW, viz
        >>> from likewise.sklearn import KMeans
        >>> from matplotlib.figure import Figure
        >>> series = [[0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [5.0, 4.0, 4.0], [5.0, 5.0, 4.0]]
        >>> model = KMeans(DTW(), n_clusters=2).fit(series)
        >>> ax = viz.plot_clusters(series, model.labels_, model.cluster_centers_, ax=Figure().subplots())
        >>> len(ax.figure.axes)
        2
    """
    op = "plot_clusters"
    lines = _members(op, items, channel)
    found, (codes,) = number_labels(read_labels(op, "labels", labels, len(lines)))
    averages = None if centers is None else _members(op, centers, channel)
    for name, given in (("centers", averages), ("alignments", alignments)):
        if given is not None and len(given) != len(found):
            _check.refuse(op, f"there are {len(found)} clusters, but {len(given)} {name}")
    texts, colors = read_names(op, names, found), class_colors(len(found))
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    tall = 1.9 if alignments is None else 3.0
    ax = ensure_axes(op, ax, 3.1 * columns, tall * rows)
    low, high = min(line.min() for line in lines), max(line.max() for line in lines)
    for k, panel in enumerate(_panels(ax, rows, columns, len(found))):
        mine = [line for line, code in zip(lines, codes, strict=True) if code == k]
        center = None if averages is None else averages[k]
        below = None
        if alignments is not None and center is not None:
            (below,) = stacked(panel, (3, 2), share=True, gap=0.08)
            paths = _paths(op, alignments[k], len(mine), len(center))
            draw_matches(below, paths, [len(line) for line in mine], len(center), colors[k])
            panel.tick_params(labelbottom=False)
        draw_average(panel, center, mine, colors[k])
        panel.set_title(f"{texts[k]}: {len(mine)} item{'s' * (len(mine) != 1)}", fontsize="medium")
        margin = 0.05 * (high - low) or 0.5
        panel.set_ylim(low - margin, high + margin)
        if k % columns:
            panel.tick_params(labelleft=False)
            if below is not None:
                below.set_ylabel("")
                below.tick_params(labelleft=False)
    return ax


def plot_silhouette(
    D: Tensor | np.ndarray, labels: object, names: Sequence[object] | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw the silhouette of every item under a distance, by cluster: near 1 for a good fit, below 0 for a bad one.

    D: (N, N), distances. labels: (N,), at least two clusters. names: one for each cluster. The dashed line is the mean.
    Reference: Rousseeuw (1987).

    Example:
        >>> from likewise import DTW, viz
        >>> from matplotlib.figure import Figure
        >>> D = DTW().matrix([[0.0, 0.0], [0.0, 1.0], [5.0, 4.0], [5.0, 5.0]])
        >>> viz.plot_silhouette(D, [0, 0, 1, 1], ax=Figure().subplots()).get_xlabel()
        'silhouette, mean 0.98'
    """
    from sklearn.metrics import silhouette_samples

    op = "plot_silhouette"
    values = to_numpy(D).astype(np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        _check.refuse(op, f"expected D of shape (N, N), got {values.shape}")
    if not np.isfinite(values).all() or values.min(initial=0) < 0:
        _check.refuse(op, "D holds values that are negative or not finite")
    found, (codes,) = number_labels(read_labels(op, "labels", labels, len(values)))
    if not 2 <= len(found) < len(values):
        _check.refuse(op, f"expected 2 to {len(values) - 1} clusters, got {len(found)}")
    np.fill_diagonal(values := values.copy(), 0)
    scores = np.asarray(silhouette_samples(values, codes, metric="precomputed"))
    texts, colors = read_names(op, names, found), class_colors(len(found))
    ax = ensure_axes(op, ax, 5.2, 4.0)
    start, gap, middles = 0.0, max(1.0, 0.02 * len(values)), []
    for k in range(len(found)):
        mine = np.sort(scores[codes == k])
        ax.barh(start + np.arange(len(mine)), mine, height=1.0, color=colors[k], linewidth=0)
        middles.append(start + (len(mine) - 1) / 2)
        start += len(mine) + gap
    ax.axvline(scores.mean(), color="black", linewidth=0.9, linestyle=(0, (4, 4)))
    ax.axvline(0, color=GREY, linewidth=0.6)
    ax.set_yticks(middles, texts)
    ax.set_xlabel(f"silhouette, mean {scores.mean():.2f}")
    ax.invert_yaxis()
    return ax


def plot_dendrogram(
    linkage: np.ndarray,
    names: Sequence[object] | None = None,
    *,
    threshold: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the tree of a hierarchical clustering, ``Hierarchical(...).linkage_`` or SciPy's.

    linkage: (N - 1, 4). names: one for each item; without them, and beyond 60 items, leaves are not named.
    threshold: the distance at which the tree is cut: what is merged below it has one colour, and a line is drawn.

    Example:
        >>> from likewise import DTW, viz
        >>> from likewise.sklearn import Hierarchical
        >>> from matplotlib.figure import Figure
        >>> model = Hierarchical(DTW(), 2).fit([[0.0, 0.0], [0.0, 1.0], [5.0, 4.0], [5.0, 5.0]])
        >>> viz.plot_dendrogram(model.linkage_, ["a", "b", "c", "d"], ax=Figure().subplots()).get_ylabel()
        'distance'
    """
    from scipy.cluster.hierarchy import dendrogram, fcluster

    op = "plot_dendrogram"
    tree = np.asarray(linkage, dtype=np.float64)
    if tree.ndim != 2 or tree.shape[1] != 4 or len(tree) == 0:
        _check.refuse(op, f"expected linkage of shape (N - 1, 4), got {tree.shape}")
    count = len(tree) + 1
    if names is not None and len(names) != count:
        _check.refuse(op, f"expected {count} names, got {len(names)}")
    ax = ensure_axes(op, ax, float(np.clip(0.18 * count, 5, 14)), 3.6)
    shown = names is not None and count <= 60
    limit = 0.0 if threshold is None else float(_check.number(op, "threshold", threshold))
    clusters = fcluster(tree, limit, criterion="distance") if limit else np.zeros(count, int)
    colors = class_colors(min(len(np.unique(clusters)), 20))
    leaf = {count + k: int(row[0]) for k, row in enumerate(tree)}  # the first part of a merge

    def color_of(node: int) -> str:
        if not limit or tree[node - count, 2] > limit:
            return "0.25"
        while node >= count:
            node = leaf[node]
        return to_hex(colors[(clusters[node] - 1) % len(colors)])

    drawn = dendrogram(tree, ax=ax, no_labels=True, link_color_func=color_of)
    if shown and names is not None:
        ax.set_xticks(5 + 10 * np.arange(count), [str(names[place]) for place in drawn["leaves"]], rotation=90)
    else:
        ax.set_xticks([])
        ax.set_xlabel(f"{count} items")
    if threshold is not None:
        ax.axhline(limit, color=GREY, linewidth=0.8, linestyle=(0, (4, 4)))
    ax.set_ylabel("distance")
    ax.set_xlim(0, 10 * count)
    ax.set_ylim(0, 1.05 * float(tree[:, 2].max()) or 1.0)
    return ax


def draw_average(ax: Axes, center: np.ndarray | None, lines: list[np.ndarray], color: Any) -> None:
    """Draw members (T,) faintly, and their average over them."""
    chosen = np.linspace(0, len(lines) - 1, min(MOST_MEMBERS, len(lines))).round().astype(int)
    paths = [np.stack([np.arange(len(lines[k])), lines[k]], 1) for k in chosen]
    alpha = float(np.clip(12 / max(1, len(paths)), 0.12, 0.6))
    ax.add_collection(LineCollection(paths, colors=GREY, linewidths=0.7, alpha=alpha, zorder=1))
    if center is not None:
        ax.plot(center, color=color, linewidth=2.0, zorder=3)
    longest = max([len(line) for line in lines] + ([] if center is None else [len(center)]))
    ax.set_xlim(-0.5, longest - 0.5)
    ax.autoscale_view(scalex=False)
    ax.xaxis.set_major_locator(whole_numbers(6))
    ax.yaxis.set_major_locator(round_numbers(4))


def draw_matches(ax: Axes, paths: list[np.ndarray], lengths: list[int], steps: int, color: Any) -> None:
    """Draw the share of members that match each frame of the average with each part of their time."""
    shares = np.zeros((steps, BINS))
    for path, length in zip(paths, lengths, strict=True):
        place = path[:, 1] / max(1, length - 1)
        hit = np.zeros((steps, BINS), dtype=bool)
        hit[path[:, 0], np.minimum((place * BINS).astype(int), BINS - 1)] = True
        shares += hit
    shades = LinearSegmentedColormap.from_list("share", ["white", to_rgb(color)])
    extent = (-0.5, steps - 0.5, 0, 1)
    ax.imshow(shares.T / max(1, len(paths)), cmap=shades, origin="lower", aspect="auto", extent=extent, vmin=0)
    ax.plot([0, steps - 1], [0, 1], color=GREY, linewidth=0.7, linestyle=(0, (4, 4)))
    ax.set_yticks([0, 1])
    ax.set_ylabel("members' time")
    ax.set_xlabel("step of the average")
    ax.xaxis.set_major_locator(whole_numbers(6))


def _panels(ax: Axes, rows: int, columns: int, count: int) -> list[Axes]:
    """Divide the space of ax into panels; the first is ax."""
    grid = divide(ax, rows, columns)
    ax.set_subplotspec(grid[0, 0])
    return [ax, *(ax.figure.add_subplot(grid[divmod(k, columns)]) for k in range(1, count))]


def _members(op: str, items: Any, channel: int) -> list[np.ndarray]:
    """One channel of each item, (T_i,)."""
    if not hasattr(items, "__len__") or len(items) == 0:
        _check.refuse(op, "there are no items to draw")
    return [_channel(op, f"item {k}", one_series(op, f"item {k}", items, k), channel) for k in range(len(items))]


def _channel(op: str, name: str, values: np.ndarray, channel: int) -> np.ndarray:
    if isinstance(channel, bool) or not isinstance(channel, int):
        raise TypeError(f"{op}: expected channel to be an int, got {type(channel).__name__}")
    if not -values.shape[1] <= channel < values.shape[1]:
        _check.refuse(op, f"channel {channel} is out of range: {name} has {values.shape[1]} channels")
    return values[:, channel]


def _paths(op: str, alignment: Aligned, count: int, steps: int) -> list[np.ndarray]:
    paths = [read_path(op, alignment, k) for k in range(count)]
    if any(path[:, 0].max() >= steps for path in paths):
        _check.refuse(op, f"the alignment has more than the average's {steps} steps; align(average, member)")
    return paths
