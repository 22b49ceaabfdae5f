"""Some pairs one after another in lines of cells, for the gradients' kernels.

A line has rows of ``stride`` cells: the length of the longest y, and a halo of zeros. A pair has a row for each frame
of x, and then a halo of rows. So the x of a line differ in length as they like, and its y are alike.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 1024  # a line's cells are a multiple of it
WASTE = 1.2  # the most that a line may grow by being as wide as its longest y
SHORT = 1 << 20  # cells of a line that may grow by more


@dataclass(frozen=True)
class Line:
    """Pairs first..last-1, on the device of the lengths."""

    first: int
    last: int
    stride: int
    cells: int  # all rows, and what makes a multiple of BLOCK
    table: Tensor  # (rows, 4) int32: pair, counted from ``first``, its two items, and the row's frame; -1 in a halo
    items: Tensor  # (pairs,) int64
    others: Tensor  # (pairs,) int64
    starts: Tensor  # (pairs,) int64: the first cell of each

    @property
    def rows(self) -> int:
        """Rows that hold ``cells`` cells, the last one perhaps not whole."""
        return len(self.table)


def cuts(n: Tensor, m: Tensor, halo: int, cells: int, most: int) -> Iterator[tuple[int, int, int, int]]:
    """(first, last, stride, rows) of lines of pairs of lengths n and ascending m, on the CPU.

    Of at most ``cells`` cells and ``most`` pairs each, but of one pair at least.
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
