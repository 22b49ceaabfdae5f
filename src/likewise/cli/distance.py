"""``likewise distance``."""

import json
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from likewise._output import check_output, is_standard_output
from likewise.cli import arguments
from likewise.cli.arguments import DistanceName
from likewise.cli.files import check_kind, read_both, save
from likewise.cli.printing import finite, is_terminal, print_facts

MOST_PRINTED = 10_000  # numbers of a matrix that --json prints


def distance(
    a: arguments.ItemsA,
    b: Annotated[
        Path | None, typer.Argument(metavar="B", help="More of them; without, A against itself.", show_default=False)
    ] = None,
    distance: arguments.Named = DistanceName.DTW,
    metric: arguments.MetricFolder = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the matrix here, as .npz.", show_default=False)
    ] = None,
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
    size: arguments.Size = 96,
    device: arguments.Device = arguments.DeviceName.AUTO,
    force: arguments.Force = False,
    as_json: arguments.Json = False,
) -> None:
    """Distances between every item of A and every item of B.

    With -o, the matrix goes to a file, under the key "distances": np.load("D.npz")["distances"]. It appears once it is
    complete; --force replaces a file of that name. With -o /dev/stdout the description goes to stderr. --json describes
    the matrix and, without -o and up to 10,000 numbers, holds it: otherwise its "distances" is null.
    """
    given = {"band": band, "gamma": gamma, "reg": reg, "ground": ground}
    given |= {"normalize": normalize, "subsequence": subsequence}
    chosen, options = arguments.choose(distance, metric, settings, **given)
    if output is not None:
        check_output(output, overwrite=force)
    read = read_both(a, b, split_a, split_b, columns, size)
    check_kind(read[0], chosen, a)
    x, y = (None if part is None else arguments.moved(part, device) for part in read)
    chosen.to(arguments.device_of(device))
    start = time.perf_counter()
    with torch.no_grad():
        D = chosen.matrix(x, y, progress=is_terminal()).cpu().numpy()
    seconds = time.perf_counter() - start
    if output is not None:
        save(output, D, force=force)
    aside = output is not None and is_standard_output(output)
    small = output is None and D.size <= MOST_PRINTED
    facts = {
        "distance": distance.value if metric is None else str(metric),
        "options": options,
        "shape": list(D.shape),
        "min": finite(D.min()),
        "mean": finite(D.mean(dtype=np.float64)),
        "max": finite(D.max()),
        "seconds": round(seconds, 6),
        "output": None if output is None else str(output),
    }
    if as_json:
        facts["distances"] = [[finite(value) for value in row] for row in D] if small else None
        typer.echo(json.dumps(facts, allow_nan=False), err=aside)
    else:
        print_facts(facts | {"shape": f"{len(D):,} x {D.shape[1]:,}", "seconds": f"{seconds:.3g}"}, err=aside)
