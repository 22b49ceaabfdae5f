"""Stored: the items of an index whose vectors are in a store, and how they are searched."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise.data.batch import Batch
from likewise.distances.cosine import Cosine
from likewise.distances.distance import Distance
from likewise.distances.euclidean import Euclidean
from likewise.distances.mean_frames import MeanFrames
from likewise.models.config import describe
from likewise.models.metric import take, tensors_of
from likewise.search.choice import comparing, encoded, exhaustive, has_free_ends, means
from likewise.search.exhaustive import Items
from likewise.search.files import Files
from likewise.search.found import Found, Stats, share_found
from likewise.search.items import Part, read_part
from likewise.search.options import Options
from likewise.search.rerank import RerankSearch
from likewise.search.store import Form, Rows, Store, Where, check_fields, check_where
from likewise.search.vectors import MARGIN

ROWS_AT_ONCE = 1000  # written in one request
QUERIES_AT_ONCE = 64
NO_ROWS = Rows((), (), ())


@dataclass(frozen=True)
class Shelf:
    """The items of some hits, by position: ids, labels (N,) or None, and the items themselves."""

    ids: tuple[str, ...]
    labels: np.ndarray | None
    items: Any


class Stored:
    """Items in a store: vectors in a database propose candidates, and the distance compares these.

    The vectors are those of ``options.candidates`` if there are some, otherwise those of the distance itself, which
    then compares the vectors from the database and reads no file.

    A row's key says what it was made from: 16 digits for the settings and weights of what made the vector, and a
    checksum of its id and the content of its file. So vectors of another metric and damaged files are detected, and
    a file never changes: a row appears after its file, and disappears before it.
    """

    folder = None

    def __init__(self, distance: Distance, options: Options, store: Store) -> None:
        op = "Index"
        for name in ("length", "subsequence", "normalize", "approximate"):
            if getattr(options, name):
                _check.refuse(op, f"{name} cannot be combined with a store, which searches vectors of whole items")
        if has_free_ends(distance):
            _check.refuse(op, f"{distance.name} matches stretches of items; a store searches whole items")
        self.distance = distance
        self.store = store
        self.maker: Any = distance if options.candidates is None else options.candidates.metric
        self.candidates = options.candidates
        self.metric = Euclidean(squared=self.maker.squared) if type(self.maker) is MeanFrames else comparing(self.maker)
        if type(self.metric) not in (Euclidean, Cosine):
            fix = "give vectors with candidates=Candidates(cheap, keep), such as MeanFrames or a Metric of vectors"
            _check.refuse(op, f"{self.maker.name} does not compare vectors, which a store needs; {fix}")
        if store.files is None and (self.candidates is not None or type(distance) not in (Euclidean, Cosine)):
            fix = "give the store a folder or an address, files=..."
            _check.refuse(op, f"a store without files holds vectors only, but {distance.name} needs its items; {fix}")
        self.mark = _digest_of(self.maker)
        self._form = store.form()
        if self._form is not None and self._form.cosine != isinstance(self.metric, Cosine):
            _check.refuse(op, f"{store!r} compares {'angles' if self._form.cosine else 'Euclidean distances'}")

    def __len__(self) -> int:
        return 0 if self._form is None else len(self.store)

    @property
    def table(self) -> NoReturn:
        """The items are not in memory."""
        _check.refuse("Index", f"the items are in {self.store!r}, not in memory; search finds them, by their ids")

    items = table

    # Changing.

    def read(self, op: str, items: Any, labels: Any, ids: Any) -> Part:
        """A part of new items. Items without names are called "0", "1", ...: repeating a call names the same ones."""
        part = read_part(op, items, labels, ids, 0, self.distance)
        if self._form is not None and len(part) and self._form.labels != _kind(part.labels):
            held, given = self._form.labels or "no labels", _kind(part.labels) or "no labels"
            _check.refuse(op, f"the rows of the store have {held}, these items have {given}")
        return part

    def add(self, part: Part, fields: Mapping[str, Any] | None = None, *, replace: bool = False) -> None:
        """Write items; with ``replace``, in place of those with the same ids."""
        op = "Index.upsert" if replace else "Index.add"
        values = check_fields(op, fields, len(part))
        if not replace:
            self._refuse_taken(op, part)
        for first in range(0, len(part), ROWS_AT_ONCE):
            some = part.at(np.arange(first, min(first + ROWS_AT_ONCE, len(part))))
            picked = {name: held[first : first + ROWS_AT_ONCE] for name, held in values.items()}
            try:
                self._put(op, some, picked, replace)
            except ConnectionError as error:
                done = f"{first} of {len(part)} items are stored"
                hint = "Repeat the call to finish it: no item is stored twice"
                raise ConnectionError(f"{op}: {error}; {done}. {hint}") from error

    def remove(self, ids: Sequence[str]) -> None:
        """Remove items; unknown ids are ignored, so that a failed call can be repeated."""
        if self._form is None:
            return
        for first in range(0, len(ids), ROWS_AT_ONCE):
            some = ids[first : first + ROWS_AT_ONCE]
            rows = self.store.get(some)
            self.store.delete(some)
            if self.store.files is not None:
                self.store.files.delete(rows.keys)

    def save(self, path: object, *, progress: bool = False) -> NoReturn:
        """Refuse: the store already keeps everything."""
        _check.refuse("Index.save", f"this index is in {self.store!r}; items are stored when add returns")

    def _put(self, op: str, part: Part, fields: dict[str, Any], replace: bool) -> None:
        vectors = self.vectors(op, part.items())
        contents = [Files.bytes_of(part.item(place)) for place in range(len(part))]
        keys = tuple(self._key(name, content) for name, content in zip(part.ids, contents, strict=True))
        steps = (1,) * len(part) if part.offsets is None else tuple(part.offsets.diff().tolist())
        if self._form is None:
            form = Form(vectors.shape[1], isinstance(self.metric, Cosine), _kind(part.labels))
            self.store.create(form)
            self._form = form
        if vectors.shape[1] != self._form.size:
            _check.refuse(op, f"the store has vectors of {self._form.size} numbers, these have {vectors.shape[1]}")
        files = self.store.files
        before = self.store.get(part.ids) if replace and files is not None else NO_ROWS
        if files is not None:
            files.write(dict(zip(keys, contents, strict=True)))
        self.store.put(Rows(part.ids, keys, steps, part.labels, vectors, fields))
        if files is not None:
            files.delete(sorted(set(before.keys) - set(keys)))

    def _refuse_taken(self, op: str, part: Part) -> None:
        """An id may be there already only with the same item and label: the rest of an ``add`` that failed."""
        if self._form is None:
            return
        place = {name: i for i, name in enumerate(part.ids)}
        for first in range(0, len(part), ROWS_AT_ONCE):
            there = self.store.get(part.ids[first : first + ROWS_AT_ONCE])
            for row, name in enumerate(there.ids):
                i = place[name]
                same = there.keys[row] == self._key(name, Files.bytes_of(part.item(i)))
                if part.labels is not None and there.labels is not None:
                    same = same and there.labels[row] == part.labels[i]
                if not same:
                    _check.refuse(op, f"the id {name!r} is taken; give others with ids=, or replace it with upsert")

    def _key(self, name: str, content: bytes) -> str:
        return f"{self.mark}-{hashlib.sha256(name.encode() + bytes(1) + content).hexdigest()}"

    # Searching.

    def vectors(self, op: str, items: Items) -> Tensor:
        """The vectors of items, (N, D) float32, as they are in the store."""
        found = means(items) if type(self.maker) is MeanFrames else encoded(self.maker, items)
        if not isinstance(found, Tensor) or found.ndim != 2 or not found.is_floating_point():
            _check.refuse(op, f"expected {self.maker.name} to make a vector of each item, got {found!r:.80}")
        return found.detach().to("cpu", torch.float32).contiguous()

    def search(
        self, op: str, queries: Items, *, k: int | None, within: float | None, where: Any
    ) -> tuple[Found, Shelf]:
        """The hits of each query among its candidates, and what was hit."""
        conditions = check_where(op, where)
        if k is None and self.candidates is None:
            _check.refuse(op, "give k: a store finds the k nearest, of which within keeps those that are near enough")
        names: dict[str, int] = {}
        held: list[tuple[str, Any, Any]] = []  # key, label and item of each hit
        parts = []
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            some = take(queries, slice(first, first + QUERIES_AT_ONCE))
            found, rows, items = self._search(op, some, k, within, conditions)
            places = torch.full((len(rows) + 1,), -1)
            for place in found.items[found.items >= 0].unique().tolist():
                label = None if rows.labels is None else rows.labels[place]
                if rows.ids[place] not in names:
                    names[rows.ids[place]] = len(held)
                    held.append((rows.keys[place], label, None if items is None else items[place]))
                places[place] = names[rows.ids[place]]
            parts.append(replace(found, items=places[found.items]))
        labels = None
        if self._form is not None and self._form.labels is not None:
            labels = np.array([label for _, label, _ in held], np.float64 if self._form.labels == "targets" else None)
        ids = tuple(names)
        items = [item for _, _, item in held]
        if self.candidates is None and self.store.files is not None:
            items = _FromFiles(self, ids, [key for key, _, _ in held])
        found = Found.cat(parts) if parts else Found.from_rows([], Stats("store", 0, exact=False))
        return found, Shelf(ids, labels, items)

    def recall(self, op: str, queries: Items, k: int) -> float:
        """The share of the k nearest items that ``search`` finds. It reads every item."""
        ids: list[str] = []
        items: list[Tensor] = []
        for rows in self.store.scan(with_vectors=self.store.files is None):
            read, kept = self._read(rows)
            ids += rows.ids if kept is None else [rows.ids[i] for i in kept]
            items += read
        truth = exhaustive(self.distance, _joined(items)).search(queries, k=k, within=None, exclude=0.0)
        found, shelf = self.search(op, queries, k=k, within=None, where=None)
        place = {name: i for i, name in enumerate(ids)}
        places = torch.tensor([place.get(name, -1) for name in shelf.ids] + [-1])[found.items]
        return share_found(replace(found, items=places), truth)

    def _search(
        self, op: str, queries: Items, k: int | None, within: float | None, where: Where
    ) -> tuple[Found, Rows, Any]:
        """The hits of some queries, as positions in the rows that were proposed; and the items of these, if read."""
        if self._form is None:
            return _nothing(len(queries)), NO_ROWS, None
        ready = self.vectors(op, queries)
        if ready.shape[1] != self._form.size:
            _check.refuse(op, f"queries give vectors of {ready.shape[1]} numbers, the store has {self._form.size}")
        if self.candidates is None:
            keep = (k or 0) + MARGIN
        else:
            keep = self.candidates.count(len(self)) if isinstance(self.candidates.keep, float) else self.candidates.keep
        by_query = self.store.nearest(ready, keep, where, with_vectors=self.candidates is None)
        rows = _union(by_query)
        for key in rows.keys:
            if not key.startswith(self.mark):
                _check.refuse(
                    op, "the store has items whose vectors another metric made, or the same with other weights"
                )
        items: Any = None
        if self.candidates is not None:
            items, kept = self._read(rows)
            rows = rows if kept is None else _at(rows, kept)
        if not len(rows):
            return _nothing(len(queries)), rows, None
        place = {name: i for i, name in enumerate(rows.ids)}
        proposed = _Proposed([torch.tensor([place[n] for n in some.ids if n in place]) for some in by_query])
        if self.candidates is None:
            assert rows.vectors is not None
            search = RerankSearch(proposed, self.metric, _same, rows.vectors, keep)
            found = search.search(ready, k=k, within=within)
            ends = torch.where(found.items >= 0, torch.tensor(rows.steps)[found.items.clamp(min=0)], -1)
            return replace(found, ends=ends), rows, rows.vectors if self.store.files is None else None
        read = _joined(items)
        _check_alike(op, queries, read)
        inner = comparing(self.distance)
        search = RerankSearch(proposed, inner, lambda x: encoded(self.distance, x), read, keep)
        return search.search(queries.to(read.device, read.dtype), k=k, within=within), rows, items

    def _read(self, rows: Rows) -> tuple[list[Tensor], list[int] | None]:
        """The items of some rows; and which of them there still are, if someone else has removed some."""
        files = self.store.files
        if files is None:
            assert rows.vectors is not None
            return list(rows.vectors), None
        contents = files.read(rows.keys)
        gone = [name for name, key in zip(rows.ids, rows.keys, strict=True) if key not in contents]
        if gone:
            there = self.store.get(gone)
            for name, key in zip(there.ids, there.keys, strict=True):
                if key in rows.keys:
                    _check.refuse(files.path(key), f"the file of item {name!r} is missing")
        kept = [i for i, key in enumerate(rows.keys) if key in contents]
        items = [self.item(rows.ids[i], rows.keys[i], contents[rows.keys[i]]) for i in kept]
        return items, kept if gone else None

    def item(self, name: str, key: str, content: bytes) -> Tensor:
        """An item from the content of its file, which must be what its row says."""
        assert self.store.files is not None
        where = self.store.files.path(key)
        if self._key(name, content)[17:] != key[17:]:
            _check.refuse(where, f"the checksum is not that of item {name!r}: the file is damaged")
        return Files.item(where, content)

    def __repr__(self) -> str:
        return f"{len(self)} items in {self.store!r}"


class _FromFiles:
    """Items that are read from their files when they are asked for."""

    def __init__(self, stored: Stored, ids: Sequence[str], keys: Sequence[str]) -> None:
        self.stored, self.ids, self.keys = stored, ids, keys

    def __getitem__(self, place: int) -> Tensor:
        key, files = self.keys[place], self.stored.store.files
        assert files is not None
        contents = files.read([key])
        if key not in contents:
            _check.refuse(files.path(key), f"the file is gone; item {self.ids[place]!r} was removed or replaced")
        return self.stored.item(self.ids[place], key, contents[key])


class _Proposed:
    """Candidates of each query that are known already."""

    def __init__(self, places: Sequence[Tensor]) -> None:
        self.places = places

    def search(
        self, queries: Any, *, k: Any, within: Any, exclude: float, skip: Any = None, threads: Any = None
    ) -> Found:
        rows = [[(0.0, place, 0, 0) for place in some.tolist()] for some in self.places]
        return Found.from_rows(rows, Stats("vectors in a store", 0, exact=False))


def _same(x: Items) -> Items:
    return x


def _nothing(count: int) -> Found:
    return Found.from_rows([[] for _ in range(count)], Stats("vectors in a store", 0, exact=False))


def _union(parts: Sequence[Rows]) -> Rows:
    """All rows of several answers, each once, in the order of their ids."""
    first: dict[str, tuple[Rows, int]] = {}
    for rows in parts:
        for i, name in enumerate(rows.ids):
            first.setdefault(name, (rows, i))
    chosen = [first[name] for name in sorted(first)]
    if not chosen:
        return NO_ROWS
    labels = [rows.labels[i] for rows, i in chosen if rows.labels is not None]
    vectors = [rows.vectors[i] for rows, i in chosen if rows.vectors is not None]
    return Rows(
        tuple(sorted(first)),
        tuple(rows.keys[i] for rows, i in chosen),
        tuple(rows.steps[i] for rows, i in chosen),
        np.array(labels) if labels else None,
        torch.stack(vectors) if vectors else None,
    )


def _at(rows: Rows, places: Sequence[int]) -> Rows:
    labels = None if rows.labels is None else rows.labels[list(places)]
    picked = [tuple(held[i] for i in places) for held in (rows.ids, rows.keys, rows.steps)]
    return Rows(*picked, labels)  # type: ignore[arg-type]


def _joined(items: Sequence[Tensor]) -> Items:
    """Sequences as a Batch, vectors or images as a tensor."""
    return Batch.from_list(list(items)) if items and items[0].ndim == 2 else torch.stack(list(items))


def _check_alike(op: str, queries: Items, items: Items) -> None:
    if isinstance(queries, Batch) != isinstance(items, Batch):
        _check.refuse(op, f"expected queries like the items of the store, {items!r:.80}")
    if isinstance(queries, Batch) and isinstance(items, Batch) and queries.channels != items.channels:
        _check.refuse(op, f"queries have {queries.channels} channels, the items have {items.channels}")


def _kind(labels: np.ndarray | None) -> str | None:
    return None if labels is None else "targets" if labels.dtype.kind == "f" else "names"


def _digest_of(maker: Distance) -> str:
    """16 digits for the settings and weights of what makes vectors."""
    try:
        settings = json.dumps(describe(maker), sort_keys=True)
    except (TypeError, ValueError):  # a class of the user's without a description: its weights must do
        settings = type(maker).__name__
    found = hashlib.sha256(settings.encode())
    for name, tensor in sorted(tensors_of(maker).items()):
        content = tensor.detach().to("cpu").contiguous()
        found.update(f"{name} {content.dtype} {tuple(content.shape)}".encode())
        found.update(content.flatten().view(torch.uint8).numpy().tobytes() if content.numel() else b"")
    return found.hexdigest()[:16]
