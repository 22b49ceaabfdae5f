"""How well distances retrieve items of the same class: functions of (D, row_labels, col_labels)."""

import torch
from torch import Tensor

from likewise import _check


def nearest_neighbor_accuracy(D: Tensor, row_labels: Tensor, col_labels: Tensor | None = None) -> float:
    """Share of rows whose nearest column has the row's label. Of equally near columns, the first counts.

    Without col_labels, rows and columns are the same items, and each is left out of its own neighbours.

    Example:
        >>> D = torch.tensor([[0.1, 0.9], [0.8, 0.3], [0.2, 0.6]])
        >>> nearest_neighbor_accuracy(D, torch.tensor([0, 1, 1]), torch.tensor([0, 1]))
        0.6666666666666666
    """
    own = col_labels is None
    D, row_labels, col_labels = _checked("nearest_neighbor_accuracy", D, row_labels, col_labels)
    nearest = (_without_diagonal(D) if own else D).argmin(1)
    if own:
        nearest += nearest >= torch.arange(len(D), device=D.device)
    return (col_labels[nearest] == row_labels).double().mean().item()


def mean_average_precision(D: Tensor, row_labels: Tensor, col_labels: Tensor | None = None) -> float:
    """Mean, over the rows, of the average precision at which a row's class is retrieved from all columns.

    Average precision is the mean, over the relevant columns, of the share of relevant ones among all that are at most
    as far: equal distances count together, as in scikit-learn. Rows whose label no column has are left out; without
    any other, the result is 0. Without col_labels, rows and columns are the same items, and no row finds itself.

    Example:
        >>> D = torch.tensor([[0.1, 0.2, 0.3]])
        >>> mean_average_precision(D, torch.tensor([1]), torch.tensor([1, 0, 1]))
        0.8333333333333333
    """
    own = col_labels is None
    D, row_labels, col_labels = _checked("mean_average_precision", D, row_labels, col_labels)
    total, count = 0.0, 0
    for i, label in enumerate(row_labels):  # one row at a time: memory stays O(M)
        distances, relevant = D[i], col_labels == label
        if own:
            distances, relevant = _without(distances, i), _without(relevant, i)
        if not relevant.any():
            continue
        everything, hits = distances.sort().values, distances[relevant].sort().values
        not_further = torch.searchsorted(everything, hits, right=True)
        total += (torch.searchsorted(hits, hits, right=True) / not_further.double()).mean().item()
        count += 1
    return total / count if count else 0.0


def _checked(op: str, D: Tensor, row_labels: Tensor, col_labels: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    _check.is_tensor(op, "D", D)
    if D.ndim != 2 or 0 in D.shape:
        _check.refuse(op, f"expected D of shape (N, M), not empty, got {tuple(D.shape)}")
    if D.isnan().any():
        _check.refuse(op, f"D holds NaN in row {int(D.isnan().any(1).nonzero()[0])}")
    D, row_labels = D.detach(), torch.as_tensor(row_labels, device=D.device)
    if col_labels is None:
        if D.shape[0] != D.shape[1]:
            _check.refuse(op, f"without col_labels, D must be square, got {tuple(D.shape)}")
        if D.shape[0] < 2:
            _check.refuse(op, "without col_labels, D must hold at least two items")
        col_labels = row_labels
    col_labels = torch.as_tensor(col_labels, device=D.device)
    for name, labels, size in (("row_labels", row_labels, D.shape[0]), ("col_labels", col_labels, D.shape[1])):
        if labels.shape != (size,):
            _check.refuse(op, f"expected {name} of shape ({size},), got {tuple(labels.shape)}")
    return D, row_labels, col_labels


def _without_diagonal(D: Tensor) -> Tensor:
    """(N, N) -> (N, N - 1)."""
    n = len(D)
    return D.flatten()[1:].reshape(n - 1, n + 1)[:, :-1].reshape(n, n - 1)


def _without(row: Tensor, i: int) -> Tensor:
    return torch.cat([row[:i], row[i + 1 :]])
