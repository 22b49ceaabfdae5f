"""Edit distance on real sequences."""

import torch
from torch import Tensor

from likewise import _check
from likewise.distances.distance import full_lengths
from likewise.distances.elastic import Elastic
from likewise.distances.reach import in_units_of_reach
from likewise.ops.elastic import Border, Moves, Recurrence, Side
from likewise.ops.ground import power_of_two
from likewise.ops.rules import Rules


class EDR(Elastic):
    """Edit distance on real sequences: the share of frames to change, insert or delete until all match.

    D(i, j) = min(D(i-1, j-1) + (0 if ||x_i - y_j|| < epsilon else 1), D(i-1, j) + 1, D(i, j-1) + 1), with
    D(i, -1) = i + 1 and D(-1, j) = j + 1; the value is divided by the longer length, or with open ends by that of x.

    epsilon: frames that are closer match; None means a quarter of the larger standard deviation of the pair, over all
        its steps and channels.
    free_start: D(i, -1) = D(-1, j) = 0, so that leaving out the beginning of one sequence costs nothing.
    band, itakura, open_begin, open_end, subsequence: as in ``DTW``. What lies before or after the stretch of y that
        x is matched to is left out for nothing.

    free_start=True gives aeon's values, whose borders are zeros. The default follows the paper: a distance that
    ignores how sequences begin is 0 between many that differ. No derivative: it is zero almost everywhere, and asking
    for it raises an error. Reference: Chen, Ozsu & Oria (2005).

    Example:
        >>> EDR(epsilon=0.5)([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([0.3333])
    """

    open_ends = True

    def __init__(
        self,
        epsilon: float | None = None,
        *,
        free_start: bool = False,
        band: float | None = None,
        itakura: float | None = None,
        open_begin: bool = False,
        open_end: bool = False,
        subsequence: bool = False,
    ) -> None:
        super().__init__(
            Rules.of(
                "EDR", band=band, itakura=itakura, open_begin=open_begin, open_end=open_end, subsequence=subsequence
            )
        )
        self.epsilon = None if epsilon is None else _check.not_negative("EDR", "epsilon", epsilon)
        self.free_start = bool(free_start)

    def moves(self) -> Moves:
        """A change costs 1, and so does a gap."""
        border = Border.FREE if self.free_start else Border.GAPS
        return Moves(Recurrence.COUNT, root=True, border=border, hit=0.0, miss=1.0)

    def side(self, x: Tensor, lengths: Tensor | None) -> Side:
        """Gaps of 1."""
        if self.epsilon is None:
            reach = _deviation(x.detach(), full_lengths(x, lengths)) / 4
        else:
            reach = x.new_full((len(x),), self.epsilon)
        return Side(x, lengths, gaps=torch.ones_like(x[..., 0]), reach=reach)

    def sides(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> tuple[Side, Side]:
        """Both sides of padded sequences, checked, in units in which no square overflows."""
        return in_units_of_reach(*super().sides(x, y, x_lengths, y_lengths))

    def scale(self, x_lengths: Tensor, y_lengths: Tensor) -> tuple[float, Tensor]:
        """A share of the longer length, or of all of x, which is always matched."""
        whole = not (self.rules.open_begin or self.rules.open_end)
        longest = torch.maximum(x_lengths, y_lengths) if whole else x_lengths + 0 * y_lengths
        return 0.0, 1 / longest.double()

    def settings(self) -> dict[str, object]:
        """The constructor's arguments but those of the rules."""
        return {"epsilon": self.epsilon, "free_start": self.free_start}


def _deviation(x: Tensor, lengths: Tensor) -> Tensor:
    """Standard deviation (B,) over the real steps and the channels of (B, T, C), whose padding is zero."""
    if not len(x):
        return x.sum((1, 2))
    unit = power_of_two(x.abs().amax((1, 2)))  # squares of huge or tiny numbers would be lost
    x = x / unit[:, None, None]
    count = (lengths * x.shape[2]).to(x.dtype)
    mean = x.sum((1, 2)) / count
    real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    return ((x - mean[:, None, None]).square().sum(2) * real).sum(1).div(count).sqrt() * unit
