"""A progress bar on stderr, drawn by rich."""

from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], text: str, total: int | None = None) -> Iterable[Item]:
    """Iterate over items with a progress bar on stderr; ``total`` is needed if items have no length."""
    from rich.console import Console
    from rich.progress import track as bar

    return bar(items, text, total=total, console=Console(stderr=True))
