"""Longest common subsequence."""

import math

import torch
from torch import Tensor

from likewise import _check
from likewise.distances.elastic import Elastic
from likewise.distances.reach import in_units_of_reach
from likewise.ops.elastic import Border, Moves, Recurrence, Side
from likewise.ops.rules import Rules


class LCSS(Elastic):
    """Longest common subsequence: 1 - (frames that match in order) / (length of the shorter sequence).

    D(i, j) = min(D(i-1, j-1) - (1 if ||x_i - y_j|| <= epsilon else 0), D(i-1, j), D(i, j-1)), and the distance is
    1 + D(n-1, m-1) / min(n, m).

    epsilon: frames that are at most as far apart match.
    band, itakura: as in ``DTW``. There are no open ends: leaving out frames is free anywhere, so they change nothing.

    Values equal aeon's and tsdistances', but with a band of 0, where aeon begins to count again after every mismatch.
    No derivative: it is zero almost everywhere, and asking for it raises an error.
    Reference: Vlachos, Kollios & Gunopulos (2002).

    Example:
        >>> LCSS(epsilon=0.5)([[0.0, 1.0, 2.0, 5.0]], [[0.0, 2.0]])
        tensor([0.])
    """

    def __init__(self, epsilon: float = 1.0, *, band: float | None = None, itakura: float | None = None) -> None:
        super().__init__(Rules.of("LCSS", band=band, itakura=itakura))
        self.epsilon = _check.not_negative("LCSS", "epsilon", epsilon)

    def moves(self) -> Moves:
        """A match counts 1; leaving out frames is free."""
        return Moves(Recurrence.COUNT, root=True, border=Border.GAPS, hit=-1.0, miss=0.0)

    def side(self, x: Tensor, lengths: Tensor | None) -> Side:
        """Gaps of 0. The engine's test is <, so that epsilon itself is within reach of the next number."""
        reach = torch.nextafter(x.new_tensor(self.epsilon), x.new_tensor(math.inf))
        return Side(x, lengths, gaps=torch.zeros_like(x[..., 0]), reach=reach.expand(len(x)))

    def sides(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> tuple[Side, Side]:
        """Both sides of padded sequences, checked, in units in which no square overflows."""
        return in_units_of_reach(*super().sides(x, y, x_lengths, y_lengths))

    def scale(self, x_lengths: Tensor, y_lengths: Tensor) -> tuple[float, Tensor]:
        """1 + D / min(n, m)."""
        return 1.0, 1 / torch.minimum(x_lengths, y_lengths).double()

    def settings(self) -> dict[str, object]:
        """The constructor's arguments but those of the rules."""
        return {"epsilon": self.epsilon}
