"""Training: ``fit`` and its steps, terms and settings.

Example:
    >>> import likewise as lw
    >>> x, labels = lw.Batch.from_list([[0.0], [0.1], [5.0], [5.1]]), ["low", "low", "high", "high"]
    >>> metric = lw.Metric(lw.GRUEncoder(1, 4), lw.Euclidean())
    >>> history = fit(metric, (x, labels), lw.losses.Contrastive(), epochs=2, verbose=False)
    >>> len(history.losses)
    2
"""

from likewise.distances.training_defaults import TrainingDefaults
from likewise.training.adversary import AdaptiveAdversary, ClassAdversary, SoftAdversary
from likewise.training.cross_batch_memory import CrossBatchMemory
from likewise.training.few_shot import EpisodeLoss, EpisodeValidation
from likewise.training.fit import fit
from likewise.training.history import History, Score
from likewise.training.options import Checkpoints, Optimization
from likewise.training.pairs import AlignedPairs
from likewise.training.path_step import path_step
from likewise.training.regularizer import Regularizer
from likewise.training.self_supervised import SelfSupervised
from likewise.training.step import Step, matrix_step, vector_step
from likewise.training.validation import Validation

__all__ = [
    "AdaptiveAdversary",
    "AlignedPairs",
    "Checkpoints",
    "ClassAdversary",
    "CrossBatchMemory",
    "EpisodeLoss",
    "EpisodeValidation",
    "History",
    "Optimization",
    "Regularizer",
    "Score",
    "SelfSupervised",
    "SoftAdversary",
    "Step",
    "TrainingDefaults",
    "Validation",
    "fit",
    "matrix_step",
    "path_step",
    "vector_step",
]
