"""Move-split-merge."""

from torch import Tensor

from likewise import _check
from likewise.distances.elastic import Elastic, jumps
from likewise.ops.elastic import Moves, Recurrence, Side
from likewise.ops.rules import Rules


class MSM(Elastic):
    """Move-split-merge: the cost of turning x into y by moving, splitting and merging values.

    D(i, j) = min(D(i-1, j-1) + |x_i - y_j|, D(i-1, j) + C(x_i, x_{i-1}, y_j), D(i, j-1) + C(y_j, y_{j-1}, x_i)), where
    C(a, b, d) is the cost if a lies between b and d, else cost + min(|a - b|, |a - d|).

    cost: the cost of a split or a merge, positive.
    independent: with several channels, the sum of the channels' distances, each with its own path. False moves entire
        frames: distances between frames are squared, and "between" means in the ball between two frames.
    band, itakura, open_begin, open_end, subsequence: as in ``DTW``.

    This is a metric. Values equal aeon's; tsdistances' are those of cost 1. The dependent form follows aeon (Shifaz et
    al., 2023), with squares, and is not a metric. The engine uses the identity C = cost + (|a - b| + |a - d| - |b - d|)
    / 2.
    Reference: Stefan, Athitsos & Das (2013).

    Example:
        >>> MSM(cost=0.5)([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([1.5000])
    """

    metric, open_ends = True, True

    def __init__(
        self,
        cost: float = 1.0,
        *,
        independent: bool = True,
        band: float | None = None,
        itakura: float | None = None,
        open_begin: bool = False,
        open_end: bool = False,
        subsequence: bool = False,
    ) -> None:
        super().__init__(
            Rules.of(
                "MSM", band=band, itakura=itakura, open_begin=open_begin, open_end=open_end, subsequence=subsequence
            )
        )
        self.cost = _check.positive("MSM", "cost", cost)
        self.independent = bool(independent)
        self.metric = self.metric and self.independent
        self.separate = self.independent

    def moves(self) -> Moves:
        """With independent channels, halved costs are carried to the next match (CARRY)."""
        if self.independent:
            return Moves(Recurrence.CARRY, root=True, last_cost=True)
        return Moves(Recurrence.BALL, penalty=self.cost)

    def side(self, x: Tensor, lengths: Tensor | None) -> Side:
        """Half the values, with gaps of half a jump; for entire frames, the values and squared jumps."""
        if self.independent:
            return Side(x / 2, lengths, gaps=self.cost + jumps(x) / 2)
        return Side(x, lengths, gaps=x.diff(dim=1, prepend=x[:, :1]).square().sum(-1))

    def settings(self) -> dict[str, object]:
        """The constructor's arguments, except those of the rules."""
        return {"cost": self.cost, "independent": self.independent}
