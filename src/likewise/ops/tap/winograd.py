"""Weights of convolutions at Winograd's points, and their derivatives back from there; winograd.h has the rest.

By NumPy: PyTorch would wake its threads, which then occupy the cores that the kernels need.
"""

import numpy as np
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


def transformed(weight: np.ndarray) -> np.ndarray:
    """(64, in, out), float64, from weights (out, in, side, side)."""
    each = at_points(weight.shape[2]).numpy()
    rows = np.einsum("pa,oiab->poib", each, weight)
    return np.einsum("qb,poib->pqio", each, rows).reshape(TILE**2, *weight.shape[1::-1])


def transformed_back(slope: np.ndarray, side: int) -> np.ndarray:
    """The derivative (out, in, side, side) of weights from that of what they were transformed to (64, in, out)."""
    each = at_points(side).numpy()
    rows = np.einsum("pa,pqio->aqio", each, slope.reshape(TILE, TILE, *slope.shape[1:]))
    return np.einsum("qb,aqio->oiab", each, rows)
