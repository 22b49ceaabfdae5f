"""Report: a progress bar on a terminal, a line for each epoch elsewhere, or nothing."""

import sys
from typing import Any

from likewise.training.history import Score


class Report:
    """Tells how training goes, on stderr."""

    def __init__(self, epochs: int, *, verbose: bool, every: int) -> None:
        self.epochs = epochs
        self.verbose = verbose
        self.every = every  # epochs between lines
        self._bar: Any = None
        self._task: Any = None

    def start(self, epoch: int) -> None:
        """Begin, with so many epochs done."""
        if not (self.verbose and sys.stderr.isatty()):
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("Training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=self.epochs, completed=epoch, said="")
        self._bar.start()

    def epoch(self, epoch: int, loss: float, seconds: float, score: Score | None) -> None:
        """Say how epoch number ``epoch``, counted from 1, went."""
        text = f"loss {loss:.4g}"
        if score is not None:
            text += f", accuracy {score.accuracy:.4f}, map {score.map:.4f}"
        if self._bar is not None:
            self._bar.update(self._task, completed=epoch, said=text)
        elif self.verbose and (score is not None or epoch % self.every == 0 or epoch == self.epochs):
            sys.stderr.write(f"epoch {epoch}/{self.epochs}: {text}, {seconds:.1f} s\n")
            sys.stderr.flush()

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
