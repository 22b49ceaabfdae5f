"""Soft-DTW on a GPU: the kernels in ops/engine compute values and the shares of each cell's predecessors. Here the
expected alignment E is computed backwards from the shares, and then the gradients of the sequences from E.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from likewise.ops.dispatch import are_plain
from likewise.ops.engine import Pairs, values
from likewise.ops.engine.columns import by_column, cells
from likewise.ops.engine.diagonals import FEW_CHANNELS, STEPS, Record, row_blocks, run_diagonals, skewed
from likewise.ops.engine.inputs import Inputs, look, unless_full, unlooked
from likewise.ops.engine.products import product_costs
from likewise.ops.engine.warps import Found, Shape, run_warps, shape
from likewise.ops.launch.answers import free_answer
from likewise.ops.launch.launcher import launch
from likewise.ops.launch.tape import Tape, find, record
from likewise.ops.rules import Rules
from likewise.ops.soft_dtw.gpu.backwards import expected_alignments
from likewise.ops.soft_dtw.gpu.gradients import add_gradients, weighted, write_gradients
from likewise.ops.soft_dtw.gpu.walks import back_kernel, tangent_kernel

__all__ = [
    "again",
    "differentiable",
    "hessian",
    "matrix",
    "matrix_gradient",
    "plan",
    "value",
    "value_with_grad",
    "weighted",
]

CELLS_AT_ONCE = 1 << 28  # cells whose shares and expectations are in memory at once, twelve bytes each


def value(x: Tensor, y: Tensor | None, x_lengths: Any, y_lengths: Any, gamma: float, root: bool, *rules: Any) -> Tensor:
    """Values of pairs, (B,)."""
    return values(_pairs(x, y, x_lengths, y_lengths, gamma, root, *rules))


def matrix(x: Tensor, y: Tensor, x_lengths: Any, y_lengths: Any, symmetric: bool, *rules: Any) -> Tensor:
    """Values of all pairs, (N, M)."""
    pairs = _pairs(x, y, x_lengths, y_lengths, *rules, all_pairs=True, symmetric=symmetric)
    return values(pairs).reshape(len(x), len(y))


class Differentiable(torch.autograd.Function):
    """Values of pairs of plain tensors, and their derivative from the same pass.

    It does the work of the operator soft_dtw_with_grad with fewer layers, which take longer than a short kernel.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, x_lengths: Any, y_lengths: Any, settings: Any, tape: Any) -> Tensor:
        found = None if tape is None else _repeated(tape, x, y)
        value, x_grad, y_grad = found or value_with_grad(x, y, x_lengths, y_lengths, *settings)
        ctx.save_for_backward(x, y, x_lengths, y_lengths, x_grad, y_grad)
        ctx.settings = settings
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        x, y, x_lengths, y_lengths, x_grad, y_grad = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative, which the operator's gradients have
            run = torch.ops.likewise.soft_dtw_with_grad
            _, x_grad, y_grad = run(x, y, x_lengths, y_lengths, *ctx.settings)
        elif are_plain((grad,)):
            return *weighted(x_grad, y_grad, grad), None, None, None, None
        return grad[:, None, None] * x_grad, grad[:, None, None] * y_grad, None, None, None, None


# PyTorch's own apply, without its search for transforms: callers have made sure that there are none.
apply = super(torch.autograd.Function, Differentiable).apply


def differentiable(x: Tensor, y: Tensor, x_lengths: Any, y_lengths: Any, *settings: Any) -> Tensor:
    """Values of pairs, (B,), where x or y requires a gradient."""
    with torch.cuda.device(x.device):
        return apply(x, y, x_lengths, y_lengths, settings, None)


def again(x: Tensor, y: Tensor, *settings: Any) -> Tensor | None:
    """The same for sequences without padding; None unless an earlier call had the same shapes and settings."""
    device = x.get_device()
    tape = find(_key(x, y, settings))
    if tape is None or y.dtype != x.dtype or device != y.get_device() or device != torch.cuda.current_device():
        return None
    return apply(x, y, None, None, settings, tape)


