"""Distance: what every distance can do."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.data.batch import as_sequences
from likewise.distances.alignment import Alignment

# What a distance takes: a Batch, a tensor or array (B, T, C), or a list of sequences (T_i, C) or (T_i,).
Sequences = object

PAIRED_CELLS = 1 << 24  # cells of the cost matrices that a chunk of pairs may hold at once
CELLS_A_STEP = 1 << 31  # cells between two steps of a progress bar: about a tenth of a second of DTW


class Distance(nn.Module):
    """A distance between sequences: smaller is closer.

    ``d(x, y)`` is (B,), x[b] against y[b]. ``d.matrix(x, y)`` is (N, M), every x[i] against every y[j]; without y, x
    against itself. ``d.align(x, y)`` says how they match. Subclasses write ``paired`` and ``align``, set ``symmetric``,
    and write ``all_pairs`` where they know a faster way than pair by pair.

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

    @property
    def name(self) -> str:
        """What errors call this distance."""
        return type(self).__name__

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs (B, Tx, C) and (B, Ty, C). Lengths are None where every step is real."""
        raise NotImplementedError(f"{self.name}.paired")

    def align(self, x: Sequences, y: Sequences) -> Alignment:
        """How x[b] and y[b] match, for every b."""
        raise NotImplementedError(f"{self.name} does not align sequences")

    def forward(self, x: Sequences, y: Sequences) -> Tensor:
        """Distances (B,) between x[b] and y[b]."""
        return self.paired(*self._pair(x, y, paired=True))

    def matrix(self, x: Sequences, y: Sequences | None = None, *, progress: bool = False) -> Tensor:
        """Distances (N, M) between every x[i] and every y[j]; without y, (N, N) of x with itself.

        Memory is bounded: the cost matrices of all pairs are never held at once. ``progress`` draws a bar.
        """
        x, y, x_lengths, y_lengths = self._pair(x, x if y is None else y, paired=False, same=y is None)
        if not progress:
            return self.all_pairs(x, None if y is x else y, x_lengths, y_lengths)
        rows = max(1, CELLS_A_STEP // max(1, len(y) * x.shape[1] * y.shape[1]))
        strips = []
        for first in _track(range(0, len(x), rows), f"{self.name}: {len(x):,} x {len(y):,}"):
            part = slice(first, first + rows)
            # A symmetric matrix is computed from the diagonal on, and mirrored below.
            start = first if y is x and self.symmetric else 0
            strips.append(
                nn.functional.pad(
                    self.all_pairs(x[part], y[start:], _part(x_lengths, part), _part(y_lengths, slice(start, None))),
                    (start, 0),
                )
            )
        whole = torch.cat(strips) if strips else x.new_empty(0, len(y))
        return whole.triu() + whole.triu(1).T if y is x and self.symmetric else whole

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M) of padded sequences; y is None for x against itself. By default pair by pair, in chunks."""
        mirrored = y is None and self.symmetric
        if y is None:
            y, y_lengths = x, x_lengths
        rows, columns = len(x), len(y)
        if mirrored:
            i, j = torch.triu_indices(rows, columns, device=x.device)
        else:
            i, j = torch.cartesian_prod(*(torch.arange(n, device=x.device) for n in (rows, columns))).unbind(-1)
        chunk = max(1, PAIRED_CELLS // max(1, x.shape[1] * y.shape[1]))
        values = [
            self.paired(x[a], y[b], _part(x_lengths, a), _part(y_lengths, b))
            for a, b in zip(i.split(chunk), j.split(chunk), strict=True)
        ]
        flat = torch.cat(values) if values else x.new_empty(0)
        if not mirrored:
            return flat.reshape(rows, columns)
        whole = flat.new_zeros(rows, columns).index_put((i, j), flat)
        return whole + whole.triu(1).T

    def _pair(
        self, x: Sequences, y: Sequences, *, paired: bool, same: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        x_values, x_lengths = as_sequences(self.name, "x", x)
        y_values, y_lengths = (x_values, x_lengths) if same else as_sequences(self.name, "y", y)
        _check.pair(self.name, x_values, y_values, x_lengths, y_lengths, paired=paired)
        return x_values, y_values, x_lengths, y_lengths


def _part(lengths: Tensor | None, index: slice | Tensor) -> Tensor | None:
    if lengths is None:
        return None
    return lengths[index.to(lengths.device) if isinstance(index, Tensor) else index]


def _track(steps: Iterable[int], text: str) -> Iterable[int]:
    from rich.progress import track

    return track(steps, text)


def full_lengths(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Lengths (B,) on x's device, where None stands for every step."""
    if lengths is None:
        return torch.full((x.shape[0],), x.shape[1], device=x.device)
    return lengths.to(x.device)


def describe(**settings: object) -> str:
    """The settings that are not at their default, for ``extra_repr``."""
    shown: dict[str, object] = {
        key: value.__name__ if isinstance(value, Callable) else value  # type: ignore[attr-defined]
        for key, value in settings.items()
    }
    return ", ".join(f"{k}={v!r}" for k, v in shown.items() if v is not None and v is not False and v != math.inf)
