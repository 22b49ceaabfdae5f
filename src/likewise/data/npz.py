"""The .npz layout: sequences as stacked rows and lengths or as one dense array, or images; with labels and groups."""

import io
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch

from likewise import _check
from likewise._output import writing
from likewise.data.batch import Batch
from likewise.data.bounds import EXPANSION, LEAST, check_expansion, unpacked_limit
from likewise.data.dataset import Dataset, names_of
from likewise.data.images import ImageSet
from likewise.data.padding import pad_stacked
from likewise.data.text import brief, file_size, quote

# Key: the kinds of numbers, as NumPy's letters (B: uint8), and the number of dimensions.
_EXPECTED = {
    "values": ("f", 2),
    "lengths": ("iu", 1),
    "X": ("f", 3),
    "images": ("B", 4),
    "y": ("iufU", 1),
    "classes": ("U", 1),
    "groups": ("iuU", 1),
    "ids": ("U", 1),
}
_GROUPS = ("groups", "subject", "speaker")
_LONGEST_READ = 1 << 20
_LONGEST_HEADER = 1 << 12
# Deflate expands a byte to at most this many.
_DEFLATE = 1032
# A header as NumPy writes it. It is matched, not evaluated, so objects, fields and dates are rejected.
_HEADER = re.compile(
    rb"\{ ?'descr': ?'([<>|](?:f[248]|[iu][1248]|b1|U[1-9]\d{0,5}))', ?'fortran_order': ?(True|False), ?"
    rb"'shape': ?\(((?:\d{1,18}, ?)*(?:\d{1,18})?)\),? ?\}[ \n]*"
)


def read_npz(
    path: str | os.PathLike[str], *, split: str | None = None, limit: int | None = None, expansion: float = EXPANSION
) -> Dataset:
    """Read sequences from an .npz file, in its float type, or images.

    The file has values (sum of T_i, C), all rows stacked, and lengths (N,); or X (N, T, C); or images (N, C, H, W) of
    uint8, which make an ImageSet. Optional members are y (N,): names, float targets, or whole numbers, which index
    classes (K,) if the file has them and are class names otherwise; groups (N,), also called subject or speaker; and
    ids (N,). With split="train" these names end in _train, except classes. Other members are ignored.

    Nothing is unpickled, and sizes are checked before memory is allocated. Numbers that are not finite raise an error.

    limit: the most bytes that the data may take, unpacked or padded to a batch; by default 4 GiB or half of this
        machine's memory, whichever is less. Larger data raise an error.
    expansion: the same limit as a multiple of the file's size; up to 256 MiB are always allowed.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "gait.npz")
        ...     np.savez(path, X_train=np.zeros((2, 5, 3)), y_train=[0, 1], classes=["walk", "run"])
        ...     data = read_npz(path, split="train")
        >>> data, data.labels.tolist(), data.classes
        (Dataset(2 sequences, 5 steps, 3 channels, 2 classes), ['walk', 'run'], ('walk', 'run'))
    """
    name, size, limit = os.fspath(path), file_size(path), unpacked_limit(limit)
    with _ShortReads(path) as file:
        archive = _open_archive(name, file)
        members = _choose_members(name, archive, split)
        _check_sizes(name, list(members.values()), size, limit)
        check_expansion(name, sum(info.file_size for info in members.values()), size, expansion)
        arrays = {key: _read_array(name, archive, info, key, limit) for key, info in members.items()}
    if "images" in arrays:
        items, kind = torch.from_numpy(arrays["images"]), ImageSet
    elif "X" in arrays:
        items, kind = _dense(name, arrays["X"]), Dataset
    else:
        most = min(limit, int(max(LEAST, expansion * size)))
        items, kind = _stacked(name, arrays["values"], arrays["lengths"], most), Dataset
    classes = tuple(arrays["classes"].tolist()) if "classes" in arrays else None
    try:
        labels = _labels(arrays.get("y"), classes)
        ids = tuple(arrays["ids"].tolist()) if "ids" in arrays else None
        return kind(items, labels, ids, arrays.get("groups"), classes)
    except ValueError as error:
        reason = str(error).removeprefix("Dataset: ").removeprefix("ImageSet: ")
        raise ValueError(f"{name}: {reason}") from None


