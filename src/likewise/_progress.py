"""Progress on stderr, drawn by rich: a bar with the time left, or the elapsed seconds if the total is unknown."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
PATIENCE = 0.5  # seconds of work of unknown length before it is shown


def track(items: Iterable[Item], text: str, total: int | None = None) -> Iterable[Item]:
    """Iterate over items with a progress bar on stderr; ``total`` is needed if items have no length."""
    from rich.console import Console
    from rich.progress import track as bar

    return bar(items, text, total=total, console=Console(stderr=True))


@contextmanager
def moving(text: str, total: float) -> Iterator[Callable[[float], None]]:
    """Draw a bar with the time left; yield a function that advances the bar by a part of ``total``."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done: bar.advance(task, done)


@contextmanager
def waiting(text: str, *, shown: bool = True) -> Iterator[None]:
    """Show what is being done and the elapsed seconds, unless the block ends within half a second."""
    if not shown:
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(text, total=None)
    timer = threading.Timer(PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # if it has begun to draw
        bar.stop()
