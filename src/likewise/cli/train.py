"""``likewise train``: from labelled data to a metric, its scores and its card."""

import json
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer

import likewise as lw
from likewise._output import check_output_folder, writing_folder
from likewise.cli import arguments, clock
from likewise.cli.card import FILES, write_run
from likewise.cli.files import read_labelled
from likewise.cli.printing import is_terminal, ranking_table, stderr_console
from likewise.selection import Candidate, Result, Selection, named_candidate, select
from likewise.selection.candidates import DISTANCES, ENCODERS, LOSSES
from likewise.selection.division import Parts, divide
from likewise.selection.search import STATE

if TYPE_CHECKING:
    from rich.console import Group


class Score(StrEnum):
    """The score by which a metric is chosen."""

    MAP = "map"
    ACCURACY = "accuracy"


SEARCH = "search"  # the subfolder of checkpoints; until the end of the search it lies beside the result
INTERRUPTED = 130


def train(
    data: arguments.Items,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for the result.")] = Path("run"),
    minutes: Annotated[float, typer.Option(help="The time for everything.")] = 10.0,
    metric: Annotated[
        str | None,
        typer.Option(help=f"Only this one: {', '.join(DISTANCES)}.", show_default=False),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help=f"With --metric: {', '.join(ENCODERS)}.", show_default=False)
    ] = None,
    loss: Annotated[str | None, typer.Option(help=f"With --metric: {', '.join(LOSSES)}.", show_default=False)] = None,
    val: Annotated[
        float | None, typer.Option(help="The share of items to validate with; a fifth by default.", show_default=False)
    ] = None,
    unseen: Annotated[
        bool, typer.Option("--unseen", help="Validate with classes that training never sees: a fifth of them.")
    ] = False,
    by_group: Annotated[
        bool, typer.Option("--by-group", help="No group, such as a subject, is in training and in validation.")
    ] = False,
    by: Annotated[
        Score, typer.Option(help="The score to choose by: mean average precision, or that of the nearest neighbour.")
    ] = Score.MAP,
    refit: Annotated[bool, typer.Option(help="Train the best with all items, for the last sixth of the time.")] = True,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted search.")] = False,
    split: arguments.Split = None,
    columns: arguments.Columns = None,
    size: arguments.Size = 96,
    seed: arguments.Seed = 0,
    device: arguments.Device = arguments.DeviceName.AUTO,
    force: arguments.Force = False,
    as_json: arguments.Json = False,
) -> None:
    """Find the metric that suits labelled data best, train it, and write it to a folder with a card.

    Without --metric, several metrics are tried: the better ones are trained for longer, until one is left, which is
    then trained with all items. The ranking on validation items is printed as it changes. Ctrl-C ends the search and
    keeps the best so far; --resume continues it. The folder appears when it is complete: the metric (Metric.load),
    README.md, ranking.json, log.csv, pictures, and the checkpoints. Until then, the search is in OUTPUT.search.
    """
    begun = clock.begun()
    startup = time.monotonic() - begun
    chosen = _candidates(metric, encoder, loss)
    _check_folder(output, resume=resume, force=force)
    items = read_labelled(data, split, columns, size)
    if by_group and items.groups is None:
        raise ValueError(f"{data}: has no groups, which --by-group needs")
    if unseen and val is not None and not 0 < val < 1:
        raise typer.BadParameter(f"--val must be between 0 and 1, got {val}")
    share = lw.HeldOutClasses(0.2 if val is None else val, seed=seed) if unseen else val
    groups = items.groups if by_group else None
    torch.manual_seed(seed)
    begin_search(output, resume=resume)
    progress = Progress(minutes, quiet=as_json)
    with progress:
        selection = select(
            items,
            chosen,
            folder=beside(output),
            val=share,
            groups=groups,
            by=by.value,
            refit=refit,
            minutes=searching(minutes, begun, startup),
            seed=seed,
            resume=resume,
            device=arguments.device_of(device),
            report=progress.report,
        )
    command = shlex.join(["likewise", *sys.argv[1:]])
    parts = divide(items, share, groups, seed)
    files = keep(output, selection, parts, data=data, command=command, seed=seed)
    facts = {
        "output": str(output),
        "best": selection.best.name,
        "complete": selection.complete,
        "by": selection.by,
        "queries": selection.queries,
        "refit_steps": selection.refit,
        "seconds": round(selection.seconds, 3),
        "results": [result.as_dict() for result in selection.results],
        "summary": str(selection),
        "files": files,
    }
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        progress.console.print(ranking_table(selection.results))
        typer.echo(str(selection))
        typer.echo(f"{output}: {', '.join(files)}")
    if not selection.complete:
        raise typer.Exit(INTERRUPTED)


