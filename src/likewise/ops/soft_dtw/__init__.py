"""Soft-DTW: R(i, j) = cost(i, j) + softmin(R(i-1, j-1), R(i-1, j), R(i, j-1)), a smooth DTW.

softmin(a) = -gamma log sum_k exp(-a_k / gamma). ``soft_dtw`` takes paired sequences, ``soft_dtw_matrix`` all pairs,
``soft_dtw_cost`` given costs; ``soft_dtw_plan`` returns the expected alignment, which is the value's derivative with
respect to the cost, and which is differentiable itself (the Hessian-vector product that DILATE needs).

Memory: values take O(T) for each pair in progress. Derivatives on the CPU take O(T sqrt(T)) for each pair in progress,
or less than 32 MiB per thread; on a GPU O(T^2). The second derivative takes O(T^2).

Reference: Cuturi & Blondel (2017), arXiv:1703.01541; second derivative: Mensch & Blondel (2018), arXiv:1802.03676.
Every gamma > 0 works: the kernels neither overflow nor underflow.
"""

from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.ops.dispatch import HAS_TRITON, are_plain, operator, triton_function
from likewise.ops.ground import GroundCost, at_least_float32, evaluate, frames, is_fused, resolve, scaled, zero_padding
from likewise.ops.ground import euclidean as euclidean_cost
from likewise.ops.ground import sqeuclidean as squared_cost
from likewise.ops.rules import Rules
from likewise.ops.soft_dtw import cpu as kernels

__all__ = ["soft_dtw", "soft_dtw_cost", "soft_dtw_matrix", "soft_dtw_plan"]

Lengths = Tensor | None


def soft_dtw(
    x: Tensor,
    y: Tensor,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    *,
    gamma: float = 1.0,
    ground: str | GroundCost = "sqeuclidean",
    rules: Rules = Rules(),
) -> Tensor:
    """Soft-DTW of x[b] and y[b], for every b: x (B, Tx, C), y (B, Ty, C), lengths (B,) -> (B,).

    Example:
        >>> x = torch.tensor([[[0.0], [1.0], [2.0]]])
        >>> y = torch.tensor([[[0.0], [2.0]]])
        >>> soft_dtw(x, y, gamma=0.01)
        tensor([0.9931])
    """
    ground = resolve("soft_dtw", ground)
    gamma = _check.positive("soft_dtw", "gamma", gamma)
    if x_lengths is None and y_lengths is None:
        value = soft_dtw_again(x, y, gamma, ground, rules)
        if value is not None:
            return value
    _check.pair("soft_dtw", x, y, x_lengths, y_lengths, paired=True)
    return checked_soft_dtw(x, y, x_lengths, y_lengths, gamma, ground, rules)


def checked_soft_dtw(
    x: Tensor, y: Tensor, x_lengths: Lengths, y_lengths: Lengths, gamma: float, ground: GroundCost, rules: Rules
) -> Tensor:
    """``soft_dtw`` for checked arguments: on a GPU, checking again would take as long as a launch."""
    if not is_fused(ground):
        cost = evaluate("soft_dtw", ground, x, y, x_lengths, y_lengths)
        return _check.fits("soft_dtw", soft_dtw_cost(cost, x_lengths, y_lengths, gamma=gamma, rules=rules), x.dtype)
    frames_x, frames_y, root, factor = frames(ground, x, y, x_lengths, y_lengths)
    # Costs times a factor at gamma are the factor times costs at gamma / factor.
    arguments = (frames_x, frames_y, x_lengths, y_lengths, gamma / factor, root, *rules.plain())
    if not _differentiable(frames_x, frames_y):
        value = _soft_dtw(*arguments)
    elif HAS_TRITON and are_plain((frames_x, frames_y, x_lengths, y_lengths)):
        value = triton_function("soft_dtw.differentiable")(*arguments)
    else:  # one pass gives the value and its derivative
        value = _soft_dtw_with_grad(*arguments)[0]
    return _check.fits("soft_dtw", scaled(value, factor), x.dtype)


