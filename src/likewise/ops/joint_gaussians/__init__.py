"""The joint kernel of several layers, each a mixture of Gaussians: its weighted sum in one operation."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from likewise.ops.dispatch import HAS_TRITON, are_plain, run_triton
from likewise.ops.joint_gaussians import reference
from likewise.ops.joint_gaussians.mixture import Mixture

__all__ = ["Mixture", "joint_gaussians"]


def joint_gaussians(layers: Sequence[Tensor], mixtures: Sequence[Mixture], weights: Tensor) -> Tensor:
    """The sum over pairs of w_ij prod_l k_l(x_li, x_lj), a scalar, for layers (B, C_l) and weights (B, B), symmetric.

    Instead of weights, labels (B,) may be given: pairs with different labels have equal weights, which sum to 1; others
    have weight 0.
    k_l is the mean over the bandwidths s of exp(-||x_li - x_lj||^2 / s). All mixtures have the same number of
    bandwidths, or one. Gradients reach the layers, not the bandwidths, and can be differentiated once more.
    Memory: O(L B^2). There is no GPU synchronisation, except in the first call with a new number of features.

    Example:
        >>> x = torch.tensor([[0.0], [1.0]])
        >>> joint_gaussians([x, x], [Mixture((1.0,), 2.0)] * 2, torch.tensor([[0.0, 0.5], [0.5, 0.0]]))
        tensor(0.3679)
    """
    return _JointGaussians.apply(tuple(mixtures), weights, *layers)  # type: ignore[return-value]


class _JointGaussians(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mixtures: tuple[Mixture, ...], weights: Tensor, *layers: Tensor) -> Tensor:  # type: ignore[override]
        ctx.mixtures = mixtures
        # Five launches instead of 60: on a GPU, a small network's step is bound by its launches.
        ctx.fused = HAS_TRITON and weights.numel() > 0 and are_plain((*layers, weights))
        if ctx.fused:
            value, *kept = run_triton("joint_gaussians.value", weights.device, layers, mixtures, weights)
        else:
            value, kept = reference.value_and_slopes(mixtures, weights, layers)
        ctx.save_for_backward(weights, *layers, *kept)
        return value

    @staticmethod
    def backward(ctx: Any, by_value: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        count = len(ctx.mixtures)
        weights, *rest = ctx.saved_tensors
        layers, kept = rest[:count], rest[count:]
        if torch.is_grad_enabled():  # recompute from the inputs, for a second derivative
            _, kept = reference.value_and_slopes(ctx.mixtures, weights, layers)
        elif ctx.fused:
            grads = run_triton("joint_gaussians.gradients", weights.device, by_value, layers, *kept)
            return None, None, *grads
        scale = -4 * by_value
        return None, None, *(scale * slope for slope in kept)
