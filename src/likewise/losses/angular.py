"""The angular loss."""

import math

from torch import Tensor
from torch.nn.functional import normalize, softplus

from likewise import _check
from likewise.losses.pairs import log_sum_exp
from likewise.losses.vector_loss import VectorLoss


class Angular(VectorLoss):
    """Bound the angle at a negative in the triangle that it forms with an anchor and its positive.

    The loss is the mean over pairs (a, p) of one class of log(1 + sum over items n of other classes of
    exp(4 t (a + p) . n - 2 (1 + t) a . p)), with t = tan^2(angle).

    angle: the bound in degrees.
    scale_free: scale all vectors to unit length first, as the formula expects.

    It is meant for batches with two items of each class (N-pair sampling): ``sampler=MPerClass(labels, batch_size,
    per_class=2)``. In larger classes all pairs are used. Memory is O(pairs * N). On unit vectors it equals
    pytorch-metric-learning's AngularLoss, which does not normalise negatives.
    Reference: Wang et al. (2017), arXiv:1708.01682, equation 8.

    Example:
        >>> import torch
        >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, -1.0]])
        >>> Angular()(x, [0, 0, 1])
        tensor(0.0037)
    """

    def __init__(self, angle: float = 45.0, *, scale_free: bool = True) -> None:
        super().__init__()
        self.angle = _check.positive(self.name, "angle", angle)
        if self.angle >= 90:
            _check.refuse(self.name, f"angle must be less than 90 degrees, got {angle}")
        self.scale_free = scale_free

    def value(self, x: Tensor, labels: Tensor) -> Tensor:
        """The mean over pairs; 0 without pairs or without negatives."""
        x = normalize(x, dim=1) if self.scale_free else x
        same = labels[:, None] == labels
        anchor, positive = same.fill_diagonal_(False).nonzero(as_tuple=True)
        if not len(anchor):
            return x.sum() * 0
        inner, tangent = x @ x.T, math.tan(math.radians(self.angle)) ** 2
        exponent = 4 * tangent * (inner[anchor] + inner[positive])  # (pairs, N)
        exponent = exponent - 2 * (1 + tangent) * inner[anchor, positive][:, None]
        others = labels[anchor][:, None] != labels
        return softplus(log_sum_exp(exponent, others)).mean()

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"angle={self.angle}, scale_free={self.scale_free}"
