"""Shape dynamic time warping."""

import torch
from torch import Tensor

from likewise import _check
from likewise.distances.distance import full_lengths
from likewise.distances.elastic import Elastic
from likewise.ops.elastic import Moves, Recurrence, Side
from likewise.ops.rules import Rules

NUMBERS = 1 << 24  # in the windows of a block: they take (2 reach + 1) times the memory of their sequences


class ShapeDTW(Elastic):
    """Shape DTW: frames are matched by DTW of their neighbourhoods, but compared without them.

    The path is that of DTW on the windows (x_{i-reach}, ..., x_{i+reach}), padded with the end frames; the value is the
    sum of ||x_i - y_j||^2 over that path.

    reach: the number of steps to either side of a frame.
    band, itakura, open_begin, open_end, subsequence: as in ``DTW``.

    Values equal aeon's with its "identity" descriptor, except where a path begins along the first row or column: there
    aeon reads the other end of its table, and its values are not the costs of its own paths. The value is not the
    minimum of any recurrence: its derivative is that of the costs along the path. The last digit of a cost may change
    the path, and with it the value, so everything is computed in float64. Reference: Zhao & Itti (2018).

    Example:
        >>> ShapeDTW(reach=1)([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([1.])
    """

    open_ends = True

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
        super().__init__(
            Rules.of(
                "ShapeDTW",
                band=band,
                itakura=itakura,
                open_begin=open_begin,
                open_end=open_end,
                subsequence=subsequence,
            )
        )
        self.reach = _check.whole("ShapeDTW", "reach", reach, least=0)

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M) of padded sequences, by blocks of items; for x with itself, those above the diagonal."""
        mirrored = y is None and self.symmetric
        other, other_lengths = (x, x_lengths) if y is None else (y, y_lengths)
        steps = max(x.shape[1], other.shape[1])
        items = max(1, NUMBERS // max(1, steps * x.shape[2] * (2 * self.reach + 1)))  # of x and of y in a block
        if max(len(x), len(other)) <= items:
            return super().all_pairs(x, y, x_lengths, y_lengths)
        rows = []
        for i in range(0, len(x), items):
            found = []
            for j in range(0, len(other), items):
                a, b = slice(i, i + items), slice(j, j + items)
                if mirrored and j < i:
                    found.append(x.new_zeros(len(x[a]), len(other[b])))
                    continue
                lengths = [
                    None if given is None else given[part] for given, part in ((x_lengths, a), (other_lengths, b))
                ]
                found.append(super().all_pairs(x[a], None if mirrored and i == j else other[b], *lengths))
            rows.append(torch.cat(found, 1))
        whole = torch.cat(rows)
        return whole.triu() + whole.triu(1).T if mirrored else whole

    def moves(self) -> Moves:
        """DTW of the windows; the costs of their middles add up."""
        return Moves(Recurrence.FOLLOW, parts=2 * self.reach + 1)

    def side(self, x: Tensor, lengths: Tensor | None) -> Side:
        """Windows (B, T, (2 reach + 1) C) around every frame, padded with the end frames."""
        offsets = torch.arange(-self.reach, self.reach + 1, device=x.device)
        step = (torch.arange(x.shape[1], device=x.device)[:, None] + offsets).clamp(min=0)  # (T, 2 reach + 1)
        last = full_lengths(x, lengths)[:, None, None] - 1
        item = torch.arange(len(x), device=x.device)[:, None, None]
        return Side(x.double()[item, torch.minimum(step, last)].flatten(2), lengths)

    def settings(self) -> dict[str, object]:
        """The constructor's arguments, except those of the rules."""
        return {"reach": self.reach}
