"""Shape dynamic time warping."""

import torch
from torch import Tensor

from likewise import _check
from likewise.distances.alignment import PathAlignment
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.ops.dtw import dtw_path
from likewise.ops.ground import at_least_float32, zero_padding
from likewise.ops.rules import Rules


class ShapeDTW(Distance):
    """Shape DTW: frames are matched by DTW of their neighbourhoods, and compared by themselves.

    The path is that of DTW on the windows (x_{i-reach}, ..., x_{i+reach}), whose ends are repeated; the value is the
    sum of ||x_i - y_j||^2 over that path.

    reach: steps to either side of a frame.
    band, itakura, open_begin, open_end, subsequence: as in ``DTW``.

    Values equal aeon's with its "identity" descriptor. The value is not the least of any recurrence: its derivative is
    that of the costs along the path. Reference: Zhao & Itti (2018).

    Example:
        >>> ShapeDTW(reach=1)([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([1.])
    """

    def __init__(
        self,
        reach: int = 15,
        *,
        band: float | None = None,
        itakura: float | None = None,
        open_begin: bool = False,
        open_end: bool = False,
        subsequence: bool = False,
    ) -> None:
        super().__init__()
        self.reach = _check.whole("ShapeDTW", "reach", reach, least=0)
        self.rules = Rules.of(
            "ShapeDTW", band=band, itakura=itakura, open_begin=open_begin, open_end=open_end, subsequence=subsequence
        )
        self.symmetric = self.rules.symmetric

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        paths, steps = self._paths(x.detach(), y.detach(), x_lengths, y_lengths)
        real = torch.arange(paths.shape[1], device=x.device) < steps[:, None]  # (B, K)
        i, j = paths.clamp(min=0).unbind(-1)
        a, b = (zero_padding(at_least_float32(s), lengths) for s, lengths in ((x, x_lengths), (y, y_lengths)))
        item = torch.arange(len(x), device=x.device)[:, None]
        value = ((a[item, i] - b[item, j]).square().sum(-1) * real).sum(1)
        return _check.finite_values(self.name, value.to(x.dtype))

    def align(self, x: Sequences, y: Sequences) -> PathAlignment:
        """The path of every pair."""
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        return PathAlignment(
            lambda: self.paired(x, y, x_lengths, y_lengths),
            lambda: self._paths(x.detach(), y.detach(), x_lengths, y_lengths),
            x,
            y,
            lambda: full_lengths(x, x_lengths),
            lambda: full_lengths(y, y_lengths),
        )

    def config(self) -> dict[str, object]:
        """The constructor's arguments."""
        return {"reach": self.reach, **self.rules.settings()}

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(**self.config())

    def _paths(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        _check.finite(self.name, "x", x, x_lengths)
        _check.finite(self.name, "y", y, y_lengths)
        return dtw_path(
            self._windows(x, x_lengths), self._windows(y, y_lengths), x_lengths, y_lengths, rules=self.rules
        )

    def _windows(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Windows (B, T, (2 reach + 1) C) around every frame, whose ends are repeated."""
        x = at_least_float32(x)
        offsets = torch.arange(-self.reach, self.reach + 1, device=x.device)
        step = (torch.arange(x.shape[1], device=x.device)[:, None] + offsets).clamp(min=0)  # (T, 2 reach + 1)
        last = full_lengths(x, lengths)[:, None, None] - 1
        item = torch.arange(len(x), device=x.device)[:, None, None]
        return x[item, torch.minimum(step, last)].flatten(2)
