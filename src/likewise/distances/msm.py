"""Move-split-merge."""

import torch
from torch import Tensor

from likewise import _check
from likewise.data.batch import Batch
from likewise.distances.alignment import PathAlignment
from likewise.distances.distance import Sequences
from likewise.distances.elastic import Elastic, jumps
from likewise.ops.elastic import Moves, Recurrence, Side
from likewise.ops.rules import Rules


class MSM(Elastic):
    """Move-split-merge: the cost of turning x into y by moving, splitting and merging values.

    D(i, j) = min(D(i-1, j-1) + |x_i - y_j|, D(i-1, j) + C(x_i, x_{i-1}, y_j), D(i, j-1) + C(y_j, y_{j-1}, x_i)), where
    C(a, b, d) is the cost if a lies between b and d, else cost + min(|a - b|, |a - d|).

    cost: of a split or a merge, positive.
    independent: with several channels, the sum of the channels' distances, each with a path of its own. False moves
        frames as a whole: distances between frames are squared, and "between" means in the ball between two frames.
    band, itakura: as in ``DTW``. subsequence: all of x is matched to a stretch of y.

    A metric. Values equal aeon's; tsdistances' are those of cost 1. The dependent form follows aeon (Shifaz et al.,
    2023), with squares, and is no metric. The engine uses that C = cost + (|a - b| + |a - d| - |b - d|) / 2.
    Reference: Stefan, Athitsos & Das (2013).

    Example:
        >>> MSM(cost=0.5)([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([1.5000])
    """

    metric = True

    def __init__(
        self,
        cost: float = 1.0,
        *,
        independent: bool = True,
        band: float | None = None,
        itakura: float | None = None,
        subsequence: bool = False,
    ) -> None:
        super().__init__(Rules.of("MSM", band=band, itakura=itakura, subsequence=subsequence))
        self.cost = _check.positive("MSM", "cost", cost)
        self.independent = bool(independent)
        self.metric = self.metric and self.independent

    def moves(self) -> Moves:
        """Halves of the costs are carried along, where every frame is taken by itself."""
        if self.independent:
            return Moves(Recurrence.CARRY, root=True, last_cost=True)
        return Moves(Recurrence.BALL, penalty=self.cost)

    def side(self, x: Tensor, lengths: Tensor | None) -> Side:
        """Half the values, and gaps of half a jump."""
        if self.independent:
            return Side(x / 2, lengths, gaps=self.cost + jumps(x) / 2)
        return Side(x, lengths, gaps=x.diff(dim=1, prepend=x[:, :1]).square().sum(-1))

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        channels = _channels(x, y) if self.independent else [(x, y)]
        found = [super(MSM, self).paired(a, b, x_lengths, y_lengths) for a, b in channels]
        return torch.stack(found).sum(0)

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M) of padded sequences."""
        channels = _channels(x, x if y is None else y) if self.independent else [(x, x if y is None else y)]
        found = [super(MSM, self).all_pairs(a, None if y is None else b, x_lengths, y_lengths) for a, b in channels]
        return torch.stack(found).sum(0)

    def some_pairs(self, x: Sequences, y: Sequences, pairs: Tensor, limits: Tensor | None = None) -> Tensor:
        """Distances (K,) of listed pairs; what a channel comes to lowers the limits of the next."""
        x_values, y_values, x_lengths, y_lengths = self._pair(x, y, paired=False)
        total = x_values.new_zeros(len(pairs))
        for a, b in _channels(x_values, y_values) if self.independent else [(x_values, y_values)]:
            sides = Batch(a, x_lengths), Batch(b, y_lengths)
            total = total + super().some_pairs(*sides, pairs, None if limits is None else limits - total)
        return total

    def align(self, x: Sequences, y: Sequences) -> PathAlignment:
        """The optimal path of every pair."""
        if self.independent and self._pair(x, y, paired=True)[0].shape[2] > 1:
            _check.refuse(
                "MSM", "each channel has a path of its own; align one channel, or use independent=False for one path"
            )
        return super().align(x, y)

    def settings(self) -> dict[str, object]:
        """The constructor's arguments but those of the rules."""
        return {"cost": self.cost, "independent": self.independent}

    def _rule_settings(self) -> dict[str, object]:
        return {**super()._rule_settings(), "subsequence": self.rules.open_begin}


def _channels(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(x[..., c : c + 1], y[..., c : c + 1]) for c in range(x.shape[2])]
