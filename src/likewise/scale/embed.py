"""embed: encode items that do not fit in memory, file by file."""

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise._labels import is_map_style, read_labels, rows_of
from likewise.data.audio import read_wav
from likewise.data.batch import Batch
from likewise.data.dataset import names_of
from likewise.data.files import Files, FileSet, open_image_folder, open_sequence_folder
from likewise.data.image_folders import list_classes
from likewise.data.tables import read_table
from likewise.models.metric import CHUNK, Metric
from likewise.scale.engine import Plan
from likewise.scale.operands import Operand
from likewise.scale.progress import Report, watched

OP = "scale.embed"
Part = tuple[Operand, Any, Sequence[str] | None]  # encoded items, labels and ids


@dataclass(frozen=True, eq=False)
class Embedded:
    """Encoded items, which can be used wherever a labelled Dataset can.

    items: vectors (N, D), or a Batch. labels: (N,) or None. ids: the file, or the id in a table, of each.
    report: how they were computed.

    Example:
        >>> found = Embedded(torch.zeros(2, 8), np.array(["a", "b"]), ("1.png", "2.png"), Report(1))
        >>> found, len(found), found[0][1]
        (Embedded(2 items of 8 numbers), 2, np.str_('a'))
    """

    items: Batch | Tensor
    labels: Any
    ids: tuple[str, ...]
    report: Report

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        return self.items[index], None if self.labels is None else self.labels[index]

    def __repr__(self) -> str:
        kind = f"{self.items.channels} channels" if isinstance(self.items, Batch) else f"{self.items.shape[1]} numbers"
        return f"Embedded({len(self):,} items of {kind})"


@dataclass(frozen=True)
class Source:
    """Where items come from: ``read(job)`` returns the items of a job, their labels, and their ids."""

    read: Callable[[Any], tuple[Any, Any, Sequence[str] | None]]
    jobs: tuple[Any, ...]


@dataclass(frozen=True)
class Shared:
    """The data that all jobs share."""

    metric: Metric
    source: Source
    chunk: int


def embed(
    metric: Metric,
    files: Any,
    *,
    columns: Mapping[str, str] | None = None,
    size: int | None = None,
    chunk: int = CHUNK,
    engine: str | None = None,
    devices: Any = None,
    cores: int | None = None,
    progress: bool = False,
) -> Embedded:
    """Encode items that do not fit in memory, and return the encoded ones.

    files: a folder with one folder per class of images, WAV files or .npy sequences; a Parquet file, a list of them, or
        a folder of them, each with whole sequences, one row per time step; or a FileSet or another map-style dataset.
    columns: of Parquet files: {"id": ..., "time": ..., "label": ...}; "id" and "time" by default.
    size: of images, in pixels. chunk: items read and encoded at once; a Parquet file is read at once.
    engine, devices, cores, progress: as in ``scale.matrix``. On Ray, all machines must see the files.

    Files are read by the same functions with and without Ray, and encoded in the same chunks: the results are the same,
    in the order of the files.

    Example:
        >>> import tempfile
        >>> from likewise import Euclidean, TCN
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, "walk").mkdir()
        ...     np.save(Path(folder, "walk", "1.npy"), np.zeros((5, 3), np.float32))
        ...     embed(Metric(TCN(3, out=4, steps=False), Euclidean()), folder).labels.tolist()
        ['walk']
    """
    if not isinstance(metric, Metric):
        raise TypeError(f"{OP}: expected metric to be a Metric, got {type(metric).__name__}")
    plan = Plan.read(OP, engine, devices, cores)
    chunk = _check.whole(OP, "chunk", chunk)
    source = _source(files, columns, size, chunk)
    home = next((parameter.device.type for parameter in metric.parameters()), "cpu")
    shared = Shared(metric if home == "cpu" else copy.deepcopy(metric).cpu(), source, chunk)
    jobs = range(len(source.jobs))
    found: dict[int, Part] = {}
    with plan.connected(), watched("embed", len(jobs), len(jobs), progress=progress) as (report, tally):
        for done in plan.run(encode_part, shared, jobs):
            found[done.job] = done.result
            tally(done, 1)
    return _joined([found[job] for job in jobs], report)


