"""Regularised optimal transport between the frames of two sequences: Sinkhorn's problem, OPW and TCOT.

The plan T (Tx, Ty) is the matrix of the form exp(f_i + L_ij + g_j) whose rows sum to x's masses and whose columns sum
to y's, uniform unless given; the value is <T, D>, where D is the ground cost. ``Settings`` defines the log-kernel L.

The masses are met to a tolerance, by Sinkhorn's iterations and, if these are too slow, by Newton steps: kernels as
sharp as OPW's (lambda2 = 0.1) would take tens of thousands of iterations. Everything that could overflow stays in the
log domain. With ``n_iter``, exactly this many iterations are run, a column update and a row update each, from f = 0,
as in the authors' code; the column sums are then inexact.

Derivatives with respect to frames or costs are those of the converged problem, by implicit differentiation: one
symmetric system of Ty unknowns for each pair. They apply to value and plan, and do not depend on the number of
iterations. With ``n_iter``, the iterations themselves are differentiated. Masses have no derivative. The second
derivative raises an error.

Memory: values take O(Tx Ty) for each pair in progress; plans and derivatives O(Tx Ty) for each pair.

Reference: Cuturi (2013), arXiv:1306.0895; OPW: Su & Hua (2019), doi 10.1109/TPAMI.2018.2870154.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.ops import cpu
from likewise.ops.dispatch import operator
from likewise.ops.ground import GroundCost, at_least_float32, evaluate, frames, is_fused, resolve, scaled, zero_padding
from likewise.ops.ground import euclidean as euclidean_cost
from likewise.ops.ground import sqeuclidean as squared_cost
from likewise.ops.rules import Rules
from likewise.ops.transport import reference
from likewise.ops.transport.settings import Settings

__all__ = ["Settings", "Transported", "transport", "transport_cost", "transport_matrix", "transport_plan"]

Optional = Tensor | None
HARDEST = 2.0**48  # the largest |L| for which plans have derivatives


@dataclass(frozen=True)
class Transported:
    """A solved transport problem.

    value: (B,), <T, D>. plan: (B, Tx, Ty), T, zero in the padding.
    error: (B,), the sum over columns of |column sum - mass|; bounded by Settings.tolerance.
    """

    value: Tensor
    plan: Tensor
    error: Tensor


def transport(
    x: Tensor,
    y: Tensor,
    x_lengths: Optional = None,
    y_lengths: Optional = None,
    *,
    settings: Settings,
    ground: str | GroundCost = "sqeuclidean",
) -> Tensor:
    """<T, D> of x[b] and y[b], for every b: x (B, Tx, C), y (B, Ty, C), lengths (B,) -> (B,).

    Example:
        >>> x, y = torch.tensor([[[0.0], [1.0]]]), torch.tensor([[[0.0], [2.0]]])
        >>> transport(x, y, settings=Settings(reg=0.1))
        tensor([0.5000])
    """
    ground = resolve("transport", ground)
    _check.pair("transport", x, y, x_lengths, y_lengths, paired=True)
    if not is_fused(ground) or _differentiable(x, y):
        return transport_plan(x, y, x_lengths, y_lengths, settings=settings, ground=ground).value
    x_frames, y_frames, root, factor = frames(ground, x, y, x_lengths, y_lengths)
    numbers = settings.plain(x_frames.dtype, factor)
    value = _transport(x_frames, y_frames, x_lengths, y_lengths, root, *numbers)
    return _check.fits("transport", scaled(value, factor), x.dtype)


def transport_plan(
    x: Tensor,
    y: Tensor,
    x_lengths: Optional = None,
    y_lengths: Optional = None,
    *,
    settings: Settings,
    ground: str | GroundCost = "sqeuclidean",
) -> Transported:
    """Values, plans and marginal errors of x[b] and y[b]; values and plans are differentiable.

    Example:
        >>> x, y = torch.tensor([[[0.0], [1.0]]]), torch.tensor([[[0.0], [2.0]]])
        >>> transport_plan(x, y, settings=Settings(reg=0.1)).plan.round(decimals=3)
        tensor([[[0.5000, 0.0000],
                 [0.0000, 0.5000]]])
    """
    ground = resolve("transport", ground)
    _check.pair("transport", x, y, x_lengths, y_lengths, paired=True)
    if not is_fused(ground):
        cost = evaluate("transport", ground, x, y, x_lengths, y_lengths)
        return _typed(transport_cost(cost, x_lengths, y_lengths, settings=settings), x.dtype)
    x_frames, y_frames, root, factor = frames(ground, x, y, x_lengths, y_lengths)
    given = (x_frames, y_frames, x_lengths, y_lengths, None, None, root)
    value, plan, error = _transport_plan(*given, *settings.plain(x_frames.dtype, factor))
    return _typed(Transported(scaled(value, factor), plan, error), x.dtype)


def transport_cost(
    cost: Tensor,
    x_lengths: Optional = None,
    y_lengths: Optional = None,
    *,
    settings: Settings,
    x_mass: Optional = None,
    y_mass: Optional = None,
) -> Transported:
    """Values, plans and marginal errors of given costs (B, Tx, Ty), and masses (B, Tx) and (B, Ty) or uniform ones.

    Example:
        >>> cost = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
        >>> x_mass, y_mass = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]])
        >>> transport_cost(cost, settings=Settings(reg=0.01), x_mass=x_mass, y_mass=y_mass).plan.round(decimals=3)
        tensor([[[0.2500, 0.2500],
                 [0.0000, 0.5000]]])
    """
    _check.costs("transport", cost, x_lengths, y_lengths)
    for name, mass, steps in (("x_mass", x_mass, cost.shape[1]), ("y_mass", y_mass, cost.shape[2])):
        if mass is not None:
            _check.is_tensor("transport", name, mass)
            if mass.shape != (len(cost), steps):
                _check.refuse("transport", f"expected {name} of shape {(len(cost), steps)}, got {tuple(mass.shape)}")
            if mass.requires_grad:
                _check.refuse("transport", f"{name} has no derivative; pass {name}.detach()")
    costs = at_least_float32(cost)
    given = (costs, None, x_lengths, y_lengths, x_mass, y_mass, False)
    return _typed(Transported(*_transport_plan(*given, *settings.plain(costs.dtype))), cost.dtype)


def transport_matrix(
    x: Tensor,
    y: Tensor | None = None,
    x_lengths: Optional = None,
    y_lengths: Optional = None,
    *,
    settings: Settings,
    ground: str | GroundCost = "sqeuclidean",
) -> Tensor:
    """<T, D> of every x[i] with every y[j]: x (N, Tx, C), y (M, Ty, C) -> (N, M). Without y, x against itself.

    It takes the named ground costs and has no derivative; the distances' ``matrix`` takes any cost, with derivatives.

    Example:
        >>> x = torch.tensor([[[0.0], [1.0]], [[1.0], [3.0]]])
        >>> transport_matrix(x, settings=Settings(reg=0.1)).round(decimals=3)
        tensor([[0.0000, 2.5000],
                [2.5000, 0.0000]])
    """
    ground = resolve("transport", ground)
    symmetric = y is None and settings.n_iter is None
    if y is None:
        y, y_lengths = x, x_lengths
    _check.pair("transport", x, y, x_lengths, y_lengths, paired=False)
    if not is_fused(ground):
        _check.refuse("transport", "transport_matrix takes the named ground costs only; use Sinkhorn.matrix")
    x_frames, y_frames, root, factor = frames(ground, x, y, x_lengths, y_lengths)
    numbers = settings.plain(x_frames.dtype, factor)
    given = (x_frames, y_frames, x_lengths, y_lengths, symmetric, root)
    return _check.fits("transport", scaled(_transport_matrix(*given, *numbers), factor), x.dtype)


def _typed(found: Transported, dtype: torch.dtype) -> Transported:
    return Transported(_check.fits("transport", found.value, dtype), found.plan.to(dtype), found.error.to(dtype))


def _differentiable(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def warn_unless_met(errors: Tensor, settings: Settings) -> None:
    """Warn if the solver did not meet the masses."""
    if settings.n_iter is not None or settings.tolerance is None or not errors.numel():
        return
    worst = float(errors.max())
    if worst > 10 * settings.tolerance and worst > 1e-6:  # rounding errors may exceed a very small tolerance
        count = int((errors > settings.tolerance).sum())
        warnings.warn(
            f"transport: the masses of {count} of {errors.numel()} pairs are off by up to {worst:.1e} after "
            f"{settings.max_iter} steps; raise max_iter, reg or tolerance, or stop early with n_iter",
            stacklevel=2,
        )


# The operators. Without y, x is a given cost.


def masses(
    x: Tensor, y: Optional, x_lengths: Optional, y_lengths: Optional, x_mass: Optional, y_mass: Optional
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Checked lengths (B,) and masses (B, Tx) and (B, Ty), in float64 and zero in the padding."""
    rows, columns = x.shape[1], x.shape[2] if y is None else y.shape[1]
    found = []
    for name, lengths, mass, steps in (("x", x_lengths, x_mass, rows), ("y", y_lengths, y_mass, columns)):
        if lengths is None:
            lengths = torch.full((len(x),), steps, device=x.device)
        lengths = lengths.to(x.device)
        _check.lengths_range("transport", f"{name}_lengths", lengths, steps)
        if mass is None:
            found += [lengths, reference.uniform(lengths, steps)]
            continue
        real = reference.real(lengths, steps)
        mass = torch.where(real, mass.detach().double().to(x.device), 0)
        wrong = ~(mass.isfinite() & ((mass > 0) | ~real))
        if wrong.any():
            b, i = wrong.nonzero()[0].tolist()
            _check.refuse("transport", f"{name}_mass[{b}] holds {mass[b, i].item():g} at {i}; masses must be positive")
        found += [lengths, mass]
    n, a, m, b = found
    totals = a.sum(1), b.sum(1)
    apart = (totals[0] - totals[1]).abs() > 1e-5 * totals[0]
    if apart.any():
        k = int(apart.nonzero()[0])
        sums = f"x_mass[{k}] sums to {totals[0][k].item():g} and y_mass[{k}] to {totals[1][k].item():g}"
        _check.refuse("transport", f"{sums}; divide each by its sum")
    return n, m, a, b * (totals[0] / totals[1])[:, None]