def value_with_grad(
    x: Tensor, y: Tensor, x_lengths: Any, y_lengths: Any, gamma: float, root: bool, *rules: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Values of pairs, and the gradients of each pair's own value."""
    if x.shape[0] == 0:
        return x.new_empty(0), x.new_empty(x.shape), y.new_empty(y.shape)
    x_lengths, y_lengths = unless_full(x_lengths, x.shape[1]), unless_full(y_lengths, y.shape[1])
    settings = (gamma, root, *rules)
    if x_lengths is not None or y_lengths is not None:
        return _value_with_grad(_pairs(x, y, x_lengths, y_lengths, *settings))[0]
    key = _key(x, y, settings)
    tape = find(key)
    found = None if tape is None else _repeated(tape, x, y)
    return found or record(key, lambda: _value_with_grad(_pairs(x, y, None, None, *settings)))


def _key(x: Tensor, y: Tensor, settings: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shapes and settings on which the launches of value_with_grad depend."""
    return (x.shape, y.shape, x.dtype, x.get_device(), x.data_ptr() == y.data_ptr(), *settings)


def _repeated(tape: Tape, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Values and gradients from recorded launches; None if these cannot run, or an error must be reported."""
    x_at, y_at = x.data_ptr(), y.data_ptr()
    if (x_at | y_at) & 15 or not x.is_contiguous() or not y.is_contiguous():
        return None
    answer = free_answer(x)
    if answer is None:
        return None
    found, x_grad, y_grad = x.new_empty(x.shape[0]), torch.empty_like(x), torch.empty_like(y)
    scratch = x.new_empty(tape.scratch, dtype=torch.uint8)
    given = (x_at, y_at, x_grad.data_ptr(), y_grad.data_ptr(), found.data_ptr(), answer.address, scratch.data_ptr())
    ran = tape.run(x.get_device(), given, answer.event)
    huge, _ = answer.take()
    return (found, x_grad, y_grad) if ran and not huge else None


def _value_with_grad(pairs: Pairs) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, ...] | None]:
    """Values and gradients, and the tensors that a repetition of the launches needs; None if it cannot be repeated."""
    x, y = pairs.x, pairs.y
    assert y is not None
    x_grad, y_grad, chunks = x.new_empty(x.shape), y.new_empty(y.shape), _chunks(pairs, 1)
    inputs, found, result = _look(pairs, chunks), [], x.new_empty(pairs.count)
    for first, last in chunks:
        kept, expected, cost = _expected(inputs, first, last, result)
        write_gradients(inputs, expected, cost, first, last, first, x_grad, y_grad)
        found.append(replace(kept, shares=()))
    inputs.require_fine(*found)
    given = None
    if len(found) == 1 and not pairs.rules.open_end and inputs.answer is not None:
        given = (inputs.x, inputs.y, x_grad, y_grad, result, inputs.answer.numbers)
    return (result, x_grad, y_grad), given


def matrix_gradient(
    weights: Tensor, x: Tensor, y: Tensor, x_lengths: Any, y_lengths: Any, gamma: float, root: bool, *rules: Any
) -> tuple[Tensor, Tensor]:
    """Sum of weights (N, M) * d value over all pairs."""
    pairs = _pairs(x, y, x_lengths, y_lengths, gamma, root, *rules, all_pairs=True)
    x_grad, y_grad = x.new_zeros(x.shape), y.new_zeros(y.shape)
    if pairs.count == 0:
        return x_grad, y_grad
    chunks, weights = _chunks(pairs, len(y)), weights.to(x.dtype).contiguous()  # whole rows
    inputs, found, result = _look(pairs, chunks), [], x.new_empty(pairs.count)
    for first, last in chunks:
        kept, expected, cost = _expected(inputs, first, last, result)
        add_gradients(inputs, expected, cost, first, last, weights, x_grad, y_grad)
        found.append(replace(kept, shares=()))  # each chunk's shares would stay in memory
    inputs.require_fine(*found)
    return x_grad, y_grad


