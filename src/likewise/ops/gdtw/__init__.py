"""Continuous-time warping (GDTW), differentiable through its solution (DecDTW).

The warp phi goes from x's time to y's. y is linear between its times and is warped to meet x at x's times
t_1 < ... < t_m, the knots. phi is linear between the knots and minimises

    f(phi) = sum_i w_i |x_i - y(phi_i)|^2 + reg sum_i (slope_i - stretch)^2 Delta_i,
    Delta_i = t_i+1 - t_i,  slope_i = (phi_i+1 - phi_i) / Delta_i,  w the weights of the trapezoid rule,

within lower_i <= phi_i <= upper_i, slope_min_i <= slope_i <= slope_max_i and y's span. Its ends are y's ends, and
stretch is y's duration by x's; in a subsequence the ends are free, and stretch is 1. With ``huber``, each residual u
beyond it costs 2 huber |u| - huber^2 instead of u^2.

The solver is a dynamic program on a grid, refined around its solution, followed by a polish to first-order optimality.
The result is a local minimum, in the best basin of the grid. The second grid has half the nodes on an eighth of the
width, at least 10 steps of y; each later one is a quarter as wide. If a solution is at the edge of its grid, the next
grid is centred there. The default grid ends more than 1 % above the minimum on about 1 % of noisy walks
(benchmarks/gdtw.py, "minimum of walks").
Cost: O(m M) for each pass, M nodes of the grid for each knot, and O(n m C) for the losses; the derivative is O(m C).
Memory: O(m M) bytes for each pair in progress. Everything is computed in float64, for any input type, except that on a
GPU the grid is searched in the input's precision, with M up to two nodes fewer, by many lanes at once (see gpu/), and
the losses are found from O(n m) distances.

Derivatives of the warp are those of the optimality conditions (implicit differentiation); of the value, those of the
objective at the solution (the envelope theorem). Departures from the paper, which make the derivatives exact in cases
where the paper's are not: knots at a kink of y (one of its times, where the loss has a minimum like that of |u|) do not
move; active constraints are reduced to full rank by merging knots that move together; the derivatives with respect to
bounds and slope limits exist. If y is flat under an unconstrained warp, the warp can slide freely, and its derivative
leaves out the sliding. If active constraints are redundant, the derivative is one of several, and the redundant limits
get none.

Reference: Xu, Garg, Milford & Gould (2023), arXiv:2303.10778; Deriso & Boyd (2019), arXiv:1905.12893.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from likewise import _check
from likewise.ops import cpu
from likewise.ops.dispatch import operator
from likewise.ops.ground import at_least_float32

__all__ = ["gdtw"]

Lengths = Tensor | None
_LIMITS = {"lower": -math.inf, "upper": math.inf, "slope_min": 0.0, "slope_max": math.inf}  # without effect


class Inputs(NamedTuple):
    """The operators' arguments in order. Limits come in pairs: both are given, or neither."""

    x: Tensor  # (B, Tx, C)
    y: Tensor  # (B, Ty, C)
    x_lengths: Lengths  # (B,)
    y_lengths: Lengths
    times_x: Tensor  # (B, Tx), float64 like all the following
    times_y: Tensor  # (B, Ty)
    reg: Tensor  # (B,)
    lower: Tensor | None  # (B, Tx)
    upper: Tensor | None
    slope_min: Tensor | None  # (B, Tx - 1)
    slope_max: Tensor | None
    subsequence: bool
    huber: float
    nodes: int
    refinements: int

    def tensors(self) -> tuple[Tensor | None, ...]:
        """All fields before the options."""
        return self[: -len(self.options())]  # type: ignore[return-value]

    def options(self) -> tuple[bool, float, int, int]:
        """The plain numbers."""
        return self.subsequence, self.huber, self.nodes, self.refinements

    def limits(self) -> dict[str, Tensor | None]:
        """Bounds and slope limits by name."""
        return {name: getattr(self, name) for name in _LIMITS}

    def all_limits(self) -> dict[str, Tensor]:
        """Bounds and slope limits by name, with limits without effect in place of missing ones."""
        count, knots = self.x.shape[:2]
        sizes = {"lower": knots, "upper": knots, "slope_min": max(knots - 1, 0), "slope_max": max(knots - 1, 0)}
        return {
            name: torch.full((count, sizes[name]), _LIMITS[name], dtype=torch.float64, device=self.x.device)
            if given is None
            else given
            for name, given in self.limits().items()
        }


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
    """Values (B,) and warps (B, Tx), from x (B, Tx, C) to y (B, Ty, C), at times (B, Tx) and (B, Ty).

    reg (B,), lower and upper (B, Tx), slope_min (default 0) and slope_max (B, Tx - 1) have derivatives, like x and y;
    the times have none. grid: nodes for each knot, made odd; by default as many as y has steps, or more if y has fewer
    than 64. Warps are float64, and NaN in the padding.

    Example:
        >>> y, times = torch.tensor([[[0.0], [1.0], [4.0]]]), torch.tensor([[0.0, 0.5, 1.0]])
        >>> x, reg = torch.tensor([[[0.0], [2.5], [4.0]]]), torch.tensor([1e-6])
        >>> value, warp = gdtw(x, y, times_x=times, times_y=times, reg=reg)
        >>> warp
        tensor([[0.0000, 0.7500, 1.0000]], dtype=torch.float64)
    """
    _check.pair("gdtw", x, y, x_lengths, y_lengths, paired=True)
    count, knots = x.shape[:2]
    absent = {  # both limits of a pair are given, or neither
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
        name: None if name in absent else _setting(name, value, shape, x, _LIMITS.get(name))
        for name, (value, shape) in shapes.items()
    }
    inputs = Inputs(
        x=at_least_float32(x),
        y=at_least_float32(y),
        x_lengths=x_lengths,
        y_lengths=y_lengths,
        **settings,  # type: ignore[arg-type]
        subsequence=subsequence,
        huber=float(huber),
        nodes=grid or 0,
        refinements=refinements,
    )
    value, warp, _ = _gdtw(*inputs)
    # The operator has checked that they fit into its type, without another wait for the GPU.
    return value.to(x.dtype) if inputs.x.dtype == x.dtype else _check.fits("gdtw", value, x.dtype), warp


