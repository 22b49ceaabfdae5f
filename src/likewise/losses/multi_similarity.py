"""The multi-similarity loss."""

from torch import Tensor
from torch.nn.functional import softplus

from likewise import _check
from likewise.losses.loss import Loss
from likewise.losses.pairs import Pairs, log_sum_exp


class MultiSimilarity(Loss):
    """Soft maxima of how far positives and negatives are on the wrong side of a threshold.

    An anchor's loss is (1 / alpha) log(1 + sum over positives of exp(alpha (p - threshold))) + (1 / beta)
    log(1 + sum over negatives of exp(-beta (n - threshold))), over its hard pairs.

    alpha, beta: how steep, for positives and for negatives.
    threshold: lambda of the paper, in the unit of D.
    margin: epsilon of the paper: hard are positives with p > n_min - margin and negatives with n < p_max + margin; an
        anchor without any has loss 0. None keeps all pairs, and then either kind counts without the other.

    Reference: Wang et al. (2019), arXiv:1904.06627. The similarity S and its threshold are -D and -threshold here.

    Example:
        >>> import torch
        >>> MultiSimilarity()(torch.tensor([[0.6, 0.4]]), [0], [0, 1])
        tensor(0.4992)
    """

    def __init__(
        self,
        alpha: float = 2.0,
        beta: float = 50.0,
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
        pulled = softplus(log_sum_exp(self.alpha * beyond, pairs.positives)) / self.alpha
        return pulled + softplus(log_sum_exp(-self.beta * beyond, pairs.negatives)) / self.beta
