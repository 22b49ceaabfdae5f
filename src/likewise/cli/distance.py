"""``likewise distance``."""

import json
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from likewise.cli import arguments
from likewise.cli.arguments import DistanceName
from likewise.cli.files import read_both, save
from likewise.cli.printing import finite, is_terminal, print_facts

MOST_PRINTED = 10_000  # numbers of a matrix that --json prints


def distance(
    a: arguments.FileA,
    b: Annotated[
        Path | None, typer.Argument(metavar="B", help="More of them; without, A against itself.", show_default=False)
    ] = None,
    distance: arguments.Named = DistanceName.DTW,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the matrix here, as .npz.", show_default=False)
    ] = None,
    band: arguments.Band = None,
    gamma: arguments.Gamma = None,
    reg: arguments.Reg = None,
    ground: arguments.GroundCost = None,
    normalize: arguments.Normalize = None,
    subsequence: arguments.Subsequence = None,
    split_a: arguments.SplitA = None,
    split_b: arguments.SplitB = None,
    columns: arguments.Columns = None,
    as_json: arguments.Json = False,
) -> None:
    """Distances between every sequence of A and every sequence of B.

    With -o, the matrix goes to a file, under the key "distances": np.load("D.npz")["distances"]. A file of that name is
    replaced once the new one is complete. --json describes the matrix and, without -o and up to 10,000 numbers, holds
    it: otherwise its "distances" is null.
    """
    chosen, options = arguments.build(
        distance, band=band, gamma=gamma, reg=reg, ground=ground, normalize=normalize, subsequence=subsequence
    )
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise ValueError(f"{output}: {'is a folder' if output.is_dir() else 'its folder does not exist'}")
    x, y = read_both(a, b, split_a, split_b, columns)
    start = time.perf_counter()
    D = chosen.matrix(x, y, progress=is_terminal()).numpy()
    seconds = time.perf_counter() - start
    if output is not None:
        save(output, D)
    small = output is None and D.size <= MOST_PRINTED
    facts = {
        "distance": distance.value,
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
        typer.echo(json.dumps(facts, allow_nan=False))
    else:
        print_facts(facts | {"shape": f"{len(D):,} x {D.shape[1]:,}", "seconds": f"{seconds:.3g}"})
