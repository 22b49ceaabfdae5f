"""Indexes on disk: a folder of parts and one manifest, which is renamed into place.

    index.json                  the distance, the options, and the list of files, with their sizes and checksums
    items-N.safetensors         a part: items that were added together. It never changes.
    removed-N.safetensors       positions of items that were removed
    weights-N.safetensors       the weights of the distance, if it has any

Every change writes new files, flushes them to the disk, and then replaces index.json. Until that moment the folder
holds the old index, and from then on the new one, whenever the process dies. A file that index.json does not name is
ignored, and deleted by the next change. Nothing is pickled, and files are not trusted: everything read is checked.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from likewise import _check
from likewise._output import writing
from likewise._progress import moving
from likewise.data.dataset import names_of
from likewise.models.storage import DTYPES, mapped, read_json, write_tensors
from likewise.search.items import Part

MANIFEST, LOCK = "index.json", ".lock"
FILE = re.compile(r"(items|removed|weights)-\d{1,12}\.safetensors")
LEFTOVER = re.compile(r"\.(index\.json|(items|removed|weights)-\d{1,12}\.safetensors)\.\d{1,9}-[0-9a-f]{8}\.part")
MOST_PARTS = 64  # parts of a folder; one more, and they are written as one
MOST_BYTES = 1 << 40  # of all files, unless the caller allows more: they are mapped, not read into memory
CHECKED_AT_ONCE = 1 << 24  # numbers
READ_AT_ONCE = 1 << 22  # bytes


class Folder:
    """The folder of an index: reads it, and writes what changes.

    generation: the number of the last change that this object has seen.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.generation = 0
        self.files: list[dict[str, Any]] = []  # of the parts, as the manifest lists them
        self._move: Callable[[float], None] = lambda size: None  # called with bytes written, and read again

    def read_manifest(self) -> dict[str, Any]:
        """What index.json says, checked in form; its settings are still to be built."""
        path = self.path / MANIFEST
        found = read_json(path)
        keys = {"likewise", "generation", "settings", "next_id", "parts", "removed", "weights"}
        if not isinstance(found, dict) or found.get("likewise") != 1 or set(found) != keys:
            _check.refuse(str(path), 'not an index of likewise: expected {"likewise": 1, "settings": ...}')
        for name in ("generation", "next_id"):
            if type(found[name]) is not int or not 0 <= found[name] < 1 << 53:
                _check.refuse(str(path), f"expected {name} to be a whole number, got {found[name]!r:.80}")
        if not isinstance(found["parts"], list) or len(found["parts"]) > MOST_PARTS:
            _check.refuse(str(path), f"expected a list of at most {MOST_PARTS} parts")
        for entry in [*found["parts"], *(found[name] for name in ("removed", "weights") if found[name] is not None)]:
            self._check_entry(str(path), entry)
        self.generation, self.files = found["generation"], found["parts"]
        return found

    @staticmethod
    def _check_entry(where: str, entry: Any) -> None:
        fields = isinstance(entry, dict) and set(entry) == {"file", "bytes", "sha256"}
        if not fields or not isinstance(entry["file"], str) or not FILE.fullmatch(entry["file"]):
            _check.refuse(where, f"expected a file of the index with its size and checksum, got {entry!r:.120}")
        if type(entry["bytes"]) is not int or not isinstance(entry["sha256"], str):
            _check.refuse(where, f"expected the size and the checksum of {entry['file']}")

    def checked(self, entry: dict[str, Any], *, verify: bool) -> Path:
        """The path of a file of the manifest, whose size and, if ``verify``, checksum are right."""
        path = self.path / entry["file"]
        if not path.is_file() or path.is_symlink():
            _check.refuse(str(path), "is missing, or not a regular file")
        size = path.stat().st_size
        if size != entry["bytes"]:
            _check.refuse(str(path), f"has {size} bytes, but {MANIFEST} says {entry['bytes']}: it is damaged")
        if verify and _digest(path) != entry["sha256"]:
            _check.refuse(str(path), f"its checksum is not that of {MANIFEST}: it is damaged")
        return path

    def read_parts(self, manifest: dict[str, Any], *, verify: bool, limit: int) -> list[Part]:
        """The parts of a manifest, mapped into memory: numbers are read from the disk when they are used."""
        total = sum(entry["bytes"] for entry in manifest["parts"])
        if total > limit:
            _check.refuse(str(self.path), f"{total} bytes of items, more than the limit of {limit}")
        parts = [read_part(self.checked(entry, verify=verify), verify=verify) for entry in manifest["parts"]]
        for part in parts[1:]:
            same = part.values.shape[1:] == parts[0].values.shape[1:] and part.values.dtype == parts[0].values.dtype
            both = (part.offsets is None) == (parts[0].offsets is None)
            if not same or not both or (part.labels is None) != (parts[0].labels is None):
                _check.refuse(str(self.path), "its parts hold items of different kinds")
        return parts

    def read_removed(self, manifest: dict[str, Any], total: int) -> np.ndarray:
        """Positions of the removed items, among all items of all parts."""
        if manifest["removed"] is None:
            return np.empty(0, np.int64)
        path = self.checked(manifest["removed"], verify=True)
        found = _mapped(path, {"removed"})["removed"]
        good = found.dtype == torch.int64 and found.ndim == 1
        if not good or (len(found) and not (found[0] >= 0 and found[-1] < total and (found.diff() > 0).all())):
            _check.refuse(str(path), f"expected increasing positions of {total} items")
        return found.numpy().copy()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the folder's lock; refuse if someone else has changed the index since it was read."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK).open("w") as lock:
            _lock(lock, str(self.path))
            path = self.path / MANIFEST
            if path.exists():
                now = read_json(path)
                if not isinstance(now, dict) or now.get("likewise") != 1 or "generation" not in now:
                    _check.refuse(str(path), "this is not an index of likewise; choose another folder")
                if now["generation"] != self.generation:
                    _check.refuse(str(self.path), "the index was changed by someone else; load it again")
            elif self.generation:
                _check.refuse(str(self.path), f"{MANIFEST} is gone; save the index to another folder")
            yield

    def take_over(self) -> None:
        """Before the whole index is written: whatever index the folder holds will be replaced."""
        path = self.path / MANIFEST
        if path.exists():
            found = read_json(path)
            if not isinstance(found, dict) or type(found.get("generation")) is not int or found.get("likewise") != 1:
                _check.refuse(str(path), "this is not an index of likewise; choose another folder")
            self.generation = found["generation"]
        else:
            self.generation = 0

    def write(
        self,
        settings: dict[str, Any],
        next_id: int,
        removed: np.ndarray,
        weights: dict[str, Any] | None,
        *,
        new: Part | None = None,
        parts: Sequence[Part] | None = None,
    ) -> dict[str, Any]:
        """Write what is new, then the manifest, within ``changing``. Returns the manifest.

        parts: write these as all there is. new: append this part to those that the folder holds.
        weights: tensors by name, to be written; or the entry of a file that is there already; or None.
        """
        number = self.generation + 1
        entries = list(self.files) if parts is None else []
        for place, part in enumerate(([] if parts is None else list(parts)) + ([] if new is None else [new])):
            entries.append(self._put(f"items-{number * 100 + place}.safetensors", part_tensors(part)))
        gone: dict[str, Any] | None = None
        if len(removed):
            gone = self._put(f"removed-{number}.safetensors", {"removed": torch.from_numpy(removed)})
        if weights is not None and set(weights) != {"file", "bytes", "sha256"}:
            weights = self._put(f"weights-{number}.safetensors", weights)
        manifest = {
            "likewise": 1,
            "generation": number,
            "settings": settings,
            "next_id": next_id,
            "parts": entries,
            "removed": gone,
            "weights": weights,
        }
        text = json.dumps(manifest, indent=1, allow_nan=False) + "\n"
        with writing(self.path / MANIFEST) as part:
            part.write_text(text, encoding="utf-8")
        self.generation, self.files = number, entries
        self._sweep({entry["file"] for entry in (*entries, gone, weights) if entry is not None})
        return manifest

    @contextmanager
    def watched(self, parts: Sequence[Part], *, shown: bool) -> Iterator[None]:
        """Draw a bar while these parts are written."""
        if not shown:
            yield
            return
        size = sum(tensor.nbytes for part in parts for tensor in part_tensors(part).values())
        with moving(f"writing {self.path}", 2 * size) as self._move:
            yield
        self._move = lambda size: None

    def _put(self, name: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
        path = self.path / name
        write_tensors(path, tensors)
        size = path.stat().st_size
        self._move(size)
        return {"file": name, "bytes": size, "sha256": _digest(path, self._move)}

    def _sweep(self, named: set[str]) -> None:
        """Delete files of ours that the manifest does not name: older ones, and those of changes that died."""
        for path in self.path.iterdir():
            if (FILE.fullmatch(path.name) and path.name not in named) or LEFTOVER.fullmatch(path.name):
                path.unlink(missing_ok=True)


def part_tensors(part: Part) -> dict[str, Tensor]:
    """A part as named tensors."""
    tensors = {"frames": part.values, **_text("id", part.ids)}
    if part.offsets is not None:
        tensors["offsets"] = part.offsets
    if part.labels is not None and part.labels.dtype.kind == "f":
        tensors["targets"] = torch.from_numpy(part.labels)
    elif part.labels is not None:
        classes, codes = np.unique(part.labels, return_inverse=True)
        tensors |= {"label_codes": torch.from_numpy(codes.astype(np.int64)), **_text("class", classes.tolist())}
    return tensors


def read_part(path: Path, *, verify: bool = True) -> Part:
    """A part from its file, mapped. ``verify`` also reads all numbers, which must be finite."""
    where = str(path)
    optional = {"offsets", "targets", "label_codes", "class_bytes", "class_ends"}
    found = _mapped(path, {"frames", "id_bytes", "id_ends"}, optional)
    frames, ids = found["frames"], _names(where, "id", found)
    if frames.ndim < 2 or 0 in frames.shape[1:] or not (frames.is_floating_point() or frames.dtype == torch.uint8):
        _check.refuse(where, f"expected frames of floating point, (S, C), got {frames.dtype} {tuple(frames.shape)}")
    offsets = found.get("offsets")
    if offsets is not None:
        right = offsets.dtype == torch.int64 and offsets.shape == (len(ids) + 1,) and frames.ndim == 2
        if not right or offsets[0] != 0 or offsets[-1] != len(frames) or not (offsets.diff() > 0).all():
            _check.refuse(where, "expected offsets that divide the frames among the items")
    elif len(frames) != len(ids):
        _check.refuse(where, f"{len(frames)} items, but {len(ids)} ids")
    if len(set(ids)) != len(ids):
        _check.refuse(where, "two items have the same id")
    if verify and frames.is_floating_point():
        for some in frames.flatten().split(CHECKED_AT_ONCE):
            if not some.isfinite().all():
                _check.refuse(where, "holds numbers that are not finite")
    return Part(frames, offsets, tuple(ids), _read_labels(where, found, len(ids)))


def _read_labels(where: str, found: dict[str, Tensor], count: int) -> np.ndarray | None:
    coded = {"label_codes", "class_bytes", "class_ends"} & set(found)
    if "targets" in found:
        targets = found["targets"]
        if coded or targets.dtype != torch.float64 or targets.shape != (count,) or not targets.isfinite().all():
            _check.refuse(where, f"expected {count} finite targets in float64")
        return targets.numpy().copy()
    if not coded:
        return None
    if len(coded) != 3:
        _check.refuse(where, "labels without their classes")
    codes, classes = found["label_codes"], _names(where, "class", found)
    good = codes.dtype == torch.int64 and codes.shape == (count,)
    if not good or (count and not (codes.min() >= 0 and codes.max() < len(classes))):
        _check.refuse(where, f"expected the class of each of {count} items, of {len(classes)} classes")
    return names_of(classes, codes) if classes else np.empty(0, dtype=str)


def _text(name: str, words: Sequence[str]) -> dict[str, Tensor]:
    """Names as the bytes of all of them, and where each ends."""
    encoded = [word.encode() for word in words]
    joined = np.frombuffer(b"".join(encoded), np.uint8).copy()
    ends = torch.tensor([len(word) for word in encoded], dtype=torch.int64).cumsum(0)
    return {f"{name}_bytes": torch.from_numpy(joined), f"{name}_ends": ends}


def _names(where: str, name: str, found: dict[str, Tensor]) -> list[str]:
    content, ends = found[f"{name}_bytes"], found[f"{name}_ends"]
    good = content.dtype == torch.uint8 and ends.dtype == torch.int64 and content.ndim == ends.ndim == 1
    starts = torch.cat([ends.new_zeros(1), ends])[:-1] if good else ends
    last = int(ends[-1]) if good and len(ends) else 0
    if not good or last != len(content) or (ends < starts).any():
        _check.refuse(where, f"expected {name}_ends that divide {name}_bytes")
    text = content.numpy().tobytes()
    try:
        return [text[a:b].decode() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    except UnicodeDecodeError:
        _check.refuse(where, f"{name}_bytes is not UTF-8")


def _mapped(path: Path, needed: set[str], optional: set[str] = frozenset()) -> dict[str, Tensor]:  # type: ignore[assignment]
    """The tensors of a safetensors file, mapped into memory; safetensors checks sizes, offsets and overlaps."""
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            if not needed <= names <= needed | optional:
                _check.refuse(
                    str(path), f"expected the tensors {', '.join(sorted(needed))}, got {sorted(names)!r:.120}"
                )
            for name in names:
                if file.get_slice(name).get_dtype() not in DTYPES:
                    _check.refuse(str(path), f"{name} holds {file.get_slice(name).get_dtype()}")
        return mapped(path, names)
    except (SafetensorError, UnicodeError) as error:
        raise ValueError(f"{path}: damaged, or not a safetensors file: {error}") from None


def _digest(path: Path, move: Callable[[float], None] = lambda size: None) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(READ_AT_ONCE):
            found.update(piece)
            move(len(piece))
    return found.hexdigest()


def _lock(file: Any, where: str) -> None:
    try:
        import fcntl
    except ImportError:  # no such locks on Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        _check.refuse(where, "another process is changing the index")
