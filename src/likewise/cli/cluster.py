"""``likewise cluster``."""

import csv
import json
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import likewise as lw
from likewise._output import check_output, is_standard_output, writing
from likewise.cli import arguments
from likewise.cli.arguments import DistanceName
from likewise.cli.files import check_kind, read_items, save_figure
from likewise.cli.printing import finite, is_terminal, print_facts

MOST_PRINTED = 10_000  # clusters of items that --json prints


class Method(StrEnum):
    """An estimator of ``likewise.sklearn``."""

    K_MEANS = "k-means"
    K_MEDOIDS = "k-medoids"
    HIERARCHICAL = "hierarchical"
    HDBSCAN = "hdbscan"


def cluster(
    a: arguments.ItemsA,
    clusters: Annotated[
        int | None, typer.Option("--clusters", "-c", min=1, help="How many; not for hdbscan.", show_default=False)
    ] = None,
    method: Annotated[Method, typer.Option(help="How to find them.")] = Method.K_MEANS,
    distance: arguments.Named = DistanceName.DTW,
    metric: arguments.MetricFolder = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the cluster of each item here, as .csv.", show_default=False),
    ] = None,
    centers: Annotated[
        Path | None,
        typer.Option(help="Write the centres of k-means or k-medoids here, as .npz.", show_default=False),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw them here: .png, .pdf, .svg.", show_default=False)] = None,
    band: arguments.Band = None,
    gamma: arguments.Gamma = None,
    reg: arguments.Reg = None,
    ground: arguments.GroundCost = None,
    normalize: arguments.Normalize = None,
    settings: arguments.Settings = None,
    split: arguments.Split = None,
    columns: arguments.Columns = None,
    size: arguments.Size = 96,
    seed: arguments.Seed = 0,
    device: arguments.Device = arguments.DeviceName.AUTO,
    force: arguments.Force = False,
    as_json: arguments.Json = False,
) -> None:
    """Divide the items of A into clusters under a distance.

    The centres of k-means are averages, those of k-medoids are items. hierarchical joins the clusters that are nearest
    on average. hdbscan finds dense clusters, any number of them, and labels noise -1. If A has labels, the agreement of
    the clusters with them is printed.
    """
    given = {"band": band, "gamma": gamma, "reg": reg, "ground": ground, "normalize": normalize}
    chosen, options = arguments.choose(distance, metric, settings, **given)
    if (clusters is None) != (method is Method.HDBSCAN):
        raise typer.BadParameter(f"{method} {'finds their number; leave out' if clusters else 'needs'} --clusters")
    if centers is not None and method not in (Method.K_MEANS, Method.K_MEDOIDS):
        raise typer.BadParameter(f"{method} has no centres")
    _check_outputs({output: ".csv", centers: ".npz", plot: None}, force=force)
    data = read_items(a, split, columns, size)
    check_kind(data, chosen, a)
    if plot is not None and isinstance(data, lw.ImageSet):
        raise ValueError(f"{a}: holds images, and --plot draws sequences")
    chosen.to(arguments.device_of(device))
    start = time.perf_counter()
    model = ESTIMATORS[method](chosen, clusters, seed, is_terminal()).fit(arguments.moved(data.items, device))
    seconds = time.perf_counter() - start
    labels = np.asarray(model.labels_)
    names, sizes = np.unique(labels, return_counts=True)
    facts: dict[str, Any] = {
        "method": method.value,
        "distance": distance.value if metric is None else str(metric),
        "options": options,
        "items": len(labels),
        "sizes": {str(name): int(size) for name, size in zip(names, sizes, strict=True)},
        "inertia": finite(model.inertia_) if hasattr(model, "inertia_") else None,
        "agreement": _agreement(data, labels),
        "seconds": round(seconds, 6),
        "output": None if output is None else str(output),
    }
    if output is not None:
        _write(output, data, labels, force=force)
    if centers is not None:
        found = model.cluster_centers_.to("cpu")
        lw.data.write_npz(lw.Dataset(found, [str(k) for k in range(len(found))]), centers)
    if plot is not None:
        _draw(plot, data, labels, getattr(model, "cluster_centers_", None), chosen, force=force)
    aside = any(path is not None and is_standard_output(path) for path in (output, centers, plot))
    if as_json:
        facts["clusters"] = labels.tolist() if len(labels) <= MOST_PRINTED else None
        typer.echo(json.dumps(facts, allow_nan=False), err=aside)
    else:
        shown = ", ".join(f"{name}: {size}" for name, size in facts["sizes"].items())
        print_facts(facts | {"sizes": shown, "seconds": f"{seconds:.3g}"}, err=aside)


def _k_means(metric: lw.Distance, clusters: int | None, seed: int, progress: bool) -> Any:
    from likewise.sklearn import KMeans

    return KMeans(metric, clusters or 1, n_init=3, seed=seed, verbose=progress)


def _k_medoids(metric: lw.Distance, clusters: int | None, seed: int, progress: bool) -> Any:
    from likewise.sklearn import KMedoids

    return KMedoids(metric, clusters or 1, seed=seed, verbose=progress)


def _hierarchical(metric: lw.Distance, clusters: int | None, seed: int, progress: bool) -> Any:
    from likewise.sklearn import Hierarchical

    return Hierarchical(metric, clusters, verbose=progress)


def _hdbscan(metric: lw.Distance, clusters: int | None, seed: int, progress: bool) -> Any:
    from likewise.sklearn import HDBSCAN

    return HDBSCAN(metric, verbose=progress)


ESTIMATORS: dict[str, Callable[[lw.Distance, int | None, int, bool], Any]] = {
    Method.K_MEANS: _k_means,
    Method.K_MEDOIDS: _k_medoids,
    Method.HIERARCHICAL: _hierarchical,
    Method.HDBSCAN: _hdbscan,
}


def _check_outputs(outputs: dict[Path | None, str | None], *, force: bool) -> None:
    for path, suffix in outputs.items():
        if path is None:
            continue
        if suffix is not None and path.suffix.lower() != suffix and not is_standard_output(path):
            raise ValueError(f"{path}: expected a name that ends in {suffix}")
        check_output(path, overwrite=force)


def _agreement(data: lw.Dataset, labels: np.ndarray) -> float | None:
    """Normalised mutual information of clusters and classes, from 0 to 1."""
    if data.codes is None:
        return None
    from likewise.evaluation.clustering import normalized_mutual_information

    return float(normalized_mutual_information(data.codes, labels))


def _write(path: Path, data: lw.Dataset, labels: np.ndarray, *, force: bool) -> None:
    classes = None if data.codes is None else data.labels.tolist()
    with writing(path, overwrite=force) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *([] if classes is None else ["label"]), "cluster"])
        for i, label in enumerate(labels.tolist()):
            writer.writerow([data.ids[i], *([] if classes is None else [classes[i]]), label])


def _draw(path: Path, data: lw.Dataset, labels: np.ndarray, centers: Any, metric: lw.Distance, *, force: bool) -> None:
    from matplotlib.figure import Figure

    from likewise import viz

    encoded = isinstance(metric, lw.Metric) and metric.encoder is not None
    count = len(np.unique(labels))
    figure = Figure(figsize=(9.0, 2.4 + 1.8 * (count // 3)), layout="constrained")
    viz.plot_clusters(data.items, labels, None if encoded else centers, ax=figure.subplots())
    save_figure(path, figure, force=force)
