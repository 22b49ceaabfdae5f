"""Limits on the memory that reading a file may take: a multiple of its size, and a share of the machine's memory."""

import os

from likewise import _check

EXPANSION = 64  # times a file's size
LEAST = 1 << 28  # bytes that a file of any size may take
MOST = 4 << 30  # bytes, unless the caller allows more


def unpacked_limit(limit: int | None) -> int:
    """Return limit or, if it is None, 4 GiB or half of this machine's memory, whichever is less.

    Example:
        >>> unpacked_limit(1000)
        1000
    """
    if limit is not None:
        return limit
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on every system
        return MOST
    return min(MOST, memory // 2)


def check_expansion(where: str, taken: int, size: int, expansion: float) -> None:
    """Raise an error if a file of size bytes takes more than expansion times that, and more than 256 MiB.

    Example:
        >>> check_expansion("a.npz", 10**9, 10**6, 64)
        Traceback (most recent call last):
        ValueError: a.npz: takes 1000000000 bytes unpacked, 1000 times the file's 1000000; raise expansion=64 ...
    """
    if taken > max(LEAST, expansion * size):
        problem = f"takes {taken} bytes unpacked, {taken // size} times the file's {size}"
        _check.refuse(where, f"{problem}; raise expansion={expansion} to read it")


def padding_limit(size: int) -> int:
    """The most bytes for the padded sequences of a text file of size bytes: 64 times the size, at least 256 MiB.

    Example:
        >>> padding_limit(10**9)
        64000000000
    """
    return max(LEAST, EXPANSION * size)
