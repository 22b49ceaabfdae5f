"""How a subcommand shows its result."""

import math
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

import likewise as lw
from likewise.selection.result import Result


def print_facts(facts: dict[str, Any], *, err: bool = False) -> None:
    """Print names and values, one per line, on stdout or stderr; None values are left out."""
    table = Table(show_header=False, box=None)
    table.add_column(style="dim")
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key}={option}" for key, option in value.items()) or "none"
        if value is not None:
            table.add_row(name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value))
    Console(stderr=err).print(table, soft_wrap=True)


def finite(value: Any) -> float | None:
    """The number, or None where JSON cannot hold it."""
    return float(value) if math.isfinite(value) else None


def is_terminal() -> bool:
    """Whether a progress bar is visible."""
    return sys.stderr.isatty()


def stderr_console() -> Console:
    """The console for progress; stdout is for results."""
    return Console(stderr=True, highlight=False)


def ranking_table(results: Sequence[Result]) -> Table:
    """The results of a selection, best first."""
    table = Table(
        "", "metric", "MAP", "95 % interval", "1-NN accuracy", "steps", "seconds", box=None, header_style="dim"
    )
    for place, result in enumerate(results, 1):
        if result.left_out is not None:
            table.add_row("", result.name, "", result.left_out)
            continue
        low, high = result.interval
        numbers = f"{result.map:.3f}", f"{low:.3f} to {high:.3f}", f"{result.accuracy:.3f}"
        table.add_row(str(place), result.name, *numbers, str(result.steps), f"{result.seconds:.1f}")
    return table


def described(data: lw.Dataset) -> str:
    """The size of a Dataset in words.

    Example:
        >>> described(lw.Dataset([[0.0, 1.0], [2.0]], ["a", "b"]))
        '2 sequences of 1 to 2 steps and 1 channel, in 2 classes'
    """
    text = f"{len(data):,} items"
    if isinstance(data.items, lw.Batch):
        least, most, channels = int(data.items.lengths.min()), int(data.items.lengths.max()), data.items.channels
        steps = f"{least} to {most}" if least < most else str(least)
        text = f"{len(data):,} sequences of {steps} steps and {channels} channel{'s' * (channels != 1)}"
    elif isinstance(data, lw.ImageSet):
        text = f"{len(data):,} images of {' x '.join(map(str, data.items.shape[2:]))} pixels"
    return text if data.codes is None else f"{text}, in {len(set(data.labels.tolist()))} classes"
