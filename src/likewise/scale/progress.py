"""Progress of a long computation on stderr, and a report at its end."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from likewise.scale.engine import Done


@dataclass
class Report:
    """How a computation went.

    jobs: tiles or strips in all. computed: those that were computed; the others were there already.
    losses: workers or machines that were lost on the way. seconds: wall time.
    memory: the most bytes of each worker, by its name.

    Example:
        >>> print(Report(jobs=10, computed=8, losses=1, seconds=2.5, memory={"a": 100 << 20}))
        10 jobs, 8 computed, 1 worker lost, 2.5 s, 100 MB at most in each of 1 worker
    """

    jobs: int
    computed: int = 0
    losses: int = 0
    seconds: float = 0.0
    memory: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        most, workers = max(self.memory.values(), default=0) >> 20, len(self.memory)
        lost = f"{self.losses} worker{'s' * (self.losses != 1)} lost"
        return (
            f"{self.jobs:,} jobs, {self.computed:,} computed, {lost}, {self.seconds:.1f} s, {most} MB at most in each "
            f"of {workers} worker{'s' * (workers != 1)}"
        )


@contextmanager
def watched(
    text: str, jobs: int, pairs: int, *, progress: bool
) -> Iterator[tuple[Report, Callable[[Done, int], None]]]:
    """A report, and a function to call with each job that is done and its number of pairs; draws a bar if asked.

    pairs: the number of all pairs. A job whose pairs are 0 was done before.
    """
    report, begin = Report(jobs), time.perf_counter()
    seen = 0

    def count(done: Done, compared: int) -> None:
        nonlocal seen
        seen += 1
        report.computed += compared > 0
        report.losses = done.losses
        report.seconds = time.perf_counter() - begin
        report.memory[done.worker] = max(report.memory.get(done.worker, 0), done.memory)

    if not progress:
        yield report, count
        report.seconds = time.perf_counter() - begin
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[lost]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task, compared_so_far = bar.add_task(text, total=jobs, rate="", lost=""), 0

        def shown(done: Done, compared: int) -> None:
            nonlocal compared_so_far
            count(done, compared)
            compared_so_far += compared
            rate = f"{compared_so_far / max(report.seconds, 1e-9):,.0f} pairs/s"
            bar.update(task, completed=seen, rate=rate, lost=f"{report.losses} lost" if report.losses else "")

        yield report, shown
    report.seconds = time.perf_counter() - begin
