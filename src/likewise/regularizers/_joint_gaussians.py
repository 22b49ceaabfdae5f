"""The joint kernel of several layers, each a mixture of Gaussians: its weighted sum as one operation."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor

from likewise.regularizers.kernels import GaussianMixture, least_difference, mean_off_diagonal


def are_gaussians(kernels: Sequence[object]) -> TypeGuard[Sequence[GaussianMixture]]:
    """Whether ``joint_gaussians`` takes these kernels: mixtures of one count, or of one Gaussian."""
    counts = {kernel.count if type(kernel) is GaussianMixture else 0 for kernel in kernels}
    return 0 not in counts and len(counts - {1}) <= 1


def joint_gaussians(layers: Sequence[Tensor], mixtures: Sequence[GaussianMixture], weights: Tensor) -> Tensor:
    """The sum over pairs of w_ij prod_l k_l(x_li, x_lj), a scalar, for layers (B, C_l) and weights (B, B), symmetric.

    Gradients go to the layers. Nothing here waits for a GPU.

    Example:
        >>> x = torch.tensor([[0.0], [1.0]])
        >>> joint_gaussians([x, x], [GaussianMixture(1, bandwidth=2.0)] * 2, torch.tensor([[0.0, 0.5], [0.5, 0.0]]))
        tensor(0.3679)
    """
    return _JointGaussians.apply(mixtures, weights, *layers)  # type: ignore[return-value]


class _JointGaussians(torch.autograd.Function):
    """The derivative is found beside the value, in 61 operations for three layers: on a GPU their number counts."""

    @staticmethod
    def forward(ctx: Any, mixtures: Sequence[GaussianMixture], weights: Tensor, *layers: Tensor) -> Tensor:  # type: ignore[override]
        value, slopes = _value_and_slopes(mixtures, weights, layers)
        ctx.mixtures = mixtures
        ctx.save_for_backward(weights, *layers, *slopes)
        return value

    @staticmethod
    def backward(ctx: Any, by_value: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        count = len(ctx.mixtures)
        weights, layers, slopes = ctx.saved_tensors[0], ctx.saved_tensors[1:-count], ctx.saved_tensors[-count:]
        if torch.is_grad_enabled():  # to be differentiated once more, from what was given
            _, slopes = _value_and_slopes(ctx.mixtures, weights, layers)
        scale = -4 * by_value
        return None, None, *(scale * slope for slope in slopes)


def _value_and_slopes(
    mixtures: Sequence[GaussianMixture], weights: Tensor, layers: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """J, the sum over pairs of w_ij prod_l k_l, and -1/4 of its derivative by each layer.

    With D_l the squared distances of layer l, k_l = mean over bandwidths s of exp(-D_l / s) and dJ/dD_l =
    w prod_m k_m (d log k_l / dD_l). That of log k_l is the mean of -1 / s, each weighed by its share of k_l.
    """
    side = torch.cat(tuple(layers), 1)
    centred = (side - side.mean(0)).split([x.shape[1] for x in layers], 1)  # for the digits of the squares
    inner = torch.stack([x @ x.T for x in centred])  # (L, B, B)
    sizes = inner.diagonal(dim1=1, dim2=2)
    apart = (sizes[:, None] + sizes[..., None]).sub(inner, alpha=2).clamp(min=0)  # exactly 0 on the diagonal
    rates = _rates(mixtures, layers, apart)  # (L, K, 1, 1)
    exponents = apart[:, None] * rates  # (L, K, B, B)
    joint = weights * exponents.exp().mean(1).prod(0)  # (B, B)
    by_apart = joint * (exponents.softmax(1) * rates).sum(1)  # (L, B, B)
    # D_ij and D_ji depend on x_i, by 2 (x_i - x_j): in all, 4 times the sum over j of by_apart_ij (x_i - x_j).
    by_apart.diagonal(dim1=1, dim2=2).sub_(by_apart.sum(2))
    return joint.sum(), [cells @ x for cells, x in zip(by_apart, centred, strict=True)]


@torch.no_grad()
def _rates(mixtures: Sequence[GaussianMixture], layers: Sequence[Tensor], apart: Tensor) -> Tensor:
    """-1 / s (L, K, 1, 1) for the bandwidths s of mixtures of K Gaussians, for squared distances (L, B, B)."""
    sizes = torch.stack([torch.linalg.vector_norm(x) for x in layers])
    middle = mean_off_diagonal(apart, (sizes * (least_difference(apart) / max(1, len(layers[0])) ** 0.5)).square())
    for i, mixture in enumerate(mixtures):
        if mixture.bandwidth is not None:
            middle[i] = mixture.bandwidth
    most = max(mixture.count for mixture in mixtures)
    # One Gaussian is K equal ones.
    units = [-1 / factor for mixture in mixtures for factor in mixture.factors * (most // mixture.count)]
    known = torch.tensor(units, dtype=apart.dtype).view(-1, most, 1, 1).to(apart.device, non_blocking=apart.is_cuda)
    return known / middle.view(-1, 1, 1, 1)
