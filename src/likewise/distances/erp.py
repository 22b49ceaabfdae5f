"""Edit distance with real penalty."""

import torch
from torch import Tensor

from likewise import _check
from likewise.distances.elastic import Elastic
from likewise.ops.elastic import Border, Moves, Recurrence, Side
from likewise.ops.rules import Rules


class ERP(Elastic):
    """Edit distance with real penalty: frames are matched, or left out at their distance from a reference value.

    D(i, j) = min(D(i-1, j-1) + |x_i - y_j|, D(i-1, j) + |x_i - gap|, D(i, j-1) + |y_j - gap|), with
    D(i, -1) = sum of |x_k - gap| over k <= i, and D(-1, j) alike.

    gap: the reference value g, a number or one number for each channel.
    band, itakura, open_begin, open_end, subsequence: as in ``DTW``. Leaving out the frames of y
        before and after the matched stretch costs nothing.

    For several channels, |.| is the Euclidean norm. This is a metric. aeon and tsdistances charge the sum over the
    entire sequence in every border cell, where the paper charges the sum so far: their values are larger if the best
    path begins with gaps, and equal otherwise. We follow the paper. Reference: Chen & Ng (2004).

    Example:
        >>> ERP()([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([1.])
    """

    metric, open_ends = True, True

    def __init__(
        self,
        gap: float | list[float] = 0.0,
        *,
        band: float | None = None,
        itakura: float | None = None,
        open_begin: bool = False,
        open_end: bool = False,
        subsequence: bool = False,
    ) -> None:
        super().__init__(
            Rules.of(
                "ERP", band=band, itakura=itakura, open_begin=open_begin, open_end=open_end, subsequence=subsequence
            )
        )
        values = gap if isinstance(gap, (list, tuple)) else [gap]
        for value in values:
            if not abs(_check.number("ERP", "gap", value)) < float("inf"):
                _check.refuse("ERP", f"gap must be finite, got {gap}")
        self.gap = [float(value) for value in values] if isinstance(gap, (list, tuple)) else float(gap)

    def moves(self) -> Moves:
        """Edit moves, with gaps along the borders too."""
        return Moves(Recurrence.EDIT, root=True, border=Border.GAPS)

    def side(self, x: Tensor, lengths: Tensor | None) -> Side:
        """Gaps are distances from the reference."""
        if isinstance(self.gap, list) and len(self.gap) != x.shape[2]:
            _check.refuse("ERP", f"gap has {len(self.gap)} values, but the sequences have {x.shape[2]} channels")
        squared = (x - x.new_tensor(self.gap)).square().sum(-1)
        return Side(x, lengths, gaps=torch.where(squared > 0, squared, 1).sqrt() * (squared > 0))

    def settings(self) -> dict[str, object]:
        """The constructor's arguments, except those of the rules."""
        return {"gap": self.gap}
