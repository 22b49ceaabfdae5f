"""The time at which a command began, before its imports, which take seconds."""

import os
import time

import click


def process_begun() -> float:
    """The ``time.monotonic()`` at which this process began; or now, if the system does not say.

    Example:
        >>> process_begun() <= time.monotonic()
        True
    """
    now = time.monotonic()
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])  # since the system booted
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return now - max(0.0, age)


def begun() -> float:
    """When the command of this process began; now, if a command is called from Python."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.find_root().obj
    return found if isinstance(found, float) else time.monotonic()
