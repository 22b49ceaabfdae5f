"""Continuous-time warping (GDTW), differentiable through its solution (DecDTW).

x is linear between its times and is warped to meet y at y's times t_1 < ... < t_m, the knots. The warp phi is linear
between the knots and minimises

    f(phi) = sum_i w_i |x(phi_i) - y_i|^2 + reg sum_i (slope_i - stretch)^2 Delta_i,
    Delta_i = t_i+1 - t_i,  slope_i = (phi_i+1 - phi_i) / Delta_i,  w the weights of the trapezoid rule,

within lower_i <= phi_i <= upper_i, slope_min_i <= slope_i <= slope_max_i and x's span. Its ends are x's ends, and
stretch is x's duration by y's; in a subsequence they are free, and stretch is 1. With ``huber``, each residual u beyond
it counts 2 huber |u| - huber^2 instead of u^2.

The solver is a dynamic program on a grid, refined around its solution, and then a polish to first-order optimality: a
local minimum, in the basin that the grid found best. Refined grids have half the nodes, and move with a solution at
their rim.
Cost: O(m M) for each pass, M nodes of the grid for each knot, and O(n m C) for the losses; the derivative is O(m C).
Memory: O(m M) bytes for each pair at work. Everything is computed in float64, whatever the input; but on a GPU the grid
is searched in x's precision, with M up to two nodes fewer, in O(m M^2) for each pass (see gpu.py).

Derivatives of the warp are those of the optimality conditions (implicit differentiation); of the value, those of the
objective at the solution (the envelope theorem). Departures from the paper, all exact where it is not: knots that
sit on a kink of x (one of its times, where the loss has a minimum like that of |u|) do not move; active constraints are
reduced to full rank by merging knots that move together; the derivatives with respect to bounds and slope limits exist.
Where x is flat under a warp that nothing holds, the warp slides freely: its derivative leaves the sliding out.
Where constraints are active without need the derivative is one of several; limits that say nothing new get none.

Reference: Xu, Garg, Milford & Gould (2023), arXiv:2303.10778; Deriso & Boyd (2019), arXiv:1905.12893.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.ops import cpu
from likewise.ops.dispatch import operator
from likewise.ops.ground import at_least_float32

__all__ = ["gdtw"]

Lengths = Tensor | None
_LIMITS = {"lower": -math.inf, "upper": math.inf, "slope_min": 0.0, "slope_max": math.inf}  # that change nothing


def gdtw(
    x: Tensor,
    y: Tensor,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    *,
    times_x: Tensor,
    times_y: Tensor,
    reg: Tensor,
    lower: Tensor | None = None,
    upper: Tensor | None = None,
    slope_min: Tensor | None = None,
    slope_max: Tensor | None = None,
    subsequence: bool = False,
    huber: float = math.inf,
    grid: int | None = None,
    refinements: int = 2,
) -> tuple[Tensor, Tensor]:
    """Values (B,) and warps (B, Ty) of x (B, Tx, C) with y (B, Ty, C), at times (B, Tx) and (B, Ty).

    reg (B,), lower and upper (B, Ty), slope_min (default 0) and slope_max (B, Ty - 1) have derivatives, like x and y;
    the times have none. grid: nodes for each knot, made odd, by default the steps of x, at least 50. Warps are float64,
    and NaN in the padding.

    Example:
        >>> x, times = torch.tensor([[[0.0], [1.0], [4.0]]]), torch.tensor([[0.0, 0.5, 1.0]])
        >>> y, reg = torch.tensor([[[0.0], [2.5], [4.0]]]), torch.tensor([1e-6])
        >>> value, warp = gdtw(x, y, times_x=times, times_y=times, reg=reg)
        >>> warp
        tensor([[0.0000, 0.7500, 1.0000]], dtype=torch.float64)
    """
    _check.pair("gdtw", x, y, x_lengths, y_lengths, paired=True)
    count, knots = y.shape[:2]
    absent = {  # of a pair of limits both are there, or neither
        *(("lower", "upper") if lower is None and upper is None else ()),
        *(("slope_min", "slope_max") if slope_min is None and slope_max is None else ()),
    }
    shapes = {
        "times_x": (times_x, x.shape[:2]),
        "times_y": (times_y, y.shape[:2]),
        "reg": (reg, (count,)),
        "lower": (lower, (count, knots)),
        "upper": (upper, (count, knots)),
        "slope_min": (slope_min, (count, max(knots - 1, 0))),
        "slope_max": (slope_max, (count, max(knots - 1, 0))),
    }
    settings = {
        name: _setting(name, value, shape, x, _LIMITS.get(name))
        for name, (value, shape) in shapes.items()
        if name not in absent
    }
    value, warp, _ = _gdtw(
        at_least_float32(x),
        at_least_float32(y),
        x_lengths,
        y_lengths,
        *(settings.get(name) for name in shapes),
        subsequence,
        float(huber),
        grid or 0,
        refinements,
    )
    return value.to(x.dtype), warp


def _setting(name: str, value: Tensor | None, shape: tuple[int, ...], x: Tensor, absent: float | None) -> Tensor:
    """A float64 tensor of that shape on x's device."""
    if value is None and absent is not None:
        return torch.full(shape, absent, dtype=torch.float64, device=x.device)
    tensor = _check.is_tensor("gdtw", name, value)
    if tensor.shape != shape:
        _check.refuse("gdtw", f"expected {name} of shape {tuple(shape)}, got {tuple(tensor.shape)}")
    if name.startswith("times") and tensor.requires_grad:
        _check.refuse("gdtw", f"there is no derivative with respect to {name}; detach it")
    return tensor.to(x.device, torch.float64).contiguous()


