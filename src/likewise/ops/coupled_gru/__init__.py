"""The coupled GRU: two gated recurrent networks that share their weights and mix their new states.

For one side (a prime marks the other; all weights are shared, and the sides start at h = 0):

    r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)          z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
    n = tanh(W_in x + b_in + r (W_hn h + b_hn))         c = sigmoid(W_hc (h + h') + b_hc), the same for both sides
    m = (1 - c) n + c n'                                next h = (1 - z) m + z h

With c = 0 each side is ``torch.nn.GRU``. In a stack, each side of a layer reads that side's states of the layer below.
Sequences of unequal length: a side that has ended keeps its last state h', which still enters c, and which also
replaces n'.

Input projections are computed once for each sequence, never for each pair, and the recurrence of a block of pairs, both
sides and all steps, is one kernel. The derivative recomputes the gates instead of storing them.

Reference: Compagnon, Lefebvre, Duffner & Garcia, Sequence metric learning as synchronization of recurrent neural
networks (IJCNN 2020), equations 8 to 13. The paper specifies neither unequal lengths nor how layers are stacked.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from likewise import _check
from likewise.ops.coupled_gru import cpu as kernels
from likewise.ops.coupled_gru import reference
from likewise.ops.coupled_gru.cpu import shape_of
from likewise.ops.dispatch import operator
from likewise.ops.ground import at_least_float32, zero_padding

__all__ = ["Cell", "coupled_gru", "coupled_gru_states", "coupling", "kept_numbers", "projections"]

KEPT = 1 << 30  # the most numbers that a forward pass on a GPU stores for its gradient; more are recomputed


class Cell(NamedTuple):
    """The weights of one layer, named and ordered (r, z, n) as in ``torch.nn.GRU``, and those of its coupling."""

    weight_ih: Tensor  # (3H, C)
    weight_hh: Tensor  # (3H, H)
    bias_ih: Tensor  # (3H,)
    bias_hh: Tensor  # (3H,)
    weight_hc: Tensor  # (H, H)
    bias_hc: Tensor  # (H,)


def projections(x: Tensor, cell: Cell, lengths: Tensor | None = None) -> Tensor:
    """The input projections of a layer, W_i x + b_i: x (N, T, C) -> (N, T, 3H), at least float32.

    Padding counts as zeros, regardless of its values.
    """
    x = at_least_float32(zero_padding(x, lengths))
    with torch.autocast(x.device.type, enabled=False):
        return functional.linear(x, cell.weight_ih.to(x.dtype), cell.bias_ih.to(x.dtype))


def coupled_gru(
    gx: Tensor,
    gy: Tensor | None,
    cells: Sequence[Cell],
    x_lengths: Tensor,
    y_lengths: Tensor | None,
    rows: Tensor | None = None,
    columns: Tensor | None = None,
) -> Tensor:
    """The last states of both sides of every pair, (P, 2, H), of the last layer.

    gx (N, Tx, 3H), gy (M, Ty, 3H): ``projections`` for the first of the cells; x_lengths (N,), y_lengths (M,). Without
    gy and y_lengths, gx is used for both sides.
    rows, columns: (P,) int64, pair p is gx[rows[p]] and gy[columns[p]]; without them, gx[p] and gy[p].

    Memory: O(P H) and, for a derivative, O(T H) for each pair in progress; on a GPU, O(T H) for every pair or, above 4
    gigabytes, recomputed for some pairs at a time.

    Example:
        >>> cell = Cell(*(torch.zeros(shape) for shape in [(6, 1), (6, 2), 6, 6, (2, 2), 2]))
        >>> lengths = torch.tensor([3])
        >>> coupled_gru(torch.ones(1, 3, 6), torch.ones(1, 3, 6), [cell], lengths, lengths).shape
        torch.Size([1, 2, 2])
    """
    _check_pairs(gx, gy, cells, x_lengths, y_lengths, rows, columns)
    weights = _flat(cells, gx.dtype)
    arguments = gx, gy, rows, columns, x_lengths, y_lengths, weights, _hidden(cells)
    if torch.is_grad_enabled() and any(a is not None and a.requires_grad for a in (gx, gy, weights)):
        return _trained(*arguments)[0]
    return _last(*arguments)


def coupled_gru_states(
    gx: Tensor,
    gy: Tensor | None,
    cells: Sequence[Cell],
    x_lengths: Tensor,
    y_lengths: Tensor | None,
    rows: Tensor | None = None,
    columns: Tensor | None = None,
) -> Tensor:
    """The states of both sides of every pair at every step, (P, 2, max(Tx, Ty), H), of the last layer.

    After the end of a side, its last state is repeated. Arguments are those of ``coupled_gru``.
    """
    _check_pairs(gx, gy, cells, x_lengths, y_lengths, rows, columns)
    return _states(gx, gy, rows, columns, x_lengths, y_lengths, _flat(cells, gx.dtype), _hidden(cells))


def coupling(states: Tensor, cell: Cell) -> Tensor:
    """The coupling gate c of every step, (P, T, H), from the states (P, 2, T, H) of that layer."""
    before = functional.pad(states, (0, 0, 1, 0))[:, :, :-1]  # h = 0 before the first step
    weight, bias = (torch.cat(parts).to(states.dtype) for parts in _recurrent(cell))
    return reference.coupling(before[:, 0], before[:, 1], weight, bias)


def _recurrent(cell: Cell) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Weights and biases of the states, in the order r, z, n and c."""
    return (cell.weight_hh, cell.weight_hc), (cell.bias_hh, cell.bias_hc)


