"""Read and number labels, which are numbers or names, for the entire library.

Classes are identified by name. The numbers 3 and 3.0 and the text "3" are the same class if one side is text. If both
are numbers, they are compared as numbers, which is faster.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise import _check

NUMBERS, NAMES = "biuf", "U"  # NumPy dtype kinds that labels may have
WHOLE = 2.0**53  # float64 represents every whole number up to here


def read_labels(op: str, name: str, labels: object, size: int | None = None) -> np.ndarray:
    """Labels (size,) as an array of numbers, or of names (str). Missing ones (NaN, None) raise an error.

    Example:
        >>> read_labels("op", "labels", torch.tensor([2, 0])), read_labels("op", "labels", ["a", 2.0])
        (array([2, 0]), array(['a', '2'], dtype='<U1'))
    """
    if labels is None:
        raise TypeError(f"{op}: expected {name} to be numbers or names, got None")
    values = _array(op, name, labels)
    if values.ndim != 1 or (size is not None and len(values) != size):
        _check.refuse(op, f"expected {name} of shape ({'N' if size is None else size},), got {values.shape}")
    if values.dtype.kind == "O":
        values = _of_objects(op, name, values)
    if values.dtype.kind not in NUMBERS + NAMES:
        raise TypeError(f"{op}: expected {name} to be numbers or names, got {values.dtype}")
    if values.dtype.kind == "f" and (missing := np.isnan(values)).any():
        _check.refuse(op, f"{name}[{int(missing.argmax())}] is NaN")
    return values


def class_names(values: np.ndarray) -> np.ndarray:
    """The names (N,) of labels (N,): whole numbers without a decimal point, text unchanged.

    Example:
        >>> class_names(np.array([3.0, 0.5]))
        array(['3', '0.5'], dtype='<U3')
    """
    if values.dtype.kind != "f":
        return values.astype(str)
    found, places = np.unique(values, return_inverse=True)
    names = [str(int(v)) if abs(v) < WHOLE and v == int(v) else str(v) for v in found]
    return np.array(names, dtype=str)[places]


def sorted_classes(names: np.ndarray) -> np.ndarray:
    """Distinct names in order: as numbers if all are numbers, else alphabetically.

    Example:
        >>> sorted_classes(np.array(["10", "9"])).tolist(), sorted_classes(np.array(["b", "10", "9"])).tolist()
        (['9', '10'], ['10', '9', 'b'])
    """
    names = np.unique(names)
    try:
        numbers = names.astype(np.float64)
    except ValueError:
        return names
    return names[np.argsort(numbers, kind="stable")] if np.isfinite(numbers).all() else names


def number_labels(*parts: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The classes (K,) of all parts together, sorted, and each part as int64 indices into them.

    parts: results of ``read_labels``. The classes are names if any part has names, else numbers.

    Example:
        >>> number_labels(np.array([7, 3]), np.array(["3", "walk"]))
        (array(['3', '7', 'walk'], dtype='<U21'), [array([1, 0]), array([0, 2])])
    """
    text = any(part.dtype.kind == "U" for part in parts)
    whole = np.concatenate([class_names(part) for part in parts] if text else parts)
    classes, codes = np.unique(whole, return_inverse=True)
    if text:
        ranked = sorted_classes(classes)
        place = np.empty(len(classes), np.int64)
        place[np.searchsorted(classes, ranked)] = np.arange(len(classes))
        classes, codes = ranked, place[codes]
    return classes, np.split(codes.astype(np.int64, copy=False), np.cumsum([len(part) for part in parts])[:-1])


def read_codes(op: str, device: torch.device, *given: tuple[str, Any, int]) -> list[Tensor]:
    """Labels as int64 on a device, for a loss. Each part has a name, the labels and their required number.

    Whole numbers are unchanged. If any part has names, all are numbered together. A tensor of whole numbers is neither
    read nor moved to the CPU, since this is called in every training step.

    Example:
        >>> read_codes("loss", torch.device("cpu"), ("rows", ["run", "walk"], 2), ("columns", ["walk"], 1))
        [tensor([0, 1]), tensor([1])]
    """
    if not all(isinstance(labels, Tensor) for _, labels, _ in given):
        parts = [read_labels(op, name, labels, size) for name, labels, size in given]
        if any(part.dtype.kind == "U" for part in parts):
            return [torch.from_numpy(codes).to(device) for codes in number_labels(*parts)[1]]
        tensors = [torch.from_numpy(part.astype(np.int64) if len(part) == 0 else part.copy()) for part in parts]
        given = tuple((name, part, size) for (name, _, size), part in zip(given, tensors, strict=True))
    for name, labels, size in given:
        if labels.shape != (size,):
            _check.refuse(op, f"expected {name} of shape ({size},), got {tuple(labels.shape)}")
        if size and (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool):
            raise TypeError(f"{op}: expected {name} to be whole numbers or names, got {labels.dtype}")
    quick = device.type == "cuda"
    return [labels.detach().to(device, torch.int64, non_blocking=quick) for _, labels, _ in given]