# The operators. What the kernels say about a pair that cannot be solved, in the order of kernel.h's Fault.
_FAULTS = (
    "",
    "x[{b}] has 1 step; a warp needs at least two",
    "y[{b}] has 1 step; a warp needs at least two",
    "x[{b}] holds {x} at step {step}, channel {channel}",
    "y[{b}] holds {y} at step {step}, channel {channel}",
    "times_x[{b}] must be finite and increasing, but step {k} is {times_x}",
    "times_y[{b}] must be finite and increasing, but step {k} is {times_y}",
    "reg must be positive and finite, got {reg} for pair {b}",
    "slopes must be 0 <= min <= max, got ({slope_min}, {slope_max}) after knot {k} of pair {b}",
    "the band of pair {b} is empty at knot {k}: from {lower} to {upper}",
    "no warp of pair {b} keeps to the band and the slopes: none passes knot {k}; widen them",
    "the warp of pair {b} did not settle; give reg or huber another scale",
    "the value of pair {b} is not finite: its losses overflow",
)


@dataclass(frozen=True)
class _Problem:
    """What the kernels are asked, with the tensors that its addresses point into."""

    native: object
    tensors: tuple[Tensor, ...]
    count: int
    work: int  # of one pair, in cells of DTW

    @classmethod
    def of(cls, x: Tensor, y: Tensor, x_lengths: Lengths, y_lengths: Lengths, *given: Any) -> "_Problem":
        *settings, subsequence, huber, nodes, refinements = given
        settings = [setting.detach().contiguous() for setting in _with_limits(y, *settings)]
        x, y = x.detach().contiguous(), y.detach().contiguous()
        count, x_steps, channels = x.shape
        y_steps = y.shape[1]
        lengths = (
            cpu._lengths("gdtw", "x_lengths", x_lengths, count, x_steps),
            cpu._lengths("gdtw", "y_lengths", y_lengths, count, y_steps),
        )
        tensors = (x, y, *lengths, *settings)
        native = cpu.native.WarpProblem(
            *(tensor.data_ptr() for tensor in tensors),
            count=count,
            x_steps=x_steps,
            y_steps=y_steps,
            channels=channels,
            float64=x.dtype == torch.float64,
            subsequence=subsequence,
            huber=huber,
            nodes=nodes,
            refinements=refinements,
        )
        each = (nodes or max(x_steps, 50)) * (1 + refinements) * 50 + x_steps * channels
        return cls(native, tensors, count, y_steps * each)

    def refuse(self, b: int, fault: int, at: int, number: int) -> None:
        """Say what is wrong with pair b, by its number; ``at`` is a knot, a step, or a step times channels."""
        x, y, _, _, times_x, times_y, reg, lower, upper, slope_min, slope_max = self.tensors
        step, channel = divmod(at, max(1, x.shape[2]))
        places = {"b": number, "k": at, "step": step, "channel": channel}
        named = {"x": x, "y": y} if "channel" in _FAULTS[fault] else {}
        named |= {"times_x": times_x, "times_y": times_y, "lower": lower, "upper": upper}
        named |= {"slope_min": slope_min, "slope_max": slope_max}
        found = {"reg": f"{reg[b].item():g}"}
        for name, tensor in named.items():
            if "{" + name + "}" in _FAULTS[fault]:
                value = tensor[b, step, channel] if tensor.ndim == 3 else tensor[b, at]
                found[name] = f"{value.item():g}"
        _check.refuse("gdtw", _FAULTS[fault].format(**places, **found))


def _with_limits(y: Tensor, *settings: Tensor | None) -> list[Tensor]:
    """The settings, with limits that change nothing where there are none."""
    count, knots = y.shape[:2]
    shapes = {"lower": (count, knots), "upper": (count, knots)}
    shapes |= {"slope_min": (count, max(knots - 1, 0)), "slope_max": (count, max(knots - 1, 0))}
    limits = (
        torch.full(shapes[name], _LIMITS[name], dtype=torch.float64, device=y.device) if given is None else given
        for name, given in zip(shapes, settings[3:], strict=True)
    )
    return [*(setting for setting in settings[:3] if setting is not None), *limits]


