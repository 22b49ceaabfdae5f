"""Calls of soft-DTW's CPU kernels, and the choice of the kernel."""

from typing import Any

import torch
from torch import Tensor

from likewise.ops import cpu
from likewise.ops.rules import Rules

Lengths = Tensor | None

SHARES_AT_ONCE = 1 << 25  # bytes per thread; above this, one pair at a time is faster than one per lane


def _problem(
    x: Tensor, y: Tensor | None, x_lengths: Lengths, y_lengths: Lengths, gamma: float, root: bool, *rules: Any,
    all_pairs: bool = False,
) -> cpu.Problem:  # fmt: skip
    return cpu.problem(
        "soft_dtw",
        x,
        y,
        x_lengths,
        y_lengths,
        Rules.from_plain(*rules),
        gamma=gamma,
        root=root,
        all_pairs=all_pairs,
    )


def value(x: Tensor, *arguments: Any) -> Tensor:
    """Soft-DTW of paired sequences, or of given costs without y."""
    problem = _problem(x, *arguments)
    values = x.new_empty(problem.pairs)
    _run(problem, torch.arange(problem.pairs), values, problem.fills_lanes)
    return cpu.finite_values("soft_dtw", values)


def _run(problem: cpu.Problem, pairs: Tensor, values: Tensor, fills_lanes: bool) -> None:
    """Values of the listed pairs, one in each lane or one at a time."""
    if fills_lanes and not problem.overflows_cache:
        problem.run_blocks(cpu.native.soft_dtw_value_blocks, pairs, values.data_ptr())
        return
    cpu.share_out(
        len(pairs),
        problem.cells,
        lambda begin, end: cpu.native.soft_dtw_values(
            cpu.INSTRUCTION_SET, problem.native, pairs.data_ptr(), values.data_ptr(), begin, end
        ),
    )


def with_gradient(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Values, and the gradients of the sequences or of the costs."""
    problem = _problem(x, *arguments)
    values, ones = x.new_empty(problem.pairs), x.new_ones(problem.pairs)
    x_grad, y_grad = _gradients(problem, ones, values.data_ptr())
    return cpu.finite_values("soft_dtw", values), x_grad, y_grad


def _gradients(problem: cpu.Problem, weights: Tensor, values: int = 0) -> tuple[Tensor, Tensor]:
    weights = weights.contiguous()
    shares = 2 * problem.lanes * problem.cells * weights.element_size()  # bytes that a block of lanes keeps
    if not problem.fills_lanes or problem.overflows_cache or shares > SHARES_AT_ONCE:
        return problem.gradients(
            lambda x_grad, y_grad, begin, end: cpu.native.soft_dtw_gradients(
                cpu.INSTRUCTION_SET,
                problem.native,
                problem.y is None,
                weights.data_ptr(),
                values,
                x_grad,
                y_grad,
                begin,
                end,
            )
        )
    order = None if problem.all_pairs else problem.by_length(torch.arange(problem.pairs))

    def run(x_grad: int, y_grad: int, begin: int, end: int) -> None:
        pairs = problem.by_length(torch.arange(begin, end)) if order is None else order[begin:end]
        cpu.native.soft_dtw_gradient_blocks(
            cpu.INSTRUCTION_SET,
            problem.native,
            pairs.data_ptr(),
            len(pairs),
            weights.data_ptr(),
            values,
            x_grad,
            y_grad,
            0,
            -(-len(pairs) // problem.lanes),
        )

    return problem.gradients(run, group=problem.lanes)


def matrix(x: Tensor, y: Tensor, x_lengths: Lengths, y_lengths: Lengths, symmetric: bool, *rules: Any) -> Tensor:
    """Soft-DTW of all pairs; symmetric: x against itself, and each pair is computed once."""
    problem = _problem(x, y, x_lengths, y_lengths, *rules, all_pairs=True)
    rows, columns = len(x), len(y)
    values = x.new_empty(rows, columns)
    height = max(1, (1 << 20) // max(1, columns))  # rows whose pairs are sorted at once
    for first in range(0, rows, height):
        i = torch.arange(first, min(first + height, rows))[:, None]
        j = torch.arange(columns)
        pairs = i * columns + j
        pairs = pairs[i <= j] if symmetric else pairs.flatten()
        _run(problem, pairs, values, problem.fills_lanes and 2 * len(pairs) >= problem.lanes * torch.get_num_threads())
    return cpu.finite_values("soft_dtw", values.triu() + values.triu(1).T if symmetric else values)


def matrix_gradient(weights: Tensor, x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    """Sum of weights * d value over all pairs."""
    return _gradients(_problem(x, *arguments, all_pairs=True), weights)


def plan(cost: Tensor, x_lengths: Lengths, y_lengths: Lengths, gamma: float, *rules: Any) -> tuple[Tensor, Tensor]:
    """Values and expected alignments of given costs."""
    values, plan, _ = with_gradient(cost, None, x_lengths, y_lengths, gamma, False, *rules)
    return values, plan


def hessian(cost: Tensor, tangent: Tensor, x_lengths: Lengths, y_lengths: Lengths, gamma: float, *rules: Any) -> Tensor:
    """The derivative of the plan in the direction of the tangent."""
    problem = _problem(cost, None, x_lengths, y_lengths, gamma, False, *rules)
    tangent, product = tangent.contiguous(), torch.zeros_like(problem.x)
    problem.run(cpu.native.soft_dtw_hessian, tangent.data_ptr(), product.data_ptr())
    return product
