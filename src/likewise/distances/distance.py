"""Distance: the base class of all distances."""

import math
from collections.abc import Collection, Iterator

import torch
from torch import Tensor, nn

from likewise import _check
from likewise._labels import is_map_style, items_of
from likewise._progress import track
from likewise.data.batch import as_sequences
from likewise.data.loading import Loader
from likewise.distances.alignment import Alignment
from likewise.distances.training_defaults import TrainingDefaults
from likewise.ops.ground import no_pairs

# The items of a distance: a Dataset or a pair (items, labels), a Batch, a tensor or array (B, T, C), or a list of
# sequences (T_i, C) or (T_i,).
Sequences = object

PAIRED_NUMBERS = 1 << 24  # size limit for a chunk of pairs: numbers in its frames or its cost matrices
CELLS_A_STEP = 1 << 31  # cells between two steps of a progress bar: about a tenth of a second of DTW


class Distance(nn.Module):
    """A distance between sequences: smaller is closer.

    ``d(x, y)`` is (B,), x[b] against y[b]. ``d.matrix(x, y)`` is (N, M), every x[i] against every y[j]; without y, x is
    compared with itself. ``d.align(x, y)`` returns an Alignment. Subclasses define ``paired`` and ``align``, set
    ``symmetric``, and override ``all_pairs`` if there is a faster way than pair by pair.

    Example:
        >>> class Longer(Distance):
        ...     symmetric = True
        ...     def paired(self, x, y, x_lengths, y_lengths):
        ...         return (x_lengths - y_lengths).abs().to(x.dtype)
        >>> Longer().matrix([[1.0], [1.0, 2.0, 3.0]])
        tensor([[0., 2.],
                [2., 0.]])
    """

    symmetric = False  # d(x, y) == d(y, x)
    separate = False  # each channel is aligned by itself
    training_defaults = TrainingDefaults()  # the defaults of ``fit``

    @property
    def name(self) -> str:
        """The name of this distance in errors."""
        return type(self).__name__

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs (B, Tx, C) and (B, Ty, C). Lengths are None if every step is real."""
        raise NotImplementedError(f"{self.name}.paired")

    def align(self, x: Sequences, y: Sequences) -> Alignment:
        """Align x[b] and y[b], for every b."""
        raise NotImplementedError(f"{self.name} does not align sequences")

    def forward(self, x: Sequences, y: Sequences) -> Tensor:
        """Distances (B,) between x[b] and y[b]."""
        return self.paired(*self._pair(x, y, paired=True))

    def matrix(self, x: Sequences, y: Sequences | None = None, *, progress: bool = False) -> Tensor:
        """Distances (N, M) between every x[i] and every y[j]; without y, (N, N) between all pairs of x.

        Memory is bounded: the cost matrices of all pairs are never held at once. ``progress`` draws a bar on stderr.
        Items of a map-style dataset are read piece by piece.
        """
        own = y is None or y is x
        x, y = items_of(x), None if own else items_of(y)
        if is_map_style(x) or (not own and is_map_style(y)):
            return self._blocks(x, x if own else y)
        x, y, x_lengths, y_lengths = self._pair(x, x if own else y, paired=False)
        if not len(x) or not len(y):
            return no_pairs(x, y)
        rows = max(1, CELLS_A_STEP // max(1, len(y) * x.shape[1] * y.shape[1]))
        if not progress or rows >= len(x):
            return self.all_pairs(x, None if own else y, x_lengths, y_lengths)
        strips = []
        for first in track(range(0, len(x), rows), f"{self.name}: {len(x):,} x {len(y):,}"):
            part = slice(first, first + rows)
            # A symmetric matrix is computed above the diagonal, and mirrored.
            start = first if own and self.symmetric else 0
            strips.append(
                nn.functional.pad(
                    self.all_pairs(x[part], y[start:], _part(x_lengths, part), _part(y_lengths, slice(start, None))),
                    (start, 0),
                )
            )
        whole = torch.cat(strips)
        return whole.triu() + whole.triu(1).T if own and self.symmetric else whole

    def _blocks(self, x: Sequences, y: Sequences) -> Tensor:
        """The matrix of items that are read in pieces: x once, and y once for each piece of x."""

        def pieces(items: Sequences) -> Iterator[Sequences]:
            return Loader(items).pieces() if is_map_style(items) else iter([items])

        return torch.cat([torch.cat([self.matrix(a, b) for b in pieces(y)], 1) for a in pieces(x)])

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M) of padded sequences; y is None for x against itself. By default, pair by pair in chunks."""
        mirrored = y is None and self.symmetric
        if y is None:
            y, y_lengths = x, x_lengths
        rows, columns = len(x), len(y)
        each = max(x.shape[1] * y.shape[1], (x.shape[1] + y.shape[1]) * x.shape[2], 1)
        chunk = max(1, PAIRED_NUMBERS // each)
        parts = []
        for first in range(0, rows * columns, chunk):
            pair = torch.arange(first, min(first + chunk, rows * columns), device=x.device)
            i, j = pair // columns, pair % columns
            wanted = i <= j if mirrored else torch.ones_like(i, dtype=torch.bool)
            i, j = i[wanted], j[wanted]
            values = self.paired(x[i], y[j], _part(x_lengths, i), _part(y_lengths, j))
            parts.append(values.new_zeros(len(pair)).masked_scatter(wanted, values))
        whole = torch.cat(parts).reshape(rows, columns) if parts else no_pairs(x, y)
        return whole + whole.triu(1).T if mirrored else whole

    def _pair(self, x: Sequences, y: Sequences, *, paired: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        op = self.name
        x_values, x_lengths = as_sequences(op, "x", x)
        y_values, y_lengths = (x_values, x_lengths) if y is x else as_sequences(op, "y", y)
        if y is not x:
            _check.agree(op, x_values, y_values, paired=paired)
        return x_values, y_values, x_lengths, y_lengths


def _part(lengths: Tensor | None, index: slice | Tensor) -> Tensor | None:
    if lengths is None:
        return None
    return lengths[index.to(lengths.device) if isinstance(index, Tensor) else index]


def full_lengths(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Lengths (B,) on x's device; if they are None, every step is real."""
    if lengths is None:
        return torch.full((x.shape[0],), x.shape[1], device=x.device)
    return lengths.to(x.device)


def describe(on: Collection[str] = (), /, **settings: object) -> str:
    """Settings for ``extra_repr``, except None, False and infinity; callables are shown by their name or type.

    on: the settings that are True by default: of these, False is shown, and True is not.
    """
    shown = {
        key: getattr(value, "__name__", type(value).__name__) if callable(value) else value
        for key, value in settings.items()
    }

    def default(key: str, value: object) -> bool:
        return value is True if key in on else value is None or value is False or value == math.inf

    return ", ".join(f"{key}={value!r}" for key, value in shown.items() if not default(key, value))