def _plan_cpu(
    x: Tensor, y: Optional, x_lengths: Optional, y_lengths: Optional, x_mass: Optional, y_mass: Optional, root: bool,
    *numbers: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    problem = cpu.problem("transport", x, y, x_lengths, y_lengths, Rules(), root=root)
    plans = cpu.zeros_like(x if y is None else x[:, :, :1].expand(-1, -1, y.shape[1]))
    given = None
    if x_mass is not None or y_mass is not None:
        _, _, a, b = masses(x, y, x_lengths, y_lengths, x_mass, y_mass)
        given = a, b
    values, errors = _solve_cpu(problem, torch.arange(problem.pairs), plans, given, *numbers)
    return values, plans, errors.to(x.dtype)


def _value_cpu(x: Tensor, y: Tensor, x_lengths: Optional, y_lengths: Optional, root: bool, *numbers: Any) -> Tensor:
    problem = cpu.problem("transport", x, y, x_lengths, y_lengths, Rules(), root=root)
    return _solve_cpu(problem, torch.arange(problem.pairs), None, None, *numbers)[0]


def _matrix_cpu(
    x: Tensor, y: Tensor, x_lengths: Optional, y_lengths: Optional, symmetric: bool, root: bool, *numbers: Any
) -> Tensor:
    problem = cpu.problem("transport", x, y, x_lengths, y_lengths, Rules(), root=root, all_pairs=True)
    pairs = torch.arange(problem.pairs)
    if symmetric:
        pairs = pairs[pairs // len(y) <= pairs % len(y)]
    values = _solve_cpu(problem, pairs, None, None, *numbers)[0].reshape(len(x), len(y))
    return values + values.triu(1).T if symmetric else values


def _solve_cpu(
    problem: cpu.Problem, pairs: Tensor, plans: Optional, given: tuple[Tensor, Tensor] | None, *numbers: Any
) -> tuple[Tensor, Tensor]:
    """Values and marginal errors of all pairs; zero for those not in ``pairs``."""
    values, errors = problem.x.new_zeros(problem.pairs), torch.zeros(problem.pairs, dtype=torch.float64)
    masses = [0, 0] if given is None else [mass.data_ptr() for mass in given]
    settings = cpu.native.TransportSettings(*numbers, *masses)
    cpu.share_out(
        len(pairs),
        100 * problem.cells,  # assume a hundred iterations
        lambda begin, end: cpu.native.transport_solve(
            cpu.INSTRUCTION_SET,
            problem.native,
            settings,
            pairs.data_ptr(),
            values.data_ptr(),
            errors.data_ptr(),
            0 if plans is None else plans.data_ptr(),
            begin,
            end,
        ),
    )
    warn_unless_met(errors, Settings.from_plain(*numbers))
    return cpu.finite_values("transport", values), errors


def gradient(
    value_grad: Tensor, plan_grad: Tensor, plan: Tensor, cost: Tensor, x_lengths: Optional, y_lengths: Optional,
    x_mass: Optional, y_mass: Optional, *numbers: Any,
) -> Tensor:  # fmt: skip
    """The gradient with respect to the cost (B, Tx, Ty), from the gradients with respect to values (B,) and plans."""
    settings = Settings.from_plain(*numbers)
    n, m, a, b = masses(cost, None, x_lengths, y_lengths, x_mass, y_mass)
    real = reference.real(n, cost.shape[1])[:, :, None] & reference.real(m, cost.shape[2])[:, None]
    costs = torch.where(real, cost.double(), 0)
    T_grad = torch.where(real, value_grad.double()[:, None, None] * costs + plan_grad.double(), 0)
    T = plan.double()
    if settings.n_iter is None:
        # Use the masses of the rounded plan: if the kernel is sharp, their error times the cost would exceed the
        # derivative.
        L_grad = reference.adjoint(T, T.sum(2), T.sum(1), T_grad)
    else:
        L = reference.log_kernel(costs, n, m, settings)
        L_grad = reference.iterate_adjoint(L, a, b, settings.n_iter, T_grad)
    slope = reference.slopes(n, m, cost.shape[1], cost.shape[2], settings)
    # If rounding changes L by a sixteenth or more, the plan cannot be distinguished from that of reg = 0, which is
    # hard.
    hard = (costs * slope).abs().amax((1, 2), keepdim=True) > HARDEST if costs.numel() else ~real
    through_plan = torch.where(real & ~hard, L_grad * slope, 0)
    return (value_grad.double()[:, None, None] * T + through_plan).to(cost.dtype)


def _save_plan(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, y, x_lengths, y_lengths, x_mass, y_mass, *ctx.numbers = inputs
    _, plan, error = output
    ctx.save_for_backward(x, y, x_lengths, y_lengths, x_mass, y_mass, plan)
    ctx.mark_non_differentiable(error)


def _plan_backward(ctx: Any, value_grad: Tensor, plan_grad: Tensor, _: Any) -> tuple[Any, ...]:
    x, y, x_lengths, y_lengths, x_mass, y_mass, plan = ctx.saved_tensors
    root, *numbers = ctx.numbers
    rest = (x_lengths, y_lengths, x_mass, y_mass, *numbers)
    nothing = [None for _ in (*rest, root)]
    if y is None:
        return _transport_grad(value_grad, plan_grad, plan, x, *rest), None, *nothing
    again = torch.is_grad_enabled()  # then a second derivative reaches _transport_grad, which raises
    with torch.enable_grad():
        x = x if x.requires_grad else x.detach().requires_grad_()
        y = y if y.requires_grad else y.detach().requires_grad_()
        ground = euclidean_cost if root else squared_cost
        # In float64, as in the kernels: a cost may overflow float32 even if the plan does not.
        cost = ground(zero_padding(x, x_lengths).double(), zero_padding(y, y_lengths).double())
        with torch.set_grad_enabled(again):
            cost_grad = _transport_grad(value_grad, plan_grad, plan, cost.detach(), *rest)
        x_grad, y_grad = torch.autograd.grad(cost, (x, y), cost_grad, create_graph=again)
    return x_grad, y_grad, *nothing


def _no_derivative(what: str) -> Any:
    def refuse(ctx: Any, *grads: Tensor) -> None:
        raise NotImplementedError(f"transport: the {what} is not implemented")

    return refuse


def _plan_fake(x: Tensor, y: Optional, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    shape = x.shape if y is None else (*x.shape[:2], y.shape[1])
    return x.new_empty(x.shape[0]), x.new_empty(shape), x.new_empty(x.shape[0])


_LENGTHS = "Tensor? x_lengths, Tensor? y_lengths"
_NUMBERS = (
    "float reg, float inverse_difference, float delta, float time_weight, int n_iter, float tolerance, int max_iter"
)
_MASSES = "Tensor? x_mass, Tensor? y_mass"

_transport = operator(
    f"transport(Tensor x, Tensor y, {_LENGTHS}, bool root, {_NUMBERS}) -> Tensor",
    cpu=_value_cpu,
    triton="transport.value",
    fake=lambda x, *_: x.new_empty(x.shape[0]),
    backward=_no_derivative("derivative of transport without its plan; use transport_plan"),
)
_transport_matrix = operator(
    f"transport_matrix(Tensor x, Tensor y, {_LENGTHS}, bool symmetric, bool root, {_NUMBERS}) -> Tensor",
    cpu=_matrix_cpu,
    triton="transport.matrix",
    fake=lambda x, y, *_: x.new_empty(x.shape[0], y.shape[0]),
    backward=_no_derivative("derivative of all pairs at once; use the distance's matrix"),
)
_transport_plan = operator(
    f"transport_plan(Tensor x, Tensor? y, {_LENGTHS}, {_MASSES}, bool root, {_NUMBERS}) -> (Tensor, Tensor, Tensor)",
    cpu=_plan_cpu,
    triton="transport.plan",
    fake=_plan_fake,
    save=_save_plan,
    backward=_plan_backward,
)
_transport_grad = operator(
    f"transport_grad(Tensor value_grad, Tensor plan_grad, Tensor plan, Tensor cost, {_LENGTHS}, {_MASSES}, {_NUMBERS})"
    " -> Tensor",
    cpu=gradient,
    triton="transport.gradient",
    fake=lambda value_grad, plan_grad, plan, cost, *_: torch.empty_like(cost),
    backward=_no_derivative("second derivative"),
)
