"""matrix: all distances between many items, tile by tile, on disk."""

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from likewise import _check
from likewise.scale import pace
from likewise.scale.engine import Plan, threads
from likewise.scale.operands import Operands, on_cpu, read_operands
from likewise.scale.progress import watched
from likewise.scale.tiled_matrix import TiledMatrix
from likewise.scale.tiles import DTYPES, LARGEST_TILE, MANIFEST, Layout, Tile, check_tile, remove_leftovers, write_tile

OP = "scale.matrix"

# A GPU computes one tile at a time while others are written. Side by side, each would wait for the last of them, and
# then all would be written at once.
_turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


@dataclass(frozen=True)
class Shared:
    """The data that all tiles share."""

    operands: Operands
    layout: Layout
    folder: str


def matrix(
    distance: Any,
    X: Any,
    Y: Any = None,
    *,
    out: str | Path,
    tile: int | None = None,
    dtype: str = "float32",
    engine: str | None = None,
    devices: Any = None,
    cores: int | None = None,
    resume: bool = True,
    progress: bool = False,
) -> TiledMatrix:
    """Compute all distances between the items of X and Y, or of X with itself, tile by tile, into a folder.

    distance: any Distance, or a Metric, whose encoder then runs once for each item, in this process.
    X, Y: a Dataset, a Batch, a tensor (N, T, C), a list of sequences; vectors (N, D) where the distance takes them.
    out: the folder, such as "D.zarr"; see ``TiledMatrix``. tile: the side of a tile; by default, a small block is
        measured, and a tile takes about two seconds of a worker.
    dtype: "float32" or "float16", of the file; distances are computed in the type of the items.
    engine: None computes in this process, with ``torch.get_num_threads()`` threads. "ray" computes on the Ray cluster
        that you joined by ``ray.init``, or on this machine; the folder must then be one that all machines see.
    devices: "cpu" by default, or "cuda"; in this process, also a list of devices. cores: CPU cores for each worker of
        Ray, 1 by default: its threads.
    resume: continue a matrix that is in the folder, if distance and items are the same; False refuses one.
    progress: draw tiles done, pairs per second, time left and lost workers on stderr.

    Whatever ends it (Ctrl-C, ``kill -9``, a full disk), the next call continues: a tile is written whole, with a
    checksum, and one that is damaged is computed again. A tile whose worker or machine is lost runs elsewhere. Where
    the distance is symmetric, only tiles on and above the diagonal are computed and stored. Memory: the items once per
    machine and, for each worker, one tile and what the distance needs for it. ``D.report`` says how it went.

    Example:
        >>> import tempfile
        >>> from likewise import DTW
        >>> x = torch.arange(60.0).sin().reshape(6, 10, 1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     D = matrix(DTW(), x, out=folder + "/D.zarr", tile=4)
        ...     again = matrix(DTW(), x, out=folder + "/D.zarr")
        ...     D, again.report.computed, bool((D[:] == DTW().matrix(x).numpy()).all())
        (TiledMatrix(6 x 6, float32, symmetric, 3 tiles of 4 x 4), 0, True)
    """
    folder = Path(out)
    if dtype not in DTYPES:
        _check.refuse(OP, f'dtype must be "float32" or "float16", got {dtype!r}')
    if tile is not None:
        tile = _check.whole(OP, "tile", tile)
        if tile * tile * DTYPES[dtype].itemsize > LARGEST_TILE - 4:
            _check.refuse(
                OP, f"a tile of {tile} x {tile} takes more than {LARGEST_TILE >> 20} MB; choose a smaller one"
            )
    plan = Plan.read(OP, engine, devices, cores)
    found = _found(folder, resume)
    operands = read_operands(OP, distance, X, Y)
    with plan.connected():
        layout = _layout(operands, plan, folder, found, tile, dtype)
        if found is None:
            layout.write(folder)
        return _fill(plan, Shared(operands, layout, str(folder.absolute())), progress)


