"""The coupled recurrence in plain PyTorch, step by step: what the kernels are checked against."""

import torch
from torch import Tensor
from torch.nn import functional


def states(
    gx: Tensor,
    gy: Tensor,
    rows: Tensor | None,
    columns: Tensor | None,
    x_lengths: Tensor,
    y_lengths: Tensor,
    weight: Tensor,
    bias: Tensor,
) -> Tensor:
    """States (P, 2, T, H) of both sides of every pair; see ``likewise.ops.coupled_gru`` for the formulas.

    gx (N, Tx, 3H), gy (M, Ty, 3H): input projections, in the order r, z, n. Pair p is gx[rows[p]] and gy[columns[p]];
    without rows and columns, gx[p] and gy[p]. weight (4H, H), bias (4H,): of the states, in the order r, z, n, c.
    """
    if rows is not None and columns is not None:
        gx, gy, x_lengths, y_lengths = gx[rows], gy[columns], x_lengths[rows], y_lengths[columns]
    steps, width = max(gx.shape[1], gy.shape[1]), weight.shape[1]
    longer_x, longer_y = (functional.pad(g, (0, 0, 0, steps - g.shape[1])) for g in (gx, gy))
    g = torch.stack([longer_x, longer_y])  # (2, P, T, 3H)
    lengths = torch.stack([x_lengths, y_lengths])[..., None]  # (2, P, 1)
    h = g.new_zeros(2, g.shape[1], width)
    kept = []
    for t in range(steps):
        running = t < lengths
        # Side by side: in one product, equal sides could be rounded differently.
        from_h = torch.stack([functional.linear(side, weight[: 3 * width], bias[: 3 * width]) for side in h])
        g_r, g_z, g_n = g[:, :, t].chunk(3, -1)
        h_r, h_z, h_n = from_h.chunk(3, -1)
        r, z = torch.sigmoid(g_r + h_r), torch.sigmoid(g_z + h_z)
        # A side that has ended stays as it is, and offers its last state as its new one.
        n = torch.where(running, torch.tanh(g_n + r * h_n), h)
        c = coupling(h[0], h[1], weight, bias)  # (P, H)
        m = (1 - c) * n + c * n.flip(0)
        h = torch.where(running, (1 - z) * m + z * h, h)
        kept.append(h)
    return torch.stack(kept, 2).transpose(0, 1)


def coupling(hx: Tensor, hy: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The coupling gate c (..., H) of the states (..., H) before a step."""
    width = weight.shape[1]
    return torch.sigmoid(functional.linear(hx + hy, weight[3 * width :], bias[3 * width :]))
