"""Collection: the items of an index in memory and, if it has a folder, on disk."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from likewise import _check
from likewise.distances.distance import Distance
from likewise.search.items import Items, Part, read_part
from likewise.search.options import Options, modules_of, settings_of, tensors_of
from likewise.search.storage import MOST_PARTS, Folder

NONE = np.empty(0, np.int64)


class Collection:
    """Items with ids and labels, that are added and removed; a change is on disk before it is in memory."""

    def __init__(self, distance: Distance, options: Options) -> None:
        self.distance = distance
        self.options = options
        self.parts: list[Part] = []
        self.removed = NONE  # positions among all items of all parts
        self.next_id = 0
        self.folder: Folder | None = None
        self.weights: dict[str, Any] | None = None  # the manifest's entry
        self._table: Part | None = None
        self._items: Items | None = None

    def __len__(self) -> int:
        return sum(map(len, self.parts)) - len(self.removed)

    @property
    def table(self) -> Part:
        """All items that were not removed, as one part."""
        if self._table is None:
            if not self.parts:
                return Part(torch.empty(0, 1), torch.zeros(1, dtype=torch.int64), (), None)
            self._table = Part.cat(self.parts)
            if len(self.removed):
                self._table = self._table.at(self._alive())
        return self._table

    @property
    def items(self) -> Items:
        """The items, as a Batch or a tensor."""
        if self._items is None:
            self._items = self.table.items()
        return self._items

    def read(self, op: str, items: Any, labels: Any, ids: Any) -> Part:
        """A part of new items, checked against the items of the index."""
        part, options = read_part(op, items, labels, ids, self.next_id, self.distance), self.options
        if part.offsets is None and (options.windows or options.normalize):
            _check.refuse(op, "windows and normalize are for sequences, not for vectors or images")
        if options.length is not None and part.offsets is not None and len(part) and not self.parts:
            longest = int(part.offsets.diff().max())
            if longest < options.length:
                _check.refuse(op, f"length is {options.length}, but the longest item has {longest} steps")
        if not self.parts or not len(part):
            return part
        first = self.parts[0]
        if (part.offsets is None) != (first.offsets is None) or part.values.shape[1:] != first.values.shape[1:]:
            _check.refuse(op, f"expected {kind_of(first)}, as the index holds, got {kind_of(part)}")
        if (part.labels is None) != (first.labels is None):
            held, given = ("no labels" if one.labels is None else "labels" for one in (first, part))
            _check.refuse(op, f"the items of the index have {held}, these have {given}")
        if part.labels is not None and first.labels is not None and part.labels.dtype.kind != first.labels.dtype.kind:
            _check.refuse(op, "the index has classes and these are targets, or the other way round")
        taken = set(self.table.ids) & set(part.ids)
        if taken:
            _check.refuse(op, f"the id {min(taken)!r} is taken; give others with ids=")
        return Part(part.values.to(first.values.device, first.values.dtype), part.offsets, part.ids, part.labels)

    def add(self, part: Part) -> None:
        """Append a part, on disk first."""
        if not len(part):
            return
        next_id = self.next_id + len(part)
        parts, removed = [*self.parts, part], self.removed
        if self.folder is not None:
            with self.folder.changing():
                if len(self.folder.files) < MOST_PARTS:
                    self.folder.write(self._settings(), next_id, removed, self.weights, new=part)
                else:  # many small parts as one
                    parts, removed = [Part.cat([self.table, part])] if len(self) else [part], NONE
                    self.folder.write(self._settings(), next_id, removed, self.weights, parts=parts)
        self._become(parts, removed)
        self.next_id = next_id

    def remove(self, ids: list[str]) -> None:
        """Remove items, on disk first."""
        where = {name: place for place, name in enumerate(self.table.ids)}
        for name in ids:
            if name not in where:
                _check.refuse("Index.remove", f"there is no item {name!r}")
        if not ids:
            return
        places = self._alive()[np.array([where[name] for name in ids], np.int64)]
        removed = np.union1d(self.removed, places)
        if self.folder is not None:
            with self.folder.changing():
                self.folder.write(self._settings(), self.next_id, removed, self.weights)
        self._become(self.parts, removed)

    def save(self, path: str | Path, *, progress: bool = False) -> None:
        """Write all of it to a folder, which it then belongs to."""
        folder = self.folder
        if folder is None or folder.path.resolve() != Path(path).resolve():
            folder = Folder(path)
            folder.take_over()
        settings, weights = self._settings(), tensors_of(modules_of(self.distance, self.options))
        parts = [self.table] if len(self) else []
        with folder.changing(), folder.watched(parts, shown=progress):
            manifest = folder.write(settings, self.next_id, NONE, weights or None, parts=parts)
        self._become(parts, NONE)
        self.folder, self.weights = folder, manifest["weights"]

    def load(self, folder: Folder, manifest: dict[str, Any], *, verify: bool, limit: int) -> None:
        """Take the parts of a folder, mapped into memory."""
        parts = folder.read_parts(manifest, verify=verify, limit=limit)
        self._become(parts, folder.read_removed(manifest, sum(map(len, parts))))
        self.next_id, self.folder, self.weights = manifest["next_id"], folder, manifest["weights"]
        if len(set(self.table.ids)) != len(self):
            _check.refuse(str(folder.path), "two items have the same id")

    def _become(self, parts: list[Part], removed: np.ndarray) -> None:
        self.parts, self.removed = parts, removed
        self._table = self._items = None

    def _alive(self) -> np.ndarray:
        return np.setdiff1d(np.arange(sum(map(len, self.parts))), self.removed, assume_unique=True)

    def _settings(self) -> dict[str, Any]:
        return settings_of(self.distance, self.options)


def kind_of(part: Part) -> str:
    """A description of the items of a part, for errors."""
    sizes = tuple(part.values.shape[1:])
    if part.offsets is not None:
        return f"sequences of {sizes[0]} channel{'s' * (sizes[0] != 1)}"
    return f"vectors of {sizes[0]} numbers" if len(sizes) == 1 else f"items of shape {sizes}"
