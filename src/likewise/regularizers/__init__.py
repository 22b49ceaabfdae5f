"""Regularisers: functions of features, class scores or weights that are added to a loss.

Add one to the loss of ``fit`` as a term: ``fit(..., terms=[lambda step: 0.01 * coupling_norm(step.metric)])``. Wrap
those that take features and labels: ``fit(..., terms=[Regularizer(EnergyConfusion(), 0.1)])``.

Example:
    >>> import torch
    >>> EnergyConfusion()(torch.tensor([[0.0], [1.0], [3.0]]), [0, 0, 1])
    tensor(6.5000)
"""

from likewise.regularizers.coupling_norm import coupling_norm
from likewise.regularizers.energy_confusion import EnergyConfusion
from likewise.regularizers.joint_representation_similarity import (
    ConcatenatedSimilarity,
    IntraClassPenalty,
    JointMeanDiscrepancy,
    JointRepresentationSimilarity,
    MarginalSimilarity,
)
from likewise.regularizers.kernels import GaussianMixture, Laplace, MomentGenerating, Polynomial

__all__ = [
    "ConcatenatedSimilarity",
    "EnergyConfusion",
    "GaussianMixture",
    "IntraClassPenalty",
    "JointMeanDiscrepancy",
    "JointRepresentationSimilarity",
    "Laplace",
    "MarginalSimilarity",
    "MomentGenerating",
    "Polynomial",
    "coupling_norm",
]
