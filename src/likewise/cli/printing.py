"""How a subcommand shows its result."""

import math
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from likewise.selection.result import Result


def print_facts(facts: dict[str, Any], *, err: bool = False) -> None:
    """Print names and values, a line each, on stderr if so asked; what is None is left out."""
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
    """Whether someone sees a progress bar."""
    return sys.stderr.isatty()


def stderr_console() -> Console:
    """Where progress goes: stdout is for results."""
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
