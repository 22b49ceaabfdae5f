"""TAP's triplet loss with hard mining, in the versions of its paper and of its code."""

import torch
from torch import Tensor

from likewise import _check
from likewise.losses.loss import Loss
from likewise.losses.pairs import Pairs, mean_of, sum_of


class HardMining(Loss):
    """A two-sided hinge around each anchor's hardest pairs: equation 4 of the paper.

    With p_max the distance to the farthest positive and n_min that to the nearest negative, an anchor's loss is
    sum over positives of max(0, p - n_min + margin) + sum over negatives of max(0, p_max + margin - n).

    As in the paper, it grows with the number of pairs in a row. An anchor without a positive or without a negative has
    loss 0. ``HardMiningMeans`` is the loss that the authors' code computes.
    Reference: Su & Wen (2022), Temporal Alignment Prediction, ICLR.

    Example:
        >>> import torch
        >>> HardMining()(torch.tensor([[0.1, 0.8, 0.5, 2.0]]), [0], [0, 0, 1, 1])
        tensor(0.8000)
    """

    def __init__(self, margin: float = 0.1, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.margin = _check.number(self.name, "margin", margin)

    def per_anchor(self, pairs: Pairs) -> Tensor:
        """The losses (N,) of the anchors."""
        pulled = pairs.distances - (pairs.nearest_negative() - self.margin)[:, None]
        pushed = (pairs.farthest_positive() + self.margin)[:, None] - pairs.distances
        kept = (pairs.positives | pairs.negatives) & pairs.complete[:, None]
        return sum_of(torch.where(pairs.positives, pulled, pushed).relu(), kept)


class HardMiningMeans(Loss):
    """The mean distance to hard positives minus that to hard negatives: what the code of the TAP paper computes.

    Positives with p > n_min - margin and negatives with n < p_max + margin are kept; an anchor's loss is
    mean of kept p + mean of (margin - kept n), or 0 if no pair is kept. There is no hinge: the gradient does not
    shrink before a pair is left out, so the loss jumps there. ``HardMining`` is the loss that the paper prints.
    Reference: Su & Wen (2022), Temporal Alignment Prediction, ICLR, the authors' code.

    Example:
        >>> import torch
        >>> HardMiningMeans()(torch.tensor([[0.1, 0.8, 0.5, 2.0]]), [0], [0, 0, 1, 1])
        tensor(0.4000)
    """

    def __init__(self, margin: float = 0.1, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.margin = _check.number(self.name, "margin", margin)

    def per_anchor(self, pairs: Pairs) -> Tensor:
        """The losses (N,) of the anchors."""
        hard = pairs.mined(self.margin)
        return mean_of(hard.distances, hard.positives) + mean_of(self.margin - hard.distances, hard.negatives)
