"""TiledMatrix: a matrix of distances on disk, which reads its tiles as they are needed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from likewise import _check
from likewise.data.batch import Batch
from likewise.scale.precomputed import Precomputed
from likewise.scale.progress import Report
from likewise.scale.tiles import DTYPES, Layout, Tile, check_tile, map_tile


class TiledMatrix:
    """A matrix of distances (N, M) in a folder, which is indexed like an array and reads only the tiles needed.

    path: the folder, which ``scale.matrix`` has written. The checksum of each tile is checked when it is first read.

    ``D[3]``, ``D[3, 7]``, ``D[10:20]``, ``D[10:20, [1, 5]]`` and ``numpy.asarray(D)`` are NumPy arrays.
    ``evaluate_matrix`` takes a TiledMatrix, and reads it in strips. ``D.condensed()`` is the input of SciPy's
    ``linkage``. ``D.distance`` and ``D.rows`` go wherever a distance and items go: ``Index(D.distance, D.rows)``,
    ``KMedoids(D.distance).fit(D.rows)``.

    The folder is also an array of the format Zarr 3. Other programs see NaN in tiles that are not computed yet and, if
    the matrix is symmetric, in those below the diagonal.

    Example:
        >>> import tempfile
        >>> from likewise import DTW, scale
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     D = scale.matrix(DTW(), [[0.0, 1.0], [5.0], [0.0, 3.0]], out=folder + "/D.zarr", tile=2)
        ...     D, D[0].tolist(), D[1:, [0, 2]].shape, D.condensed().tolist()
        (TiledMatrix(3 x 3, float32, symmetric, 3 tiles of 2 x 2), [0.0, 41.0, 4.0], (2, 2), [41.0, 4.0, 29.0])
    """

    ndim = 2

    def __init__(self, path: str | Path, report: Report | None = None) -> None:
        self.path = Path(path)
        self.layout = Layout.read(self.path)
        self.report = report
        self._checked: set[str] = set()

    @property
    def shape(self) -> tuple[int, int]:
        """(N, M)."""
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype:
        """float32 or float16."""
        return DTYPES[self.layout.dtype]

    @property
    def symmetric(self) -> bool:
        """Whether rows and columns are the same items, under a symmetric distance."""
        return self.layout.symmetric

    def __len__(self) -> int:
        return self.shape[0]

    def missing(self) -> Iterator[Tile]:
        """The tiles that are still missing; after an interruption, ``scale.matrix`` computes them."""
        return (tile for tile in self.layout.tiles() if not (self.path / tile.key).is_file())

    def verify(self) -> None:
        """Read all tiles, and raise an error for one that is missing or damaged."""
        for tile in self.layout.tiles():
            check_tile(self.path, self.layout, tile)
            self._checked.add(tile.key)

    def __getitem__(self, index: Any) -> Any:
        rows, columns = index if isinstance(index, tuple) and len(index) == 2 else (index, slice(None))
        if isinstance(index, tuple) and len(index) != 2:
            raise IndexError(f"TiledMatrix: expected one or two indices, got {len(index)}")
        places = [_places(part, size) for part, size in zip((rows, columns), self.shape, strict=True)]
        if not any(isinstance(part, (int, np.integer, slice)) for part in (rows, columns)):
            raise IndexError("TiledMatrix: index with two lists is ambiguous; use D.block(rows, columns)")
        found = self.block(*places)
        whole = [isinstance(part, (int, np.integer)) for part in (rows, columns)]
        return found[0 if whole[0] else slice(None), 0 if whole[1] else slice(None)]

    def block(self, rows: Any, columns: Any) -> np.ndarray:
        """Distances (n, m) between some rows and some columns, each a list of positions.

        Example:
            >>> import tempfile
            >>> from likewise import Euclidean, scale
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     D = scale.matrix(Euclidean(), torch.tensor([[0.0], [1.0], [5.0]]), out=folder + "/D")
            ...     D.block([2, 0], [0, 1]).tolist()
            [[5.0, 4.0], [0.0, 1.0]]
        """
        rows, columns = (_places(part, size) for part, size in zip((rows, columns), self.shape, strict=True))
        found = np.empty((len(rows), len(columns)), self.dtype)
        high, wide = self.layout.tile
        by_column = [(n, np.flatnonzero(columns // wide == n)) for n in np.unique(columns // wide)]
        for i in np.unique(rows // high):
            at = np.flatnonzero(rows // high == i)
            for j, to in by_column:
                tile = self._tile(int(i), int(j))
                found[_outer(at, to)] = tile[_outer(rows[at] - i * high, columns[to] - j * wide)]
        return found

    def _tile(self, row: int, column: int) -> np.ndarray:
        """The values at a place in the grid; below the diagonal of a symmetric matrix, those above it."""
        if self.symmetric and row > column:
            return self._tile(column, row).T
        tile = self.layout.at(row, column)
        if tile.key in self._checked:
            return map_tile(self.path, self.layout, tile)[: tile.shape[0], : tile.shape[1]]
        values = check_tile(self.path, self.layout, tile)
        self._checked.add(tile.key)
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("TiledMatrix: an array in memory is always a copy; leave out copy=False")
        found = self[:]
        return found if dtype is None else found.astype(dtype, copy=False)

    def condensed(self) -> np.ndarray:
        """The distances above the diagonal, row by row: (N (N - 1) / 2,), as SciPy's ``linkage`` takes them."""
        if not self.symmetric:
            _check.refuse("TiledMatrix.condensed", "the matrix is not symmetric")
        count = len(self)
        found = np.empty(count * (count - 1) // 2, self.dtype)
        for tile in self.layout.tiles():
            values = self._tile(tile.row, tile.column)
            for row in range(tile.rows.start, tile.rows.stop):
                first = max(row + 1, tile.columns.start)
                start = row * (2 * count - row - 1) // 2 + first - row - 1  # of the pair (row, first)
                some = values[row - tile.rows.start, first - tile.columns.start :]
                found[start : start + len(some)] = some
        return found

    @property
    def distance(self) -> Precomputed:
        """A Distance between positions, which looks them up here."""
        return Precomputed(self)

    @property
    def rows(self) -> Batch:
        """The positions 0..N-1 of the rows, as items of ``distance``."""
        return positions(self.shape[0])

    @property
    def columns(self) -> Batch:
        """The positions 0..M-1 of the columns, as items of ``distance``."""
        return positions(self.shape[1])

    def __repr__(self) -> str:
        (n, m), (high, wide), count = self.shape, self.layout.tile, self.layout.count
        kind = f"{self.layout.dtype}{', symmetric' * self.symmetric}"
        return f"TiledMatrix({n:,} x {m:,}, {kind}, {count:,} tile{'s' * (count != 1)} of {high:,} x {wide:,})"


def positions(count: int) -> Batch:
    """The positions 0..count-1 as sequences of one step, in float64, which holds them exactly."""
    return Batch(torch.arange(count, dtype=torch.float64)[:, None, None])


def _places(index: Any, size: int) -> np.ndarray:
    """Positions (K,) of an integer, a slice, a list of positions or a mask."""
    if isinstance(index, slice):
        return np.arange(size)[index]
    found = np.asarray(index)
    if found.ndim == 1 and not len(found):
        return np.empty(0, np.int64)
    if found.dtype.kind == "b" and found.shape == (size,):
        return np.flatnonzero(found)
    if found.dtype.kind not in "iu" or found.ndim > 1:
        raise IndexError(f"TiledMatrix: expected an integer, a slice, positions or a mask, got {index!r:.80}")
    found = np.atleast_1d(found).astype(np.int64)
    wrong = (found < -size) | (found >= size)
    if wrong.any():
        raise IndexError(f"TiledMatrix: position {found[wrong][0]} is out of range; there are {size}")
    return np.where(found < 0, found + size, found)


def _outer(rows: np.ndarray, columns: np.ndarray) -> tuple[Any, Any]:
    """An index of all rows and columns; consecutive ones as slices, which copy faster."""
    parts = [
        slice(int(part[0]), int(part[-1]) + 1) if len(part) and (np.diff(part) == 1).all() else part
        for part in (rows, columns)
    ]
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.ix_(*parts)  # type: ignore[arg-type, return-value]
    return parts[0], parts[1]
