"""The command ``likewise``: a subcommand parses, calls the library and prints.

Exit codes: 0; 1 for bad data or values, with one line on stderr; 2 for wrong usage; 130 after Ctrl-C. Anything else is
a bug, and shows its traceback.
"""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import likewise as lw
from likewise.cli import (
    align,
    average,
    cluster,
    convert,
    demo,
    distance,
    evaluate,
    explain,
    fewshot,
    index,
    info,
    pairs,
    search,
    serve,
    train,
    tune,
)
from likewise.cli.clock import process_begun


class _Commands(TyperGroup):
    """Commands whose mistakes in data or values are one line, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # a closed pipe, which typer handles
            raise
        except Exception as error:
            text = said(error)
            if text is None:
                raise
            typer.echo(f"error: {' '.join(text.split())}", err=True)
            raise typer.Exit(1) from error


def said(error: Exception) -> str | None:
    """The message for an error that a user's data or arguments can cause; None for any other error.

    Example:
        >>> said(FileNotFoundError(2, "No such file or directory", "walks.npz"))
        'walks.npz: No such file or directory'
        >>> said(KeyError("a bug")) is None
        True
    """
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, (ValueError, OSError)):
        return str(error)
    if isinstance(error, NotImplementedError) and str(error):  # the distance does not support it
        return str(error)
    if isinstance(error, ImportError) and "pip install" in str(error):  # an extra is missing
        return str(error)
    if isinstance(error, MemoryError) or "not enough memory" in str(error):
        return "out of memory; use fewer or shorter sequences"
    return None


app = typer.Typer(
    name="likewise",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = {
    convert.convert: "What is in a file, and what looks wrong; convert it.",
    train.train: "Find, train and keep the metric that suits the data.",
    evaluate.evaluate: "The scores of a metric, with intervals.",
    fewshot.fewshot: "Accuracy from a few examples of each class.",
    distance.distance: "A matrix of distances.",
    pairs.pairs: "A matrix larger than memory, tile by tile.",
    align.align: "How two sequences match.",
    average.average: "The average of sequences.",
    cluster.cluster: "Groups of similar items.",
    tune.tune: "The settings of a distance, by leave-one-out.",
    index.index: "Make an index of items.",
    search.search: "The nearest items, or windows, of an index.",
    explain.explain: "Why a hit is near its query.",
    serve.explore: "A page to browse, search, explain and judge.",
    serve.serve: "An HTTP service.",
    demo.demo: "The whole way, on data that come with likewise.",
    info.info: "Versions, kernels and hardware.",
}
for command, line in COMMANDS.items():
    app.command(short_help=line)(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"likewise {lw.__version__}")
        raise typer.Exit


@app.callback()
def likewise(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learn, compute, explain and search with distances. Files are read by their ending: .npz, .ts, .csv, .parquet."""


def main() -> None:
    """Run the command."""
    if sys.stdout is None:  # closed by the caller: what we print would be lost, or land in a file that we open
        typer.echo("error: standard output is closed", err=True)
        sys.exit(1)
    app(obj=process_begun())
