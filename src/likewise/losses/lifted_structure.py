"""The lifted structure loss in the form that TAP uses."""

from torch import Tensor

from likewise import _check
from likewise.losses.loss import Loss
from likewise.losses.pairs import Pairs, log_sum_exp


class LiftedStructure(Loss):
    """A soft maximum of the distances to positives minus a soft minimum of those to negatives.

    With a = positive_scale and b = negative_scale, an anchor's loss is

        (2 / a) log sum over positives of exp(a p) + (2 / b) log sum over negatives of exp(-b n)

    There is no hinge, so the loss may be negative. An anchor without a positive or without a negative has loss 0.

    positive_scale, negative_scale: how sharp the soft maximum and minimum are; beta and alpha of the paper. The
        defaults suit distances between 0 and about 2.

    The original loss of Song et al. (2016), a squared hinge over both
    endpoints' negatives, is ``from_pml(LiftedStructureLoss())``.
    Reference: Su & Wen (2022), Temporal Alignment Prediction, ICLR, equation 5.

    Example:
        >>> import torch
        >>> LiftedStructure()(torch.tensor([[0.2, 0.9]]), [0], [0, 1])
        tensor(-1.4000)
    """

    def __init__(self, positive_scale: float = 2.0, negative_scale: float = 40.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.positive_scale = _check.positive(self.name, "positive_scale", positive_scale)
        self.negative_scale = _check.positive(self.name, "negative_scale", negative_scale)

    def per_anchor(self, pairs: Pairs) -> Tensor:
        """The losses (N,) of the anchors."""
        a, b = self.positive_scale, self.negative_scale
        farthest = 2 / a * log_sum_exp(a * pairs.distances, pairs.positives)
        nearest = 2 / b * log_sum_exp(-b * pairs.distances, pairs.negatives)
        return (farthest + nearest).masked_fill(~pairs.complete, 0)
