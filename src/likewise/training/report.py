"""Report: a progress bar on a terminal, a line for each epoch elsewhere, or nothing."""

import sys
from typing import Any

from likewise.training.history import Score


class Report:
    """Report the progress of training on stderr.

    epochs: the total number of epochs. every: the number of epochs between two lines.
    """

    def __init__(self, epochs: int, *, verbose: bool, every: int = 1) -> None:
        self.epochs = epochs
        self.verbose = verbose
        self.every = every
        self._bar: Any = None
        self._task: Any = None

    def start(self, epoch: int) -> None:
        """Begin, with ``epoch`` epochs completed."""
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
        """Report on an epoch, counted from 1."""
        text = f"loss {loss:.4g}" if score is None else f"loss {loss:.4g}, {score}"
        if self._bar is not None:
            self._bar.update(self._task, completed=epoch, said=text)
        elif self.verbose and (score is not None or epoch % self.every == 0 or epoch == self.epochs):
            self.say(f"epoch {epoch}/{self.epochs}: {text}, {seconds:.1f} s")

    def say(self, text: str) -> None:
        """Write a line."""
        if self.verbose:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def close(self) -> None:
        """Restore the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
