"""SelfSupervised: learn from the known alignment of augmented sequences with their originals."""

import warnings

from torch import Tensor

from likewise import _check
from likewise.data.batch import Batch
from likewise.distances.tap import PairNetwork
from likewise.models.metric import Metric
from likewise.training.step import Step


class SelfSupervised:
    """A step or a term of ``fit``: the mean over b of d(x, x^) + d(x^, x) + mse(A, P) + mse(A', P'), weighted.

    x^ is the augmented x, P the plan (Lx, Lx^) that made it, A the attention that the distance (a TAP) predicts from x
    to x^, and A' that from x^ to x. It needs no labels: ``fit(metric, x, augment=..., step=SelfSupervised())``.

    Rows of A, A' and P' sum to 1, but those of P do not: A' can reach its target exactly, but A cannot.

    As the only loss, use it to train the distance alone, ``fit(TAP(), x, ...)``: the frames stay as they are, as in the
    paper, so d cannot vanish. An encoder would learn to make all frames equal; ``fit`` then issues a warning.

    Reference: Su & Wen, Temporal alignment prediction (ICLR 2022), equation 10. In its code, the weight is 1 / B next
    to a loss that is summed over the batch.

    Example:
        >>> import torch
        >>> from likewise.data.augment import RandomBlurOrMerge
        >>> from likewise.distances.tap import TAP
        >>> from likewise.training.fit import fit
        >>> tap = TAP(4)
        >>> history = fit(tap, torch.randn(8, 12, 2), step=SelfSupervised(), augment=RandomBlurOrMerge(), epochs=1,
        ...               verbose=False)
        >>> len(history.losses)
        1
    """

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = _check.positive("SelfSupervised", "weight", weight)

    def warn_if_alone(self, metric: Metric) -> None:
        """Warn that an encoder would collapse without another loss. ``fit`` calls it."""
        if metric.encoder is not None and any(p.requires_grad for p in metric.encoder.parameters()):
            warnings.warn(
                "SelfSupervised without another loss brings every sequence close to its augmentation, and an encoder "
                "does that by making all frames alike. Train the distance alone, or freeze the encoder with "
                "metric.encoder.requires_grad_(False), or add a loss and labels",
                stacklevel=3,
            )

    def __call__(self, step: Step) -> Tensor:
        """The term, a scalar."""
        distance, x, other = step.metric.distance, step.features, step.augmented_features
        if step.augmented is None or not isinstance(step.augmented.plans, Tensor):
            _check.refuse("SelfSupervised", "needs fit(augment=...) with an augmentation that returns its plans")
        if not isinstance(distance, PairNetwork) or not isinstance(x, Batch) or not isinstance(other, Batch):
            kind = type(distance).__name__
            _check.refuse(
                "SelfSupervised", f"needs a distance with an attention between sequences, such as TAP; got {kind}"
            )
        plans = step.augmented.plans.to(x.values)
        there, apart = distance.attention(x, other)
        back, apart_back = distance.attention(other, x)
        wrong = mean_squares(there, plans, x.lengths, other.lengths)
        wrong_back = mean_squares(back, plans.mT, other.lengths, x.lengths)
        return self.weight * (apart + apart_back + wrong + wrong_back).mean()


def mean_squares(attention: Tensor, plans: Tensor, x_lengths: Tensor, y_lengths: Tensor) -> Tensor:
    """Mean squared difference (B,) over the cells of each pair; both matrices are zero in the padding."""
    cells = (x_lengths * y_lengths).to(attention.device)
    return (attention - plans[:, : attention.shape[1], : attention.shape[2]]).square().sum((1, 2)) / cells
