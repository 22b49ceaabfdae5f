"""How a subcommand shows its result."""

import math
import sys
from typing import Any

from rich.console import Console
from rich.table import Table


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
