"""Calls of the coupled GRU's CPU kernels. ``rest`` are the arguments of the operators after gx."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.ops import cpu

PARTS = 8  # partial sums of gradients: their number and the order of additions are fixed
PART_BYTES = 1 << 28  # memory for them; with large sequences, there are fewer


@dataclass(frozen=True)
class _Problem:
    """The problem for the C++ kernels, with the tensors to which its addresses point."""

    native: object
    tensors: tuple[Tensor | None, ...]
    blocks: int
    work: int  # of one block, in the cells that ``share_out`` counts

    @classmethod
    def of(
        cls,
        gx: Tensor,
        gy: Tensor | None,
        rows: Tensor | None,
        columns: Tensor | None,
        x_lengths: Tensor,
        y_lengths: Tensor | None,
        weights: Tensor,
        hidden: Sequence[int],
    ) -> "_Problem":
        """Check the inputs, and describe them to the kernels."""
        gx, weights = gx.detach().contiguous(), weights.detach().contiguous()
        n = m = _lengths("x_lengths", x_lengths, gx)
        if gy is not None and y_lengths is not None:
            gy, m = gy.detach().contiguous(), _lengths("y_lengths", y_lengths, gy)
        else:
            gy = gx
        rows, columns = _index("rows", rows, gx), _index("columns", columns, gy)
        pairs = len(gx) if rows is None else len(rows)
        order, sizes = _order(n, m, rows, columns, pairs), torch.tensor(hidden)
        native = cpu.native.CoupledProblem(
            gx=gx.data_ptr(),
            gy=gy.data_ptr(),
            rows=0 if rows is None else rows.data_ptr(),
            columns=0 if columns is None else columns.data_ptr(),
            x_lengths=n.data_ptr(),
            y_lengths=m.data_ptr(),
            order=order.data_ptr(),
            weights=weights.data_ptr(),
            hidden=sizes.data_ptr(),
            layers=len(hidden),
            pairs=pairs,
            x_steps=gx.shape[1],
            y_steps=gy.shape[1],
            float64=gx.dtype == torch.float64,
        )
        lanes = cpu.native.coupled_gru_lanes(cpu.INSTRUCTION_SET, gx.dtype == torch.float64)
        # A state of a block takes 14 H vector multiplications per step, and some more for its gates.
        work = max(gx.shape[1], gy.shape[1]) * sum(14 * width * (width + 10) for width in hidden)
        tensors = gx, gy, rows, columns, n, m, order, weights, sizes
        return cls(native, tensors, -(-pairs // lanes), work)


def _lengths(name: str, lengths: Tensor, g: Tensor) -> Tensor:
    lengths = lengths.cpu().contiguous()
    _check.lengths_range("coupled_gru", name, lengths, g.shape[1])
    return lengths


def _index(name: str, index: Tensor | None, g: Tensor) -> Tensor | None:
    if index is None:
        return None
    index = index.cpu().to(torch.int64).contiguous()
    if len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(g):
        _check.refuse("coupled_gru", f"expected {name} between 0 and {len(g) - 1}")
    return index


def _order(n: Tensor, m: Tensor, rows: Tensor | None, columns: Tensor | None, pairs: int) -> Tensor:
    """The order of pairs by length; the lanes of a block then end together."""
    if pairs == 0 or (n.min() == n.max() and m.min() == m.max()):
        return torch.arange(pairs)
    if rows is not None and columns is not None:
        n, m = n[rows], m[columns]
    return torch.argsort(torch.maximum(n, m), stable=True)


def _run_cpu(every: bool, gx: Tensor, *rest: Any) -> Tensor:
    out = gx.new_empty(shape_of(every, gx, *rest))
    if out.numel():
        problem = _Problem.of(gx, *rest)
        cpu.share_out(
            problem.blocks,
            problem.work,
            lambda begin, end: cpu.native.coupled_gru_states(
                cpu.INSTRUCTION_SET, problem.native, out.data_ptr(), every, begin, end
            ),
        )
    return out


def last(gx: Tensor, *rest: Any) -> Tensor:
    """States of both sides after the last step, (pairs, 2, H)."""
    return _run_cpu(False, gx, *rest)


def states(gx: Tensor, *rest: Any) -> Tensor:
    """States of both sides after every step, (pairs, 2, T, H)."""
    return _run_cpu(True, gx, *rest)


def trained(gx: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Like ``last``; nothing is kept for the gradient."""
    return _run_cpu(False, gx, *rest), gx.new_empty(0)


def gradient(
    grad: Tensor,
    kept: Tensor | None,
    gx: Tensor,
    gy: Tensor | None,
    rows: Tensor | None,
    columns: Tensor | None,
    x_lengths: Tensor,
    y_lengths: Tensor | None,
    weights: Tensor,
    hidden: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum of grad * d states, with respect to gx, gy and the weights."""
    if not grad.numel():
        return _zeros(gx), gx.new_zeros(0) if gy is None else _zeros(gy), _zeros(weights)
    problem = _Problem.of(gx, gy, rows, columns, x_lengths, y_lengths, weights, hidden)
    grad, every = grad.detach().contiguous(), grad.ndim == 4
    room = (gx.numel() + (0 if gy is None else gy.numel())) * gx.element_size()
    parts = max(1, min(PARTS, problem.blocks, max(2, PART_BYTES // room)))
    # Pairs that share sequences add to the same gradients; without rows, every pair has its own sequences.
    shared = parts if rows is not None or gy is None else 1
    to_x = _zeros(gx, shared)
    to_y = to_x if gy is None else _zeros(gy, shared)
    to_weights = _zeros(weights, parts)

    def run_parts(begin: int, end: int) -> None:
        for part in range(begin, end):
            cpu.native.coupled_gru_gradients(
                cpu.INSTRUCTION_SET,
                problem.native,
                grad.data_ptr(),
                every,
                to_x[part % shared].data_ptr(),
                to_y[part % shared].data_ptr(),
                to_weights[part].data_ptr(),
                problem.blocks * part // parts,
                problem.blocks * (part + 1) // parts,
            )

    cpu.share_out(parts, 4 * problem.work * problem.blocks // parts, run_parts)
    return to_x.sum(0), gx.new_zeros(0) if gy is None else to_y.sum(0), to_weights.sum(0)


def _zeros(x: Tensor, *parts: int) -> Tensor:
    return cpu.zeros_like(x.detach().expand(*parts, *x.shape))


def shape_of(every: bool, gx: Tensor, gy: Tensor | None, rows: Tensor | None, *rest: Any) -> tuple[int, ...]:
    """The gradients of the states after the last step or after every step."""
    pairs = gx.shape[0] if rows is None else rows.shape[0]
    *_, (*_, width) = rest  # of the last layer
    if not every:
        return pairs, 2, width
    return pairs, 2, gx.shape[1] if gy is None else max(gx.shape[1], gy.shape[1]), width
