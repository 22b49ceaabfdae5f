"""Dynamic time warping with global invariance."""

from dataclasses import dataclass

import torch
from torch import Tensor

from likewise import _check
from likewise.data.batch import as_sequences
from likewise.distances.alignment import PathAlignment
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.ops.dtw import dtw, dtw_moments, dtw_path
from likewise.ops.ground import at_least_float32, zero_padding
from likewise.ops.rules import Rules


@dataclass(frozen=True)
class _Fit:
    rotation: Tensor  # (B, Cx, Cy)
    offset: Tensor  # (B, 1, Cx)
    converged: Tensor  # (B,)


class DTWGlobalInvariance(Distance):
    """DTW under the best rotation of y: channels may be rotated, mirrored and mixed.

    The minimum, over paths and over P with orthonormal columns or rows, of the sum of ||x_i - P y_j||^2 over the path.
    The solver alternates from P = identity: DTW for a fixed P, then P from the singular vectors of the sum of x_i y_j'
    over the path, until the path does not change. This is a local minimum. x and y may differ in their numbers of
    channels.

    max_iter: the maximum number of iterations. bias: use P y_j + b, where P is fitted about the mean frames, and b maps
        one mean to the other.
    band, itakura, open_begin, open_end, subsequence: as in ``DTW``.

    Values equal aeon's. On convergence P is optimal for the path, so the derivative is that along the path with P
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
        max_iter: int = 20,
        bias: bool = False,
        band: float | None = None,
        itakura: float | None = None,
        open_begin: bool = False,
        open_end: bool = False,
        subsequence: bool = False,
    ) -> None:
        super().__init__()
        self.max_iter = _check.whole("DTWGlobalInvariance", "max_iter", max_iter)
        self.bias = bool(bias)
        self.rules = Rules.of(
            self.name, band=band, itakura=itakura, open_begin=open_begin, open_end=open_end, subsequence=subsequence
        )

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        a, b = self._frames(x, y, x_lengths, y_lengths)
        fit = self._fit(a.detach(), b.detach(), x_lengths, y_lengths)
        if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
            if self.bias:
                raise NotImplementedError("DTWGlobalInvariance: no derivative with bias=True; use bias=False")
            if not bool(fit.converged.all()):
                raise NotImplementedError(
                    f"DTWGlobalInvariance: pair {int(fit.converged.long().argmin())} did not converge in "
                    f"{self.max_iter} iterations, and has no derivative; raise max_iter"
                )
        return _check.fits(self.name, dtw(a, _turned(b, fit), x_lengths, y_lengths, rules=self.rules), x.dtype)

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
            turned = _turned(b, self._fit(a, b, x_lengths, y_lengths))
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
        return {"max_iter": self.max_iter, "bias": self.bias, **self.rules.settings()}

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(**self.config())

    def _frames(
        self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        _check.finite(self.name, "x", x, x_lengths)
        _check.finite(self.name, "y", y, y_lengths)
        return zero_padding(at_least_float32(x), x_lengths), zero_padding(at_least_float32(y), y_lengths)

    def _fit(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> _Fit:
        """P and b of every pair; converged pairs are not iterated further."""
        rotation = torch.eye(x.shape[2], y.shape[2], dtype=x.dtype, device=x.device).repeat(len(x), 1, 1)
        offset = x.new_zeros(len(x), 1, x.shape[2])
        converged = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        x_mean, y_mean = _mean(x, x_lengths), _mean(y, y_lengths)
        a, b = (x - x_mean, y - y_mean) if self.bias else (x, y)
        pairs = torch.arange(len(x), device=x.device)  # those that have not converged, of which are:
        frames, lengths, means = [x, y, a, b], [x_lengths, y_lengths], [x_mean, y_mean]
        before = None
        for _ in range(self.max_iter):
            x, y, a, b = frames
            # The sum of x_i y_j' over the path. Where it is the same as before, so is P, and the path.
            turned = y @ rotation[pairs].mT + offset[pairs]
            moment = dtw_moments(x, turned, a, b, *lengths, rules=self.rules)
            if before is not None and bool((stays := (moment == before).flatten(1).all(1)).any()):
                converged[pairs[stays]] = True
                pairs, moment = pairs[~stays], moment[~stays]
                frames, means = [t[~stays] for t in frames], [t[~stays] for t in means]
                lengths = [None if t is None else t[~stays.to(t.device)] for t in lengths]
            before = moment
            if not len(pairs):
                break
            u, _, vt = torch.linalg.svd(moment, full_matrices=False)
            rotation[pairs] = (u @ vt).to(x.dtype)
            if self.bias:
                offset[pairs] = means[0] - means[1] @ rotation[pairs].mT
        return _Fit(rotation, offset, converged)

    def _pair(self, x: Sequences, y: Sequences, *, paired: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        x_values, x_lengths = as_sequences(self.name, "x", x)
        y_values, y_lengths = (x_values, x_lengths) if y is x else as_sequences(self.name, "y", y)
        # The numbers of channels may differ.
        _check.agree(self.name, x_values[..., :1], y_values[..., :1], paired=paired)
        return x_values, y_values, x_lengths, y_lengths


def _turned(y: Tensor, fit: _Fit) -> Tensor:
    return y @ fit.rotation.mT + fit.offset


def _mean(x: Tensor, lengths: Tensor | None) -> Tensor:
    return x.sum(1, keepdim=True) / full_lengths(x, lengths).to(x.dtype)[:, None, None]
