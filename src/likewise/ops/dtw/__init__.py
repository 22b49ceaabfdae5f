"""Dynamic time warping: R(i, j) = cost(i, j) + min(R(i-1, j-1), R(i-1, j), R(i, j-1)).

``dtw`` takes paired sequences, ``dtw_matrix`` all pairs, ``dtw_cost`` given costs; ``dtw_path`` and ``dtw_cost_path``
return the optimal paths; ``dtw_matched`` sums matched frames, for averages. The value's derivative with respect to the
cost is the path: 1 on its cells, 0 elsewhere.

Memory: values take O(T) for each pair in progress, never O(T^2). On the CPU, paths and derivatives keep some rows of
at most 16 million cells at once, and longer pairs are traced piece by piece, in O(T) as well; on a GPU they keep one
byte per cell.

Reference: Sakoe & Chiba (1978). Ties prefer the diagonal, then the row above, as in aeon and tslearn.
"""

from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.ops.dispatch import operator
from likewise.ops.dtw import cpu as kernels
from likewise.ops.ground import GroundCost, at_least_float32, evaluate, frames, is_fused, resolve, scaled
from likewise.ops.rules import Rules

__all__ = ["dtw", "dtw_cost", "dtw_cost_path", "dtw_matched", "dtw_matrix", "dtw_path", "dtw_steps"]

Lengths = Tensor | None


def dtw(
    x: Tensor,
    y: Tensor,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    *,
    ground: str | GroundCost = "sqeuclidean",
    rules: Rules = Rules(),
) -> Tensor:
    """DTW of x[b] and y[b], for every b: x (B, Tx, C), y (B, Ty, C), lengths (B,) -> (B,).

    Example:
        >>> x = torch.tensor([[[0.0], [1.0], [2.0]]])
        >>> y = torch.tensor([[[0.0], [2.0]]])
        >>> dtw(x, y)
        tensor([1.])
    """
    ground = resolve("dtw", ground)
    _check.pair("dtw", x, y, x_lengths, y_lengths, paired=True)
    if is_fused(ground):
        frames_x, frames_y, root, factor = frames(ground, x, y, x_lengths, y_lengths)
        value = scaled(_dtw(frames_x, frames_y, x_lengths, y_lengths, root, *rules.plain()), factor)
    else:
        cost = evaluate("dtw", ground, x, y, x_lengths, y_lengths)
        value = _dtw(cost, None, x_lengths, y_lengths, False, *rules.plain())
    return _check.fits("dtw", value, x.dtype)


def dtw_matrix(
    x: Tensor,
    y: Tensor | None = None,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    *,
    ground: str | GroundCost = "sqeuclidean",
    rules: Rules = Rules(),
) -> Tensor:
    """DTW of every x[i] with every y[j]: x (N, Tx, C), y (M, Ty, C) -> (N, M). Without y, x against itself.

    It takes the named ground costs, which the kernels fuse; ``DTW.matrix`` takes any, in chunks of pairs.

    Example:
        >>> x = torch.tensor([[[0.0], [1.0]], [[1.0], [3.0]]])
        >>> dtw_matrix(x)
        tensor([[0., 5.],
                [5., 0.]])
    """
    ground = resolve("dtw", ground)
    other, other_lengths = (x, x_lengths) if y is None else (y, y_lengths)
    _check.pair("dtw", x, other, x_lengths, other_lengths, paired=False)
    if not is_fused(ground):
        _check.refuse("dtw", "dtw_matrix takes the named ground costs only; use dtw on pairs, or DTW.matrix")
    return checked_dtw_matrix(x, y, x_lengths, y_lengths, ground, rules)


def checked_dtw_matrix(
    x: Tensor, y: Tensor | None, x_lengths: Lengths, y_lengths: Lengths, ground: GroundCost, rules: Rules
) -> Tensor:
    """``dtw_matrix`` for arguments that have been checked."""
    symmetric = y is None and rules.symmetric
    if y is None:
        y, y_lengths = x, x_lengths
    frames_x, frames_y, root, factor = frames(ground, x, y, x_lengths, y_lengths)
    value = _dtw_matrix(frames_x, frames_y, x_lengths, y_lengths, symmetric, root, *rules.plain())
    return _check.fits("dtw", scaled(value, factor), x.dtype)


def dtw_cost(cost: Tensor, x_lengths: Lengths = None, y_lengths: Lengths = None, *, rules: Rules = Rules()) -> Tensor:
    """DTW of given costs: cost (B, Tx, Ty) -> (B,).

    Example:
        >>> cost = torch.tensor([[[1.0, 5.0], [5.0, 2.0]]], requires_grad=True)
        >>> dtw_cost(cost).backward()
        >>> cost.grad
        tensor([[[1., 0.],
                 [0., 1.]]])
    """
    _check.costs("dtw", cost, x_lengths, y_lengths)
    value = _dtw(at_least_float32(cost), None, x_lengths, y_lengths, False, *rules.plain())
    return _check.fits("dtw", value, cost.dtype)


