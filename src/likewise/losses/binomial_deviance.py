"""The binomial deviance loss with hard mining."""

from torch import Tensor
from torch.nn.functional import softplus

from likewise import _check
from likewise.losses.loss import Loss
from likewise.losses.pairs import Pairs, mean_of


class BinomialDeviance(Loss):
    """A soft step around a threshold: positives should be below it, negatives above.

    With a = positive_scale and b = negative_scale, an anchor's loss over its hard pairs is

        (2 / a) mean over positives of log(1 + exp(a (p - threshold)))
        + (2 / b) mean over negatives of log(1 + exp(-b (n - threshold)))

    positive_scale, negative_scale: how steep the step is for each kind; beta and alpha of the papers.
    threshold: the position of the step, in the unit of D; the default suits distances between 0 and about 2.
    margin: hard pairs are positives with p > n_min - margin and negatives with n < p_max + margin, where n_min is the
        smallest distance to a negative and p_max the largest to a positive. None keeps all pairs.

    An anchor without a positive or without a negative has loss 0.
    Reference: Yi, Lei & Li (2014), arXiv:1407.4979; the form is equations 6 and 7 of Su & Wen (2022), Temporal
    Alignment Prediction, ICLR.

    Example:
        >>> import torch
        >>> BinomialDeviance()(torch.tensor([[0.6, 0.4]]), [0], [0, 1])
        tensor(0.9990)
    """

    def __init__(
        self,
        positive_scale: float = 2.0,
        negative_scale: float = 40.0,
        threshold: float = 0.5,
        *,
        margin: float | None = 0.1,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.positive_scale = _check.positive(self.name, "positive_scale", positive_scale)
        self.negative_scale = _check.positive(self.name, "negative_scale", negative_scale)
        self.threshold = _check.number(self.name, "threshold", threshold)
        self.margin = None if margin is None else _check.number(self.name, "margin", margin)

    def per_anchor(self, pairs: Pairs) -> Tensor:
        """The losses (N,) of the anchors."""
        pairs = pairs if self.margin is None else pairs.mined(self.margin)
        beyond = pairs.distances - self.threshold
        a, b = self.positive_scale, self.negative_scale
        pulled = 2 / a * mean_of(softplus(a * beyond), pairs.positives)
        pushed = 2 / b * mean_of(softplus(-b * beyond), pairs.negatives)
        return (pulled + pushed).masked_fill(~pairs.complete, 0)