def plan(cost: Tensor, x_lengths: Any, y_lengths: Any, gamma: float, *rules: Any) -> tuple[Tensor, Tensor]:
    """Values and expected alignments of given costs."""
    pairs = _pairs(cost, None, x_lengths, y_lengths, gamma, False, *rules)
    inputs, result, plans = unlooked(pairs), cost.new_empty(pairs.count), cost.new_empty(cost.shape)
    for first, last in _chunks(pairs, 1):
        kept, expected, _ = _expected(inputs, first, last, result, zero=True)
        pairs.require_finite(torch.cat((result[first:last], kept.flags)))
        plans[first:last] = cells(expected, pairs.steps[0])
    return result, plans


def hessian(cost: Tensor, tangent: Tensor, x_lengths: Any, y_lengths: Any, gamma: float, *rules: Any) -> Tensor:
    """Derivative of the plan in the direction of the tangent: Mensch & Blondel (2018), arXiv:1802.03676.

    Forwards, R' = tangent + sum_k share_k R'_k and share_k' = -share_k (R'_k - sum_l share_l R'_l) / gamma;
    backwards, E' gathers share' E + share E'.
    """
    pairs = _pairs(cost, None, x_lengths, y_lengths, gamma, False, *rules)
    inputs, product = unlooked(pairs), cost.new_empty(cost.shape)
    for first, last in _chunks(pairs, 1):
        kept = run_diagonals(pairs, first, last, record=True, inputs=inputs)
        expected = _walk_back(inputs, kept, first, last, zero=True)
        r, mean = _walk_forward(inputs, kept, tangent[first:last], first, last)
        up_change = -kept.up * (_shifted(r, 1, 0) - mean) / gamma
        left_change = -kept.left * (_shifted(r, 0, 1) - mean) / gamma
        source = (
            _shifted(up_change * expected, -1, 0)
            + _shifted(left_change * expected, 0, -1)
            - _shifted((up_change + left_change) * expected, -1, -1)
        )
        if pairs.rules.open_end:  # the shares of the last row in the value change too
            here, ends = torch.arange(last - first, device=cost.device), pairs.lengths()[0][first:last] - 1
            last_row, seeds = r[here, ends], _seeds(kept.last_row, cost.dtype)  # (pairs, Ty)
            source[here, ends] -= seeds * (last_row - (seeds * last_row).sum(1, keepdim=True)) / gamma
        product[first:last] = _walk_back(inputs, kept, first, last, source, zero=True)
    return product


def _pairs(
    x: Tensor, y: Tensor | None, x_lengths: Any, y_lengths: Any, gamma: float, root: bool, *rules: Any,
    **options: bool,
) -> Pairs:  # fmt: skip
    scale, given = 1 / (gamma * math.log(2)), Rules.from_plain(*rules)
    return Pairs("soft_dtw", x, y, x_lengths, y_lengths, given, soft=True, scale=scale, root=root, **options)


