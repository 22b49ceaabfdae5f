"""Tiles of pairs that the GPU kernels process together: their lengths are similar, so there is little padding."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Tile:
    """Rows first_x.. with columns first_y.., or, with one column and diagonal = 1, row first_x + k with first_y + k."""

    first_x: int
    first_y: int
    rows: int
    columns: int
    x_steps: int
    y_steps: int
    diagonal: int = 0

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return self.rows * self.columns

    def cells(self, halo: int) -> int:
        """Cells of all pairs, each with ``halo`` rows and columns more."""
        return self.pairs * (self.x_steps + halo) * (self.y_steps + halo)

    def numbers(self) -> list[int]:
        """Eight numbers for the kernels, which keeps every tile's numbers aligned in an array."""
        return [self.first_x, self.first_y, self.pairs, self.columns, self.diagonal, self.x_steps, self.y_steps, 0]


def all_pairs(n: Tensor, m: Tensor, halo: int, cells: int) -> list[Tile]:
    """Tiles of all pairs of sequences of ascending lengths n and m, each of at most ``cells`` cells, or of one pair."""
    # The same number of frames of x as of y, unless y has fewer.
    all_y, columns, tiles = len(m) * (int(m[-1]) + halo), (m + halo).tolist(), []
    for i, end_i in _groups((n + halo).tolist(), max(math.isqrt(cells), cells // all_y)):
        x_steps = int(n[end_i - 1])
        for j, end_j in _groups(columns, cells // ((end_i - i) * (x_steps + halo))):
            tiles.append(Tile(i, j, end_i - i, end_j - j, x_steps, int(m[end_j - 1])))
    return tiles


def paired(n: Tensor, m: Tensor, halo: int, cells: int) -> list[Tile]:
    """Tiles of pairs k, of lengths n[k] and m[k], each of about ``cells`` cells; n is ascending."""
    tiles, longest = [], int(m.max()) + halo
    for first, last in _groups(((n + halo) * longest).tolist(), cells):
        tiles.append(Tile(first, first, last - first, 1, int(n[last - 1]), int(m[first:last].max()), 1))
    return tiles


def _groups(sizes: list[int], most: int) -> Iterator[tuple[int, int]]:
    """Ranges first..last-1 of ascending sizes, at most ``most`` if all were as large as the last, or of one."""
    first = 0
    while first < len(sizes):
        count = min(max(1, most // sizes[first]), len(sizes) - first)
        while count > 1 and count * sizes[first + count - 1] > most:
            count = max(1, most // sizes[first + count - 1])
        yield first, first + count
        first += count
