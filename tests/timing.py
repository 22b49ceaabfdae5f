"""Bounds on time that hold on a busy machine."""

import time
from collections.abc import Callable


def cpu_seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """The least CPU time of several calls: other programs, and a garbage collection in between, do not count."""
    taken = []
    for _ in range(repeats):
        begin = time.process_time()
        call()
        taken.append(time.process_time() - begin)
    return min(taken)
