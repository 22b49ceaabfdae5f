"""``likewise align``."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

import likewise as lw
from likewise._output import check_output, is_standard_output
from likewise.cli import arguments
from likewise.cli.arguments import DistanceName
from likewise.cli.files import read_both, save_figure, select
from likewise.cli.printing import finite, print_facts


class Kind(StrEnum):
    """A plot of ``likewise.viz``."""

    TWO_WAY = "two-way"
    THREE_WAY = "three-way"
    DENSITY = "density"
    PATH = "path"


def align(
    a: arguments.FileA,
    b: Annotated[Path, typer.Argument(metavar="B", help="The file of the second sequence.", show_default=False)],
    item_a: Annotated[int, typer.Option("--item-a", "-i", help="Which sequence of A, from 0.")] = 0,
    item_b: Annotated[int, typer.Option("--item-b", "-j", help="Which sequence of B, from 0.")] = 0,
    distance: arguments.Named = DistanceName.DTW,
    metric: arguments.MetricFolder = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it here: .png, .pdf, .svg.", show_default=False)] = None,
    kind: Annotated[Kind, typer.Option(help="What --plot draws.")] = Kind.TWO_WAY,
    band: arguments.Band = None,
    gamma: arguments.Gamma = None,
    reg: arguments.Reg = None,
    ground: arguments.GroundCost = None,
    normalize: arguments.Normalize = None,
    subsequence: arguments.Subsequence = None,
    settings: arguments.Settings = None,
    split_a: arguments.SplitA = None,
    split_b: arguments.SplitB = None,
    columns: arguments.Columns = None,
    device: arguments.Device = arguments.DeviceName.AUTO,
    force: arguments.Force = False,
    as_json: arguments.Json = False,
) -> None:
    """How a sequence of A matches one of B: their distance and the path of matched steps.

    --json prints the path as well: pairs (step of A, step of B), from 0.
    """
    given = {"band": band, "gamma": gamma, "reg": reg, "ground": ground}
    given |= {"normalize": normalize, "subsequence": subsequence}
    chosen, options = arguments.choose(distance, metric, settings, **given)
    if plot is not None:
        check_output(plot, overwrite=force)
    first, second = read_both(a, b, split_a, split_b, columns)
    x, y = select(first, item_a, a), select(first if second is None else second, item_b, b)
    chosen.to(arguments.device_of(device))
    with torch.no_grad():
        alignment = chosen.align(arguments.moved(x, device), arguments.moved(y, device))
        path = alignment.path(0).cpu()
    facts = {
        "distance": distance.value if metric is None else str(metric),
        "options": options,
        "items": [item_a, item_b],
        "lengths": [int(x.lengths[0]), int(y.lengths[0])],
        "value": finite(alignment.value[0].item()),
        "plot": None if plot is None else str(plot),
    }
    if plot is not None:
        _draw(plot, kind, x, y, alignment, force=force)
    aside = plot is not None and is_standard_output(plot)
    if as_json:
        typer.echo(json.dumps(facts | {"path": path.tolist()}, allow_nan=False), err=aside)
    else:
        shown = {key: " and ".join(map(str, facts[key])) for key in ("items", "lengths")}
        print_facts(facts | shown | {"path": f"{len(path):,} cells, {_ends(path)}"}, err=aside)


def _draw(path: Path, kind: Kind, x: lw.Batch, y: lw.Batch, alignment: lw.distances.Alignment, *, force: bool) -> None:
    from matplotlib.figure import Figure

    from likewise import viz

    figure = Figure(figsize=(7.0, 3.4) if kind is Kind.TWO_WAY else (5.4, 5.0), layout="constrained")
    if kind is Kind.TWO_WAY or kind is Kind.THREE_WAY:
        plot = viz.plot_two_way if kind is Kind.TWO_WAY else viz.plot_three_way
        plot(x, y, alignment, ax=figure.subplots())
    else:
        plot = viz.plot_density if kind is Kind.DENSITY else viz.plot_path
        plot(alignment, ax=figure.subplots())
    save_figure(path, figure, force=force)


def _ends(path: Tensor) -> str:
    first, last = path[[0, -1]].tolist()
    return f"from ({first[0]}, {first[1]}) to ({last[0]}, {last[1]})"
