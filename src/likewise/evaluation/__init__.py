"""Scores from distances and labels (retrieval, classification, few-shot episodes, clusters) and from warps.

Functions of a matrix D (N, M) take ``(D, row_labels, col_labels=None)``. Without col_labels, rows and columns are the
same items, and the diagonal is ignored. ``evaluate`` computes the distances itself, in bounded memory.

Example:
    >>> import torch
    >>> D = torch.tensor([[0.1, 0.9], [0.8, 0.3]])
    >>> nearest_neighbor_accuracy(D, torch.tensor([0, 1]), torch.tensor([0, 1]))
    1.0
"""

from likewise.evaluation.candidates import Candidates
from likewise.evaluation.classification import confusion_matrix, macro_f1
from likewise.evaluation.clustering import clustering_agreement, normalized_mutual_information
from likewise.evaluation.curves import PrecisionRecall, precision_recall_curve
from likewise.evaluation.evaluate import evaluate, evaluate_matrix
from likewise.evaluation.few_shot import FewShotScore, few_shot_accuracy, few_shot_accuracy_matrix, few_shot_predict
from likewise.evaluation.intervals import bootstrap_interval
from likewise.evaluation.retrieval import (
    mean_average_precision,
    mean_average_precision_at_r,
    nearest_neighbor_accuracy,
    nearest_neighbor_vote,
    recall_at_k,
)
from likewise.evaluation.scores import Scores
from likewise.evaluation.shots import SoftNearestShot, mean_shot, nearest_shot
from likewise.evaluation.significance import PairedTest, paired_test
from likewise.evaluation.warps import position_error, share_below, time_deviation, time_error, trajectory_error

__all__ = [
    "Candidates",
    "FewShotScore",
    "PairedTest",
    "PrecisionRecall",
    "Scores",
    "SoftNearestShot",
    "bootstrap_interval",
    "clustering_agreement",
    "confusion_matrix",
    "evaluate",
    "evaluate_matrix",
    "few_shot_accuracy",
    "few_shot_accuracy_matrix",
    "few_shot_predict",
    "macro_f1",
    "mean_average_precision",
    "mean_average_precision_at_r",
    "mean_shot",
    "nearest_neighbor_accuracy",
    "nearest_neighbor_vote",
    "nearest_shot",
    "normalized_mutual_information",
    "paired_test",
    "position_error",
    "precision_recall_curve",
    "recall_at_k",
    "share_below",
    "time_deviation",
    "time_error",
    "trajectory_error",
]