def _setting(name: str, value: Tensor | None, shape: tuple[int, ...], x: Tensor, absent: float | None) -> Tensor:
    """A float64 tensor of this shape on x's device."""
    if value is None and absent is not None:
        return torch.full(shape, absent, dtype=torch.float64, device=x.device)
    tensor = _check.is_tensor("gdtw", name, value)
    if tensor.shape != shape:
        _check.refuse("gdtw", f"expected {name} of shape {tuple(shape)}, got {tuple(tensor.shape)}")
    if name.startswith("times") and tensor.requires_grad:
        _check.refuse("gdtw", f"there is no derivative with respect to {name}; detach it")
    return tensor.to(x.device, torch.float64).contiguous()


# Errors for pairs that cannot be solved, in the order of kernel.h's Fault.
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
    "the warp of pair {b} did not converge; change the scale of reg or huber",
    "the value of pair {b} is not finite: its losses overflow",
)


@dataclass(frozen=True)
class _Problem:
    """The problem for the kernels, with the tensors to which its addresses point."""

    native: object
    tensors: dict[str, Tensor]  # by the names of kernel.h's WarpProblem
    count: int
    work: int  # the work of one pair, in cells of DTW

    @classmethod
    def of(cls, given: Inputs) -> "_Problem":
        count, x_steps, channels = given.x.shape
        y_steps = given.y.shape[1]
        tensors = {
            "x": given.x,
            "y": given.y,
            "x_lengths": cpu.checked_lengths("gdtw", "x_lengths", given.x_lengths, count, x_steps),
            "y_lengths": cpu.checked_lengths("gdtw", "y_lengths", given.y_lengths, count, y_steps),
            "x_times": given.times_x,
            "y_times": given.times_y,
            "reg": given.reg,
            **given.all_limits(),
        }
        tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
        native = cpu.native.WarpProblem(
            **{name: tensor.data_ptr() for name, tensor in tensors.items()},
            count=count,
            x_steps=x_steps,
            y_steps=y_steps,
            channels=channels,
            float64=given.x.dtype == torch.float64,
            subsequence=given.subsequence,
            huber=given.huber,
            nodes=given.nodes,
            refinements=given.refinements,
        )
        each = (given.nodes or max(y_steps, 128)) * (1 + given.refinements) * 50 + y_steps * channels
        return cls(native, tensors, count, x_steps * each)

    def refuse(self, b: int, fault: int, at: int, number: int) -> None:
        """Raise the error with this number for pair b; ``at`` is a knot, a step, or a step times channels."""
        tensors = self.tensors | {"times_x": self.tensors["x_times"], "times_y": self.tensors["y_times"]}
        step, channel = divmod(at, max(1, tensors["x"].shape[2]))
        found: dict[str, object] = {"b": number, "k": at, "step": step, "channel": channel}
        for name, tensor in tensors.items():
            if "{" + name + "}" in _FAULTS[fault]:
                place = {1: (b,), 2: (b, at), 3: (b, step, channel)}[tensor.ndim]
                found[name] = f"{tensor[place].item():g}"
        _check.refuse("gdtw", _FAULTS[fault].format(**found))


