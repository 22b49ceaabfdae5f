"""Pace: how large a job should be, from a measurement, so that it takes a second or two."""

import math
import time
from collections.abc import Callable

import torch

from likewise.scale.operands import Operands

SECONDS = 2.0  # of a job; between 1 and 5
ENOUGH = 0.25  # seconds of a measurement that counts
JOBS_A_WORKER = 4  # at least, where there is enough to do, so that workers end at about the same time
LARGEST_SIDE = 8192  # of a tile: 256 MB of float32


def tile_side(operands: Operands, slots: int, device: str) -> int:
    """The side of square tiles that take about two seconds each, by the speed of a small block.

    Less, where there would be too few of them for all workers.
    """
    rows, columns = operands.shape
    most = max(rows, columns)
    if most <= 16:
        return most

    def block(side: int) -> float:
        index = torch.randperm(most, generator=torch.Generator().manual_seed(0))[: min(side, most)]
        first, second = index[index < rows], index[index < columns]
        return _seconds(lambda: operands.compare(first, second, device)) / max(1, len(first) * len(second))

    each = growing(block, min(most, LARGEST_SIDE))
    side = math.sqrt(SECONDS / each)
    wanted = JOBS_A_WORKER * slots
    pairs = rows * columns * (0.5 if operands.symmetric else 1.0)
    side = min(side, math.sqrt(pairs / wanted), LARGEST_SIDE)
    return min(most, max(16, int(side) // 16 * 16))


def growing(measure: Callable[[int], float], most: int, first: int = 32) -> float:
    """The seconds of one unit, by ever larger measurements until one takes a quarter of a second.

    measure: a function of a size that returns seconds per unit, of size squared units at most.

    Example:
        >>> growing(lambda size: 1e-3, 1000)
        0.001
    """
    size = min(first, most)
    while True:
        begin = time.perf_counter()
        each = measure(size)
        if time.perf_counter() - begin >= ENOUGH or size >= most:
            return max(each, 1e-12)
        size = min(2 * size, most)


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
