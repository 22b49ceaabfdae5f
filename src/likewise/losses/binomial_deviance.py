"""The binomial deviance loss with hard mining."""

from torch import Tensor
from torch.nn.functional import softplus

from likewise import _check
from likewise.losses.loss import Loss
from likewise.losses.pairs import Pairs, mean_of


class BinomialDeviance(Loss):
    """A soft step around a threshold: positives should be below it, negatives above.

    An anchor's loss is (2 / beta) mean over positives of log(1 + exp(beta (p - threshold))) + (2 / alpha) mean over
    negatives of log(1 + exp(-alpha (n - threshold))), over its hard pairs.

    alpha, beta: how steep the step is for negatives and for positives.
    threshold: where it lies, in the unit of D; the default suits distances of about 0 to 2.
    margin: hard are positives with p > n_min - margin and negatives with n < p_max + margin, where n_min is the
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
        alpha: float = 40.0,
        beta: float = 2.0,
        threshold: float = 0.5,
        *,
        margin: float | None = 0.1,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.alpha = _check.positive(self.name, "alpha", alpha)
        self.beta = _check.positive(self.name, "beta", beta)
        self.threshold = _check.number(self.name, "threshold", threshold)
        self.margin = None if margin is None else _check.number(self.name, "margin", margin)

    def per_anchor(self, pairs: Pairs) -> Tensor:
        """The losses (N,) of the anchors."""
        pairs = pairs if self.margin is None else pairs.mined(self.margin)
        beyond = pairs.distances - self.threshold
        pulled = 2 / self.beta * mean_of(softplus(self.beta * beyond), pairs.positives)
        pushed = 2 / self.alpha * mean_of(softplus(-self.alpha * beyond), pairs.negatives)
        return (pulled + pushed).masked_fill(~pairs.complete, 0)
