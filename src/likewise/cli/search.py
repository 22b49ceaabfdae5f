"""``likewise search``."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import likewise as lw
from likewise._output import check_output, writing
from likewise._progress import waiting
from likewise.cli import arguments
from likewise.cli.files import read_items
from likewise.cli.printing import finite, is_terminal

MOST_PRINTED = 50  # rows of the table
FolderArgument = Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of an index.", show_default=False)]
Queries = Annotated[Path, typer.Argument(metavar="QUERIES", help="Items, as the index holds them.", show_default=False)]


def search(
    folder: FolderArgument,
    queries: Queries,
    k: Annotated[
        int | None, typer.Option("-k", help="Hits of each query; 10, or all with --within.", show_default=False)
    ] = None,
    within: Annotated[float | None, typer.Option(help="The largest distance of a hit.", show_default=False)] = None,
    exclude: Annotated[float, typer.Option(help="How far apart windows begin, in units of their length.")] = 0.5,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write all hits here, as .csv.", show_default=False)
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page about one query here.", show_default=False)] = None,
    query: Annotated[int, typer.Option("--query", "-q", help="The query of --html, from 0.")] = 0,
    split: arguments.Split = None,
    columns: arguments.Columns = None,
    size: arguments.Size = 96,
    device: arguments.Device = arguments.DeviceName.AUTO,
    force: arguments.Force = False,
    as_json: arguments.Json = False,
) -> None:
    """Find the nearest items, or windows, of an index to each query.

    The page of --html is one file with the hits of one query, drawn, aligned and explained.
    """
    for path in (output, html):
        if path is not None:
            check_output(path, overwrite=force)
    found = read_items(queries, split, columns, size)
    with waiting(f"reading {folder}", shown=is_terminal()):
        index = lw.Index.load(folder, device=arguments.gpu_of(device))
    hits = index.search(found, k, within, exclude, progress=is_terminal())
    if output is not None:
        write_csv(output, hits, force=force)
    if html is not None:
        if not 0 <= query < len(hits):
            raise ValueError(f"{queries}: query {query} is out of range; it holds {len(hits)}, counted from 0")
        hits.to_html(html, query, overwrite=force)
    if as_json:
        typer.echo(json.dumps(described(hits), allow_nan=False))
        return
    table = Table(box=None)
    names = ["query", "rank", "id", *([] if hits.labels is None else ["label"]), "distance", "start", "end"]
    for name in names:
        table.add_column(name, justify="left" if name in ("id", "label") else "right")
    found = rows(hits)
    for row in found[:MOST_PRINTED]:
        table.add_row(*(f"{row[name]:.6g}" if name == "distance" else str(row[name]) for name in names))
    console = Console()
    console.print(table)
    if len(found) > MOST_PRINTED:
        console.print(f"... and {len(found) - MOST_PRINTED:,} more; -o writes all of them")
    console.print(str(hits.stats), style="dim", soft_wrap=True, markup=False, highlight=False)


def rows(hits: lw.search.Hits) -> list[dict[str, Any]]:
    """A row for each hit."""
    found = []
    for q, count in enumerate(hits.counts.tolist()):
        for i in range(count):
            row = {"query": q, "rank": i, "id": hits.ids[q, i]}
            if hits.labels is not None:
                row["label"] = hits.labels[q, i]
            row |= {"distance": finite(hits.distances[q, i].item()), "item": int(hits.items[q, i])}
            row |= {"start": int(hits.starts[q, i]), "end": int(hits.ends[q, i])}
            found.append(row)
    return found


def described(hits: lw.search.Hits) -> dict[str, Any]:
    """All hits and how they were found, for JSON."""
    stats = hits.stats
    facts = {"method": stats.method, "exact": stats.exact, "candidates": stats.candidates, "killed": stats.killed}
    return {"hits": rows(hits), "stats": {**facts, "cells": stats.cells, "seconds": round(stats.seconds, 6)}}


def write_csv(path: Path, hits: lw.search.Hits, *, force: bool) -> None:
    """Write a row for each hit."""
    import csv

    found = rows(hits)
    names = ["query", "rank", "id", *([] if hits.labels is None else ["label"]), "distance", "item", "start", "end"]
    with writing(path, overwrite=force) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(found)