def dtw_path(
    x: Tensor,
    y: Tensor,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    *,
    ground: str | GroundCost = "sqeuclidean",
    rules: Rules = Rules(),
) -> tuple[Tensor, Tensor]:
    """Optimal paths (B, Tx + Ty - 1, 2) int64, padded with -1, and their numbers of steps (B,).

    Example:
        >>> x = torch.tensor([[[0.0], [1.0], [2.0]]])
        >>> y = torch.tensor([[[0.0], [2.0]]])
        >>> path, steps = dtw_path(x, y)
        >>> path[0, : steps[0]].tolist()
        [[0, 0], [1, 0], [2, 1]]
    """
    ground = resolve("dtw", ground)
    _check.pair("dtw", x, y, x_lengths, y_lengths, paired=True)
    return checked_dtw_path(x.detach(), y.detach(), x_lengths, y_lengths, ground, rules)


def checked_dtw_path(
    x: Tensor, y: Tensor, x_lengths: Lengths, y_lengths: Lengths, ground: GroundCost, rules: Rules
) -> tuple[Tensor, Tensor]:
    """``dtw_path`` for checked, detached tensors; for a short pair, the checks would take longer than the path."""
    if is_fused(ground):
        frames_x, frames_y, root, _ = frames(ground, x, y, x_lengths, y_lengths)
        return _dtw_path(frames_x, frames_y, x_lengths, y_lengths, root, *rules.plain())
    cost = evaluate("dtw", ground, x, y, x_lengths, y_lengths)
    return _dtw_path(cost, None, x_lengths, y_lengths, False, *rules.plain())


def dtw_steps(
    x: Tensor,
    y: Tensor,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    *,
    ground: str | GroundCost = "sqeuclidean",
    rules: Rules = Rules(),
) -> Tensor:
    """Numbers of steps of the optimal paths of all pairs, x (N, Tx, C), y (M, Ty, C) -> (N, M) int64.

    It takes the named ground costs, as ``dtw_matrix`` does.

    Example:
        >>> x = torch.tensor([[[0.0], [1.0], [2.0]]])
        >>> dtw_steps(x, x[:, ::2])
        tensor([[3]])
    """
    ground = resolve("dtw", ground)
    _check.pair("dtw", x, y, x_lengths, y_lengths, paired=False)
    if not is_fused(ground):
        _check.refuse("dtw", "dtw_steps takes the named ground costs only; use dtw_path on pairs")
    frames_x, frames_y, root, _ = frames(ground, x.detach(), y.detach(), x_lengths, y_lengths)
    return _dtw_steps(frames_x, frames_y, x_lengths, y_lengths, root, *rules.plain())


