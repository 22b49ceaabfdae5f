"""The lifted structure loss in the form that TAP uses."""

from torch import Tensor

from likewise import _check
from likewise.losses.loss import Loss
from likewise.losses.pairs import Pairs, log_sum_exp


class LiftedStructure(Loss):
    """A soft maximum of the distances to positives minus a soft minimum of those to negatives.

    An anchor's loss is (2 / beta) log sum over positives of exp(beta p) + (2 / alpha) log sum over negatives of
    exp(-alpha n). There is no hinge, so it may be negative. An anchor without a positive or without a negative has
    loss 0, where the formula has none.

    The constants suit distances of about 0 to 2. The original of Song et al. (2016), a squared hinge over both
    endpoints' negatives, is ``from_pml(LiftedStructureLoss())``.
    Reference: Su & Wen (2022), Temporal Alignment Prediction, ICLR, equation 5.

    Example:
        >>> import torch
        >>> LiftedStructure()(torch.tensor([[0.2, 0.9]]), [0], [0, 1])
        tensor(-1.4000)
    """

    def __init__(self, alpha: float = 40.0, beta: float = 2.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.alpha = _check.positive(self.name, "alpha", alpha)
        self.beta = _check.positive(self.name, "beta", beta)

    def per_anchor(self, pairs: Pairs) -> Tensor:
        """The losses (N,) of the anchors."""
        farthest = 2 / self.beta * log_sum_exp(self.beta * pairs.distances, pairs.positives)
        nearest = 2 / self.alpha * log_sum_exp(-self.alpha * pairs.distances, pairs.negatives)
        return (farthest + nearest).masked_fill(~pairs.complete, 0)
