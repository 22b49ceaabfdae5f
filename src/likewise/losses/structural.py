"""The structural loss, reconstructed from an abstract."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from likewise import _check
from likewise.losses.loss import Loss
from likewise.losses.pairs import Pairs, log_sum_exp


class Structural(Loss):
    """Compare each positive pair, weighted by its hardness, with all negative pairs, and lower the variance of both.

    With P the positive and N the negative pairs of the batch:
    local = sum over P of w_ij log(1 + sum over N of exp(margin + D_ij - D_kl)), w = softmax over P of D / temperature,
    global = variance over P + variance over N + mean_weight max(0, mean over P - mean over N + mean_gap),
    loss = local + global_weight global. The weights w have no gradient.

    margin: how much farther negatives should be.
    temperature: how strongly the weights favour hard positives; None weights all alike.
    per_anchor_negatives: compare a pair (i, j) with the negatives of row i and of column j only.
    global_weight, mean_weight, mean_gap: as in the formula; 0 leaves a term out.
    reduction: the weights sum to one, so "mean" is the loss as written above, and "sum" is N times that.

    Terms without pairs are 0: the loss of a batch of one class includes only the variance of its positives.
    Reference: Yang, Zhou & Wang (2018), Person Reidentification via Structural Deep Metric Learning, IEEE TNNLS 30(10).
    This is a reconstruction from its abstract and from the coupled-GRU paper's description: the formula and constants
    were not available. The global term has the form of Kumar, Carneiro & Reid (2016), arXiv:1512.09272.

    Example:
        >>> Structural(global_weight=0)(torch.tensor([[0.5, 1.5]]), [0], [0, 1])
        tensor(0.6931)
    """

    def __init__(
        self,
        margin: float = 1.0,
        temperature: float | None = 1.0,
        *,
        per_anchor_negatives: bool = False,
        global_weight: float = 0.1,
        mean_weight: float = 1.0,
        mean_gap: float = 1.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.margin = _check.number(self.name, "margin", margin)
        self.temperature = None if temperature is None else _check.positive(self.name, "temperature", temperature)
        self.per_anchor_negatives = per_anchor_negatives
        self.global_weight = _check.number(self.name, "global_weight", global_weight)
        self.mean_weight = _check.number(self.name, "mean_weight", mean_weight)
        self.mean_gap = _check.number(self.name, "mean_gap", mean_gap)

    def per_anchor(self, pairs: Pairs) -> Tensor:
        """The loss of the batch, once for every anchor (N,)."""
        return (self._local(pairs) + self.global_weight * self._global(pairs)).expand(len(pairs.row_labels))

    def _local(self, pairs: Pairs) -> Tensor:
        D = pairs.distances
        if self.per_anchor_negatives:
            of_row = log_sum_exp(-D, pairs.negatives, dim=1)[:, None]
            near = torch.logaddexp(of_row, log_sum_exp(-D, pairs.negatives, dim=0))  # (N, M)
        else:
            near = log_sum_exp(-D, pairs.negatives, dim=(0, 1))
        return (self._weights(pairs) * softplus(self.margin + D + near)).masked_fill(~pairs.positives, 0).sum()

    def _weights(self, pairs: Pairs) -> Tensor:
        """(N, M), summing to one over the positive pairs."""
        if self.temperature is None:
            return pairs.positives.to(pairs.distances.dtype) / pairs.positives.sum().clamp(min=1)
        logits = pairs.distances.detach() / self.temperature
        return (
            (logits - log_sum_exp(logits, pairs.positives, dim=(0, 1))).masked_fill(~pairs.positives, -torch.inf).exp()
        )

    def _global(self, pairs: Pairs) -> Tensor:
        positive, negative = _mean(pairs.distances, pairs.positives), _mean(pairs.distances, pairs.negatives)
        spread = _mean((pairs.distances - positive) ** 2, pairs.positives)
        spread = spread + _mean((pairs.distances - negative) ** 2, pairs.negatives)
        gap = (positive - negative + self.mean_gap).relu()
        both = pairs.positives.any() & pairs.negatives.any()
        return spread + self.mean_weight * gap.masked_fill(~both, 0)


def _mean(values: Tensor, keep: Tensor) -> Tensor:
    """Mean over the kept cells, a scalar; 0 without kept cells."""
    return values.masked_fill(~keep, 0).sum() / keep.sum().clamp(min=1)
