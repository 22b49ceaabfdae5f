"""``likewise average``."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

import likewise as lw
from likewise._output import check_output, is_standard_output
from likewise.cli import arguments
from likewise.cli.arguments import DistanceName
from likewise.cli.files import read
from likewise.cli.printing import finite, is_terminal, print_facts
from likewise.clusters import barycenter


def average(
    a: arguments.FileA,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the averages here, as .npz.", show_default=False)
    ] = None,
    distance: arguments.Named = DistanceName.DTW,
    by_class: Annotated[bool, typer.Option("--by-class", help="One average for each class.")] = False,
    length: Annotated[
        int | None,
        typer.Option(min=1, help="Steps of an average; by default the mean length of its items.", show_default=False),
    ] = None,
    band: arguments.Band = None,
    gamma: arguments.Gamma = None,
    reg: arguments.Reg = None,
    ground: arguments.GroundCost = None,
    normalize: arguments.Normalize = None,
    settings: arguments.Settings = None,
    split: arguments.Split = None,
    columns: arguments.Columns = None,
    device: arguments.Device = arguments.DeviceName.AUTO,
    force: arguments.Force = False,
    as_json: arguments.Json = False,
) -> None:
    """The average of the sequences of A under a distance: the sequence with the least mean distance to them.

    For dtw that is DBA. With -o, the averages are written as a data set, whose labels are the classes.
    """
    given = {"band": band, "gamma": gamma, "reg": reg, "ground": ground, "normalize": normalize}
    chosen, options = arguments.build(distance, settings, **given)
    if output is not None:
        if output.suffix.lower() != ".npz":
            raise ValueError(f"{output}: expected a name that ends in .npz")
        check_output(output, overwrite=force)
    data = read(a, split, columns)
    if by_class and data.codes is None:
        raise ValueError(f"{a}: has no classes, which --by-class needs")
    start = time.perf_counter()
    groups = data.labels if by_class else None
    items = arguments.moved(data.items, device)
    found = barycenter(chosen, items, length=length, groups=groups, progress=is_terminal())
    seconds = time.perf_counter() - start
    names = [str(name) for name in found.labels] if by_class else None
    if output is not None:
        lw.data.write_npz(lw.Dataset(found.sequences.to("cpu"), names), output)
    facts = {
        "distance": distance.value,
        "options": options,
        "averages": len(found.sequences),
        "lengths": found.sequences.lengths.tolist(),
        "labels": names,
        "costs": [finite(cost) for cost in found.costs.tolist()],
        "converged": bool(found.converged.all()),
        "seconds": round(seconds, 6),
        "output": None if output is None else str(output),
    }
    aside = output is not None and is_standard_output(output)
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False), err=aside)
        return
    shown = {"lengths": ", ".join(map(str, facts["lengths"])), "labels": None if names is None else ", ".join(names)}
    print_facts(facts | shown | {"costs": ", ".join(f"{cost:.6g}" for cost in found.costs.tolist())}, err=aside)
