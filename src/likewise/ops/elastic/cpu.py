"""Calls of the CPU kernels of the elastic distances, and their division among threads."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.ops import cpu
from likewise.ops.elastic.moves import Recurrence, Tensors, by_name

# Steps of both sequences. The rounding errors of a sum in float32 grow with the number of its terms, and costs that are
# small beside the sum are lost: longer pairs are computed in float64. The least of many paths of nearly equal cost is
# one whose sum was rounded down, so EDIT, where gaps make many of them, needs float64 earlier; counts are exact.
LONGEST_IN_FLOAT32 = dict.fromkeys(Recurrence, 4096) | {Recurrence.EDIT: 512, Recurrence.COUNT: 1 << 24}


class Given:
    """The arguments of an operator, in the form that the kernels take."""

    def __init__(self, arguments: tuple[Any, ...], *, all_pairs: bool) -> None:
        tensors, moves, rules = by_name(arguments)
        self.dtype = tensors.x.dtype  # of the results

        def problem(x: Tensor, y: Tensor) -> cpu.Problem:
            lengths = tensors.x_lengths, tensors.y_lengths
            return cpu.problem("elastic", x, y, *lengths, rules, all_pairs=all_pairs, root=moves.root)

        self.problem = problem(tensors.x, tensors.y)
        if self.problem.loses_digits(LONGEST_IN_FLOAT32[moves.recurrence]):
            wide = [t if t is None else t.double() for t in tensors[:-2]]
            tensors = Tensors(*wide, *tensors[-2:])  # type: ignore[arg-type]
            self.problem = problem(tensors.x, tensors.y)
        x, y, *extra = tensors[:-2]
        self.tensors = tensors
        self.extra = [t if t is None else t.detach().contiguous() for t in extra]  # kept: the kernels read them
        gaps_x, gaps_y, reach_x, reach_y, factors = (0 if t is None else t.data_ptr() for t in self.extra)
        longest = 0 if tensors.weights is None else len(tensors.weights) // 2
        if tensors.weights is not None and longest < max(x.shape[1], y.shape[1]):
            _check.refuse("elastic", f"weights are given for up to {longest} steps, but the sequences have more")
        self.native = cpu.native.ElasticProblem(
            self.problem.native,
            int(moves.recurrence),
            gaps_x,
            gaps_y,
            reach_x,
            reach_y,
            factors,
            longest,
            int(moves.border),
            moves.penalty,
            moves.slope,
            moves.hit,
            moves.miss,
            moves.last_cost,
            *moves.own(x.shape[2]),
        )
        self.rows, self.columns = len(x), len(y)

    def run_listed(self, kernel: Any, x_items: Tensor, y_items: Tensor, *arguments: Any) -> None:
        """Run the kernel on the listed pairs, in blocks of lanes, on several threads."""
        order = self.order(x_items, y_items)
        lanes = self.problem.lanes

        def work(begin: int, end: int) -> None:
            kernel(
                cpu.INSTRUCTION_SET,
                self.native,
                x_items.data_ptr(),
                y_items.data_ptr(),
                order.data_ptr(),
                len(order),
                *arguments,
                begin,
                end,
            )

        cpu.share_out(-(-len(order) // lanes), self.problem.cells * lanes, work)

    def finished(self, values: Tensor) -> Tensor:
        """Values in the type of the results, if that can hold them."""
        return cpu.finite_values("elastic", values.to(self.dtype))

    def narrow(self, gradients: Iterable[Tensor]) -> tuple[Tensor, ...]:
        """Gradients in the type of the results."""
        return tuple(gradient.to(self.dtype) for gradient in gradients)

    def order(self, x_items: Tensor, y_items: Tensor) -> Tensor:
        """An order of the pairs that puts similar lengths next to each other."""
        if self.problem.full:
            return torch.arange(len(x_items))
        lengths = self.problem.x_lengths[x_items] * (self.problem.longest_y + 1) + self.problem.y_lengths[y_items]
        return torch.argsort(lengths, stable=True)


def value(*arguments: Any) -> Tensor:
    """Values (B,) of pairs."""
    given = Given(arguments, all_pairs=False)
    values = given.tensors.x.new_empty(given.rows)
    items = torch.arange(given.rows)
    given.run_listed(cpu.native.elastic_blocks, items, items, 0, values.data_ptr())
    return given.finished(values)


def listed(pairs: Tensor, limits: Tensor | None, *arguments: Any) -> Tensor:
    """Values (K,) of listed pairs (K, 2), each with a limit above which it may be given up."""
    given = Given(arguments, all_pairs=True)
    values = given.tensors.x.new_empty(len(pairs))
    x_items, y_items = pairs.T.contiguous()
    limits = None if limits is None else limits.to(values.dtype).contiguous()
    address = 0 if limits is None else limits.data_ptr()
    given.run_listed(cpu.native.elastic_blocks, x_items, y_items, address, values.data_ptr())
    return values.to(given.dtype) if limits is not None else given.finished(values)


def matrix(*inputs: Any) -> Tensor:
    """Values (N, M) of all pairs; symmetric, the last input: each pair is computed once."""
    *arguments, symmetric = inputs
    given = Given(tuple(arguments), all_pairs=True)
    values = given.tensors.x.new_empty(given.rows, given.columns)
    if given.columns < given.problem.lanes // 2:
        x_items = torch.arange(given.rows).repeat_interleave(given.columns)
        y_items = torch.arange(given.columns).repeat(given.rows)
        given.run_listed(cpu.native.elastic_blocks, x_items, y_items, 0, values.data_ptr())
    else:
        given.problem.run_tiles(cpu.native.elastic_tile, values, symmetric, given.native)
    return given.finished(values)


def path(*arguments: Any) -> tuple[Tensor, Tensor]:
    """Optimal paths of pairs, and their numbers of steps."""
    given = Given(arguments, all_pairs=False)
    x, y = given.tensors.x, given.tensors.y
    paths = torch.full((given.rows, max(0, x.shape[1] + y.shape[1] - 1), 2), -1)
    steps = torch.empty(given.rows, dtype=torch.int64)
    items = torch.arange(given.rows)
    given.run_listed(cpu.native.elastic_paths, items, items, paths.data_ptr(), steps.data_ptr())
    if given.rows and int(steps.min()) == 0:
        _check.refuse("elastic", f"pair {int(steps.argmin())} has no path: its costs overflow {given.dtype}")
    return paths, steps


def slopes(*arguments: Any) -> tuple[Tensor, ...]:
    """Values (B,) of pairs, and the derivative of each by its own frames and gaps."""
    given = Given(arguments, all_pairs=False)
    values = given.tensors.x.new_empty(given.rows)
    slopes = _paired_gradient(given, torch.ones_like(values), values)
    return given.finished(values), *given.narrow(slopes)


def _paired_gradient(given: Given, weight: Tensor, values: Tensor | None = None) -> tuple[Tensor, ...]:
    """Sum of weight (B,) * d value; also writes the values (B,), if memory for them is given."""
    found = tuple(given.tensors.x.new_zeros(0) if t is None else cpu.zeros_like(t) for t in given.tensors[:4])
    items = torch.arange(given.rows)
    outputs = [t.data_ptr() if t.numel() else 0 for t in found]
    address = 0 if values is None else values.data_ptr()
    given.run_listed(cpu.native.elastic_gradients, items, items, weight.data_ptr(), *outputs, address)
    return found


def gradient(weight: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    """Sum of weight * d value, weight (B,) for pairs or (N, M) for all pairs."""
    all_pairs = weight.ndim == 2
    given = Given(arguments, all_pairs=all_pairs)
    x, y, x_gaps, y_gaps, *_ = given.tensors
    weight = weight.to(x.dtype).contiguous()
    if not all_pairs:
        return given.narrow(_paired_gradient(given, weight))
    nothing = x.new_zeros(0)
    x_grad, x_gaps_grad = cpu.zeros_like(x), nothing if x_gaps is None else cpu.zeros_like(x_gaps)
    # Rows share columns, so each part of the rows sums y's gradient separately. The number of parts is fixed: the sum
    # does not depend on the number of threads.
    x_items, y_items = weight.nonzero().T.contiguous()
    listed = weight[x_items, y_items].contiguous()
    parts = max(1, min(8, given.rows))
    y_grads = y.new_zeros(parts, *y.shape)
    y_gaps_grads = nothing if y_gaps is None else y.new_zeros(parts, *y_gaps.shape)
    bounds = torch.searchsorted(x_items, torch.arange(parts + 1) * given.rows // parts).tolist()

    def run_parts(begin: int, end: int) -> None:
        for part in range(begin, end):
            first, last = bounds[part], bounds[part + 1]
            if first == last:
                continue
            order = given.order(x_items[first:last], y_items[first:last])
            cpu.native.elastic_gradients(
                cpu.INSTRUCTION_SET,
                given.native,
                x_items[first:].data_ptr(),
                y_items[first:].data_ptr(),
                order.data_ptr(),
                last - first,
                listed[first:].data_ptr(),
                x_grad.data_ptr(),
                y_grads[part].data_ptr(),
                x_gaps_grad.data_ptr() if x_gaps is not None else 0,
                y_gaps_grads[part].data_ptr() if y_gaps is not None else 0,
                0,
                0,
                -(-(last - first) // given.problem.lanes),
            )

    cpu.share_out(parts, given.problem.cells * max(1, len(listed)) // parts, run_parts)
    return given.narrow((x_grad, y_grads.sum(0), x_gaps_grad, nothing if y_gaps is None else y_gaps_grads.sum(0)))


def scaled(grad: Tensor, *slopes: Tensor) -> tuple[Tensor, ...]:
    """The derivatives of pairs, each times its gradient (B,)."""
    return tuple(s * grad.reshape(-1, *(1,) * (s.ndim - 1)) if s.numel() else s.clone() for s in slopes)