def dtw_matched(
    x: Tensor,
    y: Tensor,
    rows: Tensor,
    weights: Tensor,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    *,
    root: bool = False,
    rules: Rules = Rules(),
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of the frames of y that the optimal paths of (x[rows[j]], y[j]) match with the frames of x, for averages.

    x (N, Tx, C), y (M, Ty, C), rows (M,) int64, weights (M,). Returns the values (M,), and in float64 the sums of the
    matched frames of y, (N, Tx, C), and of their weights, (N, Tx): sums / counts is the mean of the matched frames,
    which minimises the weighted sum of squared costs along these paths.

    root: the cost is the Euclidean distance, and each match is also weighted by its inverse: sums / counts then
    minimises an upper bound of the weighted sum of costs that is tight at x (Weiszfeld's step).

    Memory: on the CPU, up to 2 MB per thread for the moves of a block of pairs; longer pairs are traced as in
    ``dtw_path``. Reference: Petitjean, Ketterlin & Gancarski (2011), DBA.

    Example:
        >>> x, y = torch.tensor([[[0.0], [2.0]]]), torch.tensor([[[0.0], [1.0], [4.0]], [[0.0], [0.0], [2.0]]])
        >>> values, sums, counts = dtw_matched(x, y, torch.tensor([0, 0]), torch.ones(2))
        >>> values, (sums / counts[..., None]).flatten()
        (tensor([5., 0.]), tensor([0.2500, 3.0000], dtype=torch.float64))
    """
    _check.pair("dtw", x, y, x_lengths, y_lengths, paired=False)
    if rows.shape != (len(y),) or weights.shape != (len(y),):
        _check.refuse("dtw", f"expected rows and weights of shape ({len(y)},)")
    if len(y) and not 0 <= int(rows.min()) <= int(rows.max()) < len(x):
        _check.refuse("dtw", f"rows must be between 0 and {len(x) - 1}")
    x, y = at_least_float32(x.detach()), at_least_float32(y.detach())
    return _dtw_matched(x, y, x_lengths, y_lengths, rows, weights.double(), root, *rules.plain())


def dtw_cost_path(
    cost: Tensor, x_lengths: Lengths = None, y_lengths: Lengths = None, *, rules: Rules = Rules()
) -> tuple[Tensor, Tensor]:
    """Optimal paths through given costs (B, Tx, Ty), as ``dtw_path`` returns them.

    Example:
        >>> path, steps = dtw_cost_path(torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]))
        >>> path[0, : steps[0]].tolist()
        [[0, 0], [1, 1]]
    """
    _check.costs("dtw", cost, x_lengths, y_lengths)
    return _dtw_path(at_least_float32(cost.detach()), None, x_lengths, y_lengths, False, *rules.plain())


# The operators. Without y, x is a given cost.


def _path_fake(x: Tensor, y: Tensor | None, *_: Any) -> tuple[Tensor, Tensor]:
    y_steps = x.shape[2] if y is None else y.shape[1]
    paths = x.new_empty(x.shape[0], x.shape[1] + y_steps - 1, 2, dtype=torch.int64)
    return paths, x.new_empty(x.shape[0], dtype=torch.int64)


def _grad_fake(weights: Tensor, x: Tensor, y: Tensor | None, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(0) if y is None else torch.empty_like(y)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, y, x_lengths, y_lengths, *ctx.rules = inputs
    ctx.save_for_backward(x, y, x_lengths, y_lengths)


def _value_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, y, x_lengths, y_lengths = ctx.saved_tensors
    x_grad, y_grad = _dtw_grad(grad, x, y, x_lengths, y_lengths, *ctx.rules)
    return x_grad, None if y is None else y_grad, None, None, *(None for _ in ctx.rules)


def _matrix_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, y, x_lengths, y_lengths = ctx.saved_tensors
    symmetric, *rules = ctx.rules
    if symmetric:  # each pair once
        grad = (grad + grad.T).triu(1)
    x_grad, y_grad = _dtw_grad(grad, x, y, x_lengths, y_lengths, *rules)
    return x_grad, y_grad, None, None, *(None for _ in ctx.rules)


def _no_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError(
        "dtw: the second derivative is not implemented (the path does not change with the cost, almost everywhere); "
        "soft_dtw has one"
    )


_RULES = "bool root, int window, float size, bool open_begin, bool open_end"
_PAIRS = f"Tensor x, Tensor? y, Tensor? x_lengths, Tensor? y_lengths, {_RULES}"

_dtw = operator(
    f"dtw({_PAIRS}) -> Tensor",
    cpu=kernels.value,
    triton="dtw.value",
    fake=lambda x, *_: x.new_empty(x.shape[0]),
    save=_save,
    backward=_value_backward,
)
_dtw_matrix = operator(
    f"dtw_matrix(Tensor x, Tensor y, Tensor? x_lengths, Tensor? y_lengths, bool symmetric, {_RULES}) -> Tensor",
    cpu=kernels.matrix,
    triton="dtw.matrix",
    fake=lambda x, y, *_: x.new_empty(x.shape[0], y.shape[0]),
    save=_save,
    backward=_matrix_backward,
)
_dtw_path = operator(f"dtw_path({_PAIRS}) -> (Tensor, Tensor)", cpu=kernels.path, triton="dtw.path", fake=_path_fake)
_dtw_steps = operator(
    f"dtw_steps(Tensor x, Tensor y, Tensor? x_lengths, Tensor? y_lengths, {_RULES}) -> Tensor",
    cpu=kernels.steps,
    triton="dtw.steps",
    fake=lambda x, y, *_: x.new_empty(x.shape[0], y.shape[0], dtype=torch.int64),
)
_dtw_matched = operator(
    f"dtw_matched(Tensor x, Tensor y, Tensor? x_lengths, Tensor? y_lengths, Tensor rows, Tensor weights, {_RULES}) "
    "-> (Tensor, Tensor, Tensor)",
    cpu=kernels.matched,
    triton="dtw.matched",
    fake=lambda x, y, *_: (
        x.new_empty(len(y)),
        x.new_empty(x.shape, dtype=torch.float64),
        x.new_empty(x.shape[:2], dtype=torch.float64),
    ),
)
# Sum of weights * d value, weights (B,) for pairs or (N, M) for all pairs.
_dtw_grad = operator(
    f"dtw_grad(Tensor weights, {_PAIRS}) -> (Tensor, Tensor)",
    cpu=kernels.gradient,
    triton="dtw.gradient",
    fake=_grad_fake,
    backward=_no_second_derivative,
)
