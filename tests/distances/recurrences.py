"""The recurrences of papers, cell by cell, for the tests of elastic distances."""

import math
from collections.abc import Callable


def least(
    n: int,
    m: int,
    match: Callable[[int, int], float],
    skip_x: Callable[[int, int], float],
    skip_y: Callable[[int, int], float],
    *,
    borders: bool = False,
) -> float:
    """D(n-1, m-1) of D(i, j) = min(D(i-1, j-1) + match, D(i-1, j) + skip_x, D(i, j-1) + skip_y).

    With borders, frames may be left out before the first match.
    """
    D = {(-1, -1): 0.0}
    for i in range(-1, n):
        for j in range(-1, m):
            if (i, j) == (-1, -1) or (not borders and -1 in (i, j)):
                continue
            D[i, j] = min(
                D.get((i - 1, j - 1), math.inf) + match(i, j) if i >= 0 and j >= 0 else math.inf,
                D.get((i - 1, j), math.inf) + skip_x(i, j) if i >= 0 else math.inf,
                D.get((i, j - 1), math.inf) + skip_y(i, j) if j >= 0 else math.inf,
            )
    return D[n - 1, m - 1]