def encode_part(shared: Shared, job: int, device: str) -> Part:
    """Read and encode the items of one job."""
    items, labels, ids = shared.source.read(shared.source.jobs[job])
    metric = shared.metric if device == "cpu" else copy.deepcopy(shared.metric).to(device)
    return Operand.of(metric.embed(items, chunk=shared.chunk)), labels, ids


def _source(files: Any, columns: Mapping[str, str] | None, size: int | None, chunk: int) -> Source:
    tables = _parquet(files)
    if columns is not None and tables is None:
        _check.refuse(OP, "columns are those of Parquet files; the files are of another kind")
    if tables is not None:
        names = {"id": "id", "time": "time"} if columns is None else dict(columns)
        return Source(partial(_read_table, names), tuple(tables))
    dataset = _open(Path(files), size) if isinstance(files, (str, os.PathLike)) else files
    if not is_map_style(dataset):
        kind = type(files).__name__
        raise TypeError(f"{OP}: expected files to be a folder, Parquet files or a map-style dataset, got {kind}")
    if not len(dataset):
        _check.refuse(OP, "there are no items")
    parts = tuple((first, min(first + chunk, len(dataset))) for first in range(0, len(dataset), chunk))
    return Source(partial(_read_part, dataset), parts)


def _parquet(files: Any) -> list[Path] | None:
    """Paths of Parquet files; None for anything else."""
    if isinstance(files, (str, os.PathLike)):
        path = Path(files)
        if path.is_dir():
            return sorted(path.glob("*.parquet")) or None
        return [path] if path.suffix == ".parquet" else None
    if isinstance(files, (list, tuple)) and files and all(isinstance(path, (str, os.PathLike)) for path in files):
        wrong = [path for path in files if Path(path).suffix != ".parquet"]
        if wrong:
            _check.refuse(OP, f"expected a list of .parquet files, got {os.fspath(wrong[0])}")
        return [Path(path) for path in files]
    return None


def _open(folder: Path, size: int | None) -> FileSet:
    """A folder of images, WAV files or sequences, by the ending of its first file."""
    listing = list_classes(OP, folder, "images, WAV files or sequences")
    ending = Path(listing.files[0]).suffix.lower() if listing.files else ""
    if size is not None and ending in (".wav", ".npy", ".npz"):
        _check.refuse(OP, f"size is that of images, but {folder} holds {ending} files")
    if ending == ".wav":
        labels = names_of(listing.classes, listing.labels)
        ids = tuple(os.fspath(path) for path in listing.files)
        return FileSet(Files(listing.files, read_wav), labels, ids=ids, classes=listing.classes)
    if ending in (".npy", ".npz"):
        return open_sequence_folder(folder)
    return open_image_folder(folder) if size is None else open_image_folder(folder, size=size)


def _read_part(dataset: Any, job: tuple[int, int]) -> tuple[Any, Any, Sequence[str] | None]:
    part, labels, ids = slice(*job), dataset.labels, getattr(dataset, "ids", None)
    return rows_of(dataset, part), None if labels is None else labels[part], None if ids is None else ids[part]


def _read_table(names: Mapping[str, str], path: Path) -> tuple[Any, Any, Sequence[str] | None]:
    data = read_table(path, **names)  # type: ignore[arg-type]
    return data.items, data.labels, data.ids


def _joined(parts: Sequence[Part], report: Report) -> Embedded:
    items: Iterable[Any] = [operand.items for operand, _, _ in parts]
    first = parts[0][0]
    whole = torch.cat(list(items)) if first.lengths is None else Batch.cat(list(items))
    known = all(labels is not None for _, labels, _ in parts)
    labels = np.concatenate([read_labels(OP, "labels", labels) for _, labels, _ in parts]) if known else None
    ids: list[str] = []
    for _, _, names in parts:
        start = len(ids)
        ids += map(str, names) if names is not None else map(str, range(start, len(whole)))
    if len(set(ids)) != len(ids):
        twice = next(name for place, name in enumerate(ids) if name in set(ids[:place]))
        _check.refuse(OP, f"the id {twice!r} is in two files; a sequence must lie within one")
    return Embedded(whole, labels, tuple(ids), report)
