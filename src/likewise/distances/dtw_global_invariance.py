"""Dynamic time warping with global invariance."""

import torch
from torch import Tensor

from likewise import _check
from likewise.data.batch import as_sequences
from likewise.distances.alignment import PathAlignment
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.ops.dtw import dtw, dtw_path
from likewise.ops.dtw_rotation import Rotation, dtw_rotation
from likewise.ops.ground import at_least_float32, zero_padding
from likewise.ops.rules import Rules

ROTATION_NUMBERS = 1 << 24  # in the rotations of a chunk of all pairs


class DTWGlobalInvariance(Distance):
    """DTW under the best rotation of y: channels may be rotated, mirrored and mixed.

    The minimum, over paths and over P with orthonormal columns or rows, of the sum of ||x_i - P y_j||^2 over the path.
    The solver alternates from P = ``start``: DTW for a fixed P, then P from the singular vectors of the sum of x_i y_j'
    over the path, until the path does not change. This is a local minimum. x and y may differ in their numbers of
    channels.

    start: the first P, (Cx, Cy), orthonormal or not; by default the identity.
    max_iter: the maximum number of iterations. bias: use P y_j + b, where P is fitted about the mean frames, and b maps
        one mean to the other.
    band, itakura, open_begin, open_end, subsequence: as in ``DTW``.

    Values equal aeon's. A path may leave P open, as one through a single frame of y does: any of the best P is then
    taken. On convergence P is optimal for the path, so the derivative is that along the path with P
    fixed; with a bias this does not hold, and a derivative raises an error.
    Reference: Vayer, Tavenard, Chapel, Flamary, Courty & Soullard (2022).

    Example:
        >>> x = torch.tensor([[[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]]])
        >>> DTWGlobalInvariance()(x, x @ torch.tensor([[0.8, -0.6], [0.6, 0.8]])).round(decimals=3)
        tensor([0.])
    """

    def __init__(
        self,
        *,
        start: Tensor | list[list[float]] | None = None,
        max_iter: int = 20,
        bias: bool = False,
        band: float | None = None,
        itakura: float | None = None,
        open_begin: bool = False,
        open_end: bool = False,
        subsequence: bool = False,
    ) -> None:
        super().__init__()
        self.start = None if start is None else _matrix(start)
        self.max_iter = _check.whole("DTWGlobalInvariance", "max_iter", max_iter)
        self.bias = bool(bias)
        self.rules = Rules.of(
            self.name, band=band, itakura=itakura, open_begin=open_begin, open_end=open_end, subsequence=subsequence
        )

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        a, b = self._frames(x, y, x_lengths, y_lengths)
        fit = self._fit(a, b, x_lengths, y_lengths)
        if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
            if self.bias:
                raise NotImplementedError("DTWGlobalInvariance: no derivative with bias=True; use bias=False")
            if not bool(fit.converged.all()):
                raise NotImplementedError(
                    f"DTWGlobalInvariance: pair {int(fit.converged.long().argmin())} did not converge in "
                    f"{self.max_iter} iterations, and has no derivative; raise max_iter"
                )
            along = dtw(a, fit.turn(b), x_lengths, y_lengths, rules=self.rules)
            # The value's last digit does not depend on whether its derivative is wanted.
            return _check.fits(self.name, fit.values + (along - along.detach()), x.dtype)
        return _check.fits(self.name, fit.values, x.dtype)

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M) of padded sequences."""
        other, other_lengths = (x, x_lengths) if y is None else (y, y_lengths)
        if torch.is_grad_enabled() and (x.requires_grad or other.requires_grad):
            return super().all_pairs(x, y, x_lengths, y_lengths)
        a, b = self._frames(x, other, x_lengths, other_lengths)
        rows = max(1, ROTATION_NUMBERS // max(1, len(b) * a.shape[2] * b.shape[2]))
        found = [x.new_empty(0, len(b), dtype=a.dtype)]
        for first in range(0, len(a), rows):
            part = slice(first, first + rows)
            lengths = None if x_lengths is None else x_lengths[part]
            found.append(self._fit(a[part], b, lengths, other_lengths, all_pairs=True).values.reshape(-1, len(b)))
        return _check.fits(self.name, torch.cat(found), x.dtype)

    def rotation(self, x: Sequences, y: Sequences) -> Tensor:
        """P (B, Cx, Cy) of every pair: y's frames are rotated to P y_j."""
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        a, b = self._frames(x.detach(), y.detach(), x_lengths, y_lengths)
        return self._fit(a, b, x_lengths, y_lengths).rotation

    def align(self, x: Sequences, y: Sequences) -> PathAlignment:
        """The path of every pair."""
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)

        def find() -> tuple[Tensor, Tensor]:
            a, b = self._frames(x.detach(), y.detach(), x_lengths, y_lengths)
            turned = self._fit(a, b, x_lengths, y_lengths).turn(b)
            return dtw_path(a, turned, x_lengths, y_lengths, rules=self.rules)

        return PathAlignment(
            lambda: self.paired(x, y, x_lengths, y_lengths),
            find,
            x,
            y,
            lambda: full_lengths(x, x_lengths),
            lambda: full_lengths(y, y_lengths),
        )

    def config(self) -> dict[str, object]:
        """The constructor's arguments."""
        return {"start": self.start, "max_iter": self.max_iter, "bias": self.bias, **self.rules.settings()}

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(**self.config())

    def _frames(
        self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        _check.finite(self.name, "x", x, x_lengths)
        _check.finite(self.name, "y", y, y_lengths)
        return zero_padding(at_least_float32(x), x_lengths), zero_padding(at_least_float32(y), y_lengths)

    def _fit(
        self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None, *, all_pairs: bool = False
    ) -> Rotation:
        start = None if self.start is None else x.new_tensor(self.start)
        channels = x.shape[2], y.shape[2]
        if start is not None and start.shape != channels:
            shape = tuple(start.shape)
            _check.refuse(
                self.name, f"start has shape {shape}, but x and y have {channels[0]} and {channels[1]} channels"
            )
        options = {"max_iter": self.max_iter, "bias": self.bias, "rules": self.rules, "all_pairs": all_pairs}
        return dtw_rotation(x, y, x_lengths, y_lengths, start=start, **options)

    def _pair(self, x: Sequences, y: Sequences, *, paired: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        x_values, x_lengths = as_sequences(self.name, "x", x)
        y_values, y_lengths = (x_values, x_lengths) if y is x else as_sequences(self.name, "y", y)
        # The numbers of channels may differ.
        _check.agree(self.name, x_values[..., :1], y_values[..., :1], paired=paired)
        return x_values, y_values, x_lengths, y_lengths


def _matrix(start: Tensor | list[list[float]]) -> list[list[float]]:
    """Start as nested lists, which a saved distance can hold."""
    found = torch.as_tensor(start, dtype=torch.float64)
    if found.ndim != 2 or not found.numel() or not found.isfinite().all():
        _check.refuse("DTWGlobalInvariance", f"start must be a matrix (Cx, Cy) of finite numbers, got {start}")
    return found.tolist()
