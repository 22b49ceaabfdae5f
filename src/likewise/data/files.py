"""Items that stay on disk until they are needed: folders of images, and folders of sequences."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise.data.dataset import Dataset, names_of
from likewise.data.image_folders import Folder, list_classes
from likewise.data.images import CHANNELS, SIZE, Listing, check_channels, decode
from likewise.data.npz import read_npy

LIMIT = 1 << 30  # bytes of one sequence


@dataclass(frozen=True)
class Files:
    """Files and the function that reads one of them: a lazy sequence of items.

    Example:
        >>> files = Files(("a.txt", "bc.txt"), len)
        >>> len(files), files[1], files[torch.tensor([1])]
        (2, 6, Files(1 file))
    """

    paths: tuple[Any, ...]
    read: Callable[[Any], Any]
    lazy = True

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, Tensor) and index.ndim == 1:
            return replace(self, paths=tuple(self.paths[i] for i in index.tolist()))
        return self.read(self.paths[int(index)])

    def __repr__(self) -> str:
        return f"Files({len(self)} file{'s' * (len(self) != 1)})"


@dataclass(frozen=True, eq=False, repr=False)
class FileSet(Dataset):
    """A Dataset whose items stay on disk until they are used.

    ``fit``, ``evaluate`` and ``Metric.embed`` take it like any map-style dataset, with ``workers``. It has the
    attributes and methods of a Dataset (labels, ids, classes, indexing, ``split``, ``of_classes``), but ``items`` are
    Files.

    Example:
        >>> FileSet(Files(("a.npy", "b.npy"), np.load), ["walk", "run"])
        FileSet(2 files, 2 classes)
    """

    def _read_items(self, items: Any) -> Files:
        if not isinstance(items, Files):
            raise TypeError(f"FileSet: expected items to be Files, got {type(items).__name__}")
        return items

    def __repr__(self) -> str:
        return f"FileSet({repr(self.items)[len('Files(') : -1]}{self._label_text()})"


def open_image_folder(
    folder: Folder, part: str | None = None, *, size: int = SIZE, channels: int = CHANNELS, crop: bool = True
) -> FileSet:
    """Open one folder per class, as ``read_image_folder`` does, but decode each image when it is used.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, "iris").mkdir()
        ...     Image.new("RGB", (9, 9)).save(Path(folder, "iris", "1.png"))
        ...     images = open_image_folder(folder, size=8)
        ...     images[0][0].shape, images[0][1]
        (torch.Size([3, 8, 8]), 'iris')
    """
    op = "open_image_folder"
    size, channels = _check.whole(op, "size", size), check_channels(op, channels)
    listing = list_classes(op, Path(folder), "images").part(op, part)
    return _file_set(listing, partial(decode, size=size, channels=channels, crop=crop))


def open_sequence_folder(folder: Folder, part: str | None = None, *, limit: int = LIMIT) -> FileSet:
    """Open one folder per class, with one file per sequence: folder/walk/1.npy, (T, C) or (T,), or .npz.

    An .npz file must have a single array, or one called values. Files are read when they are used, and nothing is
    unpickled. Arrays that are empty, not numeric, not finite or larger than limit bytes raise an error that names the
    file.

    part: None for all; "train", the first half of the classes, sorted by name; "test", the others.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, "walk").mkdir()
        ...     np.save(Path(folder, "walk", "1.npy"), np.zeros((5, 3), np.float32))
        ...     sequences = open_sequence_folder(folder)
        ...     sequences, sequences[0][0].shape
        (FileSet(1 file, 1 class), torch.Size([5, 3]))
    """
    op = "open_sequence_folder"
    listing = list_classes(op, Path(folder), "sequences").part(op, part)
    return _file_set(listing, partial(read_sequence, limit=_check.whole(op, "limit", limit)))


def read_sequence(path: Path, *, limit: int = LIMIT) -> Tensor:
    """Read one sequence (T, C) from an .npy or .npz file, in its float type."""
    name, values = os.fspath(path), read_npy(path, limit=limit)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or 0 in values.shape or values.dtype.kind != "f":
        _check.refuse(name, f"expected floats of shape (T, C) or (T,), got {values.dtype} of shape {values.shape}")
    wrong = ~np.isfinite(values)
    if wrong.any():
        step, channel = (int(i) for i in np.unravel_index(wrong.argmax(), wrong.shape))
        _check.refuse(name, f"step {step}, channel {channel} is {values[step, channel]}, not a finite number")
    return torch.from_numpy(values)


def _file_set(listing: Listing, read: Callable[[Any], Any]) -> FileSet:
    return FileSet(
        Files(listing.files, read),
        names_of(listing.classes, listing.labels),
        ids=tuple(os.fspath(path) for path in listing.files),
        classes=listing.classes,
    )
