"""The contrastive loss."""

from torch import Tensor

from likewise import _check
from likewise.losses.loss import Loss
from likewise.losses.pairs import Pairs, mean_of


class Contrastive(Loss):
    """Pull positives together, push negatives to a margin.

    An anchor's loss is mean over positives of p^2 / 2 + mean over negatives of max(0, margin - n)^2 / 2. The items of a
    batch of one class are still pulled together.

    Reference: Hadsell, Chopra & LeCun (2006), Dimensionality Reduction by Learning an Invariant Mapping.
    It departs from the paper in giving an anchor's positives and negatives equal weight, regardless of their numbers.

    Example:
        >>> import torch
        >>> Contrastive()(torch.tensor([[0.6, 0.4]]), [0], [0, 1])
        tensor(0.3600)
    """

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.margin = _check.positive(self.name, "margin", margin)

    def per_anchor(self, pairs: Pairs) -> Tensor:
        """The losses (N,) of the anchors."""
        pulled = mean_of(pairs.distances**2 / 2, pairs.positives)
        return pulled + mean_of((self.margin - pairs.distances).relu() ** 2 / 2, pairs.negatives)
