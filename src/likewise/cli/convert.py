"""``likewise convert``."""

import json
from pathlib import Path
from typing import Annotated

import typer

import likewise as lw
from likewise._output import check_output, is_standard_output
from likewise.cli import arguments
from likewise.cli.files import read_items
from likewise.data.summary import summarize

WRITERS = {".npz": lw.data.write_npz, ".ts": lw.data.write_ts}


def convert(
    data: arguments.Items,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it here: .npz or .ts.", show_default=False)
    ] = None,
    split: arguments.Split = None,
    columns: arguments.Columns = None,
    size: arguments.Size = 96,
    force: arguments.Force = False,
    as_json: arguments.Json = False,
) -> None:
    """Say what is in a file or folder, and what looks wrong with it; with -o, write it as .npz or .ts.

    Constant channels, lengths far from the median, equal items and uneven classes are listed as warnings. Images are
    written as .npz, in the size that --size gives.
    """
    if output is not None:
        if output.suffix.lower() not in WRITERS:
            raise ValueError(f"{output}: expected a name that ends in {' or '.join(WRITERS)}")
        check_output(output, overwrite=force)
    found = read_items(data, split, columns, size)
    if output is not None:
        if isinstance(found, lw.ImageSet) and output.suffix.lower() != ".npz":
            raise ValueError(f"{output}: images are written as .npz")
        WRITERS[output.suffix.lower()](found, output)
    summary = summarize(found)
    aside = output is not None and is_standard_output(output)
    if as_json:
        facts = {"output": None if output is None else str(output)} | summary.as_dict()
        typer.echo(json.dumps(facts), err=aside)
        return
    typer.echo(str(summary), err=aside)
    if output is not None:
        typer.echo(f"written to {output}", err=aside)
