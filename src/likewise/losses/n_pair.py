"""The N-pair loss."""

from torch import Tensor
from torch.nn.functional import softplus

from likewise import _check
from likewise.losses.loss import Loss
from likewise.losses.pairs import Pairs, log_sum_exp, mean_of


class NPair(Loss):
    """Compare each positive with all negatives of its anchor at once.

    An anchor's loss is the mean over positives of log(1 + sum over negatives of exp((p - n) / temperature)). An anchor
    without a positive or without a negative has loss 0.

    Reference: Sohn (2016), Improved Deep Metric Learning with Multi-class N-pair Loss Objective.
    It departs from the paper: the similarity is -D / temperature instead of an inner product, a batch may have any
    number of items of a class, and there is no penalty on the norm of embeddings.

    Example:
        >>> import torch
        >>> NPair()(torch.tensor([[0.5, 0.5]]), [0], [0, 1])
        tensor(0.6931)
    """

    def __init__(self, temperature: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.temperature = _check.positive(self.name, "temperature", temperature)

    def per_anchor(self, pairs: Pairs) -> Tensor:
        """The losses (N,) of the anchors."""
        scaled = pairs.distances / self.temperature
        return mean_of(softplus(scaled + log_sum_exp(-scaled, pairs.negatives)[:, None]), pairs.positives)
