"""Elastic distances: one engine for the least cost of matching two sequences, given the costs of three moves.

``moves.py`` states the recurrences. ``elastic`` takes paired sequences, ``elastic_matrix`` all pairs, ``elastic_pairs``
listed pairs, each with a limit above which it may be given up; ``elastic_path`` returns the optimal paths. Derivatives
are those of the optimal path, with respect to frames and gaps.

Memory: values take O(T) for each pair in progress, never O(T^2). On the CPU, paths and derivatives keep the moves of
at most 32 million cells per thread; longer pairs are traced piece by piece.

Ties go to the diagonal first, then to the row above.
"""

from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.ops.dispatch import operator
from likewise.ops.elastic import cpu as kernels
from likewise.ops.elastic.moves import Border, Moves, Recurrence, Side, Tensors
from likewise.ops.rules import Rules

__all__ = [
    "Border",
    "Moves",
    "Recurrence",
    "Side",
    "elastic",
    "elastic_matrix",
    "elastic_pairs",
    "elastic_path",
]

Lengths = Tensor | None


def elastic(x: Side, y: Side, moves: Moves, *, rules: Rules = Rules(), weights: Tensor | None = None) -> Tensor:
    """Values (B,) of x[b] and y[b]. ``weights`` (2 L + 1,) are the factors of WARP, indexed by
    2 |i - j| - max(n, m) = -L, ..., L.

    Example:
        >>> x, y = (Side(torch.tensor([[[0.0], [1.0], [v]]])) for v in (2.0, 4.0))
        >>> elastic(x, y, Moves(Recurrence.WARP, penalty=0.5))
        tensor([4.])
    """
    tensors = _tensors(x, y, weights)
    wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    if wanted and moves.recurrence != Recurrence.COUNT:  # one table gives both the values and their derivatives
        return _elastic_slopes(*tensors, *moves.plain(), *rules.plain())[0]  # type: ignore[no-any-return]
    return _elastic(*tensors, *moves.plain(), *rules.plain())


def elastic_matrix(
    x: Side, y: Side | None, moves: Moves, *, rules: Rules = Rules(), weights: Tensor | None = None
) -> Tensor:
    """Values (N, M) of every x[i] and every y[j]; without y, of x with itself, half of them computed and mirrored.

    Example:
        >>> x = Side(torch.tensor([[[0.0], [1.0]], [[1.0], [3.0]]]))
        >>> elastic_matrix(x, None, Moves(Recurrence.WARP))
        tensor([[0., 5.],
                [5., 0.]])
    """
    symmetric = y is None and rules.symmetric
    return _elastic_matrix(*_tensors(x, x if y is None else y, weights), *moves.plain(), *rules.plain(), symmetric)


def elastic_pairs(
    x: Side,
    y: Side,
    pairs: Tensor,
    moves: Moves,
    *,
    limits: Tensor | None = None,
    rules: Rules = Rules(),
    weights: Tensor | None = None,
) -> Tensor:
    """Values (K,) of x[pairs[k, 0]] and y[pairs[k, 1]], pairs (K, 2) int64, without derivatives.

    With limits (K,), a pair whose value is above its limit may get infinity instead. Pairs are abandoned in blocks of
    lanes, so list pairs that are equally likely to exceed their limits next to each other.

    Example:
        >>> x = Side(torch.tensor([[[0.0], [1.0]], [[1.0], [3.0]]]))
        >>> elastic_pairs(x, x, torch.tensor([[0, 1], [1, 1]]), Moves(Recurrence.WARP))
        tensor([5., 0.])
    """
    for side, items in ((x, pairs[:, 0]), (y, pairs[:, 1])):
        if len(pairs) and not (int(items.min()) >= 0 and int(items.max()) < len(side)):
            _check.refuse("elastic_pairs", f"pairs name items {int(items.min())}..{int(items.max())} of {len(side)}")
    tensors = [t if t is None else t.detach() for t in _tensors(x, y, weights)]
    if limits is not None:
        limits = limits.to(x.frames)
    return _elastic_pairs(pairs, limits, *tensors, *moves.plain(), *rules.plain())


