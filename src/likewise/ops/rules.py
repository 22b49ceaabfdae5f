"""Rules: the paths that an alignment may take."""

import functools
import math
from dataclasses import dataclass

from likewise import _check

NONE, STEPS, FRACTION, ITAKURA = range(4)  # WindowKind in problem.h


@dataclass(frozen=True)
class Window:
    """The columns that each row of an n x m alignment may visit.

    A Sakoe-Chiba band of radius r keeps the cells within r steps of the two diagonals that run through the corners:
    -r + min(0, m - n) <= j - i <= r + max(0, m - n). It joins the corners for every r >= 0 and all lengths. It is the
    band of tslearn and dtaidistance. A fraction f stands for r = floor(f * min(n, m)), as in aeon.

    An Itakura parallelogram of slope s keeps the cells that a path from corner to corner reaches with slopes between
    1/s and s, measured in units of the straight line's slope (m - 1) / (n - 1). If rounding to cells would
    disconnect it, it is widened.
    """

    kind: int = NONE
    size: float = 0.0

    def row(self, n: int, m: int, i: int) -> tuple[int, int]:
        """First and last column of row i; neither decreases as i grows.

        Example:
            >>> [Window(STEPS, 1).row(4, 4, i) for i in range(4)]
            [(0, 1), (0, 2), (1, 3), (2, 3)]
        """
        if self.kind == NONE:
            return 0, m - 1
        if self.kind == ITAKURA:
            first, last = self._parallelogram(n, m, i)
            first = min(first, self._parallelogram(n, m, i - 1)[1] + 1) if i > 0 else 0
            return first, max(first, last)
        radius = int(self.size * min(n, m) if self.kind == FRACTION else self.size)
        return max(0, i - radius + min(0, m - n)), min(m - 1, i + radius + max(0, m - n))

    def _parallelogram(self, n: int, m: int, i: int) -> tuple[int, int]:
        line = (m - 1) / (n - 1) if n > 1 else 0.0
        first = max(line / self.size * i, (m - 1) - self.size * line * (n - 1 - i))
        last = min(self.size * line * i, (m - 1) - line / self.size * (n - 1 - i)) if i < n - 1 else m - 1
        return math.ceil(first - 1e-9), math.floor(last + 1e-9)


@dataclass(frozen=True)
class Rules:
    """Which cells a path may visit, and whether it may begin or end anywhere in y.

    Open at the beginning, the path starts in any column of the first row; open at the end, it stops in any column of
    the last. Both together match all of x to a stretch of y: subsequence mode.
    """

    window: Window = Window()
    open_begin: bool = False
    open_end: bool = False

    @classmethod
    def of(
        cls,
        op: str,
        *,
        band: float | None = None,
        itakura: float | None = None,
        open_begin: bool = False,
        open_end: bool = False,
        subsequence: bool = False,
    ) -> "Rules":
        """Rules from the arguments of the elastic distances.

        Example:
            >>> Rules.of("dtw", band=0.1, subsequence=True)
            Rules(window=Window(kind=2, size=0.1), open_begin=True, open_end=True)
        """
        return cls(_window(op, band, itakura), open_begin or subsequence, open_end or subsequence)

    @property
    def symmetric(self) -> bool:
        """Whether swapping x and y transposes the allowed paths. Rounding may tilt a parallelogram."""
        return not (self.open_begin or self.open_end or self.window.kind == ITAKURA)

    def settings(self) -> dict[str, int | float | bool | None]:
        """The arguments of ``of`` that make these rules.

        Example:
            >>> Rules.of("dtw", band=3).settings()
            {'band': 3, 'itakura': None, 'open_begin': False, 'open_end': False}
        """
        kind, size = self.window.kind, self.window.size
        band = int(size) if kind == STEPS else size if kind == FRACTION else None
        itakura = size if kind == ITAKURA else None
        return {"band": band, "itakura": itakura, "open_begin": self.open_begin, "open_end": self.open_end}

    def plain(self) -> tuple[int, float, bool, bool]:
        """The numbers that custom operators take; ``from_plain`` is the inverse."""
        return self.window.kind, self.window.size, self.open_begin, self.open_end

    @classmethod
    @functools.lru_cache(typed=True)
    def from_plain(cls, kind: int, size: float, open_begin: bool, open_end: bool) -> "Rules":
        """Rules from the result of ``plain``."""
        return cls(Window(kind, size), open_begin, open_end)


def _window(op: str, band: float | None, itakura: float | None) -> Window:
    if band is not None and itakura is not None:
        _check.refuse(op, "give band or itakura, not both")
    if itakura is not None:
        slope = _check.positive(op, "itakura", itakura)
        if slope < 1:
            _check.refuse(op, f"itakura is the largest slope and must be at least 1, got {itakura}")
        return Window(ITAKURA, slope)
    if band is None:
        return Window()
    band = _check.number(op, "band", band)
    if isinstance(band, int) and band >= 0:
        return Window(STEPS, float(band))
    if isinstance(band, float) and 0 <= band <= 1:
        return Window(FRACTION, band)
    _check.refuse(op, f"band must be a whole number of steps, 0 or more, or a fraction from 0.0 to 1.0, got {band}")
