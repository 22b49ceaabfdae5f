"""The labels of the rows and columns of a distance matrix, checked and numbered."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise._labels import class_names, number_labels, read_labels

NUMBERS_A_STRIP = 1 << 20  # distances computed and ranked at once: 4 MB of float32
NUMBERS_OF_A_MATRIX = 1 << 24  # for a precomputed matrix, where longer strips are faster and may be copied


@dataclass(frozen=True)
class Labels:
    """Labels of the rows (N,) and the columns (M,) as indices into classes (K,), names or numbers, which are sorted.

    own: whether rows and columns are the same items; the diagonal is then ignored.
    """

    rows: Tensor
    columns: Tensor
    classes: Any
    own: bool

    @classmethod
    def of(
        cls,
        op: str,
        rows: object,
        columns: object | None,
        shape: tuple[int, int],
        names: tuple[str, str] = ("row_labels", "col_labels"),
        *,
        own: bool = False,
    ) -> "Labels":
        """Check the labels against the shape (N, M) that they belong to, and number them, on the CPU."""
        parts = [read_labels(op, names[0], rows, shape[0])]
        if columns is not None:
            parts.append(read_labels(op, names[1], columns, shape[1]))
        classes, codes = number_labels(*parts)
        own = own or columns is None
        if own and (codes[0] != codes[-1]).any():
            place = int((codes[0] != codes[-1]).argmax())
            _check.refuse(op, f"item {place} is in both queries and references, but with different labels")
        return cls(torch.from_numpy(codes[0]), torch.from_numpy(codes[-1]), classes, own)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(class_names(self.classes).tolist())

    @property
    def candidates(self) -> int:
        """The number of columns that count for each row."""
        return len(self.columns) - self.own

    @property
    def relevant(self) -> Tensor:
        """The number of these columns with the row's label, (N,)."""
        return self.columns.bincount(minlength=len(self.classes))[self.rows] - int(self.own)


def read_matrix(
    op: str, D: Tensor, row_labels: object, col_labels: object | None
) -> tuple[Labels, Iterator[tuple[slice, Tensor]]]:
    """The labels of a matrix (N, M), and its strips: a slice of rows, and their distances, prepared for ranking.

    D: a tensor, or a ``scale.TiledMatrix``, which reads its rows when they are used.
    """
    on_disk = callable(getattr(D, "block", None))
    if not on_disk:
        D = _check.is_tensor(op, "D", D).detach()
    if D.ndim != 2 or 0 in D.shape:
        _check.refuse(op, f"expected D of shape (N, M), not empty, got {tuple(D.shape)}")
    if col_labels is None and D.shape[0] != D.shape[1]:
        _check.refuse(op, f"without col_labels, D must be square, got {tuple(D.shape)}")
    if col_labels is None and len(D) < 2:
        _check.refuse(op, "without col_labels, D must hold at least two items")
    labels = Labels.of(op, row_labels, col_labels, (D.shape[0], D.shape[1]))
    parts = row_slices(len(D), D.shape[1], max(1, NUMBERS_OF_A_MATRIX // D.shape[1]))
    read = (lambda part: _check.is_tensor(op, "D", torch.as_tensor(D[part]))) if on_disk else D.__getitem__
    return labels, ((part, ready_strip(op, read(part), part.start, labels.own)) for part in parts)


def row_slices(rows: int, columns: int, most: int | None = None) -> list[slice]:
    """Ranges of at most ``most`` rows or, if it is None, of about a million numbers."""
    step = max(1, NUMBERS_A_STRIP // columns) if most is None else most
    return [slice(first, min(first + step, rows)) for first in range(0, rows, step)]


def ready_strip(op: str, D: Tensor, first: int, own: bool) -> Tensor:
    """Rows first.. of a matrix, (n, M), in float32 or float64; with ``own``, NaN replaces the distance to itself.

    Sorting puts NaN last, after infinity, so the first M - 1 columns of a row never include the row's own item.
    """
    wrong = D.amax(1).isnan()  # NaN propagates, and no copy of D is made
    if wrong.any():
        _check.refuse(op, f"D holds NaN in row {first + int(wrong.nonzero()[0])}")
    if D.dtype not in (torch.float32, torch.float64):
        D = D.float()
    if own:
        D = D.clone()
        D.diagonal(first).fill_(torch.nan)
    return D


def read_k(op: str, k: object, references: int) -> int:
    """Return k if it is a whole number, at most the number of references of each row."""
    count = _check.whole(op, "k", k)
    if count > references:
        _check.refuse(op, f"k is {count}, but each row has {references} reference{'s' * (references != 1)}")
    return count
