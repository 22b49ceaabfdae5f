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


class _Commands(TyperGroup):
    """Commands whose mistakes in data or values are one line, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of our output has gone, which typer knows how to treat
            raise
        except Exception as error:
            text = said(error)
            if text is None:
                raise
            typer.echo(f"error: {' '.join(text.split())}", err=True)
            raise typer.Exit(1) from error


def said(error: Exception) -> str | None:
    """What to tell a user about an error that their data or arguments can cause; None for any other.

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
    if isinstance(error, NotImplementedError) and str(error):  # asked of a distance that cannot do it
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
COMMANDS = (
    convert.convert,
    train.train,
    evaluate.evaluate,
    fewshot.fewshot,
    distance.distance,
    pairs.pairs,
    align.align,
    average.average,
    cluster.cluster,
    index.index,
    search.search,
    explain.explain,
    serve.explore,
    serve.serve,
    tune.tune,
    demo.demo,
    info.info,
)
for command in COMMANDS:
    app.command()(command)


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
    app()
