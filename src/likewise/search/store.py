"""Store: what an index needs from a vector database."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from likewise import _check
from likewise.search.files import Files

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
OWN = ("id", "vector", "label", "key", "steps")  # fields that every row has
Value = str | int | float | bool
Where = Mapping[str, Any]


@dataclass(frozen=True)
class Form:
    """The properties that all rows of a store share.

    size: the length of the vectors. cosine: whether they are compared by angle, and not by Euclidean distance.
    labels: "names", "targets" (float64), or None for rows without labels.
    """

    size: int
    cosine: bool
    labels: str | None


@dataclass(frozen=True)
class Rows:
    """Rows of a store, one for each item.

    ids: names, each used once. keys: what the vector and the item were made from; see ``Stored``.
    steps: the length of each sequence, 1 for vectors and images.
    labels: (N,) names or float64 targets, or None. vectors: (N, D) float32; None if they were not asked for.
    fields: other values by name, a list of N each.
    """

    ids: tuple[str, ...]
    keys: tuple[str, ...]
    steps: tuple[int, ...]
    labels: np.ndarray | None = None
    vectors: Tensor | None = None
    fields: Mapping[str, Sequence[Value]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)


class Store(Protocol):
    """A database of vectors, as ``Index(metric, store=...)`` uses it. ``MilvusStore`` is one; you can write others.

    Every call succeeds or raises an error: ConnectionError if the database does not answer. All changes name
    rows by their ids, so a call can be repeated even if it may have succeeded.

    Example:
        >>> from likewise.search import MilvusStore
        >>> all(hasattr(MilvusStore, name) for name in ("put", "get", "delete", "nearest", "scan"))
        True
    """

    @property
    def files(self) -> Files | None:
        """Where the items are; None if the vectors are the items."""
        ...

    def form(self) -> Form | None:
        """The form of the rows; None before ``create``."""
        ...

    def create(self, form: Form) -> None:
        """Prepare an empty store for rows of this form."""
        ...

    def __len__(self) -> int:
        """The number of rows."""
        ...

    def put(self, rows: Rows) -> None:
        """Write rows, in place of rows with the same ids."""
        ...

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows; unknown ids are ignored."""
        ...

    def get(self, ids: Sequence[str]) -> Rows:
        """The existing rows among these ids, in any order, without vectors and fields."""
        ...

    def nearest(self, vectors: Tensor, count: int, where: Where, *, with_vectors: bool) -> list[Rows]:
        """About ``count`` nearest rows of each vector (Q, D), among those that satisfy ``where``."""
        ...

    def scan(self, *, with_vectors: bool) -> Iterator[Rows]:
        """All rows, some at a time, without fields."""
        ...


def check_where(op: str, where: Where | None) -> Where:
    """Conditions by the name of a field: a value, a list of values, or slice(low, high) for low <= value < high.

    Example:
        >>> check_where("search", {"label": ["walk", "run"], "year": slice(2019, None)})
        {'label': ['walk', 'run'], 'year': slice(2019, None, None)}
        >>> check_where("search", {"label": None})
        Traceback (most recent call last):
        TypeError: search: expected where['label'] to be a value, a list of values, or slice(low, high), got None
    """
    if where is None:
        return {}
    if not isinstance(where, Mapping):
        raise TypeError(f"{op}: expected where to be conditions by field name, got {type(where).__name__}")
    read: dict[str, Any] = {}
    for name, condition in where.items():
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in ("vector", "key"):
            _check.refuse(op, f"where names the field {name!r}; expected letters, digits and underscores")
        if isinstance(condition, slice):
            values = [end for end in (condition.start, condition.stop) if end is not None]
            right = condition.step is None and values and all(map(_is_number, values))
        else:
            several = isinstance(condition, (list, tuple, set, frozenset, np.ndarray))
            values = [_plain(value) for value in (condition if several else [condition])]
            right = values and all(isinstance(value, (str, int, float)) for value in values)
            condition = values if several else values[0]
        if not right or any(isinstance(value, float) and not np.isfinite(value) for value in values):
            expected = "a value, a list of values, or slice(low, high)"
            raise TypeError(f"{op}: expected where[{name!r}] to be {expected}, got {where[name]!r:.80}")
        read[name] = condition
    return read


def check_fields(op: str, fields: Mapping[str, Any] | None, count: int) -> dict[str, list[Value]]:
    """Fields of new rows: for each name ``count`` texts, numbers or booleans.

    Example:
        >>> check_fields("add", {"year": [2019, 2020]}, 2)
        {'year': [2019, 2020]}
    """
    read: dict[str, list[Value]] = {}
    for name, values in (fields or {}).items():
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in OWN:
            _check.refuse(op, f"a field is named {name!r}; expected letters, digits and underscores, and not {OWN}")
        plain = [_plain(value) for value in values]
        if len(plain) != count:
            _check.refuse(op, f"the field {name!r} has {len(plain)} values for {count} items")
        for value in plain:
            if not isinstance(value, (str, int, float)) or (isinstance(value, float) and not np.isfinite(value)):
                raise TypeError(
                    f"{op}: expected texts, finite numbers or booleans in the field {name!r}, got {value!r:.80}"
                )
        read[name] = plain
    return read


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, (np.generic, Tensor)) else value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