def write_npz(dataset: Dataset, path: str | os.PathLike[str], *, compress: bool = False) -> None:
    """Write sequences or images as an .npz file that read_npz reads back exactly; padding is not saved.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "gait.npz")
        ...     write_npz(Dataset(Batch(torch.ones(2, 3, 1), [3, 2])), path)
        ...     read_npz(path).items.lengths
        tensor([3, 2])
    """
    images = isinstance(dataset, ImageSet)
    arrays = {"images": dataset.items.cpu().numpy()} if images else _stacked_rows(dataset)
    if dataset.labels is not None:
        arrays["y"] = dataset.labels if dataset.codes is None else dataset.codes.numpy()
    if dataset.classes:
        arrays["classes"] = _text("class", dataset.classes)
    if dataset.groups is not None:
        arrays["groups"] = dataset.groups if dataset.groups.dtype.kind != "U" else _text("group", dataset.groups)
    if dataset.ids != tuple(map(str, range(len(dataset)))):
        arrays["ids"] = _text("id", dataset.ids)
    with writing(path) as part, open(part, "wb") as file:  # NumPy would append .npz to a path
        save = np.savez_compressed if compress else np.savez
        save(file, **arrays)  # type: ignore[arg-type]


def _stacked_rows(dataset: Dataset) -> dict[str, np.ndarray]:
    """Sequences as the members values (sum of T_i, C) and lengths (N,)."""
    sequences = dataset.items
    if not isinstance(sequences, Batch):
        raise TypeError(f"write_npz: expected a Dataset of sequences or an ImageSet, got {dataset!r}")
    if sequences.dtype not in (torch.float16, torch.float32, torch.float64):
        raise TypeError(f"write_npz: NumPy has no {sequences.dtype}; convert the sequences with .to")
    values = sequences.values.detach().cpu()[sequences.mask.cpu()].numpy()  # (sum of T_i, C)
    lengths = sequences.lengths.numpy()
    _check_finite("write_npz", values, lengths)
    return {"values": values, "lengths": lengths}


def _text(kind: str, names: Iterable[str]) -> np.ndarray:
    """Names as a NumPy array; names that NumPy would change raise an error."""
    names = [str(name) for name in names]
    for name in names:
        if "\0" in name or name != name.encode("utf-8", "replace").decode():
            _check.refuse("write_npz", f"{kind} {name!r} has a character that NumPy's strings cannot hold")
    return np.array(names, dtype=str)


def _labels(labels: np.ndarray | None, classes: tuple[str, ...] | None) -> np.ndarray | None:
    """Labels as names; whole numbers are indices into classes."""
    if labels is None or labels.dtype.kind not in "iu":
        return labels
    wrong = (labels < 0) | (labels >= len(classes)) if classes is not None else labels < 0
    if wrong.any():
        item = int(wrong.argmax())
        rule = "labels count from 0" if classes is None else f"but there are {len(classes)} classes, counted from 0"
        _check.refuse("Dataset", f"labels[{item}] is {labels[item]}, {rule}")
    return labels if classes is None else names_of(classes, labels)


def read_npy(path: str | os.PathLike[str], *, limit: int | None = None, expansion: float = EXPANSION) -> np.ndarray:
    """Read the array of an .npy file, or of an .npz file that has one array or one called values.

    Nothing is unpickled, and sizes are checked before memory is allocated. limit and expansion are those of read_npz.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "walk.npy")
        ...     np.save(path, np.arange(3.0))
        ...     read_npy(path)
        array([0., 1., 2.])
    """
    name, size, limit = os.fspath(path), file_size(path), unpacked_limit(limit)
    with _ShortReads(path) as file:
        if file.read(2) == b"PK":
            archive = _open_archive(name, file)
            arrays = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if len(arrays) != 1 and "values" not in arrays:
                _check.refuse(name, f"expected one array, or one called values, got {len(arrays)}")
            info = arrays.get("values", next(iter(arrays.values())))
            _check_sizes(name, [info], size, limit)
            check_expansion(name, info.file_size, size, expansion)
            where = f"{name}: {info.filename}"
            return _decoded(where, partial(_read_bytes, where, archive, info), info.file_size, limit)
        return _decoded(name, partial(_read_plain, name, file), size, limit)


def decode_npy(data: bytes, name: str = "array", *, limit: int = 4 << 30) -> np.ndarray:
    """The array of an .npy file's bytes; ``name`` is used in errors. Nothing is unpickled.

    Example:
        >>> buffer = io.BytesIO()
        >>> np.save(buffer, np.arange(3.0))
        >>> decode_npy(buffer.getvalue())
        array([0., 1., 2.])
    """

    def read(skip: int, size: int) -> np.ndarray:
        return np.frombuffer(data, np.uint8, size, skip) if size else np.empty(0, np.uint8)

    return _decoded(name, read, len(data), limit)


