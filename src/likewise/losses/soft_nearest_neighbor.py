"""The soft nearest neighbour loss."""

from torch import Tensor

from likewise import _check
from likewise.losses.loss import Loss
from likewise.losses.pairs import Pairs, log_sum_exp


class SoftNearestNeighbor(Loss):
    """The negative log probability of drawing a neighbour of the anchor's class.

    A column is drawn with probability softmax(-d / temperature). An anchor's loss is -log of the probability that the
    column has the anchor's class. An anchor without a positive or without a negative has loss 0.

    temperature: in the unit of D; a small one attends to the nearest columns only, a large one to all of them.

    With one column for each class, a prototype or a proxy, this is the cross-entropy of prototypical networks.
    Reference: Frosst, Papernot & Hinton (2019), arXiv:1902.01889. There D is the squared Euclidean distance.

    Example:
        >>> import torch
        >>> SoftNearestNeighbor()(torch.tensor([[0.5, 0.5, 0.5]]), [0], [0, 1, 0])
        tensor(0.4055)
    """

    def __init__(self, temperature: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.temperature = _check.positive(self.name, "temperature", temperature)

    def per_anchor(self, pairs: Pairs) -> Tensor:
        """The losses (N,) of the anchors."""
        logits = -pairs.distances / self.temperature
        of_all = log_sum_exp(logits, pairs.positives | pairs.negatives)
        return (of_all - log_sum_exp(logits, pairs.positives)).masked_fill(~pairs.complete, 0)
