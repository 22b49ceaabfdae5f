"""The coupled GRU: two gated recurrent networks that share their weights and mix their new states.

For one side (a prime marks the other; all weights are shared, and the sides start at h = 0):

    r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)          z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
    n = tanh(W_in x + b_in + r (W_hn h + b_hn))         c = sigmoid(W_hc (h + h') + b_hc), the same for both sides
    m = (1 - c) n + c n'                                next h = (1 - z) m + z h

With c = 0 each side is ``torch.nn.GRU``. In a stack, each side of a layer reads that side's states of the layer below.
Sequences of unequal length: a side that has ended keeps its last state h', which goes on to feed c, and stands for its
n' as well.

Input projections are computed once for each sequence, never for each pair, and the recurrence of a block of pairs, both
sides and all steps, is one kernel. Its derivative computes the gates again rather than keep them.

Reference: Compagnon, Lefebvre, Duffner & Garcia, Sequence metric learning as synchronization of recurrent neural
networks (IJCNN 2020), equations 8 to 13. The paper has neither unequal lengths nor says how layers are stacked.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from likewise import _check
from likewise.ops.coupled_gru import reference
from likewise.ops.ground import at_least_float32, zero_padding

__all__ = ["Cell", "coupled_gru", "coupled_gru_states", "coupling", "projections"]


class Cell(NamedTuple):
    """The weights of one layer, named and ordered (r, z, n) as in ``torch.nn.GRU``, and those of its coupling."""

    weight_ih: Tensor  # (3H, C)
    weight_hh: Tensor  # (3H, H)
    bias_ih: Tensor  # (3H,)
    bias_hh: Tensor  # (3H,)
    weight_hc: Tensor  # (H, H)
    bias_hc: Tensor  # (H,)


def projections(x: Tensor, cell: Cell, lengths: Tensor | None = None) -> Tensor:
    """What a layer makes of its input alone, W_i x + b_i: x (N, T, C) -> (N, T, 3H), at least float32.

    Padding counts as zeros, whatever it holds.
    """
    x = at_least_float32(zero_padding(x, lengths))
    with torch.autocast(x.device.type, enabled=False):
        return functional.linear(x, cell.weight_ih.to(x.dtype), cell.bias_ih.to(x.dtype))


def coupled_gru(
    gx: Tensor,
    gy: Tensor,
    cells: Sequence[Cell],
    x_lengths: Tensor,
    y_lengths: Tensor,
    rows: Tensor | None = None,
    columns: Tensor | None = None,
) -> Tensor:
    """The last states of both sides of every pair, (P, 2, H), of the last layer.

    gx (N, Tx, 3H), gy (M, Ty, 3H): ``projections`` for the first of the cells. x_lengths (N,), y_lengths (M,).
    rows, columns: (P,), pair p is gx[rows[p]] and gy[columns[p]]; without them, gx[p] and gy[p].

    Memory: with one layer O(P H); each further layer holds 4 T H numbers for each side of every pair.

    Example:
        >>> cell = Cell(*(torch.zeros(shape) for shape in [(6, 1), (6, 2), 6, 6, (2, 2), 2]))
        >>> lengths = torch.tensor([3])
        >>> coupled_gru(torch.ones(1, 3, 6), torch.ones(1, 3, 6), [cell], lengths, lengths).shape
        torch.Size([1, 2, 2])
    """
    return coupled_gru_states(gx, gy, cells, x_lengths, y_lengths, rows, columns)[:, :, -1]


def coupled_gru_states(
    gx: Tensor,
    gy: Tensor,
    cells: Sequence[Cell],
    x_lengths: Tensor,
    y_lengths: Tensor,
    rows: Tensor | None = None,
    columns: Tensor | None = None,
) -> Tensor:
    """The states of both sides of every pair at every step, (P, 2, max(Tx, Ty), H), of the last layer.

    Past the end of a side, its last state stays. Arguments are those of ``coupled_gru``.
    """
    _check_projections(gx, gy, cells, rows, columns)
    states = reference.states(gx, gy, rows, columns, x_lengths, y_lengths, *_recurrent(cells[0], gx.dtype))
    if rows is not None and columns is not None:
        x_lengths, y_lengths = x_lengths[rows], y_lengths[columns]
    for cell in cells[1:]:
        gx, gy = projections(states[:, 0], cell), projections(states[:, 1], cell)
        states = reference.states(gx, gy, None, None, x_lengths, y_lengths, *_recurrent(cell, gx.dtype))
    return states


def coupling(states: Tensor, cell: Cell) -> Tensor:
    """The coupling gate c of every step, (P, T, H), from the states (P, 2, T, H) of that layer."""
    before = functional.pad(states, (0, 0, 1, 0))[:, :, :-1]  # h = 0 before the first step
    return reference.coupling(before[:, 0], before[:, 1], *_recurrent(cell, states.dtype))


def _recurrent(cell: Cell, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weights (4H, H) and biases (4H,) of the states, in the order r, z, n, c."""
    weight, bias = torch.cat([cell.weight_hh, cell.weight_hc]), torch.cat([cell.bias_hh, cell.bias_hc])
    return weight.to(dtype), bias.to(dtype)


def _check_projections(
    gx: Tensor, gy: Tensor, cells: Sequence[Cell], rows: Tensor | None, columns: Tensor | None
) -> None:
    if not cells:
        _check.refuse("coupled_gru", "expected at least one cell")
    width = len(cells[0].weight_hh)
    for name, g in (("gx", gx), ("gy", gy)):
        _check.sequences("coupled_gru", name, g)
        if g.shape[2] != width:
            _check.refuse("coupled_gru", f"expected {name} of shape (N, T, {width}), got {tuple(g.shape)}")
    if (rows is None) != (columns is None):
        _check.refuse("coupled_gru", "give rows and columns, or neither")
    if rows is None and len(gx) != len(gy):
        _check.refuse("coupled_gru", f"gx has {len(gx)} sequences and gy has {len(gy)}; name pairs by rows and columns")
    if rows is not None and columns is not None and rows.shape != columns.shape:
        _check.refuse("coupled_gru", f"rows have shape {tuple(rows.shape)} and columns {tuple(columns.shape)}")
