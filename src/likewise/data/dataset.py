"""Dataset: items with their labels, as every reader returns them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise._labels import class_names, read_labels, sorted_classes
from likewise.data.batch import Batch, as_sequences
from likewise.data.split import HeldOutClasses, split_items

MOST_LABEL_BYTES = 1 << 28  # bytes of all label names


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Sequences with their labels.

    items: the N sequences: a Batch, a tensor (N, T, C), or a list of arrays (T_i, C).
    labels: (N,) class names, or None. Whole numbers are converted to names. Floats without classes are regression
        targets and stay float64.
    ids: a name for each item; "0", "1", ... by default.
    groups: (N,) numbers or names, such as the subject or speaker of each item.
    classes: all class names in order; by default the sorted names in labels (sorted as numbers if all are numbers).
        Parts of a Dataset share its classes.

    ``codes`` are the labels as int64 indices into classes. Indexing with a slice, a mask or positions returns a Dataset
    of those items. Indexing with an integer returns (item, label), so a Dataset is also a map-style dataset of PyTorch.

    Example:
        >>> data = Dataset([[1.0, 2.0], [3.0], [5.0, 4.0]], ["walk", "run", "walk"])
        >>> data
        Dataset(3 sequences, 1..2 steps, 1 channel, 2 classes)
        >>> data.classes, data.codes
        (('run', 'walk'), tensor([1, 0, 1]))
        >>> data[1:].labels, data[1]
        (array(['run', 'walk'], dtype='<U4'), (tensor([[3.]]), 'run'))
    """

    items: Any
    labels: Any = None
    ids: Any = None
    groups: Any = None
    classes: Any = None
    codes: Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._set("items", self._read_items(self.items))
        size = len(self.items)
        self._set("ids", _read_ids(self._name, self.ids, size))
        if self.groups is not None:
            self._set("groups", read_labels(self._name, "groups", self.groups, size).copy())
        labels = None if self.labels is None else read_labels(self._name, "labels", self.labels, size)
        classes = None if self.classes is None else _read_classes(self._name, self.classes)
        if labels is not None and labels.dtype.kind == "f" and size and not classes:
            if not np.isfinite(labels).all():
                place = int((~np.isfinite(labels)).argmax())
                _check.refuse(self._name, f"labels[{place}] is {labels[place]}; targets must be finite")
            labels = labels.astype(np.float64)
        elif labels is not None:
            labels, classes, codes = _named(self._name, labels, classes)
            self._set("codes", torch.from_numpy(codes))
        self._set("labels", labels)
        self._set("classes", classes or ())

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _read_items(self, items: object) -> Any:
        return items if isinstance(items, Batch) else Batch(*as_sequences(self._name, "items", items))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        """A Dataset of the chosen items, or (item, label) for an integer."""
        if isinstance(index, slice):
            return self._part(np.arange(len(self))[index])
        places = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
        if places.ndim == 0 and places.dtype.kind in "iu":
            place = int(places)
            if not -len(self) <= place < len(self):
                raise IndexError(f"{self._name}: index {place} is out of range for {len(self)} items")
            return self.items[place], None if self.labels is None else self.labels[place].item()
        if places.ndim != 1 or (places.dtype.kind not in "iub" and len(places)):
            raise TypeError(f"{self._name}: expected an integer, a slice, positions (K,) or a mask (N,), got {index!r}")
        if places.dtype.kind == "b" and len(places) != len(self):
            raise IndexError(f"{self._name}: expected a mask of {len(self)} items, got {len(places)}")
        if places.dtype.kind == "b":
            places = np.flatnonzero(places)
        if len(places) and not -len(self) <= places.min() <= places.max() < len(self):
            place = places[np.abs(places).argmax()]
            raise IndexError(f"{self._name}: index {place} is out of range for {len(self)} items")
        return self._part(places.astype(np.int64))

    def __iter__(self) -> Iterator[tuple[Tensor, Any]]:
        return (self[i] for i in range(len(self)))

    def _part(self, places: np.ndarray, classes: Sequence[str] | None = None) -> Self:
        """The items at these positions; by default with the same classes."""
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        kept["items"] = self.items[torch.from_numpy(places)]
        kept["ids"] = tuple(self.ids[i] for i in places.tolist())
        for name in ("labels", "groups"):
            kept[name] = None if kept[name] is None else kept[name][places]
        if self.codes is not None:
            kept["classes"] = self.classes if classes is None else tuple(classes)
        return type(self)(**kept)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        id: str,  # noqa: A002
        time: str | None = None,
        label: str | None = None,
        channels: Sequence[str] | None = None,
        group: str | None = None,
        fill: Any = None,
        dtype: torch.dtype = torch.float32,
    ) -> "Dataset":
        """Make a Dataset from a long table (pandas, polars or pyarrow), with one row per time step of each series.

        id: the column that names the series of each row. Series are ordered by their first rows; their rows may be
            interleaved. time: a column of numbers or dates, which must increase within a series; without it, rows are
            taken in order.
        label, group: columns with one value per series. channels: by default, all other columns.
        fill: "linear", "previous" or a number: how to fill missing values and missing steps. Times must then be
            multiples of the smallest step. At the ends, "linear" repeats the nearest value.

        Missing values and steps (without fill), repeated or decreasing times, and labels or groups that change within a
        series raise an error that gives the row and column. Needs the extra ``tables``.

        Example:
            >>> import pandas
            >>> frame = pandas.DataFrame({"who": ["a", "a", "a", "b"], "t": [0, 1, 3, 0], "x": [1.0, 2.0, 4.0, 7.0]})
            >>> data = Dataset.from_frame(frame, id="who", time="t", fill="linear")
            >>> data.ids, data.items[0].flatten()
            (('a', 'b'), tensor([1., 2., 3., 4.]))
        """
        from likewise.data.tables import from_frame

        return from_frame(frame, id=id, time=time, label=label, channels=channels, group=group, fill=fill, dtype=dtype)

    def to_frame(
        self,
        *,
        backend: str = "pyarrow",
        channels: Sequence[str] | None = None,
        id: str = "id",  # noqa: A002
        time: str = "time",
        label: str = "label",
        group: str = "group",
    ) -> Any:
        """Convert to a long table with one row per step and times counted from 0; the inverse of ``from_frame``.

        backend: "pyarrow", "pandas" or "polars". channels: names of the channels, "channel_0", ... by default. The
            other arguments name the other columns; without labels or groups, their columns are left out.

        Example:
            >>> Dataset([[1.0, 2.0], [3.0]], ["walk", "run"]).to_frame(backend="pandas")
              id  time label  channel_0
            0  0     0  walk        1.0
            1  0     1  walk        2.0
            2  1     0   run        3.0
        """
        from likewise.data.tables import to_frame

        return to_frame(self, backend=backend, channels=channels, id=id, time=time, label=label, group=group)

    def of_classes(self, classes: Iterable[object]) -> Self:
        """Select the items of some classes. The result has these classes, in the given order.

        Example:
            >>> data = Dataset(torch.zeros(3, 2, 1), [7, 8, 9])
            >>> data.of_classes([9, 7]).labels.tolist()
            ['7', '9']
        """
        names = _read_classes(self._name, classes)
        self._need_classes("of_classes")
        for name in names:
            if name not in self.classes:
                _check.refuse(self._name, f"there is no class {name!r}; see .classes")
        return self._part(np.flatnonzero(np.isin(self.labels, np.array(names, dtype=str))), names)

    def without_single(self) -> Self:
        """Drop classes with a single item, which have no positive pairs."""
        counts = self._counts("without_single")
        return self.of_classes([name for name, count in zip(self.classes, counts, strict=True) if count >= 2])

    def check_pairs(self, name: str | None = None) -> Self:
        """Return self if every class has at least two items; otherwise raise an error."""
        counts = self._counts("check_pairs")
        few = np.flatnonzero(counts < 2).tolist()
        if few:
            held = "one item" if counts[few[0]] == 1 else "no item"
            more = f", and {len(few) - 1} more classes have fewer than two" if len(few) > 1 else ""
            hint = "an item needs another of its class; leave such classes out with .without_single()"
            _check.refuse(name or self._name, f"class {self.classes[few[0]]!r} has {held}{more}: {hint}")
        return self

    def split(self, share: float | HeldOutClasses, seed: int = 0, groups: object = None) -> tuple[Self, Self]:
        """Split into two Datasets, the training items and the held-out share, both in the original order.

        share: the share of each class to hold out, between 0 and 1, or HeldOutClasses(share) to hold out whole classes,
            which the first part then does not list. groups: (N,), such as ``data.groups``: hold out whole groups, so
            that no group is in both parts.

        Example:
            >>> data = Dataset(torch.zeros(10, 2, 1), [0, 1] * 5)
            >>> train, held_out = data.split(0.2)
            >>> len(train), held_out.labels.tolist()
            (8, ['0', '1'])
        """
        op = f"{self._name}.split"
        if isinstance(share, HeldOutClasses):
            self._need_classes("split by classes")
            kept, out = share.split(self.labels)
            return tuple(self._part(places, self._classes_at(places)) for places in (kept, out))  # type: ignore[return-value]
        kept, out = split_items(op, self.labels, len(self), share, seed=seed, groups=groups)
        return self._part(kept), self._part(out)

    def _classes_at(self, places: np.ndarray) -> list[str]:
        assert self.codes is not None
        present = set(self.codes.numpy()[places].tolist())
        return [name for code, name in enumerate(self.classes) if code in present]

    def _counts(self, what: str) -> np.ndarray:
        self._need_classes(what)
        assert self.codes is not None
        return np.bincount(self.codes.numpy(), minlength=len(self.classes))

    def _need_classes(self, what: str) -> None:
        if self.codes is None:
            _check.refuse(self._name, f"{what} needs class labels, and these items have none")

    def __repr__(self) -> str:
        text = repr(self.items)[len("Batch(") : -1].rsplit(", ", 2)[0]  # without type and device
        return f"{self._name}({text}{self._label_text()})"

    def _label_text(self) -> str:
        if self.labels is None:
            return ", no labels"
        if self.codes is None:
            return ", targets"
        return f", {len(self.classes)} class{'es' * (len(self.classes) != 1)}"


