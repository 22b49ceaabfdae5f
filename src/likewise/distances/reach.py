"""Frames in units of their reach, for the distances that count frames closer than that."""

from dataclasses import replace

import torch

from likewise import _check
from likewise.ops.elastic import Side
from likewise.ops.ground import power_of_two


def in_units_of_reach(x: Side, y: Side) -> tuple[Side, Side]:
    """Both sides unchanged where squares of frames and of reaches stay in range, else in float64 and in such units.

    Squares that overflow would be infinitely far apart, however large the reach; squares that underflow would match.

    Example:
        >>> x = Side(torch.full((1, 2, 1), 1e30), gaps=torch.ones(1, 2), reach=torch.tensor([1e29]))
        >>> in_units_of_reach(x, x)[0].frames.flatten()
        tensor([12.6218, 12.6218], dtype=torch.float64)
    """
    assert x.reach is not None
    assert y.reach is not None
    if not len(x) or not len(y):
        return x, y
    reach = torch.cat([x.reach, y.reach]).detach()
    most, least = reach.amax().double(), torch.where(reach > 0, reach, torch.inf).amin().double()
    largest = (
        torch.stack([torch.linalg.vector_norm(side.frames.detach(), torch.inf) for side in (x, y)]).amax().double()
    )
    if not _check.numbers_hidden():
        limit = 2.0**60 if x.frames.dtype == torch.float32 else 2.0**500
        if float(largest) <= limit and float(least) >= 1 / limit:
            return x, y
    # One unit for all pairs, in the middle of the reaches. In it, frames must be finite; their squares need not be.
    middle = torch.where(most > 0, least.sqrt() * most.sqrt(), 1.0)
    unit = power_of_two(torch.maximum(middle, largest * 2.0**-1000))

    def converted(side: Side) -> Side:
        assert side.gaps is not None
        assert side.reach is not None
        frames, reach = side.frames.double() / unit, side.reach.double() / unit
        return replace(side, frames=frames, gaps=side.gaps.double(), reach=reach)

    first = converted(x)
    return first, first if y is x else converted(y)
