"""Items that two sets have in common, found by their contents."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from likewise._labels import is_map_style
from likewise.data.batch import Batch

STEPS, NUMBERS, BYTES = 8, 32, 1 << 12  # of a sequence, a tensor and a file that are compared first
NUMBERS_AT_ONCE = 1 << 22
MOST_READ = 1000  # items of a map-style dataset whose files are not known
PIECE = 1 << 20  # bytes of a file that are read at once
NAMED = 3  # pairs in a message
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Overlap:
    """The items of a set that another set has too.

    places: for each such item, by its position, the positions of the equal items of the other set.
    known: the positions among them whose id is that of an equal item too. An id that is only the position of its item
        in both sets does not count.
    """

    places: dict[int, list[int]]
    known: tuple[int, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.places)

    def named(self, first: str, second: str, rows: Any = None, columns: Any = None) -> str:
        """The first few pairs as text; those with the same id come first.

        rows, columns: positions of the items in larger sets, which are named then.
        """
        order = [*self.known, *(i for i in self.places if i not in set(self.known))]
        pairs = [(i, self.places[i][0]) for i in order[:NAMED]]
        if rows is not None and columns is not None:
            pairs = [(int(rows[i]), int(columns[j])) for i, j in pairs]
        text = ", ".join(f"{first}[{i}] is {second}[{j}]" for i, j in pairs)
        return text + (", ..." if len(order) > NAMED else "")


def overlap(
    first: Any,
    second: Any,
    rows: np.ndarray | None = None,
    columns: np.ndarray | None = None,
    *,
    ids: tuple[Sequence[str] | None, Sequence[str] | None] = (None, None),
    read: bool = False,
) -> Overlap:
    """The items of the first set that are equal to items of the second.

    first, second: a Batch, a tensor, a tuple of these (pairs of items), a FileSet, or another map-style dataset. Sets
        that cannot be compared have nothing in common.
    rows, columns: positions of the items to compare, by default all. ids: names of these items, if they have some.
    read: read map-style datasets whose files are not known, if they have at most 1000 items.

    Some numbers of each item are compared first, then hashes of the items for which these agree. This takes 8 bytes per
    item, and reads items in full only if they are likely to be equal.

    Example:
        >>> x = Batch.from_list([[1.0, 2.0], [3.0], [5.0, 4.0, 1.0]])
        >>> overlap(x[1:].to(torch.float64), x).places
        {0: [1], 1: [2]}
    """
    one, other = _content(first, second, read), _content(second, first, read)
    if one is None or other is None:
        return Overlap({})
    rows = np.arange(len(one)) if rows is None else np.asarray(rows)
    columns = np.arange(len(other)) if columns is None else np.asarray(columns)
    asked, held = one.keys(rows), other.keys(columns)
    likely = np.flatnonzero(np.isin(asked, held))
    if not len(likely):
        return Overlap({})
    equal: dict[bytes, list[int]] = {}
    for j in np.flatnonzero(np.isin(held, asked[likely])).tolist():
        equal.setdefault(other.digest(int(columns[j])), []).append(j)
    found = {i: equal.get(one.digest(int(rows[i])), []) for i in likely.tolist()}
    places = {i: others for i, others in found.items() if others}
    return Overlap(places, tuple(_with_equal_ids(places, *ids)))


def _with_equal_ids(places: dict[int, list[int]], ids: Any, others: Any) -> list[int]:
    if ids is None or others is None:
        return []

    def tells(i: int, j: int) -> bool:
        return ids[i] == others[j] and not ids[i] == str(i) == str(j)

    return [i for i, found in places.items() if any(tells(i, j) for j in found)]


class _Content(Protocol):
    """Keys of items, which are the same for equal items, and hashes of their contents."""

    def __len__(self) -> int: ...
    def keys(self, rows: np.ndarray) -> np.ndarray: ...
    def digest(self, i: int) -> bytes: ...


def _content(items: Any, others: Any, read: bool) -> _Content | None:
    """How to compare these items with the others; None if they cannot be compared."""
    if isinstance(items, tuple) and isinstance(others, tuple):
        parts = [_content(one, other, read) for one, other in zip(items, others, strict=True)]
        return None if None in parts else _Together(parts)  # type: ignore[arg-type]
    if isinstance(items, (Batch, Tensor)) and isinstance(others, (Batch, Tensor)):
        alike = type(items) is type(others) and _shape(items) == _shape(others)
        return _Held(items, _common(items.dtype, others.dtype)) if alike else None
    if _files(items) is not None and _files(others) is not None:
        return _OnDisk(_files(items))  # type: ignore[arg-type]
    few = read and all(len(each) <= MOST_READ for each in (items, others))
    return _Read(items) if few else None


def _shape(items: Batch | Tensor) -> tuple[int, ...]:
    return (items.channels,) if isinstance(items, Batch) else tuple(items.shape[1:])


def _common(one: torch.dtype, other: torch.dtype) -> torch.dtype:
    """The type in which values are compared: of two floating-point types, the shorter."""
    if one == other:
        return one
    if one.is_floating_point and other.is_floating_point:
        return min(one, other, key=lambda dtype: (dtype.itemsize, str(dtype)))
    return torch.promote_types(one, other)


def _files(items: Any) -> list[str] | None:
    """The files of a map-style dataset that keeps a path for each item."""
    paths = getattr(getattr(items, "items", None), "paths", None)
    if paths is None or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        return None
    return [os.fspath(path) for path in paths]


def _bits(values: Tensor) -> np.ndarray:
    """Numbers as integers of the same size; zeros lose their sign."""
    values = values.detach().cpu()
    if values.is_floating_point():
        values = values + 0.0
    if values.dtype == torch.bool:
        values = values.byte()
    return values.contiguous().view(INTEGERS[values.element_size()]).numpy()


@dataclass(frozen=True)
class _Held:
    """Items in memory."""

    items: Batch | Tensor
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.items)

    def keys(self, rows: np.ndarray) -> np.ndarray:
        found = np.empty(len(rows), np.uint64)
        numbers = STEPS * self.items.channels if isinstance(self.items, Batch) else self.items[:1].numel()
        chunk = max(1, NUMBERS_AT_ONCE // max(1, numbers))
        for start in range(0, len(rows), chunk):
            bits = _bits(self._some(torch.from_numpy(rows[start : start + chunk])).to(self.dtype))
            found[start : start + chunk] = _sums(bits.astype(np.int64).view(np.uint64))
        return found

    def _some(self, places: Tensor) -> Tensor:
        """A few numbers of each item, (K, n)."""
        if isinstance(self.items, Batch):
            last = self.items.lengths[places] - 1
            steps = last[:, None] * torch.arange(STEPS) // (STEPS - 1)  # (K, STEPS)
            values = self.items.values
            return values[places[:, None].to(values.device), steps.to(values.device)].flatten(1)
        flat = self.items[places.to(self.items.device)].flatten(1)
        return flat[:, torch.linspace(0, max(0, flat.shape[1] - 1), min(NUMBERS, flat.shape[1])).long()]

    def digest(self, i: int) -> bytes:
        return _digest(self.items[i].to(self.dtype))


def _sums(numbers: np.ndarray) -> np.ndarray:
    """A key of each row of integers (K, n): their sum with fixed random weights, modulo 2^64."""
    weights = np.random.default_rng(0).integers(0, 1 << 63, numbers.shape[1], dtype=np.uint64) * np.uint64(2)
    return (numbers * (weights + np.uint64(1))).sum(1, dtype=np.uint64)


def _digest(item: Tensor) -> bytes:
    found = hashlib.blake2b(repr(tuple(item.shape)).encode(), digest_size=16)
    found.update(_bits(item).tobytes())
    return found.digest()


@dataclass(frozen=True)
class _Together:
    """Pairs of items: both must be equal."""

    parts: Sequence[_Content]

    def __len__(self) -> int:
        return len(self.parts[0])

    def keys(self, rows: np.ndarray) -> np.ndarray:
        return _sums(np.stack([part.keys(rows) for part in self.parts], 1))

    def digest(self, i: int) -> bytes:
        return b"".join(part.digest(i) for part in self.parts)


@dataclass(frozen=True)
class _OnDisk:
    """Items in files, one each. Files of equal size are compared at their beginning, middle and end, then in full."""

    paths: Sequence[str]

    def __len__(self) -> int:
        return len(self.paths)

    def keys(self, rows: np.ndarray) -> np.ndarray:
        return np.array([self._key(self.paths[i]) for i in map(int, rows)], np.uint64)

    def _key(self, path: str) -> int:
        found = hashlib.blake2b(digest_size=8)
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                found.update(str(size).encode())
                for place in (0, max(0, size // 2 - BYTES // 2), max(0, size - BYTES)):
                    file.seek(place)
                    found.update(file.read(BYTES))
        except OSError:  # reading the item raises the error
            found.update(path.encode())
        return int.from_bytes(found.digest(), "little")

    def digest(self, i: int) -> bytes:
        found = hashlib.blake2b(digest_size=16)
        try:
            with open(self.paths[i], "rb") as file:
                for piece in iter(partial(file.read, PIECE), b""):
                    found.update(piece)
        except OSError:
            found.update(self.paths[i].encode())
        return found.digest()


class _Read:
    """Items that are read once, one by one."""

    def __init__(self, items: Any) -> None:
        self.items, self.digests = items, {}

    def __len__(self) -> int:
        return len(self.items)

    def keys(self, rows: np.ndarray) -> np.ndarray:
        with torch.random.fork_rng(devices=[]):  # datasets may draw noise
            self.digests = {int(i): _digest(self._item(int(i))) for i in rows}
        return np.array([int.from_bytes(self.digests[int(i)][:8], "little") for i in rows], np.uint64)

    def _item(self, i: int) -> Tensor:
        item = self.items[i]
        return torch.as_tensor(item[0] if is_map_style(self.items) else item)

    def digest(self, i: int) -> bytes:
        return self.digests[i]