def _found(folder: Path, resume: bool) -> Layout | None:
    """The matrix that is in the folder; an error for anything else that is there."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder}: is a file; scale.matrix writes a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    if not (folder / MANIFEST).exists():
        _check.refuse(OP, f"{folder} has other files but no matrix; choose another folder")
    found = Layout.read(folder)
    if not resume:
        _check.refuse(OP, f"{folder} already has a matrix; resume it, or choose another folder")
    return found


def _layout(operands: Operands, plan: Plan, folder: Path, found: Layout | None, tile: int | None, dtype: str) -> Layout:
    """How the matrix is divided: as in the folder, or as given, or by the measured speed."""
    shape, symmetric = operands.shape, operands.symmetric
    if found is not None:
        sides = tuple(min(tile, size) for size in shape) if tile is not None else found.tile
        given = Layout(shape, sides, dtype, symmetric, operands.name[: 1 << 16], operands.inputs)  # type: ignore[arg-type]
        for name in ("shape", "inputs", "dtype", "tile"):
            if getattr(found, name) != getattr(given, name):
                what = {"inputs": "distance or items"}.get(name, name)
                _check.refuse(
                    OP, f"{folder} holds a matrix of another {what} ({found.distance}); choose another folder"
                )
        return found
    if tile is None:
        device = plan.devices[0] if plan.engine is None else "cpu"
        with threads(plan.threads):
            tile = pace.tile_side(operands, plan.slots, device)
    sides = min(tile, shape[0]), min(tile, shape[1])
    return Layout(shape, sides, dtype, symmetric, operands.name[: 1 << 16], operands.inputs)


def _fill(plan: Plan, shared: Shared, progress: bool) -> TiledMatrix:
    """Compute what is missing."""
    layout, folder, finished = shared.layout, Path(shared.folder), 0
    pairs = layout.shape[0] * layout.shape[1]
    with watched(f"{layout.shape[0]:,} x {layout.shape[1]:,}", layout.count, pairs, progress=progress) as (
        report,
        count,
    ):
        try:
            for done in plan.run(compute_tile, shared, _jobs(layout)):
                finished += 1
                count(done, done.result)
        except OSError as error:
            if error.errno is None:
                raise
            kept = f"{finished:,} of {layout.count:,} tiles are done and kept; call scale.matrix again to go on"
            raise OSError(error.errno, f"{os.strerror(error.errno)}; {kept}", str(folder)) from error
    remove_leftovers(folder)
    return TiledMatrix(folder, report)


def _jobs(layout: Layout) -> Iterator[tuple[int, int]]:
    return ((tile.row, tile.column) for tile in layout.tiles())


def compute_tile(shared: Shared, job: tuple[int, int], device: str) -> int:
    """Compute and write one tile, unless a good one is there. Returns the number of distances that it computed."""
    layout, folder, tile = shared.layout, Path(shared.folder), shared.layout.at(*job)
    if not (folder / MANIFEST).is_file():
        raise FileNotFoundError(f"{folder}: cannot be reached from this worker; use a folder that all machines share")
    try:
        check_tile(folder, layout, tile)
        return 0
    except (FileNotFoundError, ValueError):  # absent or damaged
        pass
    with nullcontext() if device == "cpu" else _turns[device]:
        values = values_of(shared.operands, tile, layout, device)
    write_tile(folder, layout, tile, values)
    return tile.shape[0] * tile.shape[1]


def values_of(operands: Operands, tile: Tile, layout: Layout, device: str) -> np.ndarray:
    """The distances of one tile, in the type of the file, checked and converted where they were computed."""
    own = operands.symmetric and tile.row == tile.column
    D = operands.compare_on(device, tile.rows, None if own else tile.columns)
    kind = torch.float16 if layout.dtype == "float16" else torch.float32
    stored = D.to(kind)
    if all(end.isfinite() for end in stored.aminmax()):  # one quick pass, and the only one over nearly every tile
        return on_cpu(stored).contiguous().numpy()
    if D.isnan().any():
        row, column = D.isnan().nonzero()[0].tolist()
        pair = (tile.rows.start + row, tile.columns.start + column)
        _check.refuse(OP, f"{operands.name} returned NaN for the pair {pair}")
    if not torch.equal(stored.isinf(), D.isinf()):
        most, wider = float(D[~D.isinf()].abs().max()), "float32" if kind == torch.float16 else "smaller distances"
        _check.refuse(OP, f"a distance of {most:.6g} does not fit in {layout.dtype}; use {wider}")
    return on_cpu(stored).contiguous().numpy()
