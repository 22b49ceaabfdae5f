"""Derivative dynamic time warping, plain and weighted."""

from torch import Tensor

from likewise.distances.elastic import Elastic
from likewise.distances.wdtw import WDTW
from likewise.ops.elastic import Moves, Recurrence, Side
from likewise.ops.rules import Rules


def slopes(x: Tensor) -> Tensor:
    """Derivatives (B, T - 2, C) of (B, T, C): ((x_i - x_{i-1}) + (x_{i+1} - x_{i-1}) / 2) / 2.

    Example:
        >>> import torch
        >>> slopes(torch.tensor([[[0.0], [1.0], [4.0]]]))
        tensor([[[1.5000]]])
    """
    return ((x[:, 1:-1] - x[:, :-2]) + (x[:, 2:] - x[:, :-2]) / 2) / 2


def slope_side(x: Tensor, lengths: Tensor | None) -> Side:
    """The derivatives as frames; there are two fewer than in x."""
    return Side(slopes(x), None if lengths is None else lengths - 2)


class DDTW(Elastic):
    """Derivative DTW: DTW of the slopes x'_i = ((x_i - x_{i-1}) + (x_{i+1} - x_{i-1}) / 2) / 2.

    Adding a constant to a sequence changes nothing. Every sequence needs at least 3 steps; the first and the last have
    no slope, so the path leaves them out.

    band, itakura, open_begin, open_end, subsequence: as in ``DTW``, of the slopes.

    Values equal aeon's and tsdistances'. Reference: Keogh & Pazzani (2001).

    Example:
        >>> DDTW()([[0.0, 1.0, 2.0, 3.0]], [[5.0, 6.0, 7.0]])
        tensor([0.])
    """

    shortest, first_frame, open_ends = 3, 1, True

    def __init__(
        self,
        *,
        band: float | None = None,
        itakura: float | None = None,
        open_begin: bool = False,
        open_end: bool = False,
        subsequence: bool = False,
    ) -> None:
        super().__init__(
            Rules.of(
                "DDTW", band=band, itakura=itakura, open_begin=open_begin, open_end=open_end, subsequence=subsequence
            )
        )

    def moves(self) -> Moves:
        """DTW."""
        return Moves(Recurrence.WARP)

    def side(self, x: Tensor, lengths: Tensor | None) -> Side:
        """The slopes."""
        return slope_side(x, lengths)


class WDDTW(WDTW):
    """Weighted derivative DTW: ``WDTW`` of the slopes that ``DDTW`` compares.

    steepness, band, itakura: as in ``WDTW``, of the slopes. Every sequence needs at least 3 steps.

    Values equal aeon's. Reference: Jeong, Jeong & Omitaomu (2011).

    Example:
        >>> WDDTW()([[0.0, 1.0, 2.0, 3.0]], [[5.0, 6.0, 7.0]])
        tensor([0.])
    """

    shortest, first_frame = 3, 1

    def side(self, x: Tensor, lengths: Tensor | None) -> Side:
        """The slopes."""
        return slope_side(x, lengths)
