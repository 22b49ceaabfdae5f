"""Time warp edit distance."""

from torch import Tensor

from likewise import _check
from likewise.distances.elastic import Elastic, jumps
from likewise.ops.elastic import Moves, Recurrence, Side
from likewise.ops.rules import Rules


class TWE(Elastic):
    """Time warp edit distance: frames are matched in consecutive pairs or left out, and distance in time costs.

    D(i, j) = min(D(i-1, j-1) + |x_i - y_j| + |x_{i-1} - y_{j-1}| + 2 stiffness |i - j|,
                  D(i-1, j) + |x_i - x_{i-1}| + stiffness + penalty,
                  D(i, j-1) + |y_j - y_{j-1}| + stiffness + penalty), with zero frames before the first.

    stiffness: nu of the paper, the cost of one step between times. penalty: its lambda, the cost of leaving out a
        frame.
    band, itakura: as in ``DTW``. There are no open ends: the stiffness compares times since the beginning of both
        sequences. Several channels: |.| is the Euclidean norm.

    This is a metric. Values equal aeon's and tsdistances'. Reference: Marteau (2009).

    Example:
        >>> TWE(stiffness=0.5, penalty=1.0)([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([3.5000])
    """

    metric = True

    def __init__(
        self,
        stiffness: float = 0.001,
        penalty: float = 1.0,
        *,
        band: float | None = None,
        itakura: float | None = None,
    ) -> None:
        super().__init__(Rules.of("TWE", band=band, itakura=itakura))
        self.stiffness = _check.not_negative("TWE", "stiffness", stiffness)
        self.penalty = _check.not_negative("TWE", "penalty", penalty)

    def moves(self) -> Moves:
        """A match also costs the distance between the previous frames (CARRY)."""
        return Moves(Recurrence.CARRY, root=True, slope=2 * self.stiffness)

    def side(self, x: Tensor, lengths: Tensor | None) -> Side:
        """Gaps of a jump, the stiffness and the penalty."""
        return Side(x, lengths, gaps=jumps(x) + (self.stiffness + self.penalty))

    def settings(self) -> dict[str, object]:
        """The constructor's arguments, except those of the rules."""
        return {"stiffness": self.stiffness, "penalty": self.penalty}