def _solve_cpu(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    inputs = Inputs(*given)
    count, knots = inputs.x.shape[:2]
    values = torch.empty(count, dtype=torch.float64)
    warps = torch.empty(count, knots, dtype=torch.float64)
    holds = torch.empty(count, knots, 2, dtype=torch.int32)
    _run(cpu.native.gdtw_solve, _Problem.of(inputs), values, warps, holds)
    _check.fits("gdtw", values, inputs.x.dtype)
    return values, warps, holds


def _run(
    kernel: Callable[..., None],
    problem: _Problem,
    values: Tensor,
    warps: Tensor,
    holds: Tensor,
    numbers: list[int] | None = None,
) -> None:
    """Solve, or polish the warps, in place; raise errors for faulty pairs. numbers: of the pairs, by default from 0."""
    faults = torch.empty(problem.count, 2, dtype=torch.int64)
    written = values.data_ptr(), warps.data_ptr(), holds.data_ptr(), faults.data_ptr()
    cpu.share_out(
        problem.count,
        problem.work,
        lambda begin, end: kernel(cpu.INSTRUCTION_SET, problem.native, *written, begin, end),
    )
    if faults[:, 0].any():
        b = int(faults[:, 0].nonzero()[0])
        problem.refuse(b, *faults[b].tolist(), number=b if numbers is None else numbers[b])


def _grad_cpu(value_grad: Tensor, warp_grad: Tensor, warp: Tensor, holds: Tensor, *given: Any) -> tuple[Tensor, ...]:
    inputs = Inputs(*given)
    problem = _Problem.of(inputs)
    grads = {name: cpu.zeros_like(problem.tensors[name]) for name in ("x", "y", "reg", *_LIMITS)}
    value_grad, warp_grad, warp, holds = map(Tensor.contiguous, (value_grad, warp_grad, warp, holds))
    described = cpu.native.WarpGradients(
        value=value_grad.data_ptr(),
        warp=warp_grad.data_ptr(),
        **{name: grad.data_ptr() for name, grad in grads.items()},
    )
    cpu.share_out(
        problem.count,
        50 * inputs.x.shape[1] * (inputs.x.shape[2] + 10),
        lambda begin, end: cpu.native.gdtw_gradients(
            cpu.INSTRUCTION_SET, problem.native, warp.data_ptr(), holds.data_ptr(), described, begin, end
        ),
    )
    grads |= {name: grads[name].new_empty(0) for name, limit in inputs.limits().items() if limit is None}
    return tuple(grads.values())


def _solve_fake(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    shape = x.shape[:2]
    values = x.new_empty(shape[0], dtype=torch.float64)
    return values, x.new_empty(shape, dtype=torch.float64), x.new_empty(*shape, 2, dtype=torch.int32)


def _grad_fake(value_grad: Tensor, warp_grad: Tensor, warp: Tensor, holds: Tensor, *given: Any) -> tuple[Tensor, ...]:
    inputs = Inputs(*given)
    return (
        *(torch.empty_like(each) for each in (inputs.x, inputs.y, inputs.reg)),
        *(inputs.reg.new_empty(0) if each is None else torch.empty_like(each) for each in inputs.limits().values()),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    _, warp, holds = output
    given = Inputs(*inputs)
    ctx.mark_non_differentiable(holds)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(warp, holds, *given.tensors())
    ctx.options = given.options()


def _backward(ctx: Any, value_grad: Tensor | None, warp_grad: Tensor | None, _: Any) -> tuple[Any, ...]:
    warp, holds, *tensors = ctx.saved_tensors
    inputs = Inputs(*tensors, *ctx.options)
    value_grad = warp.new_zeros(warp.shape[0]) if value_grad is None else value_grad
    warp_grad = torch.zeros_like(warp) if warp_grad is None else warp_grad
    found = dict(zip(("x", "y", "reg", *_LIMITS), _gdtw_grad(value_grad, warp_grad, warp, holds, *inputs), strict=True))
    found |= {name: None for name, limit in inputs.limits().items() if limit is None}
    return tuple(map(found.get, Inputs._fields))


def _no_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError("gdtw: the second derivative is not implemented")


_PAIRS = (
    "Tensor x, Tensor y, Tensor? x_lengths, Tensor? y_lengths, Tensor times_x, Tensor times_y, Tensor reg, "
    "Tensor? lower, Tensor? upper, Tensor? slope_min, Tensor? slope_max, bool subsequence, float huber, int nodes, "
    "int refinements"
)

# Values (B,), warps (B, Tx), and the holds of each knot, (B, Tx, 2): its segment of y and the flags of kernel.h's Hold.
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