def elastic_path(
    x: Side, y: Side, moves: Moves, *, rules: Rules = Rules(), weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Optimal paths (B, Tx + Ty - 1, 2) int64, padded with -1, and their numbers of steps (B,).

    Every cell on the path is listed; a step along the border appears in the first row or column.

    Example:
        >>> x, y = Side(torch.tensor([[[0.0], [1.0], [2.0]]])), Side(torch.tensor([[[0.0], [2.0]]]))
        >>> path, steps = elastic_path(x, y, Moves(Recurrence.WARP))
        >>> path[0, : steps[0]].tolist()
        [[0, 0], [1, 0], [2, 1]]
    """
    tensors = [t if t is None else t.detach() for t in _tensors(x, y, weights)]
    return _elastic_path(*tensors, *moves.plain(), *rules.plain())


def _tensors(x: Side, y: Side, weights: Tensor | None) -> Tensors:
    return Tensors(x.frames, y.frames, x.gaps, y.gaps, x.reach, y.reach, weights, x.lengths, y.lengths)


# The operators. Their arguments are Tensors, Moves.plain and Rules.plain.


def _path_fake(x: Tensor, y: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    paths = x.new_empty(x.shape[0], x.shape[1] + y.shape[1] - 1, 2, dtype=torch.int64)
    return paths, x.new_empty(x.shape[0], dtype=torch.int64)


def _grad_fake(weight: Tensor, x: Tensor, y: Tensor, x_gaps: Tensor | None, y_gaps: Tensor | None, *_: Any) -> Any:
    return tuple(x.new_empty(0) if t is None else torch.empty_like(t) for t in (x, y, x_gaps, y_gaps))


def _slopes_fake(x: Tensor, *tensors: Any) -> Any:
    return x.new_empty(x.shape[0]), *_grad_fake(x, x, *tensors)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    count = len(Tensors._fields)
    ctx.save_for_backward(*inputs[:count])
    ctx.rest = inputs[count:]


def _backward(ctx: Any, grad: Tensor, rest: tuple[Any, ...]) -> tuple[Any, ...]:
    tensors = Tensors(*ctx.saved_tensors)
    if rest[0] == Recurrence.COUNT:
        raise NotImplementedError(
            "elastic: a number of matches has no useful derivative (it is zero almost everywhere); train with a "
            "distance that measures how far apart frames are, such as ERP or MSM"
        )
    x_grad, y_grad, x_gaps_grad, y_gaps_grad = _elastic_grad(grad, *tensors, *rest)
    gaps = (None if tensors.x_gaps is None else x_gaps_grad, None if tensors.y_gaps is None else y_gaps_grad)
    return x_grad, y_grad, *gaps, *(None for _ in tensors[4:]), *(None for _ in ctx.rest)


def _value_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _backward(ctx, grad, ctx.rest)


def _save_slopes(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.count = len(inputs)


def _slopes_backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
    slopes = _elastic_scaled(grad, *ctx.saved_tensors)  # which belong to the graph: a second derivative is refused
    return *(slope if slope.numel() else None for slope in slopes), *(None for _ in range(ctx.count - 4))


def _matrix_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    *rest, symmetric = ctx.rest
    if symmetric:  # each pair once
        grad = (grad + grad.T).triu(1)
    return _backward(ctx, grad, tuple(rest))


def _no_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError("elastic: the second derivative is not implemented; soft_dtw has one")


_SIDES = (
    "Tensor x, Tensor y, Tensor? x_gaps, Tensor? y_gaps, Tensor? x_reach, Tensor? y_reach, Tensor? weights, "
    "Tensor? x_lengths, Tensor? y_lengths"
)
_NUMBERS = (
    "int recurrence, bool root, int border, float penalty, float slope, float hit, float miss, bool last_cost, "
    "int parts, int window, float size, bool open_begin, bool open_end"
)

_elastic = operator(
    f"elastic({_SIDES}, {_NUMBERS}) -> Tensor",
    cpu=kernels.value,
    triton="elastic.value",
    fake=lambda x, *_: x.new_empty(x.shape[0]),
    save=_save,
    backward=_value_backward,
)
_elastic_matrix = operator(
    f"elastic_matrix({_SIDES}, {_NUMBERS}, bool symmetric) -> Tensor",
    cpu=kernels.matrix,
    triton="elastic.matrix",
    fake=lambda x, y, *_: x.new_empty(x.shape[0], y.shape[0]),
    save=_save,
    backward=_matrix_backward,
)
_elastic_pairs = operator(
    f"elastic_pairs(Tensor pairs, Tensor? limits, {_SIDES}, {_NUMBERS}) -> Tensor",
    cpu=kernels.listed,
    triton="elastic.pairs",
    fake=lambda pairs, limits, x, *_: x.new_empty(pairs.shape[0]),
)
_elastic_path = operator(
    f"elastic_path({_SIDES}, {_NUMBERS}) -> (Tensor, Tensor)", cpu=kernels.path, triton="elastic.path", fake=_path_fake
)
# The values (B,) of pairs, and the derivative of each by its own frames and gaps.
_elastic_slopes = operator(
    f"elastic_slopes({_SIDES}, {_NUMBERS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    cpu=kernels.slopes,
    triton="elastic.slopes",
    fake=_slopes_fake,
    save=_save_slopes,
    backward=_slopes_backward,
)
_elastic_scaled = operator(
    "elastic_scaled(Tensor grad, Tensor x, Tensor y, Tensor x_gaps, Tensor y_gaps) -> (Tensor, Tensor, Tensor, Tensor)",
    cpu=kernels.scaled,
    triton="elastic.scaled",
    fake=kernels.scaled,
    backward=_no_second_derivative,
)
# Sum of weight * d value, weight (B,) for pairs or (N, M) for all pairs.
_elastic_grad = operator(
    f"elastic_grad(Tensor weight, {_SIDES}, {_NUMBERS}) -> (Tensor, Tensor, Tensor, Tensor)",
    cpu=kernels.gradient,
    triton="elastic.gradient",
    fake=_grad_fake,
    backward=_no_second_derivative,
)