class _ShortReads(io.FileIO):
    """A file with limited reads: zipfile would load a directory of any length, at ten times its size in memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _LONGEST_READ:
            raise ValueError(f"its directory takes {size} bytes, more than {_LONGEST_READ}")
        return super().read(size)


def _open_archive(name: str, file: io.FileIO) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except Exception as error:  # zipfile may raise anything for malformed bytes
        raise ValueError(f"{name}: not an .npz file, or a damaged one: {brief(error)}") from error


def _choose_members(name: str, archive: zipfile.ZipFile, split: str | None) -> dict[str, zipfile.ZipInfo]:
    """Members to read, by their key in _EXPECTED."""
    arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    members = {info.filename.removesuffix(".npy"): info for info in arrays}
    if len(members) != len(arrays):
        _check.refuse(name, "two members have the same name")
    end = "" if split is None else f"_{split}"
    keys = ("values", "lengths", "X", "images", "y", "ids")
    chosen = {key: members[key + end] for key in keys if key + end in members}
    groups = [key + end for key in _GROUPS if key + end in members]
    if len(groups) > 1:
        _check.refuse(name, f"expected one of {' and '.join(groups)}")
    if groups:
        chosen["groups"] = members[groups[0]]
    if "classes" in members:
        chosen["classes"] = members["classes"]
    found = [key for key in ("values", "lengths", "X", "images") if key in chosen]
    if found not in (["values", "lengths"], ["X"], ["images"]):
        splits = sorted(key.partition("_")[2] for key in members if key.startswith(("values_", "X_", "images_")))
        listed = ", ".join(quote(part.encode("utf-8", "replace")) for part in splits[:10])
        got = " and ".join(key + end for key in found) or "neither"
        hint = f"; it has the splits {listed}: choose one with split=" if splits else ""
        expected = f"values{end} and lengths{end}, X{end}, or images{end}"
        _check.refuse(name, f"expected {expected}, got {got}{hint}")
    return chosen


def _check_sizes(name: str, members: list[zipfile.ZipInfo], size: int, limit: int) -> None:
    """Raise an error if a file of size bytes cannot hold the members, or if they take more than limit bytes in all."""
    total = sum(info.file_size for info in members)
    if total > limit:
        _check.refuse(name, f"takes {total} bytes unpacked, more than limit={limit}; raise limit to read it")
    for info in members:
        where = f"{name}: {info.filename}"
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            _check.refuse(where, f"is compressed by method {info.compress_type}; expected stored or deflated")
        most = info.compress_size * (_DEFLATE if info.compress_type == zipfile.ZIP_DEFLATED else 1)
        if info.compress_size > size or info.file_size > most:
            claim = f"claims {info.file_size} bytes, packed in {info.compress_size}"
            _check.refuse(where, f"{claim}, which a file of {size} bytes cannot hold; is it truncated?")


def _read_array(name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, key: str, limit: int) -> np.ndarray:
    """Read one member; integers become int64, except images, and targets float64."""
    where = f"{name}: {info.filename}"
    kinds, dimensions = _EXPECTED[key]

    def check(layout: _Layout) -> None:
        if not {layout.dtype.kind, layout.dtype.char} & set(kinds) or len(layout.shape) != dimensions:
            names = {"f": "floats", "i": "integers", "U": "strings", "B": "uint8"}
            expected = " or ".join(names[kind] for kind in kinds if kind in names)
            _check.refuse(where, f"expected {expected}, {dimensions}-dimensional, got {layout}")

    return _convert(
        where, _decoded(where, partial(_read_bytes, where, archive, info), info.file_size, limit, check), key
    )


def _decoded(
    where: str,
    read: Callable[[int, int], np.ndarray],
    size: int,
    limit: int,
    check: Callable[["_Layout"], None] = lambda layout: None,
) -> np.ndarray:
    """The array of an .npy member of size bytes, in native byte order; read(skip, count) returns some of its bytes."""
    layout = _parse_header(where, read(0, min(size, _LONGEST_HEADER)).tobytes())
    check(layout)
    payload = size - layout.begin
    if math.prod(layout.shape) * layout.dtype.itemsize != payload:
        _check.refuse(where, f"{payload} bytes cannot hold {layout}")
    if max(payload, math.prod(side or 1 for side in layout.shape)) > limit:  # an empty array may still be too wide
        _check.refuse(
            where, f"takes more than {limit} bytes" if payload > limit else f"impossible shape {layout.shape}"
        )
    flat = read(layout.begin, payload).view(layout.dtype)
    array = np.ascontiguousarray(flat.reshape(layout.shape, order=layout.order))
    return array.astype(layout.dtype.newbyteorder("="), copy=False)


def _read_plain(where: str, file: io.FileIO, skip: int, size: int) -> np.ndarray:
    """Bytes skip..skip + size of a file, (size,) uint8."""
    data = np.empty(size, np.uint8)
    file.seek(skip)
    done = 0
    while done < size and (count := file.readinto(data[done:])):  # type: ignore[arg-type]
        done += count
    if done < size:
        _check.refuse(where, f"ends after {skip + done} bytes")
    return data


def _convert(where: str, array: np.ndarray, key: str) -> np.ndarray:
    """Convert an array in native byte order to the type that a Dataset needs."""
    if array.dtype.kind == "U":
        points = array.view(np.uint32)
        if ((points > 0x10FFFF) | ((points >= 0xD800) & (points <= 0xDFFF))).any():
            _check.refuse(where, "a name has a character that is not Unicode")
    elif key == "images":
        return array
    elif array.dtype.kind in "iu":
        if array.size and int(array.max()) > np.iinfo(np.int64).max:
            _check.refuse(where, f"{int(array.max())} does not fit int64")
        return array.astype(np.int64)
    elif key == "y":
        return array.astype(np.float64)
    return array


def _read_bytes(where: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, skip: int, size: int) -> np.ndarray:
    """Bytes skip..skip + size of a member, unpacked; (size,) uint8."""
    data = np.empty(size, np.uint8)
    done = 0
    try:
        with archive.open(info) as member:
            member.read(skip)
            while done < size and (piece := member.read(min(size - done, _LONGEST_READ))):
                data[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
                done += len(piece)
    except Exception as error:  # zipfile and zlib may raise anything for malformed bytes
        raise ValueError(f"{where}: damaged near byte {skip + done}: {brief(error)}") from error
    if done < size:
        _check.refuse(where, f"ends after {skip + done} of {info.file_size} bytes")
    return data


@dataclass(frozen=True)
class _Layout:
    """The header of an .npy member; its numbers begin at byte ``begin``."""

    dtype: np.dtype
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    begin: int

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"


def _parse_header(where: str, head: bytes) -> _Layout:
    version = head[6:8]
    if head[:6] != b"\x93NUMPY" or version not in (b"\1\0", b"\2\0", b"\3\0"):
        _check.refuse(where, f"byte 0: expected an .npy header, got {quote(head[:8])}")
    start = 10 if version == b"\1\0" else 12
    begin = start + int.from_bytes(head[8:start], "little")
    if begin > len(head):
        _check.refuse(where, f"byte 8: the header ends at byte {begin}, beyond the first {len(head)}")
    match = _HEADER.fullmatch(head, start, begin)
    if match is None:
        got = quote(head[start:begin])
        _check.refuse(where, f"byte {start}: expected a plain type and a shape, not a pickle, got {got}")
    dtype, fortran, shape = match.groups()
    sides = tuple(int(side) for side in shape.split(b",") if side.strip())
    return _Layout(np.dtype(dtype.decode()), sides, "F" if fortran == b"True" else "C", begin)


def _dense(name: str, values: np.ndarray) -> Batch:
    count, steps, channels = values.shape
    if count and not (steps and channels):
        _check.refuse(name, f"expected X with at least one step and one channel, got {values.shape}")
    _check_finite(name, values.reshape(count * steps, channels), np.full(count, steps))
    return Batch(torch.from_numpy(values))


def _stacked(name: str, values: np.ndarray, lengths: np.ndarray, limit: int) -> Batch:
    rows, channels = values.shape
    wrong = (lengths < 1) | (lengths > rows)
    if wrong.any():
        item = int(wrong.argmax())
        _check.refuse(name, f"lengths[{item}] is {lengths[item]}; expected 1 to {rows}, the rows of values")
    if lengths.sum() != rows or not (channels or rows == 0):
        _check.refuse(name, f"lengths sum to {lengths.sum()}, but values has shape {values.shape}")
    _check_finite(name, values, lengths)
    return pad_stacked(name, values, lengths, limit)


def _check_finite(where: str, values: np.ndarray, lengths: np.ndarray) -> None:
    """Raise an error for NaN or infinity in stacked rows (sum of T_i, C)."""
    wrong = ~np.isfinite(values)
    if wrong.any():
        row, channel = (int(i) for i in np.unravel_index(wrong.argmax(), wrong.shape))
        ends = np.cumsum(lengths)
        item = int(np.searchsorted(ends, row, side="right"))
        step = row - int(ends[item] - lengths[item])
        value = values[row, channel]
        _check.refuse(where, f"item {item}, step {step}, channel {channel} is {value}, not a finite number")