def _solve_cpu(x: Tensor, y: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    count, knots = y.shape[:2]
    values = torch.empty(count, dtype=torch.float64)
    warps = torch.empty(count, knots, dtype=torch.float64)
    holds = torch.empty(count, knots, 2, dtype=torch.int32)
    _run(cpu.native.gdtw_solve, _Problem.of(x, y, *given), values, warps, holds)
    return values, warps, holds


def _run(
    kernel: Callable[..., None],
    problem: _Problem,
    values: Tensor,
    warps: Tensor,
    holds: Tensor,
    numbers: list[int] | None = None,
) -> None:
    """Solve, or polish the warps, in place; refuse what cannot be solved. numbers: of the pairs, by default 0..."""
    faults = torch.empty(problem.count, 2, dtype=torch.int64)
    written = tuple(each.data_ptr() for each in (values, warps, holds, faults))
    cpu.share_out(
        problem.count,
        problem.work,
        lambda begin, end: kernel(cpu.INSTRUCTION_SET, problem.native, *written, begin, end),
    )
    if faults[:, 0].any():
        b = int(faults[:, 0].nonzero()[0])
        problem.refuse(b, *faults[b].tolist(), number=b if numbers is None else numbers[b])


def _grad_cpu(
    value_grad: Tensor, warp_grad: Tensor, warp: Tensor, holds: Tensor, x: Tensor, y: Tensor, *given: Any
) -> tuple[Tensor, ...]:
    problem = _Problem.of(x, y, *given)
    x, y, _, _, _, _, *settings = problem.tensors
    grads = tuple(cpu.zeros_like(each) for each in (x, y, *settings))
    _add_gradients(problem, value_grad, warp_grad, warp, holds, grads)
    return *grads[:3], *_of_given(grads[3:], given)


def _of_given(grads: tuple[Tensor, ...], given: tuple[Any, ...]) -> list[Tensor]:
    """Gradients of limits, empty where there are none."""
    limits = given[5:9]
    return [grad if limit is not None else grad.new_empty(0) for grad, limit in zip(grads, limits, strict=True)]


def _add_gradients(problem: _Problem, *given: Any) -> None:
    """Add the gradients of (value_grad, warp_grad, warp, holds) to the last of ``given``: of x, y and the settings."""
    value_grad, warp_grad, warp, holds = (each.contiguous() for each in given[:4])
    x, y = problem.tensors[:2]
    described = cpu.native.WarpGradients(
        value_grad.data_ptr(), warp_grad.data_ptr(), *(each.data_ptr() for each in given[4])
    )
    cpu.share_out(
        problem.count,
        50 * y.shape[1] * (x.shape[2] + 10),
        lambda begin, end: cpu.native.gdtw_gradients(
            cpu.INSTRUCTION_SET, problem.native, warp.data_ptr(), holds.data_ptr(), described, begin, end
        ),
    )


def _solve_fake(x: Tensor, y: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    shape = y.shape[:2]
    values = y.new_empty(shape[0], dtype=torch.float64)
    return values, y.new_empty(shape, dtype=torch.float64), y.new_empty(*shape, 2, dtype=torch.int32)


def _grad_fake(
    value_grad: Tensor, warp_grad: Tensor, warp: Tensor, holds: Tensor, x: Tensor, y: Tensor, *given: Any
) -> tuple[Tensor, ...]:
    reg, *limits = given[4:9]
    return (
        *(torch.empty_like(each) for each in (x, y, reg)),
        *(reg.new_empty(0) if each is None else torch.empty_like(each) for each in limits),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    _, warp, holds = output
    ctx.mark_non_differentiable(holds)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(warp, holds, *inputs[:11])
    ctx.options = inputs[11:]


def _backward(ctx: Any, value_grad: Tensor | None, warp_grad: Tensor | None, _: Any) -> tuple[Any, ...]:
    warp, holds, *inputs = ctx.saved_tensors
    value_grad = warp.new_zeros(warp.shape[0]) if value_grad is None else value_grad
    warp_grad = torch.zeros_like(warp) if warp_grad is None else warp_grad
    x, y, reg, *found = _gdtw_grad(value_grad, warp_grad, warp, holds, *inputs, *ctx.options)
    limits = (None if limit is None else grad for grad, limit in zip(found, inputs[7:], strict=True))
    return x, y, None, None, None, None, reg, *limits, *(None for _ in ctx.options)


def _no_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError("gdtw: the second derivative is not implemented")


_PAIRS = (
    "Tensor x, Tensor y, Tensor? x_lengths, Tensor? y_lengths, Tensor times_x, Tensor times_y, Tensor reg, "
    "Tensor? lower, Tensor? upper, Tensor? slope_min, Tensor? slope_max, bool subsequence, float huber, int nodes, "
    "int refinements"
)

# Values (B,), warps (B, Ty), and what holds each knot, (B, Ty, 2): its segment of x and the flags of kernel.h's Hold.
_gdtw = operator(
    f"gdtw({_PAIRS}) -> (Tensor, Tensor, Tensor)",
    cpu=_solve_cpu,
    triton="gdtw.solve",
    fake=_solve_fake,
    save=_save,
    backward=_backward,
)
_gdtw_grad = operator(
    f"gdtw_grad(Tensor value_grad, Tensor warp_grad, Tensor warp, Tensor holds, {_PAIRS}) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    cpu=_grad_cpu,
    triton="gdtw.gradient",
    fake=_grad_fake,
    backward=_no_second_derivative,
)
