"""Classification by nearest neighbours: functions of (D, row_labels, col_labels).

A row is predicted to have the most frequent label among its k nearest columns. Ties between columns go to the first,
ties between labels to the smallest. Without col_labels, rows and columns are the same items, and the diagonal is
ignored. Rows without a column of their label count as errors.
"""

import torch
from torch import Tensor

from likewise.evaluation import ranking
from likewise.evaluation.retrieval import nearest_labels


def macro_f1(D: Tensor, row_labels: object, col_labels: object | None = None, *, k: int = 1) -> float:
    """Mean of the classes' F1 = 2 TP / (2 TP + FP + FN), for the prediction by the k nearest columns.

    Classes that occur neither among the rows nor among the predictions are left out, as in scikit-learn.

    Example:
        >>> D = torch.tensor([[0.1, 0.9], [0.8, 0.3], [0.2, 0.6]])
        >>> macro_f1(D, torch.tensor([0, 1, 1]), torch.tensor([0, 1]))
        0.6666666666666666
    """
    labels, neighbors = nearest_labels("macro_f1", D, row_labels, col_labels, k)
    return mean_f1(labels.rows, ranking.vote(neighbors))


def confusion_matrix(D: Tensor, row_labels: object, col_labels: object | None = None, *, k: int = 1) -> Tensor:
    """Counts (K, K) of rows of class i for which the k nearest columns predict class j.

    The K classes are all labels of rows and of columns, sorted.

    Example:
        >>> D = torch.tensor([[0.1, 0.9], [0.8, 0.3], [0.2, 0.6]])
        >>> confusion_matrix(D, torch.tensor([0, 1, 1]), torch.tensor([0, 1]))
        tensor([[1, 0],
                [1, 1]])
    """
    labels, neighbors = nearest_labels("confusion_matrix", D, row_labels, col_labels, k)
    return count_pairs(labels.rows, ranking.vote(neighbors), len(labels.classes))


def mean_f1(actual: Tensor, predicted: Tensor) -> float:
    """Macro-F1 of predictions (N,), both as indices of classes."""
    most = int(torch.maximum(actual, predicted).max()) + 1
    size = actual.bincount(minlength=most) + predicted.bincount(minlength=most)  # 2 TP + FP + FN
    hits = actual[actual == predicted].bincount(minlength=most)
    return (2 * hits[size > 0] / size[size > 0].double()).mean().item()


def count_pairs(actual: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """The confusion matrix (K, K) of predictions (N,), both as indices of K classes."""
    return (actual * classes + predicted).bincount(minlength=classes**2).view(classes, classes)