def soft_dtw_again(x: object, y: object, gamma: float, ground: GroundCost, rules: Rules) -> Tensor | None:
    """``soft_dtw`` on a GPU if an earlier call had the same shapes and settings, else None.

    Only the numbers need to be checked again.
    """
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or not are_plain((x, y)):
        return None
    if not (x.requires_grad or y.requires_grad) or not torch.is_grad_enabled() or not HAS_TRITON:
        return None
    if ground is not squared_cost and ground is not euclidean_cost:
        return None
    return triton_function("soft_dtw.again")(x, y, gamma, ground is euclidean_cost, *rules.plain())


def soft_dtw_matrix(
    x: Tensor,
    y: Tensor | None = None,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    *,
    gamma: float = 1.0,
    ground: str | GroundCost = "sqeuclidean",
    rules: Rules = Rules(),
) -> Tensor:
    """Soft-DTW of every x[i] with every y[j]: x (N, Tx, C), y (M, Ty, C) -> (N, M). Without y, x against itself.

    It takes the named ground costs, which the kernels fuse; ``SoftDTW.matrix`` takes any, in chunks of pairs.

    Example:
        >>> x = torch.tensor([[[0.0], [1.0]], [[1.0], [3.0]]])
        >>> soft_dtw_matrix(x, gamma=1.0)
        tensor([[-0.5514,  4.3068],
                [ 4.3068, -0.0360]])
    """
    ground = resolve("soft_dtw", ground)
    gamma = _check.positive("soft_dtw", "gamma", gamma)
    symmetric = y is None and rules.symmetric
    if y is None:
        y, y_lengths = x, x_lengths
    _check.pair("soft_dtw", x, y, x_lengths, y_lengths, paired=False)
    if not is_fused(ground):
        _check.refuse("soft_dtw", "soft_dtw_matrix takes the named ground costs only; use SoftDTW.matrix")
    frames_x, frames_y, root, factor = frames(ground, x, y, x_lengths, y_lengths)
    rest = (symmetric, gamma / factor, root, *rules.plain())
    value = _soft_dtw_matrix(frames_x, frames_y, x_lengths, y_lengths, *rest)
    return _check.fits("soft_dtw", scaled(value, factor), x.dtype)


def soft_dtw_cost(
    cost: Tensor,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    *,
    gamma: float = 1.0,
    rules: Rules = Rules(),
) -> Tensor:
    """Soft-DTW of given costs: cost (B, Tx, Ty) -> (B,).

    Example:
        >>> soft_dtw_cost(torch.zeros(1, 2, 2), gamma=1.0)  # three paths of cost 0: -log 3
        tensor([-1.0986])
    """
    gamma = _check.positive("soft_dtw", "gamma", gamma)
    _check.costs("soft_dtw", cost, x_lengths, y_lengths)
    if _differentiable(cost):
        value = _soft_dtw_plan(at_least_float32(cost), x_lengths, y_lengths, gamma, *rules.plain())[0]
    else:
        value = _soft_dtw(at_least_float32(cost), None, x_lengths, y_lengths, gamma, False, *rules.plain())
    return _check.fits("soft_dtw", value, cost.dtype)


def soft_dtw_plan(
    cost: Tensor,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    *,
    gamma: float = 1.0,
    rules: Rules = Rules(),
) -> Tensor:
    """Expected alignment of given costs: cost (B, Tx, Ty) -> (B, Tx, Ty), zero in the padding. Differentiable.

    Example:
        >>> soft_dtw_plan(torch.zeros(1, 2, 2))
        tensor([[[1.0000, 0.3333],
                 [0.3333, 1.0000]]])
    """
    gamma = _check.positive("soft_dtw", "gamma", gamma)
    _check.costs("soft_dtw", cost, x_lengths, y_lengths)
    return _soft_dtw_plan(at_least_float32(cost), x_lengths, y_lengths, gamma, *rules.plain())[1].to(cost.dtype)


