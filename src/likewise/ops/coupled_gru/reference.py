"""The coupled recurrence in plain PyTorch, step by step: the reference for the kernels."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Weights(NamedTuple):
    """The weights of one layer: of its input (none for the first, whose projections are given), and of its states."""

    weight_in: Tensor | None  # (3H, C), in the order r, z, n
    bias_in: Tensor | None  # (3H,)
    weight: Tensor  # (4H, H), in the order r, z, n, c
    bias: Tensor  # (4H,)


def layers(weights: Tensor, hidden: Sequence[int]) -> Iterator[Weights]:
    """The layers' weights, from one vector that holds them in order."""
    first = 0

    def take(*shape: int) -> Tensor:
        nonlocal first
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        first += size
        return weights[first - size : first].reshape(shape)

    for layer, width in enumerate(hidden):
        below = hidden[layer - 1]
        weight_in, bias_in = (take(3 * width, below), take(3 * width)) if layer else (None, None)
        yield Weights(weight_in, bias_in, take(4 * width, width), take(4 * width))


def states(
    gx: Tensor,
    gy: Tensor | None,
    rows: Tensor | None,
    columns: Tensor | None,
    x_lengths: Tensor,
    y_lengths: Tensor | None,
    weights: Tensor,
    hidden: Sequence[int],
) -> Tensor:
    """States (P, 2, T, H) of both sides of every pair, of the last layer, as ``likewise.ops.coupled_gru`` defines them.

    gx (N, Tx, 3H), gy (M, Ty, 3H): input projections for the first layer, in the order r, z, n; without gy, gx is used
    for both sides. Pair p is gx[rows[p]] and gy[columns[p]]; without rows and columns, gx[p] and gy[p].
    """
    if gy is None or y_lengths is None:
        gy, y_lengths = gx, x_lengths
    if rows is not None and columns is not None:
        gx, gy, x_lengths, y_lengths = gx[rows], gy[columns], x_lengths[rows], y_lengths[columns]
    steps = max(gx.shape[1], gy.shape[1])
    sides = [functional.pad(g, (0, 0, 0, steps - g.shape[1])) for g in (gx, gy)]
    lengths = torch.stack([x_lengths, y_lengths])[..., None]  # (2, P, 1)
    for layer in layers(weights, hidden):
        if layer.weight_in is not None:
            sides = [functional.linear(side, layer.weight_in, layer.bias_in) for side in sides]
        sides = list(_layer(torch.stack(sides), lengths, layer.weight, layer.bias))
    return torch.stack(sides, 1)


def _layer(g: Tensor, lengths: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """States (2, P, T, H) of both sides of every pair, of one layer with input projections g (2, P, T, 3H)."""
    width = weight.shape[1]
    h = g.new_zeros(2, g.shape[1], width)
    kept = []
    for t, step in enumerate(g.unbind(2)):
        running = t < lengths
        # One side, then the other: in one product, equal sides could be rounded differently.
        from_h = torch.stack([functional.linear(side, weight[: 3 * width], bias[: 3 * width]) for side in h])
        g_r, g_z, g_n = step.chunk(3, -1)
        h_r, h_z, h_n = from_h.chunk(3, -1)
        r, z = torch.sigmoid(g_r + h_r), torch.sigmoid(g_z + h_z)
        # A side that has ended is unchanged, and uses its last state as its new one.
        n = torch.where(running, torch.tanh(g_n + r * h_n), h)
        c = coupling(h[0], h[1], weight, bias)  # (P, H)
        m = (1 - c) * n + c * n.flip(0)
        h = torch.where(running, (1 - z) * m + z * h, h)
        kept.append(h)
    return torch.stack(kept, 2)


def coupling(hx: Tensor, hy: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The coupling gate c (..., H) of the states (..., H) before a step."""
    width = weight.shape[1]
    return torch.sigmoid(functional.linear(hx + hy, weight[3 * width :], bias[3 * width :]))
