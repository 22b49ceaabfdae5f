"""Kernels between the features of a batch: (B, C) -> (B, B), symmetric, positive semidefinite."""

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.ops.joint_gaussians import Mixture
from likewise.ops.joint_gaussians.reference import least_difference, mean_off_diagonal
from likewise.regularizers._inputs import squared_distances


class GaussianMixture(nn.Module):
    """k(x, x') = mean over the bandwidths s of exp(-||x - x'||^2 / s).

    count: the number of bandwidths: b 2^(i - count // 2) for i = 0 ... count - 1, that is b / 2, b and 2 b for three. b
        is the mean squared distance of two different items of the batch, regardless of class, without a gradient. It is
        at least (64 eps)^2 times the mean ||x||^2, with eps = 1.2e-7 in float32: otherwise gradients would explode
        where items differ only by rounding, for example if a network maps everything to one point.
    bandwidth: a number to use for b instead.

    Reference: Chu et al. (2020), Distance Metric Learning with Joint Representation Diversification, and its code.

    Example:
        >>> GaussianMixture(1)(torch.tensor([[0.0], [2.0]]))
        tensor([[1.0000, 0.3679],
                [0.3679, 1.0000]])
    """

    def __init__(self, count: int = 3, *, bandwidth: float | None = None) -> None:
        super().__init__()
        self.count = _check.whole("GaussianMixture", "count", count, most=64)
        self.bandwidth = None if bandwidth is None else _check.positive("GaussianMixture", "bandwidth", bandwidth)
        self.mixture = Mixture(tuple(2.0 ** (i - self.count // 2) for i in range(self.count)), self.bandwidth)

    def forward(self, x: Tensor) -> Tensor:
        """The kernel (B, B) of features x (B, C)."""
        apart = squared_distances(x)
        factors, middle = self.mixture
        if middle is None:
            middle = mean_off_diagonal(apart, x.detach().square().sum(1).mean() * least_difference(x) ** 2)
        kernels = [(apart / (-middle * factor)).exp() for factor in factors]
        return kernels[0] if self.count == 1 else torch.stack(kernels).mean(0)


class Laplace(nn.Module):
    """k(x, x') = exp(-||x - x'||_1 / s), where the distance is the sum of absolute differences.

    bandwidth: s; by default the mean distance of two different items of the batch, without a gradient, at least 64 eps
    times the mean ||x||_1, as in ``GaussianMixture``. (The slides that propose the kernel do not specify it.)

    Example:
        >>> Laplace()(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        tensor([[1.0000, 0.3679],
                [0.3679, 1.0000]])
    """

    def __init__(self, bandwidth: float | None = None) -> None:
        super().__init__()
        self.bandwidth = None if bandwidth is None else _check.positive("Laplace", "bandwidth", bandwidth)

    def forward(self, x: Tensor) -> Tensor:
        """The kernel (B, B) of features x (B, C)."""
        apart = torch.cdist(x, x, p=1)
        width = self.bandwidth
        if width is None:
            width = mean_off_diagonal(apart, x.detach().abs().sum(1).mean() * least_difference(x))
        return (apart / -width).exp()


class Polynomial(nn.Module):
    """k(x, x') = (x . x' + 1)^degree.

    normalize: scale features to unit length first; the kernel of long vectors is huge. (The slides do not specify
    this.)

    Example:
        >>> Polynomial(2)(torch.tensor([[3.0, 4.0], [4.0, -3.0]]))
        tensor([[4., 1.],
                [1., 4.]])
    """

    def __init__(self, degree: int = 2, *, normalize: bool = True) -> None:
        super().__init__()
        self.degree = _check.whole("Polynomial", "degree", degree)
        self.normalize = normalize

    def forward(self, x: Tensor) -> Tensor:
        """The kernel (B, B) of features x (B, C)."""
        x = nn.functional.normalize(x, dim=1) if self.normalize else x
        return (x @ x.T + 1) ** self.degree


class MomentGenerating(nn.Module):
    """k(x, x') = exp(x . x'), whose mean embedding is the moment generating function.

    normalize: scale features to unit length first; otherwise exp overflows for long ones. (The slides do not specify
    this.)

    Example:
        >>> MomentGenerating()(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor([[2.7183, 1.0000],
                [1.0000, 2.7183]])
    """

    def __init__(self, *, normalize: bool = True) -> None:
        super().__init__()
        self.normalize = normalize

    def forward(self, x: Tensor) -> Tensor:
        """The kernel (B, B) of features x (B, C)."""
        x = nn.functional.normalize(x, dim=1) if self.normalize else x
        return (x @ x.T).exp()