def names_of(classes: Sequence[str], codes: Any) -> np.ndarray:
    """Class names (N,) of indices into classes, for files that store indices.

    NumPy stores every name at the length of the longest, so a hostile file could exhaust the memory.
    """
    names, codes = np.array(classes, dtype=str), np.asarray(codes, np.int64)
    if names.itemsize * len(codes) > MOST_LABEL_BYTES:
        width = names.itemsize // 4
        _check.refuse("labels", f"{len(codes)} of up to {width} characters take more than {MOST_LABEL_BYTES} bytes")
    return names[codes]


def _read_ids(op: str, ids: Any, size: int) -> tuple[str, ...]:
    if ids is None:
        return tuple(map(str, range(size)))
    if not isinstance(ids, tuple) or not all(type(name) is str for name in ids):
        ids = tuple(class_names(read_labels(op, "ids", ids, size)).tolist())
    if len(ids) != size:
        _check.refuse(op, f"expected {size} ids, one for each item, got {len(ids)}")
    return ids


def _read_classes(op: str, classes: Any) -> tuple[str, ...]:
    if isinstance(classes, str):
        raise TypeError(f"{op}: expected classes to be several names, got the text {classes!r}")
    names = tuple(class_names(read_labels(op, "classes", list(classes))).tolist())
    if len(set(names)) != len(names):
        _check.refuse(op, "two classes have the same name")
    return names


def _named(op: str, labels: np.ndarray, classes: tuple[str, ...] | None) -> tuple[np.ndarray, tuple[str, ...], Any]:
    """The labels as names, the classes, and the indices of the labels into the classes."""
    found, places = np.unique(labels, return_inverse=True)
    names = class_names(found)
    if classes is None:
        classes = tuple(sorted_classes(names).tolist())
    code = {name: i for i, name in enumerate(classes)}
    for i, name in enumerate(names.tolist()):
        if name not in code:
            item = int((places == i).argmax())
            hint = "give their names, numpy.array(classes)[labels]" if labels.dtype.kind in "iu" else "add it to them"
            _check.refuse(op, f"labels[{item}] is {name!r}, which is not among the {len(classes)} classes; {hint}")
    codes = np.array([code[name] for name in names.tolist()], np.int64)[places]
    return names[places] if len(names) else labels.astype(str), classes, codes
