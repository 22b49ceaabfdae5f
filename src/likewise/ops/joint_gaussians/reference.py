"""The joint kernel of Gaussian mixtures and its derivative, in plain torch."""

from collections.abc import Sequence

import torch
from torch import Tensor

from likewise.ops.joint_gaussians.mixture import Mixture


def value_and_slopes(
    mixtures: Sequence[Mixture], weights: Tensor, layers: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """J, the sum over pairs of w_ij prod_l k_l, and -1/4 of its derivative with respect to each layer.

    With D_l the squared distances of layer l, k_l = mean over bandwidths s of exp(-D_l / s) and dJ/dD_l =
    w prod_m k_m (d log k_l / dD_l). That of log k_l is the mean of -1 / s, each weighed by its share of k_l.
    """
    weights = between_classes(weights, layers[0].dtype) if weights.ndim == 1 else weights
    side = torch.cat(tuple(layers), 1)
    centred = (side - side.mean(0)).split([x.shape[1] for x in layers], 1)  # for the precision of the squares
    inner = torch.stack([x @ x.T for x in centred])  # (L, B, B)
    sizes = inner.diagonal(dim1=1, dim2=2)
    apart = (sizes[:, None] + sizes[..., None]).sub(inner, alpha=2).clamp(min=0)  # exactly 0 on the diagonal
    slow = rates(mixtures, layers, apart)  # (L, K, 1, 1)
    exponents = apart[:, None] * slow  # (L, K, B, B)
    joint = weights * exponents.exp().mean(1).prod(0)  # (B, B)
    by_apart = joint * (exponents.softmax(1) * slow).sum(1)  # (L, B, B)
    # D_ij and D_ji depend on x_i, by 2 (x_i - x_j): in all, 4 times the sum over j of by_apart_ij (x_i - x_j).
    by_apart.diagonal(dim1=1, dim2=2).sub_(by_apart.sum(2))
    return joint.sum(), [cells @ x for cells, x in zip(by_apart, centred, strict=True)]


def between_classes(labels: Tensor, dtype: torch.dtype) -> Tensor:
    """Weights (B, B), equal for all ordered pairs of different labels, with sum 1; 0 without such pairs."""
    different = labels[:, None] != labels
    return different / different.sum(dtype=dtype).clamp(min=1)


@torch.no_grad()
def rates(mixtures: Sequence[Mixture], layers: Sequence[Tensor], apart: Tensor) -> Tensor:
    """-1 / s (L, K, 1, 1) for the bandwidths s of mixtures of K Gaussians, for squared distances (L, B, B)."""
    sizes = torch.stack([torch.linalg.vector_norm(x) for x in layers])
    middle = mean_off_diagonal(apart, (sizes * (least_difference(apart) / max(1, len(layers[0])) ** 0.5)).square())
    for i, mixture in enumerate(mixtures):
        if mixture.bandwidth is not None:
            middle[i] = mixture.bandwidth
    most = max(len(mixture.factors) for mixture in mixtures)
    units = [-1 / factor for mixture in mixtures for factor in mixture.repeated(most)]
    known = torch.tensor(units, dtype=apart.dtype).view(-1, most, 1, 1).to(apart.device, non_blocking=apart.is_cuda)
    return known / middle.view(-1, 1, 1, 1)


def mean_off_diagonal(apart: Tensor, least: Tensor) -> Tensor:
    """The mean of apart (..., B, B), which is 0 on the diagonal, over different items, but at least ``least`` (...).

    It has no gradient and is never 0.
    """
    count = apart.shape[-1]
    mean = apart.detach().sum((-2, -1)) / max(1, count * (count - 1))
    return mean.maximum(least).clamp(min=least_bandwidth(apart.dtype))


def least_difference(x: Tensor) -> float:
    """The largest relative difference of two numbers that are equal up to six bits of rounding."""
    return 64 * torch.finfo(x.dtype).eps


def least_bandwidth(dtype: torch.dtype) -> float:
    """The smallest bandwidth: smaller ones lose precision, and their inverse may not be finite."""
    kind = torch.finfo(dtype)
    return kind.tiny / kind.eps
