"""Ways to combine a query's distances to several examples of a class into one distance."""

import math
from collections.abc import Callable

from torch import Tensor

from likewise import _check

# A function from distances (..., shots), the sums of both directions, to distances (...).
Combine = Callable[[Tensor], Tensor]


def mean_shot(distances: Tensor) -> Tensor:
    """The mean distance to the examples of a class.

    Example:
        >>> import torch
        >>> mean_shot(torch.tensor([[1.0, 5.0]]))
        tensor([3.])
    """
    return distances.mean(-1)


def nearest_shot(distances: Tensor) -> Tensor:
    """The distance to the nearest example of a class: a 1-NN classifier.

    Example:
        >>> import torch
        >>> nearest_shot(torch.tensor([[1.0, 5.0]]))
        tensor([1.])
    """
    return distances.amin(-1)


class SoftNearestShot:
    """Interpolate between nearest and mean: -t log mean_s exp(-d_s / t), where t is a share of the mean distance.

    share: small values are close to ``nearest_shot``, large ones to ``mean_shot``. It does not depend on the unit of d.

    Example:
        >>> import torch
        >>> SoftNearestShot(0.1)(torch.tensor([[1.0, 5.0]])), SoftNearestShot(100.0)(torch.tensor([[1.0, 5.0]]))
        (tensor([1.2079]), tensor([2.9933]))
    """

    def __init__(self, share: float = 0.1) -> None:
        self.share = _check.positive("SoftNearestShot", "share", share)

    def __call__(self, distances: Tensor) -> Tensor:
        """Combine the distances to the examples (..., shots) into one (...)."""
        unit = self.share * distances.abs().mean(-1, keepdim=True)
        unit = unit.clamp(min=distances.new_tensor(1e-30))
        return -unit[..., 0] * ((-distances / unit).logsumexp(-1) - math.log(distances.shape[-1]))

    def __repr__(self) -> str:
        return f"SoftNearestShot({self.share})"
