"""``likewise index``."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

import likewise as lw
from likewise.cli import arguments
from likewise.cli.arguments import DistanceName
from likewise.cli.files import check_kind, read_items
from likewise.cli.printing import is_terminal, print_facts
from likewise.search.storage import MANIFEST


def index(
    a: arguments.ItemsA,
    folder: Annotated[Path, typer.Option("--output", "-o", help="The folder of the index.", show_default=False)],
    distance: arguments.Named = DistanceName.DTW,
    metric: arguments.MetricFolder = None,
    length: Annotated[
        int | None, typer.Option(help="Index every window of this many steps.", show_default=False)
    ] = None,
    windows: Annotated[bool, typer.Option("--windows", help="Index windows of any query's length.")] = False,
    scale: Annotated[
        bool, typer.Option("--z-normalize", help="Scale windows, or items, to mean 0 and deviation 1.")
    ] = False,
    add: Annotated[bool, typer.Option("--add", help="Add A to the index that is in the folder.")] = False,
    band: arguments.Band = None,
    gamma: arguments.Gamma = None,
    reg: arguments.Reg = None,
    ground: arguments.GroundCost = None,
    normalize: arguments.Normalize = None,
    subsequence: arguments.Subsequence = None,
    settings: arguments.Settings = None,
    split: arguments.Split = None,
    columns: arguments.Columns = None,
    size: arguments.Size = 96,
    force: arguments.Force = False,
    as_json: arguments.Json = False,
) -> None:
    """Put the items of A into an index, for the command search.

    With --length or --windows, A holds long series, and their windows are searched. --add keeps the distance and the
    options of the index that is there; --force replaces it.
    """
    start = time.perf_counter()
    data = read_items(a, split, columns, size)
    given: dict[str, Any] = {
        "band": band, "gamma": gamma, "reg": reg, "ground": ground, "normalize": normalize, "subsequence": subsequence,
    }  # fmt: skip
    if add:
        if metric or length or windows or scale or settings or any(value is not None for value in given.values()):
            raise typer.BadParameter("--add keeps the index's distance and options; give none")
        built = lw.Index.load(folder).add(data)
    else:
        if (folder / MANIFEST).exists() and not force:
            raise ValueError(f"{folder}: already has an index; --force replaces it, --add adds to it")
        chosen, _ = arguments.choose(distance, metric, settings, **given)
        check_kind(data, chosen, a)
        how = {"length": length, "subsequence": windows, "normalize": "window" if scale else None}
        built = lw.Index(chosen, data, **how)
        built.save(folder, progress=is_terminal())
    facts = {
        "index": str(folder),
        "distance": built.distance.name,
        "items": len(built),
        "added": len(data),
        "length": built.options.length,
        "seconds": round(time.perf_counter() - start, 6),
    }
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
    else:
        print_facts(facts)
