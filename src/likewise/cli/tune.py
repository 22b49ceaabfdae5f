"""``likewise tune``."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import likewise as lw
from likewise._output import check_output_folder, writing_folder
from likewise.cli import arguments
from likewise.cli.arguments import DistanceName
from likewise.cli.files import check_kind, read_items
from likewise.cli.printing import is_terminal
from likewise.models.metric import CONFIG, WEIGHTS

MOST_PRINTED = 20  # rows of the table
BANDS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, None)
SIZES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
GRIDS: dict[str, dict[str, Sequence[Any]]] = {  # the first of equally good settings wins: the cheapest comes first
    DistanceName.DTW: {"band": BANDS},
    DistanceName.DDTW: {"band": BANDS},
    DistanceName.SHAPE_DTW: {"reach": (5, 15, 30), "band": (0.05, 0.1, None)},
    DistanceName.WDTW: {"steepness": (0.01, 0.02, 0.05, 0.1, 0.2)},
    DistanceName.WDDTW: {"steepness": (0.01, 0.02, 0.05, 0.1, 0.2)},
    DistanceName.ADTW: {"penalty": SIZES},
    DistanceName.MSM: {"cost": (*SIZES, 30.0, 100.0)},
    DistanceName.TWE: {"stiffness": (1e-4, 1e-3, 1e-2, 1e-1, 1.0), "penalty": (0.0, 0.25, 0.5, 1.0)},
    DistanceName.ERP: {"band": BANDS},
    DistanceName.EDR: {"epsilon": (0.05, 0.1, 0.2, 0.5, 1.0)},
    DistanceName.LCSS: {"epsilon": (0.05, 0.1, 0.2, 0.5, 1.0)},
    DistanceName.SOFT_DTW: {"gamma": (0.01, 0.1, 1.0, 10.0)},
    DistanceName.SOFT_DTW_DIVERGENCE: {"gamma": (0.01, 0.1, 1.0, 10.0)},
    DistanceName.SINKHORN: {"reg": (0.01, 0.1, 1.0)},
    DistanceName.GDTW: {"reg": (0.01, 0.1, 1.0)},
}


def _parse_grid(text: str) -> tuple[str, list[Any]]:
    """``band=0,0.1,null`` as a name and its values."""
    name, _, values = text.partition("=")
    try:
        found = json.loads(f"[{values}]")
    except ValueError:
        found = values.split(",")
    if not name.isidentifier() or not values:
        raise typer.BadParameter(f"{text!r} is not a list of values such as band=0,0.05,0.1,null")
    return name, found


def tune(
    a: arguments.ItemsA,
    distance: arguments.Named = DistanceName.DTW,
    grid: Annotated[
        list[Any] | None,
        typer.Option(
            parser=_parse_grid,
            metavar="NAME=VALUE,...",
            help="Values of a setting; may be repeated: all combinations are tried. By default, the distance's usual.",
            show_default=False,
        ),
    ] = None,
    metric: arguments.MetricFolder = None,
    most: Annotated[
        int | None, typer.Option(min=2, help="Use at most this many items, drawn at random.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the best as a metric to this folder.", show_default=False),
    ] = None,
    split: arguments.Split = None,
    columns: arguments.Columns = None,
    size: arguments.Size = 96,
    seed: arguments.Seed = 0,
    device: arguments.Device = arguments.DeviceName.AUTO,
    force: arguments.Force = False,
    as_json: arguments.Json = False,
) -> None:
    """Choose the settings of a distance by the leave-one-out accuracy of 1-NN on the labelled items of A.

    The other commands take the folder of -o as --metric.
    """
    if output is not None:
        check_output_folder(output, overwrite=force, known=(CONFIG, WEIGHTS))
    chosen, _ = arguments.choose(distance, metric)
    if grid is None and (metric is not None or distance not in GRIDS):
        raise typer.BadParameter(f"{distance if metric is None else metric} has no usual values; give --grid")
    data = read_items(a, split, columns, size)
    check_kind(data, chosen, a)
    if data.codes is None:
        raise ValueError(f"{a}: has no classes, which tuning needs")
    chosen.to(arguments.device_of(device))
    data = arguments.moved(data, device)
    try:
        found = lw.tune(chosen, data, dict(grid or GRIDS[distance]), most=most, seed=seed, progress=is_terminal())
    except TypeError as error:  # a value in the grid
        raise ValueError(str(error)) from None
    best = found.distance if isinstance(found.distance, lw.Metric) else lw.Metric(None, found.distance)
    if output is not None:
        with writing_folder(output, overwrite=force, known=(CONFIG, WEIGHTS)) as part:
            best.save(part)
    facts = {
        "distance": distance.value if metric is None else str(metric),
        "best": dict(found.setting),
        "accuracy": found.accuracy,
        "items": found.items,
        "settings": found.rows(),
        "computed": found.computed,
        "seconds": round(found.seconds, 6),
        "output": None if output is None else str(output),
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    names = list(found.setting)
    table = Table(*names, "leave-one-out accuracy", box=None, header_style="dim")
    ranked = sorted(found.rows(), key=lambda row: -row["accuracy"])
    for row in ranked[:MOST_PRINTED]:
        table.add_row(*(str(row[name]) for name in names), f"{row['accuracy']:.4f}")
    Console().print(table)
    if len(ranked) > MOST_PRINTED:
        typer.echo(f"... and {len(ranked) - MOST_PRINTED} more; --json prints all")
    typer.echo(f"{best.distance!r}: {100 * found.accuracy:.1f} % of {found.items:,} items")
    if output is not None:
        typer.echo(f"written to {output}")