def _differentiable(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


# The operators. Without y, x is a given cost.


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, y, x_lengths, y_lengths, *ctx.rules = inputs
    ctx.save_for_backward(x, y, x_lengths, y_lengths)


def _value_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, y, x_lengths, y_lengths = ctx.saved_tensors
    if y is None:
        gamma, _, *rules = ctx.rules
        _, plan = _soft_dtw_plan(x, x_lengths, y_lengths, gamma, *rules)
        return _weighted(plan, grad), None, None, None, *(None for _ in ctx.rules)
    _, x_grad, y_grad = _soft_dtw_with_grad(x, y, x_lengths, y_lengths, *ctx.rules)
    return _weighted(x_grad, grad), _weighted(y_grad, grad), None, None, *(None for _ in ctx.rules)


def _save_with_grad(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    x, y, x_lengths, y_lengths, *ctx.rules = inputs
    _, x_grad, y_grad = output
    ctx.save_for_backward(x, y, x_lengths, y_lengths, x_grad, y_grad)


def _with_grad_backward(ctx: Any, grad: Lengths, grad_of_x: Lengths, grad_of_y: Lengths) -> tuple[Any, ...]:
    x, y, x_lengths, y_lengths, x_grad, y_grad = ctx.saved_tensors
    to_x, to_y = None, None
    if grad is not None:
        to_x, to_y = _both_weighted(x_grad, y_grad, grad)
    if grad_of_x is not None or grad_of_y is not None:
        second = _second_derivative(x, y, x_lengths, y_lengths, grad_of_x, grad_of_y, *ctx.rules)
        to_x = second[0] if to_x is None else to_x + second[0]
        to_y = second[1] if to_y is None else to_y + second[1]
    return to_x, to_y, None, None, *(None for _ in ctx.rules)


def _weighted(x: Tensor, weights: Tensor) -> Tensor:
    """Return weights (B,) * x (B, ...), with NumPy if possible: see ``cpu.zeros_like``."""
    if torch.is_grad_enabled() or type(x) is not Tensor or x.device.type != "cpu":
        return weights[:, None, None] * x
    return torch.from_numpy(weights.detach().numpy()[:, None, None] * x.detach().numpy())


def _both_weighted(x_grad: Tensor, y_grad: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    if torch.is_grad_enabled() or not are_plain((x_grad, y_grad, weights)):
        return _weighted(x_grad, weights), _weighted(y_grad, weights)
    return triton_function("soft_dtw.weighted")(x_grad, y_grad, weights)


def _second_derivative(
    x: Tensor, y: Tensor, x_lengths: Lengths, y_lengths: Lengths, u: Lengths, v: Lengths, gamma: float, root: bool,
    *rules: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """d/d(x, y) of <d value/dx, u> + <d value/dy, v>, through the cost matrix and its plan."""
    again = torch.is_grad_enabled()  # then a third derivative reaches the Hessian product, which raises
    with torch.enable_grad():
        x = x if x.requires_grad else x.detach().requires_grad_()
        y = y if y.requires_grad else y.detach().requires_grad_()
        ground = euclidean_cost if root else squared_cost
        cost = ground(zero_padding(x, x_lengths), zero_padding(y, y_lengths))
        _, plan = _soft_dtw_plan(cost, x_lengths, y_lengths, gamma, *rules)
        x_grad, y_grad = torch.autograd.grad(cost, (x, y), plan, create_graph=True)
        product = sum((g * w).sum() for g, w in ((x_grad, u), (y_grad, v)) if w is not None)
        return torch.autograd.grad(product, (x, y), create_graph=again)  # type: ignore[arg-type]


def _matrix_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, y, x_lengths, y_lengths = ctx.saved_tensors
    symmetric, *rules = ctx.rules
    if symmetric:  # each pair once, including the diagonal: soft-DTW of a sequence with itself is not zero
        grad = (grad + grad.T).triu(1) + grad.diag().diag()
    x_grad, y_grad = _soft_dtw_matrix_grad(grad, x, y, x_lengths, y_lengths, *rules)
    return x_grad, y_grad, None, None, *(None for _ in ctx.rules)


def _save_plan(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    cost, x_lengths, y_lengths, *ctx.rules = inputs
    _, plan = output
    ctx.save_for_backward(cost, x_lengths, y_lengths, plan)


def _plan_backward(ctx: Any, grad: Lengths, grad_of_plan: Lengths) -> tuple[Any, ...]:
    cost, x_lengths, y_lengths, plan = ctx.saved_tensors
    to_cost = None if grad is None else grad[:, None, None] * plan
    if grad_of_plan is not None:
        product = _soft_dtw_hessian(cost, grad_of_plan, x_lengths, y_lengths, *ctx.rules)
        to_cost = product if to_cost is None else to_cost + product
    return to_cost, None, None, *(None for _ in ctx.rules)


def _no_derivative(what: str) -> Any:
    def refuse(ctx: Any, *grads: Tensor) -> None:
        raise NotImplementedError(f"soft_dtw: the {what} is not implemented")

    return refuse


_LENGTHS = "Tensor? x_lengths, Tensor? y_lengths"
_RULES = "int window, float size, bool open_begin, bool open_end"
_PAIRS = f"Tensor x, Tensor? y, {_LENGTHS}, float gamma, bool root, {_RULES}"

_soft_dtw = operator(
    f"soft_dtw({_PAIRS}) -> Tensor",
    cpu=kernels.value,
    triton="soft_dtw.value",
    fake=lambda x, *_: x.new_empty(x.shape[0]),
    save=_save_inputs,
    backward=_value_backward,
)
_soft_dtw_with_grad = operator(
    f"soft_dtw_with_grad({_PAIRS}) -> (Tensor, Tensor, Tensor)",
    cpu=kernels.with_gradient,
    triton="soft_dtw.value_with_grad",
    fake=lambda x, y, *_: (x.new_empty(x.shape[0]), x.new_empty(x.shape), y.new_empty(y.shape)),
    save=_save_with_grad,
    backward=_with_grad_backward,
)
_soft_dtw_matrix = operator(
    f"soft_dtw_matrix(Tensor x, Tensor y, {_LENGTHS}, bool symmetric, float gamma, bool root, {_RULES}) -> Tensor",
    cpu=kernels.matrix,
    triton="soft_dtw.matrix",
    fake=lambda x, y, *_: x.new_empty(x.shape[0], y.shape[0]),
    save=_save_inputs,
    backward=_matrix_backward,
)
_soft_dtw_matrix_grad = operator(
    f"soft_dtw_matrix_grad(Tensor weights, {_PAIRS}) -> (Tensor, Tensor)",
    cpu=kernels.matrix_gradient,
    triton="soft_dtw.matrix_gradient",
    fake=lambda weights, x, y, *_: (x.new_empty(x.shape), y.new_empty(y.shape)),
    backward=_no_derivative("second derivative of all pairs at once; use paired soft_dtw"),
)
_soft_dtw_plan = operator(
    f"soft_dtw_plan(Tensor cost, {_LENGTHS}, float gamma, {_RULES}) -> (Tensor, Tensor)",
    cpu=kernels.plan,
    triton="soft_dtw.plan",
    fake=lambda cost, *_: (cost.new_empty(cost.shape[0]), cost.new_empty(cost.shape)),
    save=_save_plan,
    backward=_plan_backward,
)
_soft_dtw_hessian = operator(
    f"soft_dtw_hessian(Tensor cost, Tensor tangent, {_LENGTHS}, float gamma, {_RULES}) -> Tensor",
    cpu=kernels.hessian,
    triton="soft_dtw.hessian",
    fake=lambda cost, *_: cost.new_empty(cost.shape),
    backward=_no_derivative("third derivative"),
)
