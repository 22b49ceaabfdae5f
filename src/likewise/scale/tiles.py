"""Tiles on disk: a matrix of distances in a folder, one file for each tile, in the format Zarr 3.

``zarr.json`` holds the shape and the type; ``c/<row>/<column>`` holds one tile: its numbers, little-endian, row by row,
and four bytes of CRC-32C. Tiles at the edge are padded with NaN, so that every file has the same size. Of a symmetric
matrix only the tiles on and above the diagonal exist. Files are treated as hostile: each must have its exact size and
the right checksum, and hold no NaN among its distances.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from likewise import _check
from likewise._output import writing
from likewise.models.storage import read_json, write_json

MANIFEST = "zarr.json"
DTYPES = {"float32": np.dtype("<f4"), "float16": np.dtype("<f2")}
LARGEST_SIDE = 1 << 31  # rows or columns of a matrix
LARGEST_TILE = 1 << 30  # bytes
CHECKSUM = struct.Struct("<I")
AT_ONCE = 1 << 22  # bytes that are checked or written at once
CODECS = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
KEYS = {"name": "default", "configuration": {"separator": "/"}}


@dataclass(frozen=True)
class Tile:
    """One tile: its place in the grid, and the rows and columns of the matrix that it holds.

    Example:
        >>> Tile(0, 1, slice(0, 4), slice(4, 6)).shape
        (4, 2)
    """

    row: int
    column: int
    rows: slice
    columns: slice

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and columns."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    @property
    def key(self) -> str:
        """The path of its file in the folder."""
        return f"c/{self.row}/{self.column}"


@dataclass(frozen=True)
class Layout:
    """How a matrix is divided into tiles, and which distances it holds.

    shape: (N, M). tile: rows and columns of a tile. dtype: "float32" or "float16".
    symmetric: only tiles on and above the diagonal exist. distance: its description. inputs: a hash of the distance
    and of all items; a matrix is continued only if it is the same.

    Example:
        >>> layout = Layout((5, 5), (2, 2), "float32", True, "DTW()", "")
        >>> [tile.key for tile in layout.tiles()]
        ['c/0/0', 'c/0/1', 'c/1/1', 'c/0/2', 'c/1/2', 'c/2/2']
    """

    shape: tuple[int, int]
    tile: tuple[int, int]
    dtype: str
    symmetric: bool
    distance: str
    inputs: str

    @property
    def grid(self) -> tuple[int, int]:
        """The number of tiles in each direction."""
        return -(-self.shape[0] // self.tile[0]), -(-self.shape[1] // self.tile[1])

    @property
    def count(self) -> int:
        """The number of tiles that exist."""
        rows, columns = self.grid
        return rows * (rows + 1) // 2 if self.symmetric else rows * columns

    @property
    def tile_bytes(self) -> int:
        """The size of a tile's file."""
        return self.tile[0] * self.tile[1] * DTYPES[self.dtype].itemsize + CHECKSUM.size

    def at(self, row: int, column: int) -> Tile:
        """The tile at a place in the grid."""
        (n, m), (high, wide) = self.shape, self.tile
        rows = slice(row * high, min(n, (row + 1) * high))
        return Tile(row, column, rows, slice(column * wide, min(m, (column + 1) * wide)))

    def tiles(self) -> Iterator[Tile]:
        """All tiles that exist, column by column: neighbours in time share their columns."""
        rows, columns = self.grid
        for column in range(columns):
            for row in range(column + 1 if self.symmetric else rows):
                yield self.at(row, column)

    def write(self, folder: Path) -> None:
        """Write the manifest."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / MANIFEST, self._manifest())

    def _manifest(self) -> dict[str, Any]:
        ours = {"format": 1, "symmetric": self.symmetric, "distance": self.distance, "inputs": self.inputs}
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": self.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.tile)}},
            "chunk_key_encoding": KEYS,
            "fill_value": "NaN",
            "codecs": CODECS,
            "attributes": {"likewise": ours},
        }

    @classmethod
    def read(cls, folder: Path) -> "Layout":
        """Read the manifest of a folder; refuse what ``write`` does not write."""
        where, found = str(folder / MANIFEST), read_json(folder / MANIFEST)
        try:
            ours = found["attributes"]["likewise"]  # type: ignore[index]
            sizes = [*found["shape"], *found["chunk_grid"]["configuration"]["chunk_shape"]]  # type: ignore[index]
            kind = found["data_type"]  # type: ignore[index]
            symmetric, distance, inputs = ours["symmetric"], ours["distance"], ours["inputs"]
        except (KeyError, TypeError):
            _check.refuse(where, "not a matrix of likewise.scale")
        text = all(isinstance(value, str) and len(value) <= 1 << 16 for value in (distance, inputs))
        if len(sizes) != 4 or not all(type(n) is int and 0 < n <= LARGEST_SIDE for n in sizes):
            _check.refuse(where, "expected the shapes of a matrix and of a tile")
        if not isinstance(kind, str) or kind not in DTYPES or type(symmetric) is not bool or not text:
            _check.refuse(where, "not a matrix of likewise.scale: expected float32 or float16, symmetric or not")
        layout = cls((sizes[0], sizes[1]), (sizes[2], sizes[3]), kind, symmetric, distance, inputs)
        if found != layout._manifest():
            _check.refuse(where, "not a matrix of likewise.scale: expected plain tiles with CRC-32C")
        square = layout.shape[0] == layout.shape[1] and layout.tile[0] == layout.tile[1]
        if (symmetric and not square) or layout.tile_bytes > LARGEST_TILE:
            _check.refuse(where, f"a tile of {layout.tile} does not suit a matrix of {layout.shape}")
        return layout


def write_tile(folder: Path, layout: Layout, tile: Tile, values: np.ndarray) -> None:
    """Write the distances of a tile, whole or not at all."""
    dtype = DTYPES[layout.dtype]
    if values.shape != tile.shape:
        raise ValueError(f"write_tile: expected values of shape {tile.shape}, got {values.shape}")
    if values.shape == layout.tile and values.dtype == dtype and values.flags.c_contiguous:
        padded = values
    else:
        padded = np.full(layout.tile, np.nan, dtype)
        padded[: values.shape[0], : values.shape[1]] = values
    path = folder / tile.key
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as part, part.open("wb") as file:
        checksum = 0
        for some in _pieces(padded):
            checksum = _crc32c(checksum, some)
            file.write(some.data)
        file.write(CHECKSUM.pack(checksum))


def check_tile(folder: Path, layout: Layout, tile: Tile) -> np.ndarray:
    """The distances of a tile, mapped into memory, after its size and checksum were checked."""
    values = map_tile(folder, layout, tile)
    path = folder / tile.key
    with path.open("rb") as file:
        file.seek(-CHECKSUM.size, os.SEEK_END)
        (expected,) = CHECKSUM.unpack(file.read(CHECKSUM.size))
    checksum = 0
    for some in _pieces(values):
        checksum = _crc32c(checksum, some)
    if checksum != expected:
        _check.refuse(str(path), "damaged: its checksum is wrong; scale.matrix computes it again")
    inside = values[: tile.shape[0], : tile.shape[1]]
    if np.isnan(inside.max(initial=-np.inf)):
        _check.refuse(str(path), "damaged: it holds NaN; delete it, and scale.matrix computes it again")
    return inside


def map_tile(folder: Path, layout: Layout, tile: Tile) -> np.ndarray:
    """All numbers of a tile's file, the padding too, mapped into memory; its size is checked, its checksum is not."""
    path = folder / tile.key
    if path.is_symlink() or not path.is_file():
        raise FileNotFoundError(f"{path}: this tile is missing; scale.matrix computes it")
    size = path.stat().st_size
    if size != layout.tile_bytes:
        _check.refuse(str(path), f"damaged: {size} bytes instead of {layout.tile_bytes}")
    return np.memmap(path, DTYPES[layout.dtype], "r", 0, layout.tile)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of writers that were killed; call it when all writers have stopped."""
    for path in folder.glob("c/*/.*.part"):
        path.unlink(missing_ok=True)


def _pieces(values: np.ndarray) -> Iterator[np.ndarray]:
    """The bytes of a contiguous array, some at a time, not copied."""
    whole = values.reshape(-1).view(np.uint8)
    for start in range(0, len(whole), AT_ONCE):
        yield whole[start : start + AT_ONCE]


def _crc32c(checksum: int, some: np.ndarray) -> int:
    try:
        import google_crc32c
    except ImportError as error:
        raise ImportError('tiles need the package google-crc32c: pip install "likewise[scale]"') from error
    return google_crc32c.extend(checksum, some)
