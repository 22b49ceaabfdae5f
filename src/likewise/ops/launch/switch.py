"""The switch between quick launches and Triton's launcher."""

import functools
import logging
import os
from types import SimpleNamespace

from likewise.ops import private

VARIABLE = "LIKEWISE_QUICK_LAUNCH"

_switch = SimpleNamespace(on={"0": False, "1": True}.get(os.environ.get(VARIABLE, "")))


class quick:  # noqa: N801, used like a function
    """Launch kernels quickly, or let Triton launch them, from now on or, in a ``with`` statement, inside the block.

    on: True launches quickly with any version of PyTorch and Triton, False never. None, the default, launches quickly
        with the versions with which the launcher was tested.

    It applies to the whole process, and never changes a result. ``LIKEWISE_QUICK_LAUNCH`` in the environment, 0 or 1,
    is read once, at import.

    Example:
        >>> with quick(False):
        ...     is_quick()
        False
    """

    def __init__(self, on: bool | None) -> None:
        self._before = _switch.on
        _switch.on = on

    def __enter__(self) -> None:
        """Return self: the switch is already set."""

    def __exit__(self, *error: object) -> None:
        """Set the switch back."""
        _switch.on = self._before


def is_quick() -> bool:
    """Whether kernels are launched quickly."""
    on = _switch.on
    return _by_versions() if on is None else on


@functools.cache
def _by_versions() -> bool:
    untried = private.untried()
    if untried:
        logging.getLogger(__name__).debug(
            "Triton launches its kernels itself: the quick launcher has not been tried with %s", " and ".join(untried)
        )
    return not untried