def labelled(op: str, name: str, value: Any, *, need_labels: bool = True) -> tuple[Any, Any]:
    """The items and the labels of a Dataset, an ImageSet, a pair (items, labels), or a map-style dataset with labels.

    For a map-style dataset, the items are the dataset. Labels are returned unchanged: pass them to ``read_labels``.
    Without need_labels, plain items are accepted too, and labels may be None; then only a tuple is a pair, not a list.

    Example:
        >>> labelled("op", "data", (torch.zeros(2, 3, 1), ["a", "b"]))[1]
        ['a', 'b']
    """
    if isinstance(value, (tuple, list) if need_labels else tuple) and len(value) == 2:
        items, labels = value
        items = items_of(items)
    elif has_labels(value):
        items, labels = items_of(value), value.labels  # type: ignore[attr-defined]
    elif need_labels:
        kind = type(value).__name__
        raise TypeError(f"{op}: expected {name} to be a Dataset or a pair (items, labels), got {kind}")
    else:
        return value, None
    if labels is None and need_labels:
        _check.refuse(op, f"{name} has no labels")
    return items, labels


def items_of(value: Any) -> Any:
    """The items of a Dataset, an ImageSet or a pair (items, labels); anything else, such as a FileSet, unchanged."""
    if isinstance(value, tuple):
        return items_of(value[0]) if _is_pair(value) else value
    items = getattr(value, "items", None) if hasattr(value, "labels") else None
    return value if items is None or callable(items) or getattr(items, "lazy", False) else items


def _is_pair(value: tuple[Any, ...]) -> bool:
    """Whether this is a pair (items, labels), rather than a tuple of sequences."""
    if len(value) != 2 or not _is_flat(value[1]):
        return False
    items, labels = value
    if not hasattr(items, "__len__") or len(items) != len(labels):
        return False
    if has_labels(items) or hasattr(items, "lengths"):  # a Dataset or a Batch is not a sequence
        return True
    if any(isinstance(label, str) for label in labels):
        return True
    # Numbers, or frames of one number, may be a sequence, and the labels another.
    if isinstance(items, (list, tuple)):
        return len(items) > 0 and all(np.ndim(item) > 1 or (np.ndim(item) == 1 and len(item) > 1) for item in items)
    return len(shape := getattr(items, "shape", ())) > 2 or (len(shape) == 2 and shape[1] > 1)


def _is_flat(labels: Any) -> bool:
    """Whether these may be labels: numbers or names in one dimension."""
    if isinstance(labels, (list, tuple)):
        return all(np.ndim(label) == 0 for label in labels)
    return getattr(labels, "ndim", 0) == 1


def has_labels(value: object) -> bool:
    """Whether this is a Dataset or a map-style dataset with the attribute labels, which may be None."""
    return hasattr(value, "labels") and hasattr(value, "__getitem__") and hasattr(value, "__len__")


def is_map_style(value: object) -> bool:
    """Whether items must be read one by one: value[i] is (item, label), and there is no tensor of all items."""
    return hasattr(value, "labels") and has_labels(value) and items_of(value) is value


def rows_of(items: Any, part: slice) -> Any:
    """A range of the items; for a map-style dataset, a shorter dataset."""
    return _Rows(items, range(len(items))[part]) if is_map_style(items) else items[part]


def same_items(x: Any, y: Any) -> bool:
    """Whether these are identical items: one object, or the same memory."""
    if x is y:
        return True
    a, b = (items if isinstance(items, Tensor) else getattr(items, "values", None) for items in (x, y))
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    return a.numel() > 0 and a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()


class _Rows:
    """A range of a map-style dataset."""

    def __init__(self, dataset: Any, places: range) -> None:
        self.dataset, self.places, self.labels = dataset, places, None

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.places[index]]


def _array(op: str, name: str, labels: Any) -> np.ndarray:
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu()
        return (labels.float() if labels.dtype in (torch.bfloat16, torch.float16) else labels).numpy()
    try:
        values = np.asarray(labels)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{op}: expected {name} to be numbers or names: {error}") from error
    if values.dtype.kind == "T":
        return values.astype(str)
    if values.dtype.kind == "U" and values.ndim == 1 and isinstance(labels, (list, tuple)):
        for i, label in enumerate(labels):
            if isinstance(label, str) and "\0" in label:
                _check.refuse(op, f"{name}[{i}] is {label!r}, but NumPy's strings cannot hold a NUL character")
    # NumPy would convert numbers among names to text as Python does, and 2.0 would not be the class "2".
    mixed = values.dtype.kind == "U" and isinstance(labels, (list, tuple)) and values.ndim == 1
    if mixed and set(map(type, labels)) != {str}:
        values = np.empty(len(labels), object)
        values[:] = labels
    return values


def _of_objects(op: str, name: str, values: np.ndarray) -> np.ndarray:
    """Python numbers and strings as one array; a missing label raises an error."""
    for i, value in enumerate(values):
        if value is None or value != value:
            _check.refuse(op, f"{name}[{i}] is missing ({value})")
        if not isinstance(value, (str, int, float, np.integer, np.floating, np.bool_)):
            raise TypeError(f"{op}: expected {name} to be numbers or names, got {type(value).__name__} at {i}")
    if all(isinstance(value, str) for value in values):
        return values.astype(str)
    if not any(isinstance(value, str) for value in values):
        return np.array(values.tolist())
    names = [value if isinstance(value, str) else str(class_names(np.asarray([value]))[0]) for value in values]
    return np.array(names, dtype=str)