def _flat(cells: Sequence[Cell], dtype: torch.dtype) -> Tensor:
    """The weights of all layers in one vector, as ``reference.layers`` reads them."""
    parts = []
    for layer, cell in enumerate(cells):
        weights, biases = _recurrent(cell)
        parts += [*((cell.weight_ih, cell.bias_ih) if layer else ()), *weights, *biases]
    return torch.cat([part.flatten() for part in parts]).to(dtype)


def _hidden(cells: Sequence[Cell]) -> list[int]:
    return [cell.weight_hh.shape[1] for cell in cells]


def _check_pairs(
    gx: Tensor,
    gy: Tensor | None,
    cells: Sequence[Cell],
    x_lengths: Tensor,
    y_lengths: Tensor | None,
    rows: Tensor | None,
    columns: Tensor | None,
) -> None:
    op = "coupled_gru"
    if not cells:
        _check.refuse(op, "expected at least one cell")
    if (gy is None) != (y_lengths is None) or (rows is None) != (columns is None):
        _check.refuse(op, "pass gy with y_lengths and rows with columns, or neither of the two")
    width = len(cells[0].weight_hh)
    for name, g, lengths in (("x", gx, x_lengths), ("y", gy, y_lengths)):
        if g is None:
            continue
        _check.sequences(op, f"g{name}", g)
        _check.lengths_shape(op, f"{name}_lengths", lengths, len(g))
        if g.shape[2] != width:
            _check.refuse(op, f"expected g{name} of shape (N, T, {width}), got {tuple(g.shape)}")
    if gy is not None and (gx.dtype != gy.dtype or gx.device != gy.device):
        _check.refuse(op, f"gx is {gx.dtype} on {gx.device}, but gy is {gy.dtype} on {gy.device}; convert one with .to")
    if rows is None and gy is not None and len(gx) != len(gy):
        _check.refuse(op, f"gx has {len(gx)} sequences, but gy has {len(gy)}; select pairs with rows and columns")
    if rows is not None and columns is not None and (rows.ndim != 1 or rows.shape != columns.shape):
        _check.refuse(op, f"expected rows and columns (P,), got {tuple(rows.shape)} and {tuple(columns.shape)}")


# The operators. ``weights`` is the result of ``_flat``, and ``hidden`` the states of each layer.


def kept_numbers(gx: Tensor, *rest: Any) -> int:
    """The number of values that a forward pass keeps for its gradient: all states on a GPU, none on a CPU."""
    pairs, _, steps, _ = shape_of(True, gx, *rest)
    *_, hidden = rest
    count = 2 * pairs * steps * sum(hidden)
    return count if gx.is_cuda and gx.dtype == torch.float32 and count <= KEPT else 0


def _last_fake(gx: Tensor, *rest: Any) -> Tensor:
    return gx.new_empty(shape_of(False, gx, *rest))


def _states_fake(gx: Tensor, *rest: Any) -> Tensor:
    return gx.new_empty(shape_of(True, gx, *rest))


def _trained_fake(gx: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return gx.new_empty(shape_of(False, gx, *rest)), gx.new_empty(kept_numbers(gx, *rest))


def _grad_fake(
    grad: Tensor, kept: Tensor | None, gx: Tensor, gy: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    *_, weights, _ = rest
    to_y = gx.new_empty(0) if gy is None else torch.empty_like(gy)
    return torch.empty_like(gx), to_y, torch.empty_like(weights)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor | tuple[Tensor, Tensor]) -> None:
    kept = None
    if isinstance(output, tuple):
        _, kept = output
        ctx.mark_non_differentiable(kept)
    ctx.set_materialize_grads(False)  # a gradient for the kept states would be as large
    *tensors, ctx.hidden = inputs
    ctx.save_for_backward(kept, *tensors)


def _backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 8
    kept, gx, gy, *rest = ctx.saved_tensors
    to_x, to_y, to_weights = _grad(grad, kept, gx, gy, *rest, ctx.hidden)
    return to_x, None if gy is None else to_y, None, None, None, None, to_weights, None


_ARGUMENTS = (
    "Tensor gx, Tensor? gy, Tensor? rows, Tensor? columns, Tensor x_lengths, Tensor? y_lengths, Tensor weights, "
    "int[] hidden"
)
_grad = operator(
    f"coupled_gru_grad(Tensor grad, Tensor? kept, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor)",
    cpu=kernels.gradient,
    triton="coupled_gru.gradients",
    fake=_grad_fake,
)
_last = operator(
    f"coupled_gru_last({_ARGUMENTS}) -> Tensor",
    cpu=kernels.last,
    triton="coupled_gru.last",
    fake=_last_fake,
    save=_save,
    backward=_backward,
)
_trained = operator(
    f"coupled_gru_trained({_ARGUMENTS}) -> (Tensor, Tensor)",
    cpu=kernels.trained,
    triton="coupled_gru.trained",
    fake=_trained_fake,
    save=_save,
    backward=_backward,
)
_states = operator(
    f"coupled_gru_states({_ARGUMENTS}) -> Tensor",
    cpu=kernels.states,
    triton="coupled_gru.states",
    fake=_states_fake,
    save=_save,
    backward=_backward,
)
