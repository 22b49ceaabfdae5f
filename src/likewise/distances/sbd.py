"""Shape-based distance."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from likewise import _check
from likewise.distances.alignment import PathAlignment
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.ops.ground import at_least_float32, power_of_two, zero_padding

CHUNK = 1 << 19, 1 << 25  # numbers of a chunk of correlations, on the CPU (for its caches) and on a GPU


class SBD(Distance):
    """Shape-based distance: 1 - the largest normalised cross-correlation over all shifts.

    1 - max_s sum_i x_i y_{i-s} / (||x|| ||y||), from 0 for the same shape to 2, computed with the FFT.

    standardize: subtract each channel's mean and divide by its standard deviation first.
    independent: with several channels, the mean of the channels' distances, each with its own shift. False sums the
        correlations of all channels, which then share one shift, as in k-shape.

    A sequence whose norm is 0 (with standardize, a constant one) has distance 1 from every other, and 0 from another
    such. The same applies to sequences that are too small for a finite derivative, 2e-31 in float32.
    Values equal aeon's, and tslearn's with independent=False, standardize=False. The derivative is that at the best
    shift. Reference: Paparrizos & Gravano (2015).

    Example:
        >>> SBD()([[0.0, 1.0, 2.0, 0.0, 0.0]], [[0.0, 0.0, 0.0, 1.0, 2.0]]).round(decimals=2)
        tensor([0.2300])
    """

    symmetric = True

    def __init__(self, *, standardize: bool = True, independent: bool = True) -> None:
        super().__init__()
        self.standardize = bool(standardize)
        self.independent = self.separate = bool(independent)

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        a, b = self._normalized("x", x, x_lengths), self._normalized("y", y, y_lengths)
        if not len(x):
            return x.sum((1, 2))
        n, m = full_lengths(x, x_lengths), full_lengths(y, y_lengths)
        best = self._correlations(*self._spectra(a, b), n, m).amax(-1)  # (B, C or 1)
        value = _distance(best, _zero(a, self.independent), _zero(b, self.independent))
        return _check.finite_values(self.name, value.to(x.dtype))

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M) of padded sequences."""
        a = self._normalized("x", x, x_lengths)
        b = a if y is None else self._normalized("y", y, y_lengths)
        if not len(a) or not len(b):
            return x.new_zeros(len(a), len(b))
        n = full_lengths(a, x_lengths)
        m = n if y is None else full_lengths(b, y_lengths)
        fa, fb = self._spectra(a, b)
        zero_a, zero_b = _zero(a, self.independent), _zero(b, self.independent)
        rows = max(1, CHUNK[a.is_cuda] // max(1, 2 * len(b) * fa.shape[1] * fa.shape[2]))
        found = []
        for i in range(0, len(a), rows):
            some, first = slice(i, i + rows), i if y is None else 0  # x with itself: above the diagonal
            best = self._correlations(fa[some, None], fb[None, first:], n[some, None], m[first:]).amax(-1)
            found.append(pad(_distance(best, zero_a[some, None], zero_b[None, first:]), (first, 0)))
        whole = torch.cat(found)
        if y is None:
            whole = whole.triu() + whole.triu(1).T
        return _check.finite_values(self.name, whole.to(x.dtype))

    def shift(self, x: Sequences, y: Sequences) -> Tensor:
        """The best shift of every pair, (B,) int64, or (B, C) if independent: y_j is matched with x_{j + shift}.

        Example:
            >>> SBD(independent=False).shift([[0.0, 1.0, 2.0, 0.0, 0.0]], [[0.0, 0.0, 0.0, 1.0, 2.0]])
            tensor([-2])
        """
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        best = self._shifts(x.detach(), y.detach(), x_lengths, y_lengths)
        return best if self.independent else best[:, 0]

    def align(self, x: Sequences, y: Sequences) -> PathAlignment:
        """Match the frames that coincide at the best shift."""
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        if self.independent and x.shape[2] > 1:
            _check.refuse(
                "SBD", "each channel has its own shift; align one channel, or use independent=False for one shift"
            )

        def find() -> tuple[Tensor, Tensor]:
            shift = self._shifts(x.detach(), y.detach(), x_lengths, y_lengths)
            n, m = full_lengths(x, x_lengths)[:, None], full_lengths(y, y_lengths)[:, None]
            first = shift.clamp(min=0)
            steps = torch.minimum(n, m + shift) - first
            k = torch.arange(max(0, x.shape[1] + y.shape[1] - 1), device=x.device)
            path = torch.stack([first + k, first - shift + k], -1)
            return path.masked_fill((k >= steps)[..., None], -1), steps[:, 0]

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
        return {"standardize": self.standardize, "independent": self.independent}

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(("standardize", "independent"), **self.config())

    def _shifts(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        a, b = self._normalized("x", x, x_lengths), self._normalized("y", y, y_lengths)
        n, m = full_lengths(x, x_lengths), full_lengths(y, y_lengths)
        if not len(x):
            return n.new_zeros(0, 1)
        correlations = self._correlations(*self._spectra(a, b), n, m)  # (B, C or 1, size)
        best = correlations.argmax(-1)
        return torch.where(best < a.shape[1], best, best - correlations.shape[-1])

    def _normalized(self, name: str, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Sequences of norm 1, or 0, with zeros as padding."""
        _check.finite(self.name, name, x, lengths)
        if lengths is not None and len(x):  # the size of the FFT, and so its rounding, must not depend on padding
            x = x[:, : int(lengths.max())]
        x = zero_padding(at_least_float32(x), lengths)
        over = (1,) if self.independent else (1, 2)
        if not len(x):
            return x
        # In units of its largest number: squares of huge or tiny numbers would be lost.
        size = x.detach().abs().amax(1 if self.standardize else over, keepdim=True)
        unit = power_of_two(size)
        x, size = x / unit, size / unit
        least = torch.finfo(x.dtype).tiny * 2**24 / unit  # the derivative is inversely proportional to what varies
        if self.standardize:
            count = full_lengths(x, lengths).to(x.dtype)[:, None, None]
            centred = zero_padding(x - x.sum(1, keepdim=True) / count, lengths)
            # Only rounding errors are left of a constant sequence.
            least = torch.maximum(least, size * 8 * torch.finfo(x.dtype).eps)
            varies = centred.detach().abs().amax(1, keepdim=True) > least
            variance = centred.square().sum(1, keepdim=True) / count
            x = centred * varies / torch.where(varies, variance, 1).sqrt()
        else:
            x = x * (size > least)
        squared = x.square().sum(over, keepdim=True)
        return x / torch.where(squared > 0, squared, 1).sqrt()

    def _spectra(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Spectra (B, C, F) of all channels; those of b are conjugated."""
        size = fast_size(a.shape[1] + b.shape[1])
        fa = torch.fft.rfft(a.transpose(1, 2), size)
        fb = fa if b is a else torch.fft.rfft(b.transpose(1, 2), size)
        return fa, fb.conj().resolve_conj()

    def _correlations(self, fa: Tensor, fb: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """Cross-correlations (..., C or 1, size), that of shift s at s modulo size; -infinity without an overlap."""
        product = fa * fb
        if not self.independent:
            product = product.sum(-2, keepdim=True)
        size = 2 * (fa.shape[-1] - 1)
        found = torch.fft.irfft(product, size)
        if self.standardize:  # the correlations add up to 0, so the largest one has an overlap
            return found
        s = torch.arange(size, device=found.device)
        apart = (s >= n[..., None]) & (s <= size - m[..., None])
        return found.masked_fill(apart[..., None, :], -torch.inf)


def _distance(best: Tensor, x_zero: Tensor, y_zero: Tensor) -> Tensor:
    """1 - the best correlation, 0 between two sequences of norm 0; the mean over channels."""
    return torch.where(x_zero & y_zero, 0.0, (1 - best).clamp(min=0)).mean(-1)


def _zero(x: Tensor, independent: bool) -> Tensor:
    found = (x.detach() == 0).all(1)
    return found if independent else found.all(1, keepdim=True)


def fast_size(size: int) -> int:
    """The next power of two, at least 2."""
    return max(2, 1 << max(0, size - 1).bit_length())
