"""``likewise explain``."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import likewise as lw
from likewise._output import check_output
from likewise.cli import arguments
from likewise.cli.files import read_items, save_figure, select
from likewise.cli.printing import finite
from likewise.cli.search import FolderArgument, Queries


def explain(
    folder: FolderArgument,
    queries: Queries,
    query: Annotated[int, typer.Option("--query", "-q", help="Which query, from 0.")] = 0,
    hit: Annotated[int, typer.Option("--hit", "-i", help="Which of its hits, the nearest is 0.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw it here: .png, .pdf, .svg.", show_default=False)] = None,
    split: arguments.Split = None,
    columns: arguments.Columns = None,
    size: arguments.Size = 96,
    device: arguments.Device = arguments.DeviceName.AUTO,
    force: arguments.Force = False,
    as_json: arguments.Json = False,
) -> None:
    """Why a hit is near its query: segments with their shift, stretch, amplitude and cost.

    With labels, also what the nearest item of another class differs in. --json holds the cost by step and by channel,
    and the path.
    """
    if plot is not None:
        check_output(plot, overwrite=force)
    if hit < 0:
        raise typer.BadParameter("--hit counts from 0")
    one = select(read_items(queries, split, columns, size).items, query, queries)
    hits = lw.Index.load(folder, device=arguments.gpu_of(device)).search(one, k=hit + 1)
    if int(hits.counts[0]) <= hit:
        raise ValueError(f"query {query} has only {int(hits.counts[0])} hits")
    why = hits.explain(0, hit)
    if plot is not None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.0, 4.6), layout="constrained")
        why.plot(ax=figure.subplots())
        save_figure(plot, figure, force=force)
    if not as_json:
        typer.echo(str(why))
        return
    typer.echo(json.dumps(described(hits, hit, why), allow_nan=False))


def described(hits: lw.search.Hits, hit: int, why: Any) -> dict[str, Any]:
    """An explanation, for JSON."""
    other = why.counterfactual
    return {
        "id": hits.ids[0, hit],
        "label": None if hits.labels is None else hits.labels[0, hit],
        "start": int(hits.starts[0, hit]),
        "end": int(hits.ends[0, hit]),
        "distance": finite(why.value),
        "by_step": None if why.by_step is None else why.by_step.tolist(),
        "by_channel": None if why.by_channel is None else why.by_channel.tolist(),
        "rest": finite(why.rest),
        "path": None if why.path is None else why.path.tolist(),
        "segments": [{name: finite(value) for name, value in asdict(segment).items()} for segment in why.segments],
        "counterfactual": None
        if other is None
        else {
            "id": other.id,
            "label": other.label,
            "distance": finite(other.distance),
            "spans": [asdict(span) for span in other.spans],
        },
    }