def searching(minutes: float, begun: float, startup: float) -> float:
    """The minutes left for the search: without those already used, and some for writing the result.

    startup: the seconds that the imports took. Writing the files, with pictures, takes about twice as long, so that a
    slow or busy machine keeps more time for it.
    """
    if minutes <= 0:
        raise ValueError(f"train: minutes must be positive, got {minutes:g}")
    files = max(min(minutes / 10, 0.25), min(minutes / 4, 2 * startup / 60))
    return max(minutes - (time.monotonic() - begun) / 60 - files, minutes / 10)


def _candidates(metric: str | None, encoder: str | None, loss: str | None) -> list[Candidate] | None:
    """The requested candidate; None for all that suit the data."""
    if metric is None:
        if encoder is not None or loss is not None:
            raise typer.BadParameter("--encoder and --loss need --metric")
        return None
    try:
        return [named_candidate(metric, encoder, loss)]
    except ValueError as error:
        raise typer.BadParameter(str(error).partition(": ")[2]) from None


def _check_folder(output: Path, *, resume: bool, force: bool) -> None:
    """Refuse a folder that is not empty, unless it is to be replaced or resumed."""
    check_output_folder(output, known=(*FILES, SEARCH))
    if resume:
        if not any((folder / STATE).is_file() for folder in (beside(output), output / SEARCH)):
            raise ValueError(f"{output}: has no search to resume")
    elif not force:
        for folder in (output, beside(output)):
            if folder.is_dir() and any(folder.iterdir()):
                raise ValueError(f"{folder}: is not empty; --resume continues its search, --force replaces it")


def beside(output: Path) -> Path:
    """The folder of a search that is not complete.

    Example:
        >>> beside(Path("models/run"))
        PosixPath('models/run.search')
    """
    return output.with_name(f"{output.name}.{SEARCH}")


def begin_search(output: Path, *, resume: bool) -> None:
    """Put the search to resume beside the result; without ``resume``, remove an earlier one, and nothing else."""
    if resume:
        if not (beside(output) / STATE).is_file():
            (output / SEARCH).rename(beside(output))
    elif (beside(output) / STATE).is_file():
        shutil.rmtree(beside(output))


def keep(output: Path, selection: Selection, parts: Parts, *, data: Path, command: str, seed: int) -> list[str]:
    """Write the result as a whole, in place of an earlier one, and move the checkpoints into it."""
    with writing_folder(output, known=(*FILES, SEARCH)) as part:
        files = write_run(part, selection, parts, data=data, command=command, seed=seed)
    beside(output).rename(output / SEARCH)
    return files


class Progress:
    """The ranking as it changes: on a terminal, with the time left; elsewhere, a line for each step."""

    def __init__(self, minutes: float, *, quiet: bool) -> None:
        self.console, self.quiet = stderr_console(), quiet
        self.begun, self.seconds = time.monotonic(), 60 * minutes
        self._live = None

    def __enter__(self) -> "Progress":
        if not self.quiet and is_terminal():
            from rich.live import Live

            self._live = Live(get_renderable=self._drawn, console=self.console, refresh_per_second=1, transient=True)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    _results: Sequence[Result] = ()
    _text = "reading"

    def report(self, results: Sequence[Result], text: str) -> None:
        """Show the results so far."""
        self._results, self._text = results, text
        if self.quiet or self._live is not None:
            return
        spent = time.monotonic() - self.begun
        self.console.print(f"{spent:5.0f} s of {self.seconds:.0f}, {text}", soft_wrap=True)
        for place, result in enumerate(results, 1):
            low, high = result.interval
            scores = result.left_out or f"MAP {result.map:.3f} ({low:.3f} to {high:.3f}), {result.steps} steps"
            self.console.print(f"        {place}. {result.name}: {scores}", soft_wrap=True)

    def _drawn(self) -> "Group":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        spent = time.monotonic() - self.begun
        left = max(0, round(self.seconds - spent))
        head = Text(f"{self._text}; at most {left // 60}:{left % 60:02d} left")
        bar = ProgressBar(total=self.seconds, completed=min(spent, self.seconds), width=60)
        return Group(head, bar, ranking_table(self._results))
