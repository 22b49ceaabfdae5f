"""The multi-similarity loss."""

from torch import Tensor
from torch.nn.functional import softplus

from likewise import _check
from likewise.losses.loss import Loss
from likewise.losses.pairs import Pairs, log_sum_exp


class MultiSimilarity(Loss):
    """Soft maxima of how far positives and negatives are on the wrong side of a threshold.

    With a = positive_scale and b = negative_scale, an anchor's loss over its hard pairs is

        (1 / a) log(1 + sum over positives of exp(a (p - threshold)))
        + (1 / b) log(1 + sum over negatives of exp(-b (n - threshold)))

    positive_scale, negative_scale: how sharp each soft maximum is; alpha and beta of the paper.
    threshold: lambda of the paper, in the unit of D.
    margin: epsilon of the paper: hard pairs are positives with p > n_min - margin and negatives with n < p_max +
        margin; an anchor without any has loss 0. None keeps all pairs, and an anchor may then have pairs of one kind.

    Reference: Wang et al. (2019), arXiv:1904.06627. The similarity S and its threshold are -D and -threshold here.

    Example:
        >>> import torch
        >>> MultiSimilarity()(torch.tensor([[0.6, 0.4]]), [0], [0, 1])
        tensor(0.4992)
    """

    def __init__(
        self,
        positive_scale: float = 2.0,
        negative_scale: float = 50.0,
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
        pulled = softplus(log_sum_exp(a * beyond, pairs.positives)) / a
        return pulled + softplus(log_sum_exp(-b * beyond, pairs.negatives)) / b
