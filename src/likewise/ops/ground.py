"""Ground costs: distances between frames.

A ground cost is a function of x (B, Tx, C) and y (B, Ty, C) that returns (B, Tx, Ty). The three named here are fused
into the kernels, which never store that array; any other callable works too.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from likewise import _check

GroundCost = Callable[[Tensor, Tensor], Tensor]


def sqeuclidean(x: Tensor, y: Tensor) -> Tensor:
    """Squared Euclidean cost, sum_c (x_ic - y_jc)^2.

    Example:
        >>> sqeuclidean(torch.tensor([[[0.0], [1.0]]]), torch.tensor([[[3.0]]]))
        tensor([[[9.],
                 [4.]]])
    """
    return _SquaredDistance.apply(x, y)


def euclidean(x: Tensor, y: Tensor) -> Tensor:
    """Euclidean cost, ||x_i - y_j||; where it is zero, its derivative is zero too.

    Example:
        >>> euclidean(torch.tensor([[[0.0, 0.0]]]), torch.tensor([[[3.0, 4.0]]]))
        tensor([[[5.]]])
    """
    squared = sqeuclidean(x, y)
    return torch.where(squared > 0, squared, 1).sqrt() * (squared > 0)


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """Cosine cost, 1 - cos(x_i, y_j), computed without cancellation as ||x_i/|x_i| - y_j/|y_j|||^2 / 2.

    A zero frame has no direction: its cost to every frame is 1. The same holds for frames too small for a finite
    derivative, 2e-31 in float32.

    Example:
        >>> cosine(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 2.0], [3.0, 0.0]]]))
        tensor([[[1.0000, 0.0000]]])
    """
    return sqeuclidean(*_directions(x, y)) / 2


NAMED: dict[str, GroundCost] = {"sqeuclidean": sqeuclidean, "euclidean": euclidean, "cosine": cosine}


def resolve(op: str, ground: str | GroundCost) -> GroundCost:
    """Return the ground cost for a name or a callable."""
    if isinstance(ground, str):
        if ground not in NAMED:
            _check.refuse(op, f"unknown ground cost {ground!r}; expected one of {', '.join(NAMED)}, or a callable")
        return NAMED[ground]
    if not callable(ground):
        raise TypeError(f"{op}: expected ground to be a name or a callable, got {type(ground).__name__}")
    return ground


def is_fused(ground: GroundCost) -> bool:
    """Whether the kernels know this ground cost."""
    return ground in NAMED.values()


def frames(
    ground: GroundCost, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None
) -> tuple[Tensor, Tensor, bool, float]:
    """The kernels' inputs for a named ground cost: frames of x and y, whether to take the root, and a factor.

    The kernels' results must be multiplied by that factor.
    """
    x, y = at_least_float32(x), at_least_float32(y)
    if ground is cosine:
        return *_directions(zero_padding(x, x_lengths), zero_padding(y, y_lengths)), False, 0.5
    return x, y, ground is euclidean, 1.0


def scaled(values: Tensor, factor: float) -> Tensor:
    """Return values * factor; a factor of 1 costs nothing."""
    return values if factor == 1 else values * factor


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision as float32: kernels accumulate in float32 or better."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def evaluate(
    op: str, ground: GroundCost, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None
) -> Tensor:
    """Return ground(x, y), checked, at least float32."""
    _check.finite(op, "x", x, x_lengths)
    _check.finite(op, "y", y, y_lengths)
    cost = ground(zero_padding(x, x_lengths), zero_padding(y, y_lengths))
    expected = (x.shape[0], x.shape[1], y.shape[1])
    if not isinstance(cost, Tensor) or cost.shape != expected:
        got = tuple(cost.shape) if isinstance(cost, Tensor) else type(cost).__name__
        _check.refuse(op, f"expected the ground cost to return shape {expected}, got {got}")
    _check.is_tensor(op, "the ground cost", cost)
    return at_least_float32(cost)


def scaled_down(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, float]:
    """x and y for a sum of squares, divided in float64 by a power of two that keeps those in range; and that power.

    The power is 1, and x and y are unchanged, where squares neither overflow nor underflow, or numbers cannot be read.
    """
    if _check.numbers_hidden():
        return x, y, 1.0
    largest = max(float(torch.linalg.vector_norm(t.detach(), torch.inf)) if t.numel() else 0.0 for t in (x, y))
    reach = 2.0**60 if x.dtype == torch.float32 else 2.0**500
    if 1 / reach <= largest <= reach or largest == 0:
        return x, y, 1.0
    power = 2.0 ** (math.frexp(largest)[1] - 1)
    return x.double() / power, y.double() / power, power


def power_of_two(sizes: Tensor) -> Tensor:
    """The largest power of two that is not above each size; 1 where the size is 0. Dividing by it rounds nothing.

    Example:
        >>> power_of_two(torch.tensor([0.0, 0.3, 5.0, 3e38]))
        tensor([1.0000e+00, 2.5000e-01, 4.0000e+00, 1.7014e+38])
    """
    mantissa, _ = torch.frexp(sizes)  # from 0.5 to 1
    return torch.where(sizes > 0, sizes / (2 * mantissa), 1)


def no_pairs(x: Tensor, y: Tensor) -> Tensor:
    """Distances (N, M) where N or M is 0: part of the graph of x (N, T, C) and y (M, T, C)."""
    return x.sum((1, 2))[:, None] + y.sum((1, 2))


def zero_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Return x with its padding set to zero, so that NaN in it cannot spread through a derivative."""
    if lengths is None:
        return x
    steps = torch.arange(x.shape[1], device=x.device)
    return x.masked_fill((steps >= lengths.to(x.device)[:, None])[..., None], 0)


class _SquaredDistance(torch.autograd.Function):
    """Differences without their array (B, Tx, Ty, C), and twice differentiable, which torch.cdist is not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x, y = ctx.saved_tensors
        # d/dx_i = 2 sum_j grad_ij (x_i - y_j); relative to a common centre, so that an offset does not lose precision.
        centre = y.detach().mean(-2, keepdim=True)
        x, y = x - centre, y - centre
        return (
            2 * (grad.sum(-1)[..., None] * x - grad @ y),
            2 * (grad.sum(-2)[..., None] * y - grad.mT @ x),
        )


def _directions(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    # A zero frame gets its own direction, one for x and one for y, orthogonal to all others.
    unit_x, zero_x = _unit(x)
    unit_y, zero_y = _unit(y)
    nothing_x, nothing_y = torch.zeros_like(zero_x), torch.zeros_like(zero_y)
    return torch.cat([unit_x, zero_x, nothing_x], -1), torch.cat([unit_y, nothing_y, zero_y], -1)


def _unit(x: Tensor) -> tuple[Tensor, Tensor]:
    largest = x.detach().abs().amax(-1, keepdim=True)  # scale first: tiny or huge squares are lost
    nothing = largest < torch.finfo(x.dtype).tiny * 2**24  # the derivative is inversely proportional to these
    scaled = x.masked_fill(nothing, 0) / torch.where(nothing, 1, largest)
    norm = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled / torch.where(norm > 0, norm, 1), nothing.to(x.dtype)
