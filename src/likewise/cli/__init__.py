"""The command ``likewise``: a subcommand parses, calls the library and prints.

What is wrong with the data or with an argument's value ends in one line on stderr and exit code 1; wrong usage ends in
2, Ctrl-C in 130. Anything else is a mistake of ours and shows its traceback.
"""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import likewise as lw
from likewise.cli import (
    align,
    average,
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
)


class _Commands(TyperGroup):
    """Commands whose mistakes in data or values are one line, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of our output has gone, which typer knows how to treat
            raise
        except (ValueError, OSError) as error:
            named = isinstance(error, OSError) and error.filename and error.strerror
            text = f"{error.filename}: {error.strerror}" if named else str(error)  # type: ignore[union-attr]
            typer.echo(f"error: {' '.join(text.split())}", err=True)
            raise typer.Exit(1) from error


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
    index.index,
    search.search,
    explain.explain,
    serve.explore,
    serve.serve,
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
