"""Distances that compare step t of x with step t of y, or plain vectors.

Sequences of unequal length are compared over the steps that both have, as in aeon.
"""

from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise._labels import items_of
from likewise.distances.alignment import PathAlignment
from likewise.distances.distance import Distance, Sequences, full_lengths
from likewise.ops.ground import at_least_float32, no_pairs


class Framewise(Distance):
    """A distance between vectors (B, C), or between sequences (B, T, C) that are flattened to vectors.

    Subclasses define ``vectors(x, y)``: (..., N, D), (..., M, D) -> (..., N, M).
    """

    symmetric = True

    def vectors(self, x: Tensor, y: Tensor) -> Tensor:
        """Distances (..., N, M) between vectors (..., N, D) and (..., M, D)."""
        raise NotImplementedError

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        self._require_finite(x, y, x_lengths, y_lengths)
        steps = min(x.shape[1], y.shape[1])
        x, y = x[:, :steps], y[:, :steps]
        if x_lengths is not None or y_lengths is not None:
            common = torch.minimum(full_lengths(x, x_lengths), full_lengths(y, y_lengths))
            beyond = (torch.arange(steps, device=x.device) >= common[:, None])[..., None]
            x, y = x.masked_fill(beyond, 0), y.masked_fill(beyond, 0)
        return self._vectors(x.flatten(1)[:, None], y.flatten(1)[:, None])[:, 0, 0]

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M), by groups of equal length: at most one call of ``vectors`` per length."""
        if y is None:
            y, y_lengths = x, x_lengths
        self._require_finite(x, y, x_lengths, y_lengths)
        rows, columns = _groups(x, x_lengths), _groups(y, y_lengths)
        if not rows or not columns:
            return no_pairs(x, y)
        row_order, column_order = (torch.cat([items for _, items in groups]) for groups in (rows, columns))
        strips: list[list[Tensor]] = [[] for _ in rows]  # per length of x: its distances, by increasing length of y
        for m, j in columns:  # to longer sequences
            longer = [k for k, (n, _) in enumerate(rows) if n > m]
            if longer:
                i = torch.cat([rows[k][1] for k in longer])
                block = self._vectors(*_cut(x[i], y[j], m)).split([len(rows[k][1]) for k in longer])
                for k, part in zip(longer, block, strict=True):
                    strips[k].append(part)
        for (n, i), strip in zip(rows, strips, strict=True):  # to sequences that are not longer
            j = column_order[sum(len(items) for m, items in columns if m < n) :]
            if len(j):
                strip.append(self._vectors(*_cut(x[i], y[j], n)))
        whole = torch.cat([torch.cat(strip, 1) for strip in strips])
        return whole[row_order.argsort()][:, column_order.argsort()]

    def forward(self, x: Sequences, y: Sequences) -> Tensor:
        """Distances (B,) between x[b] and y[b]; x and y may be vectors (B, C)."""
        return super().forward(*_vectors_as_sequences(x, y))

    def matrix(self, x: Sequences, y: Sequences | None = None, *, progress: bool = False) -> Tensor:
        """Distances (N, M) between every x[i] and every y[j]; x and y may be vectors (N, C) and (M, C)."""
        if y is None:
            return super().matrix(_vectors_as_sequences(x, x)[0], progress=progress)
        return super().matrix(*_vectors_as_sequences(x, y), progress=progress)

    def align(self, x: Sequences, y: Sequences) -> PathAlignment:
        """Match step t of x with step t of y."""
        if _is_array(x) and x.ndim == 2:
            _check.refuse(self.name, "vectors have no steps to align")
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        lengths = full_lengths(x, x_lengths), full_lengths(y, y_lengths)

        def paths() -> tuple[Tensor, Tensor]:
            steps = torch.minimum(*lengths)
            t = torch.arange(min(x.shape[1], y.shape[1]), device=x.device).expand(len(x), -1)
            return torch.where(t < steps[:, None], t, -1)[..., None].expand(-1, -1, 2), steps

        return PathAlignment(lambda: self.paired(x, y, x_lengths, y_lengths), paths, x, y, *lengths)

    def _vectors(self, x: Tensor, y: Tensor) -> Tensor:
        return _check.finite_values(self.name, self.vectors(at_least_float32(x), at_least_float32(y)).to(x.dtype))

    def _require_finite(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> None:
        _check.finite(self.name, "x", x, x_lengths)
        _check.finite(self.name, "y", y, y_lengths)


def _vectors_as_sequences(x: Sequences, y: Sequences) -> tuple[Sequences, Sequences]:
    """Vectors (B, C) as sequences of one step; anything else unchanged."""
    x, y = items_of(x), items_of(y)
    if _is_array(x) and _is_array(y) and x.ndim == y.ndim == 2:
        return x[:, None], y[:, None]
    return x, y


def _is_array(x: Sequences) -> TypeGuard[Tensor | np.ndarray]:
    return isinstance(x, (Tensor, np.ndarray))


def _groups(x: Tensor, lengths: Tensor | None) -> list[tuple[int, Tensor]]:
    """Indices of the sequences of each length, shortest first."""
    if lengths is None:
        return [(x.shape[1], torch.arange(len(x), device=x.device))] if len(x) else []
    return [(int(n), (lengths == n).nonzero()[:, 0].to(x.device)) for n in lengths.unique()]


def _cut(x: Tensor, y: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    return x[:, :steps].flatten(1), y[:, :steps].flatten(1)
