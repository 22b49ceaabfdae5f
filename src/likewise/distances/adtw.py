"""Amerced dynamic time warping."""

from torch import Tensor

from likewise import _check
from likewise.distances.elastic import Elastic
from likewise.ops.elastic import Moves, Recurrence, Side
from likewise.ops.rules import Rules


class ADTW(Elastic):
    """Amerced DTW: every step of the path off the diagonal costs a penalty.

    D(i, j) = c(i, j) + min(D(i-1, j-1), D(i-1, j) + penalty, D(i, j-1) + penalty), c(i, j) = ||x_i - y_j||^2.

    penalty: omega of the paper. 0 is DTW; for sequences of equal length, a large one is the squared Euclidean distance.
    band, itakura, open_begin, open_end, subsequence: as in ``DTW``.

    Values equal aeon's and tsdistances'. Reference: Herrmann & Webb (2023).

    Example:
        >>> ADTW(penalty=0.5)([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([1.5000])
    """

    open_ends = True

    def __init__(
        self,
        penalty: float = 1.0,
        *,
        band: float | None = None,
        itakura: float | None = None,
        open_begin: bool = False,
        open_end: bool = False,
        subsequence: bool = False,
    ) -> None:
        super().__init__(
            Rules.of(
                "ADTW", band=band, itakura=itakura, open_begin=open_begin, open_end=open_end, subsequence=subsequence
            )
        )
        self.penalty = _check.not_negative("ADTW", "penalty", penalty)

    def moves(self) -> Moves:
        """DTW with a penalty."""
        return Moves(Recurrence.WARP, penalty=self.penalty)

    def side(self, x: Tensor, lengths: Tensor | None) -> Side:
        """The frames as they are."""
        return Side(x, lengths)

    def settings(self) -> dict[str, object]:
        """The constructor's arguments, except those of the rules."""
        return {"penalty": self.penalty}
