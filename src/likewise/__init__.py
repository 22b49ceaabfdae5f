"""likewise: learn, compute, explain and search with distances between sequences and between images."""

import importlib
from typing import TYPE_CHECKING, Any

from likewise import dynamics, losses, regularizers
from likewise.data.arabic_digits import read_arabic_digits
from likewise.data.augment import Augmentation, Augmented, RandomBlur, RandomBlurOrMerge, RandomMerge
from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.data.episodes import Episodes
from likewise.data.har import read_har
from likewise.data.image_folders import read_cars, read_cub, read_flowers, read_image_folder, read_online_products
from likewise.data.images import ImageSet
from likewise.data.npz import read_npz, write_npz
from likewise.data.samplers import BatchSampler, ClassBalanced, HardBatch, MPerClass, Shuffled
from likewise.data.shl import read_shl
from likewise.data.ts import read_ts, write_ts
from likewise.distances.alignment import Alignment
from likewise.distances.cosine import Cosine
from likewise.distances.coupled_gru import CoupledAlignment, CoupledGRU
from likewise.distances.distance import Distance
from likewise.distances.dtw import DTW
from likewise.distances.emd import EMD
from likewise.distances.euclidean import Euclidean
from likewise.distances.gdtw import GDTW
from likewise.distances.mean_frames import MeanFrames
from likewise.distances.opw import OPW
from likewise.distances.otam import OTAM
from likewise.distances.siamese_gru import SiameseGRU
from likewise.distances.sinkhorn import Sinkhorn
from likewise.distances.soft_dtw import SoftDTW, SoftDTWDivergence
from likewise.distances.tap import TAP, TransformerTAP
from likewise.distances.tcot import TCOT
from likewise.distances.warp import Warp, WarpAlignment
from likewise.evaluation.candidates import Candidates
from likewise.evaluation.classification import confusion_matrix, macro_f1
from likewise.evaluation.clustering import clustering_agreement, normalized_mutual_information
from likewise.evaluation.curves import PrecisionRecall, precision_recall_curve
from likewise.evaluation.evaluate import evaluate, evaluate_matrix
from likewise.evaluation.few_shot import FewShotScore, few_shot_accuracy
from likewise.evaluation.retrieval import (
    mean_average_precision,
    mean_average_precision_at_r,
    nearest_neighbor_accuracy,
    nearest_neighbor_vote,
    recall_at_k,
)
from likewise.evaluation.scores import Scores
from likewise.evaluation.significance import PairedTest, paired_test
from likewise.evaluation.warps import position_error, share_below, time_deviation, time_error, trajectory_error
from likewise.models.attended_features import Attended, AttendedFeatures
from likewise.models.attention import Additive, Attention, MultiDimensional, Multiplicative
from likewise.models.backbones import EfficientNetLite
from likewise.models.class_head import ClassHead
from likewise.models.embedder import Embedder
from likewise.models.frame_mlp import FrameMLP
from likewise.models.frozen_batch_norm import freeze_batch_norm
from likewise.models.gradient_reversal import GradientReversal
from likewise.models.gru_encoder import GRUEncoder
from likewise.models.jitter import Jitter
from likewise.models.layers import FeatureMap
from likewise.models.metric import Metric
from likewise.models.random_crop import RandomCrop
from likewise.models.self_attention import SelfAttention
from likewise.models.small_cnn import SmallCNN
from likewise.models.tcn import TCN
from likewise.training.adversary import AdaptiveAdversary, ClassAdversary, SoftAdversary
from likewise.training.few_shot import EpisodeLoss, EpisodeValidation
from likewise.training.fit import fit
from likewise.training.history import History
from likewise.training.regularizer import Regularizer
from likewise.training.self_supervised import SelfSupervised
from likewise.training.step import Step

if TYPE_CHECKING:
    from likewise.search.nearest_neighbors import NearestNeighbors
    from likewise.training.deep_rvsml import DeepRVSML
    from likewise.training.metric_learner import MetricLearner
    from likewise.training.rvsml import RVSML

__version__ = "0.1.0"

__all__ = [
    "DTW",
    "EMD",
    "GDTW",
    "OPW",
    "OTAM",
    "RVSML",
    "TAP",
    "TCN",
    "TCOT",
    "AdaptiveAdversary",
    "Additive",
    "Alignment",
    "Attended",
    "AttendedFeatures",
    "Attention",
    "Augmentation",
    "Augmented",
    "Batch",
    "BatchSampler",
    "Candidates",
    "ClassAdversary",
    "ClassBalanced",
    "ClassHead",
    "Cosine",
    "CoupledAlignment",
    "CoupledGRU",
    "Dataset",
    "DeepRVSML",
    "Distance",
    "EfficientNetLite",
    "Embedder",
    "EpisodeLoss",
    "EpisodeValidation",
    "Episodes",
    "Euclidean",
    "FeatureMap",
    "FewShotScore",
    "FrameMLP",
    "GRUEncoder",
    "GradientReversal",
    "HardBatch",
    "History",
    "ImageSet",
    "Jitter",
    "MPerClass",
    "MeanFrames",
    "Metric",
    "MetricLearner",
    "MultiDimensional",
    "Multiplicative",
    "NearestNeighbors",
    "PairedTest",
    "PrecisionRecall",
    "RandomBlur",
    "RandomBlurOrMerge",
    "RandomCrop",
    "RandomMerge",
    "Regularizer",
    "Scores",
    "SelfAttention",
    "SelfSupervised",
    "Shuffled",
    "SiameseGRU",
    "Sinkhorn",
    "SmallCNN",
    "SoftAdversary",
    "SoftDTW",
    "SoftDTWDivergence",
    "Step",
    "TransformerTAP",
    "Warp",
    "WarpAlignment",
    "clustering_agreement",
    "confusion_matrix",
    "dynamics",
    "evaluate",
    "evaluate_matrix",
    "few_shot_accuracy",
    "fit",
    "freeze_batch_norm",
    "losses",
    "macro_f1",
    "mean_average_precision",
    "mean_average_precision_at_r",
    "nearest_neighbor_accuracy",
    "nearest_neighbor_vote",
    "normalized_mutual_information",
    "paired_test",
    "position_error",
    "precision_recall_curve",
    "read_arabic_digits",
    "read_cars",
    "read_cub",
    "read_flowers",
    "read_har",
    "read_image_folder",
    "read_npz",
    "read_online_products",
    "read_shl",
    "read_ts",
    "recall_at_k",
    "regularizers",
    "share_below",
    "time_deviation",
    "time_error",
    "trajectory_error",
    "write_npz",
    "write_ts",
]

# These are scikit-learn estimators, and scikit-learn takes a second to import.
_LATER = {
    "DeepRVSML": "likewise.training.deep_rvsml",
    "MetricLearner": "likewise.training.metric_learner",
    "NearestNeighbors": "likewise.search.nearest_neighbors",
    "RVSML": "likewise.training.rvsml",
}


def __getattr__(name: str) -> Any:
    """Import an estimator when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module 'likewise' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
