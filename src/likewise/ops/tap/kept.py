"""Distances whose backward pass recomputes its data, for the pairs that a loss uses.

A loss with hard mining reads every distance, but many of its slopes are zero. Such pairs contribute no
gradient, so leaving them out is exact.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Work:
    """Functions of x, y and the parameters that compute distances (N, M) and their gradients.

    values: the distances, without a graph, and the data that it keeps for the gradients.
    dense: the distances with a graph, for a second derivative.
    gradients: those of x, y and the parameters, given also the slopes (N, M) of the distances and the kept data.
    """

    values: Callable[..., tuple[Tensor, Any]]
    dense: Callable[..., Tensor]
    gradients: Callable[..., list[Tensor | None]]


def distances(work: Work, x: Tensor, y: Tensor, parameters: list[Tensor]) -> Tensor:
    """Distances (N, M), differentiable with respect to x, y and the parameters."""
    return _Kept.apply(work, x, y, *parameters)  # type: ignore[return-value]


class _Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: Work, x: Tensor, y: Tensor, *parameters: Tensor) -> Tensor:
        kind = x.device.type
        ctx.work = work
        ctx.autocast = kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        ctx.save_for_backward(x, y, *parameters)
        found, ctx.kept = work.values(x, y, *parameters)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        given, (kind, dtype, enabled) = ctx.saved_tensors, ctx.autocast
        wanted = ctx.needs_input_grad[1:]
        with torch.autocast(kind, dtype, enabled):
            if torch.is_grad_enabled():
                # Views, which distinguish x and y if they are the same.
                views = [t.view_as(t) for t in given]
                D, some = ctx.work.dense(*views), [t for t, want in zip(views, wanted, strict=True) if want]
                rest = iter(torch.autograd.grad(D, some, grad, create_graph=True, allow_unused=True))
                return None, *(next(rest) if want else None for want in wanted)
            found = ctx.work.gradients(*given, grad, ctx.kept)
        return None, *(
            t.to(like.dtype) if want and t is not None else None
            for t, like, want in zip(found, given, wanted, strict=True)
        )