def _chunks(pairs: Pairs, group: int) -> list[tuple[int, int]]:
    x_steps, y_steps = pairs.steps
    chunk = max(1, CELLS_AT_ONCE // max(1, x_steps * y_steps * group)) * max(1, group)
    return [(first, min(first + chunk, pairs.count)) for first in range(0, pairs.count, chunk)]


def _costs_ahead(pairs: Pairs) -> bool:
    """Whether to store the costs of sequences: faster with many channels, and the gradient of a root needs them."""
    return pairs.y is not None and (pairs.root or pairs.x.shape[2] > FEW_CHANNELS)


def _look(pairs: Pairs, chunks: list[tuple[int, int]]) -> Inputs:
    count = chunks[0][1]
    zeros = _shape(pairs, count).places(pairs.steps[0], count)
    return look(pairs, turn_x=_costs_ahead(pairs), turn_y=True, places=zeros, walks=2)


def _shape(pairs: Pairs, count: int) -> Shape:
    return shape(pairs, count, given=pairs.y is None or _costs_ahead(pairs), record=True)


def _expected(
    inputs: Inputs, first: int, last: int, values: Tensor, *, zero: bool = False
) -> tuple[Found, Tensor, Tensor | None]:
    """The kernel's results for pairs first..last-1, their expected alignments, by column, and their costs if computed.

    With ``zero``, the padding is zero. Costs are overwritten, except those of a root.
    """
    pairs, cost = inputs.pairs, None
    if pairs.y is None:
        cost = by_column(inputs.x, last - first, *pairs.steps)
        cells(cost, pairs.steps[0]).copy_(inputs.x[first:last])
    elif _costs_ahead(pairs):
        cost = product_costs(inputs, first, last)
    how = _shape(pairs, last - first)
    kept = run_warps(inputs, how, first, last, values, cost=cost, record=True)
    seeds = _seeds(kept.last_row, inputs.x.dtype) if pairs.rules.open_end else None
    zero = zero and not inputs.full
    room = by_column(inputs.x, last - first, *pairs.steps, zero=zero) if cost is None or pairs.root or zero else cost
    return kept, expected_alignments(inputs, how, kept, first, last, seeds, room), cost


def _seeds(last_row: Tensor, dtype: torch.dtype) -> Tensor:
    """Open at the end: the derivative of the value with respect to the last row of each pair, (pairs, Ty)."""
    return torch.softmax(-last_row * math.log(2), 1).to(dtype)


def _shifted(x: Tensor, down: int, right: int) -> Tensor:
    """x (pairs, Tx, Ty) shifted down and right by one step, up and left if negative, and filled with zeros."""
    moved = torch.zeros_like(x)
    to_i, from_i = _overlap(down)
    to_j, from_j = _overlap(right)
    moved[:, to_i, to_j] = x[:, from_i, from_j]
    return moved


def _overlap(step: int) -> tuple[slice, slice]:
    if step == 0:
        return slice(None), slice(None)
    return (slice(1, None), slice(None, -1)) if step > 0 else (slice(None, -1), slice(1, None))


def _walk_back(
    inputs: Inputs, kept: Record, first: int, last: int, source: Tensor | None = None, *, zero: bool = False
) -> Tensor:
    """Expected alignments, skewed; or, with a source, the sums of the source on the same walk."""
    expected, open_end = _like(inputs, kept, zero), inputs.pairs.rules.open_end
    seeds = _seeds(kept.last_row, kept.shares.dtype) if open_end else kept.shares
    added = kept.shares if source is None else _like(inputs, kept, zero).copy_(source)
    _run(
        back_kernel,
        inputs,
        (kept.shares, seeds, added, expected),
        first,
        last,
        SOURCE=source is not None,
        OPEN_END=open_end,
    )
    return expected


def _walk_forward(inputs: Inputs, kept: Record, tangent: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
    added, result, mean = (_like(inputs, kept, zero=True) for _ in range(3))
    _run(tangent_kernel, inputs, (kept.shares, added.copy_(tangent), result, mean), first, last)
    return result, mean


def _like(inputs: Inputs, kept: Record, zero: bool) -> Tensor:
    """Memory for a number of each cell; the kernels do not write those of the padding."""
    return skewed(kept.shares, kept.shares.shape[1], *inputs.pairs.steps, zero=zero and not inputs.full)


def _run(kernel: Any, inputs: Inputs, tensors: tuple[Tensor, ...], first: int, last: int, **flags: bool) -> None:
    pairs, count = inputs.pairs, last - first
    x_steps, y_steps = pairs.steps
    lanes, blocks, edges, progress = row_blocks(inputs, count, tensors[0].dtype)
    launch(
        kernel,
        (count * blocks,),
        (*tensors, edges, progress, inputs.x_lengths, inputs.y_lengths),
        (count, first, pairs.columns, blocks, x_steps, y_steps),
        lanes // 32,
        ALL_PAIRS=pairs.all_pairs,
        FULL=inputs.full,
        **flags,
        BLOCKS=blocks > 1,
        LANES=lanes,
        STEPS=STEPS,
    )
