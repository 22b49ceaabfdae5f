"""``likewise evaluate``."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

import likewise as lw
from likewise.cli import arguments
from likewise.cli.arguments import DistanceName
from likewise.cli.files import check_kind, read_labelled
from likewise.cli.printing import is_terminal


def evaluate(
    queries: Annotated[Path, typer.Argument(metavar="QUERIES", help=arguments.KINDS, show_default=False)],
    references: Annotated[
        Path | None,
        typer.Argument(
            metavar="REFERENCES", help="What to search; without, each query searches all others.", show_default=False
        ),
    ] = None,
    distance: arguments.Named = DistanceName.DTW,
    metric: arguments.MetricFolder = None,
    k: Annotated[list[int], typer.Option("--k", help="Recall and accuracy of the k nearest; may be repeated.")] = [1],  # noqa: B006
    by_group: Annotated[
        bool, typer.Option("--by-group", help="Intervals over groups, such as subjects, rather than items.")
    ] = False,
    band: arguments.Band = None,
    gamma: arguments.Gamma = None,
    reg: arguments.Reg = None,
    ground: arguments.GroundCost = None,
    normalize: arguments.Normalize = None,
    settings: arguments.Settings = None,
    split_a: arguments.SplitA = None,
    split_b: arguments.SplitB = None,
    columns: arguments.Columns = None,
    size: arguments.Size = 96,
    seed: arguments.Seed = 0,
    device: arguments.Device = arguments.DeviceName.AUTO,
    as_json: arguments.Json = False,
) -> None:
    """How well queries find references of their class: accuracy, MAP and others, with 95 % bootstrap intervals."""
    if references is None and split_b is not None:
        raise typer.BadParameter("--split-b needs REFERENCES")
    rows = read_labelled(queries, split_a, columns, size)
    same = references is None or (references, split_b) == (queries, split_a)
    others = None if same else read_labelled(references, split_b, columns, size)  # type: ignore[arg-type]
    if by_group and rows.groups is None:
        raise ValueError(f"{queries}: has no groups, which --by-group needs")
    given = {"band": band, "gamma": gamma, "reg": reg, "ground": ground, "normalize": normalize}
    chosen, options = arguments.choose(distance, metric, settings, **given)
    check_kind(rows, chosen, queries)
    chosen.to(arguments.device_of(device))
    rows, others = arguments.moved(rows, device), None if others is None else arguments.moved(others, device)
    start = time.perf_counter()
    scores = lw.evaluate(chosen, rows, others, ks=tuple(k), progress=is_terminal())
    seconds = time.perf_counter() - start
    groups = rows.groups if by_group else None
    intervals = {name: scores.interval(name, groups=groups, seed=seed) for name in ("map", "accuracy", "f1")}
    if as_json:
        facts = {"metric": str(distance.value if metric is None else metric), "options": options} | scores.as_dict()
        facts |= {"intervals": {name: list(ends) for name, ends in intervals.items()}, "seconds": round(seconds, 6)}
        typer.echo(json.dumps(facts))
        return
    typer.echo(str(scores))
    for name, (low, high) in intervals.items():
        typer.echo(f"95 % interval of {name}: {low:.4f} to {high:.4f}")
