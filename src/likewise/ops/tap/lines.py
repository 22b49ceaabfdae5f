"""Pairs one after the other in lines of cells, for the gradients' kernels.

A line has rows of ``stride`` cells: the length of the longest y, and a halo of zeros. A pair has a row for each frame
of x, and then a halo of rows. So the x of a line may differ in length, and its y have similar lengths.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 1024  # the number of a line's cells is a multiple of this
WASTE = 1.2  # the largest factor by which a line may grow by being as wide as its longest y
SHORT = 1 << 20  # lines of up to this many cells may grow by more


@dataclass(frozen=True)
class Line:
    """Pairs first..last-1, on the device of the lengths."""

    first: int
    last: int
    stride: int
    cells: int  # those of all rows, padded to a multiple of BLOCK
    table: Tensor  # (rows, 4) int32: pair, counted from ``first``, its two items, and the row's frame; -1 in a halo
    items: Tensor  # (pairs,) int64
    others: Tensor  # (pairs,) int64
    starts: Tensor  # (pairs,) int64: the first cell of each

    @property
    def rows(self) -> int:
        """The number of rows for ``cells`` cells; the last row may be incomplete."""
        return len(self.table)


def one_line(
    pairs: int, rows: int, narrowest: int, widest: int, cells: int, most: int
) -> tuple[int, int, int, int] | None:
    """What ``cuts`` returns if it is certain that all pairs are in one line; the widths include the halo."""
    fits = rows * widest <= cells and pairs <= most
    return (0, pairs, widest, rows) if fits and (widest <= WASTE * narrowest or rows * widest <= SHORT) else None


def cuts(n: Tensor, m: Tensor, halo: int, cells: int, most: int) -> Iterator[tuple[int, int, int, int]]:
    """(first, last, stride, rows) of lines of pairs of lengths n and ascending m, on the CPU.

    A line has at most ``cells`` cells and ``most`` pairs, but at least one pair.
    """
    before = torch.cat([n.new_zeros(1), (n + halo).cumsum(0)])  # rows before each pair
    widths = m + halo
    first = 0
    while first < len(n):
        here = slice(first, first + most)
        sizes = (before[first + 1 : first + most + 1] - before[first]) * widths[here]
        alike = int((widths[here] <= WASTE * widths[first]).sum())
        short, fits = int((sizes <= SHORT).sum()), int((sizes <= cells).sum())
        last = first + max(1, min(max(alike, short), fits))
        yield first, last, int(widths[last - 1]), int(before[last] - before[first])
        first = last
