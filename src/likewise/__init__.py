"""likewise: learn, compute, explain and search with distances between sequences and between images."""

import importlib
from typing import TYPE_CHECKING, Any

from likewise import losses
from likewise.data.arabic_digits import read_arabic_digits
from likewise.data.augment import Augmentation, Augmented, RandomBlur, RandomBlurOrMerge, RandomMerge
from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.data.har import read_har
from likewise.data.npz import read_npz, write_npz
from likewise.data.samplers import BatchSampler, ClassBalanced, HardBatch, MPerClass, Shuffled
from likewise.data.ts import read_ts, write_ts
from likewise.distances.alignment import Alignment
from likewise.distances.cosine import Cosine
from likewise.distances.distance import Distance
from likewise.distances.dtw import DTW
from likewise.distances.euclidean import Euclidean
from likewise.distances.gdtw import GDTW
from likewise.distances.soft_dtw import SoftDTW, SoftDTWDivergence
from likewise.distances.tap import TAP, TransformerTAP
from likewise.distances.warp import Warp, WarpAlignment
from likewise.evaluation.classification import confusion_matrix, macro_f1
from likewise.evaluation.clustering import clustering_agreement, normalized_mutual_information
from likewise.evaluation.curves import PrecisionRecall, precision_recall_curve
from likewise.evaluation.evaluate import evaluate, evaluate_matrix
from likewise.evaluation.retrieval import (
    mean_average_precision,
    mean_average_precision_at_r,
    nearest_neighbor_accuracy,
    nearest_neighbor_vote,
    recall_at_k,
)
from likewise.evaluation.scores import Scores
from likewise.evaluation.warps import position_error, share_below, time_deviation, time_error, trajectory_error
from likewise.models.frame_mlp import FrameMLP
from likewise.models.gru_encoder import GRUEncoder
from likewise.models.metric import Metric
from likewise.models.small_cnn import SmallCNN
from likewise.models.tcn import TCN
from likewise.training.fit import fit
from likewise.training.history import History
from likewise.training.self_supervised import SelfSupervised
from likewise.training.step import Step

if TYPE_CHECKING:
    from likewise.search.nearest_neighbors import NearestNeighbors
    from likewise.training.metric_learner import MetricLearner

__version__ = "0.1.0"

__all__ = [
    "DTW",
    "GDTW",
    "TAP",
    "TCN",
    "Alignment",
    "Augmentation",
    "Augmented",
    "Batch",
    "BatchSampler",
    "ClassBalanced",
    "Cosine",
    "Dataset",
    "Distance",
    "Euclidean",
    "FrameMLP",
    "GRUEncoder",
    "HardBatch",
    "History",
    "MPerClass",
    "Metric",
    "MetricLearner",
    "NearestNeighbors",
    "PrecisionRecall",
    "RandomBlur",
    "RandomBlurOrMerge",
    "RandomMerge",
    "Scores",
    "SelfSupervised",
    "Shuffled",
    "SmallCNN",
    "SoftDTW",
    "SoftDTWDivergence",
    "Step",
    "TransformerTAP",
    "Warp",
    "WarpAlignment",
    "clustering_agreement",
    "confusion_matrix",
    "evaluate",
    "evaluate_matrix",
    "fit",
    "losses",
    "macro_f1",
    "mean_average_precision",
    "mean_average_precision_at_r",
    "nearest_neighbor_accuracy",
    "nearest_neighbor_vote",
    "normalized_mutual_information",
    "position_error",
    "precision_recall_curve",
    "read_arabic_digits",
    "read_har",
    "read_npz",
    "read_ts",
    "recall_at_k",
    "share_below",
    "time_deviation",
    "time_error",
    "trajectory_error",
    "write_npz",
    "write_ts",
]

# These are scikit-learn estimators, and scikit-learn takes a second to import.
_LATER = {
    "MetricLearner": "likewise.training.metric_learner",
    "NearestNeighbors": "likewise.search.nearest_neighbors",
}


def __getattr__(name: str) -> Any:
    """Import an estimator when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module 'likewise' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
