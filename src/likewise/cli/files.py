"""Files that the subcommands read and write."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import typer

import likewise as lw
from likewise._output import writing
from likewise._progress import waiting
from likewise.cli.printing import is_terminal
from likewise.data.audio import read_audio_folder
from likewise.data.tables import read_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES = (".csv", ".tsv", ".parquet")
IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


def read(path: Path, split: str | None = None, columns: dict[str, str] | None = None) -> lw.Dataset:
    """The sequences of a file, by its ending, or of a folder of WAV files.

    split: one of an .npz file's. columns: names of a table's columns; "id" and "time" by default.
    """
    found = None if _holds_images(path) else _read(path, split, columns)
    if found is None or isinstance(found, lw.ImageSet):
        raise ValueError(f"{path}: holds images, and this command takes sequences")
    return found


def _read(path: Path, split: str | None, columns: dict[str, str] | None) -> lw.Dataset:
    """What a file holds, which may be images if it is .npz, or a folder of WAV files."""
    suffix = path.suffix.lower()
    if split is not None and suffix != ".npz":
        raise ValueError(f"{path}: only an .npz file has splits")
    if columns is not None and suffix not in TABLES:
        raise ValueError(f"{path}: only a table has columns to name")
    with waiting(f"reading {path}", shown=is_terminal()):
        if path.is_dir():
            data = read_audio_folder(path)
        elif suffix == ".npz":
            data = _read_npz(path, split)
        elif suffix == ".ts":
            data = lw.read_ts(path)
        elif suffix in TABLES:
            data = read_table(path, **({"id": "id", "time": "time"} if columns is None else columns))  # type: ignore[arg-type]
        else:
            raise ValueError(
                f"{path}: expected a folder of WAV files, or a file that ends in .npz, .ts, {', '.join(TABLES)}"
            )
    if len(data) == 0:
        raise ValueError(f"{path}: has no items")
    return data


def _read_npz(path: Path, split: str | None) -> lw.Dataset:
    """An .npz file; an error that proposes an argument of the reader names the command's option."""
    try:
        return lw.read_npz(path, split=split)
    except ValueError as error:
        raise ValueError(str(error).replace("choose one with split=", "choose one with --split")) from error


def read_items(
    path: Path, split: str | None = None, columns: dict[str, str] | None = None, size: int = 96
) -> lw.Dataset:
    """Sequences as ``read`` returns them, or images: of one folder per class, or of an .npz file."""
    if not _holds_images(path):
        return _read(path, split, columns)
    with waiting(f"reading {path}", shown=is_terminal()):
        return lw.read_image_folder(path, size=size)


def read_labelled(
    path: Path, split: str | None = None, columns: dict[str, str] | None = None, size: int = 96
) -> lw.Dataset:
    """Items as ``read_items`` returns them, which must have labels."""
    data = read_items(path, split, columns, size)
    if data.codes is None:
        hint = "; name its column with --columns id=...,label=..." if path.suffix.lower() in TABLES else ""
        raise ValueError(f"{path}: has no classes{hint}")
    return data


def _holds_images(path: Path) -> bool:
    """Whether a folder holds one folder per class with images, by the ending of the first file."""
    if not path.is_dir():
        return False
    for folder in sorted(path.iterdir()):
        if folder.is_dir() and not folder.name.startswith("."):
            for file in sorted(folder.iterdir()):
                if file.is_file() and not file.name.startswith("."):
                    return file.suffix.lower() in IMAGES
    return False


def read_both(
    a: Path,
    b: Path | None,
    split_a: str | None,
    split_b: str | None,
    columns: dict[str, str] | None,
    size: int | None = None,
) -> tuple[Any, Any]:
    """The items of both files in one type of number; None for the second where it is the first.

    size: of images; None takes sequences only.
    """
    if b is None and split_b is not None:
        raise typer.BadParameter("--split-b needs B")

    def items(path: Path, split: str | None) -> Any:
        return (read(path, split, columns) if size is None else read_items(path, split, columns, size)).items

    x = items(a, split_a)
    if b is None or (a, split_a) == (b, split_b):
        return x, None
    y = items(b, split_b)
    dtype = torch.promote_types(x.dtype, y.dtype)
    return x.to(dtype), y.to(dtype)


def select(items: Any, item: int, path: Path) -> Any:
    """One of the items of a file, as a batch of one."""
    if not 0 <= item < len(items):
        raise ValueError(f"{path}: item {item} is out of range; it holds {len(items)}, counted from 0")
    return lw.Batch.from_list([items[item]]) if isinstance(items, lw.Batch) else items[item : item + 1]


def check_kind(items: Any, distance: lw.Distance, path: Path) -> None:
    """Refuse images, which only a metric with an encoder compares, if the distance has none."""
    images = isinstance(items, (lw.ImageSet, torch.Tensor))
    if images and not (isinstance(distance, lw.Metric) and distance.encoder is not None):
        raise ValueError(f"{path}: holds images; {distance.name} compares sequences, so give --metric")


def save(path: Path, D: np.ndarray, *, force: bool) -> None:
    """Write a matrix as .npz."""
    with writing(path, overwrite=force) as part, open(part, "wb") as file:  # NumPy would append .npz to a path
        np.savez(file, distances=D)


def save_figure(path: Path, figure: "Figure", *, force: bool) -> None:
    """Draw a figure in the format of the file's ending, PNG by default."""
    with writing(path, overwrite=force) as part:
        figure.savefig(part, dpi=150, format=path.suffix[1:] or "png")
