"""Retrieval of items of the same class: functions of (D, row_labels, col_labels).

D (N, M) has distances: smaller is closer. Without col_labels, rows and columns are the same items, and the diagonal
is ignored. Labels are numbers or names.
"""

import torch
from torch import Tensor

from likewise import _check
from likewise.evaluation import ranking
from likewise.evaluation.labels import Labels, read_k, read_matrix


def nearest_neighbor_accuracy(D: Tensor, row_labels: object, col_labels: object | None = None, *, k: int = 1) -> float:
    """Share of rows whose label is the most frequent one among their k nearest columns.

    Ties between columns go to the first, ties between labels to the smallest. Without col_labels, rows and columns are
    the same items, and the diagonal is ignored.

    Example:
        >>> D = torch.tensor([[0.1, 0.9], [0.8, 0.3], [0.2, 0.6]])
        >>> nearest_neighbor_accuracy(D, torch.tensor([0, 1, 1]), torch.tensor([0, 1]))
        0.6666666666666666
    """
    labels, neighbors = nearest_labels("nearest_neighbor_accuracy", D, row_labels, col_labels, k)
    return (ranking.vote(neighbors) == labels.rows).double().mean().item()


def nearest_neighbor_vote(
    D: Tensor, row_labels: object, col_labels: object | None = None, *, k: int = 5, least: int = 3
) -> float:
    """Share of rows for which at least ``least`` of the k nearest columns have the row's label.

    This is stricter than ``nearest_neighbor_accuracy``: two of five are never enough, even if they are the most
    frequent.

    Example:
        >>> D = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5]])
        >>> nearest_neighbor_vote(D, torch.tensor([7]), torch.tensor([7, 1, 7, 2, 7]))
        1.0
        >>> nearest_neighbor_vote(D, torch.tensor([7]), torch.tensor([7, 1, 7, 2, 3]))
        0.0
    """
    labels, neighbors = nearest_labels("nearest_neighbor_vote", D, row_labels, col_labels, k)
    least = _check.whole("nearest_neighbor_vote", "least", least, 1, k)
    return ((neighbors == labels.rows[:, None]).sum(1) >= least).double().mean().item()


def mean_average_precision(D: Tensor, row_labels: object, col_labels: object | None = None) -> float:
    """Mean, over the rows, of the average precision at which a row's class is retrieved from all columns.

    Average precision is the mean, over the relevant columns, of the share of relevant ones among all that are not
    farther: equal distances count together, as in scikit-learn. Rows without a column of their label are left out; if
    there are no others, the result is 0. Without col_labels, rows and columns are the same items, and the diagonal is
    ignored.

    It is exact: values are sorted and the ranks of the relevant ones are found, which is faster than sorting positions.

    Example:
        >>> D = torch.tensor([[0.1, 0.2, 0.3]])
        >>> mean_average_precision(D, torch.tensor([1]), torch.tensor([1, 0, 1]))
        0.8333333333333333
    """
    return _mean_precision("mean_average_precision", D, row_labels, col_labels, "full")


def mean_average_precision_at_r(D: Tensor, row_labels: object, col_labels: object | None = None) -> float:
    """Mean average precision over the R nearest columns only, where R is the number of columns with the row's label.

    MAP@R = mean over rows of (1 / R) * sum, over the relevant columns of rank at most R, of the precision at that rank.
    A column's rank is the number of columns that are not farther: equal distances count together, so the order of the
    columns does not matter, and ties that extend beyond rank R do not count. Rows without a column of their label are
    left out; if there are no others, the result is 0.

    Reference: Musgrave, Belongie & Lim (2020), arXiv:2003.08505, who do not specify ties.

    Example:
        >>> D = torch.tensor([[0.1, 0.2, 0.3]])
        >>> mean_average_precision_at_r(D, torch.tensor([1]), torch.tensor([1, 0, 1]))
        0.5
    """
    return _mean_precision("mean_average_precision_at_r", D, row_labels, col_labels, "at_r")


def recall_at_k(D: Tensor, row_labels: object, col_labels: object | None = None, *, k: int) -> float:
    """Share of rows with a column of their label among the k nearest; ties between columns go to the first.

    Rows without a column of their label count as misses, as in ``nearest_neighbor_accuracy``, which equals Recall@1.

    Example:
        >>> D = torch.tensor([[0.1, 0.2, 0.3]])
        >>> labels = torch.tensor([1]), torch.tensor([0, 1, 1])
        >>> recall_at_k(D, *labels, k=1), recall_at_k(D, *labels, k=2)
        (0.0, 1.0)
    """
    labels, neighbors = nearest_labels("recall_at_k", D, row_labels, col_labels, k)
    return (neighbors == labels.rows[:, None]).any(1).double().mean().item()


def nearest_labels(op: str, D: Tensor, row_labels: object, col_labels: object | None, k: int) -> tuple[Labels, Tensor]:
    """The labels of the matrix, and those of each row's k nearest columns, (N, k)."""
    labels, strips = read_matrix(op, D, row_labels, col_labels)
    k = read_k(op, k, labels.candidates)
    return labels, torch.cat([labels.columns[ranking.nearest(strip, k).cpu()] for _, strip in strips])


def _mean_precision(op: str, D: Tensor, row_labels: object, col_labels: object | None, which: str) -> float:
    labels, strips = read_matrix(op, D, row_labels, col_labels)
    relevant = labels.relevant
    total = torch.zeros((), dtype=torch.float64)
    for part, strip in strips:
        given = (t.to(strip.device) for t in (labels.rows[part], labels.columns, relevant[part]))
        total += getattr(ranking.average_precision(strip, *given), which).sum().cpu()
    return float(total / (relevant > 0).sum().clamp(min=1))
