"""Moves, which describe an elastic distance, and Side, its data for one batch of sequences.

The engine computes D(i, j), the least cost of matching x_0..x_i with y_0..y_j, as the least of three moves:
along the diagonal (x_i is matched with y_j), from above (x_i is left out) and from the left (y_j is left out). A
distance chooses one of six recurrences and fills in numbers. With the cost c(i, j) between frames, the gaps u(i) of x
and l(j) of y, and the penalty p:

    WARP   D(i, j) = min(D(i-1, j-1), D(i-1, j) + p, D(i, j-1) + p) + w(|i - j|) c(i, j)
    EDIT   D(i, j) = min(D(i-1, j-1) + c(i, j), D(i-1, j) + u(i), D(i, j-1) + l(j))
    CARRY  D(i, j) = min(D(i-1, j-1) + c(i-1, j-1) + c(i, j) + slope |i - j|, D(i-1, j) + u(i), D(i, j-1) + l(j))
    COUNT  D(i, j) = min(D(i-1, j-1) + (hit if c(i, j) < reach else miss), D(i-1, j) + u(i), D(i, j-1) + l(j))
    BALL   D(i, j) = min(D(i-1, j-1) + c(i, j), D(i-1, j) + C(u(i), c(i, j), c(i-1, j)),
                         D(i, j-1) + C(l(j), c(i, j), c(i, j-1))), C(a, b, d) = p if a + b <= d else p + min(a, b)
    FOLLOW D(i, j) = min(D(i-1, j-1), D(i-1, j), D(i, j-1)) + c(i, j); the value is the sum, over that path, of the
                         costs in some channels alone
"""

import enum
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple

from torch import Tensor

from likewise.ops.rules import Rules


class Recurrence(enum.IntEnum):
    """How D(i, j) follows from its neighbours; numbered as in kernel.h."""

    WARP = 0
    EDIT = 1
    CARRY = 2
    COUNT = 3
    BALL = 4
    FOLLOW = 5


class Border(enum.IntEnum):
    """The values before the first row and column: none, the gaps so far, or zeros."""

    NONE = 0
    GAPS = 1
    FREE = 2


@dataclass(frozen=True)
class Moves:
    """The numbers of a recurrence that all pairs share.

    root: c is the Euclidean distance, not its square. last_cost: c(n-1, m-1) is added to the value.
    parts: FOLLOW's frames are windows of this many equal parts that slide by one: part k + 1 of a frame is part k of
        the next. The value is the sum of the middle part's costs.

    Example:
        >>> Moves(Recurrence.WARP, penalty=0.5).plain()
        (0, False, 0, 0.5, 0.0, 0.0, 0.0, False, 1)
    """

    recurrence: Recurrence
    root: bool = False
    border: Border = Border.NONE
    penalty: float = 0.0
    slope: float = 0.0
    hit: float = 0.0
    miss: float = 0.0
    last_cost: bool = False
    parts: int = 1

    def plain(self) -> tuple[Any, ...]:
        """The numbers that custom operators take; ``from_plain`` is the inverse."""
        return (
            int(self.recurrence),
            self.root,
            int(self.border),
            float(self.penalty),
            float(self.slope),
            float(self.hit),
            float(self.miss),
            self.last_cost,
            self.parts,
        )

    @classmethod
    @lru_cache(typed=True)
    def from_plain(cls, recurrence: int, root: bool, border: int, *numbers: Any) -> "Moves":
        """Moves from the result of ``plain``."""
        return cls(Recurrence(recurrence), root, Border(border), *numbers)

    def own(self, channels: int) -> tuple[int, int]:
        """The first channel of the middle part, and its number of channels.

        Example:
            >>> Moves(Recurrence.FOLLOW, parts=3).own(6)
            (2, 2)
        """
        count = channels // self.parts
        return self.parts // 2 * count, count

    @property
    def has_gaps(self) -> bool:
        """Whether the recurrence reads gaps."""
        return self.recurrence not in (Recurrence.WARP, Recurrence.FOLLOW)


@dataclass(frozen=True)
class Side:
    """The engine's data for one batch of sequences.

    frames: (B, T, C). gaps: (B, T), the cost of leaving out each frame. reach: (B,), two frames match if
    they are closer than the larger reach of the two sides. lengths: (B,) int64, or None if every step is real.
    """

    frames: Tensor
    lengths: Tensor | None = None
    gaps: Tensor | None = None
    reach: Tensor | None = None

    def __len__(self) -> int:
        return self.frames.shape[0]


class Tensors(NamedTuple):
    """The tensors of both sides, in the order in which custom operators take them."""

    x: Tensor
    y: Tensor
    x_gaps: Tensor | None
    y_gaps: Tensor | None
    x_reach: Tensor | None
    y_reach: Tensor | None
    weights: Tensor | None
    x_lengths: Tensor | None
    y_lengths: Tensor | None


def by_name(arguments: tuple[Any, ...]) -> tuple[Tensors, Moves, Rules]:
    """The arguments of custom operators by name: Tensors, then ``Moves.plain``, then ``Rules.plain``."""
    moves = len(Tensors._fields)
    rules = moves + len(fields(Moves))
    return Tensors(*arguments[:moves]), Moves.from_plain(*arguments[moves:rules]), Rules.from_plain(*arguments[rules:])
