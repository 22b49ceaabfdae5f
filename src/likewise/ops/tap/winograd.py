"""Weights of convolutions at Winograd's points, and their derivatives back from there; winograd.h has the rest."""

import torch
from torch import Tensor

TILE = 8  # cells on a side of a tile; a kernel of side k gives 9 - k results
POINTS = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0)  # and infinity


def at_points(side: int) -> Tensor:
    """(8, side), float64: from a kernel to the points; the transforms of winograd.h undo the divisions.

    Example:
        >>> at_points(3)[:2]
        tensor([[ 1.0000,  0.0000,  0.0000],
                [-0.2222, -0.2222, -0.2222]], dtype=torch.float64)
    """
    points = torch.tensor(POINTS, dtype=torch.float64)
    apart = points[:, None] - points
    apart.fill_diagonal_(1)
    rows = points[:, None] ** torch.arange(side) / apart.prod(1, keepdim=True)
    rows[0] = -rows[0]  # as the first row of to_points is
    last = torch.zeros(1, side, dtype=torch.float64)
    last[0, -1] = 1
    return torch.cat([rows, last])


def transformed(weight: Tensor) -> Tensor:
    """(64, in, out), float64, from weights (out, in, side, side)."""
    each = at_points(weight.shape[2])
    return torch.einsum("pa,qb,oiab->pqio", each, each, weight.double()).flatten(0, 1)


def transformed_back(slope: Tensor, side: int) -> Tensor:
    """The derivative (out, in, side, side) of weights from that of what they were transformed to (64, in, out)."""
    each = at_points(side)
    return torch.einsum("pa,qb,pqio->oiab", each, each, slope.unflatten(0, (TILE, TILE)))
