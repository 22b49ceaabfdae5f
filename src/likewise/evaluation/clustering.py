"""Agreement between clusters of vectors and their classes, with scikit-learn."""

import warnings
from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise._labels import number_labels, read_labels


def clustering_agreement(x: Tensor, labels: object, *, starts: int = 10, seed: int = 0) -> float:
    """Normalised mutual information between the labels and a k-means clustering, with as many clusters as classes.

    x: (N, C) vectors, compared by Euclidean distance; pass unit vectors to cluster by angle.
    labels: (N,). starts: the number of k-means runs, of which the one with the smallest inertia is kept.

    Example:
        >>> x = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
        >>> clustering_agreement(x, torch.tensor([3, 3, 8, 8]))
        1.0
    """
    op = "clustering_agreement"
    if _check.is_tensor(op, "x", x).ndim != 2 or 0 in x.shape:
        _check.refuse(op, f"expected x of shape (N, C), not empty, got {tuple(x.shape)}")
    if not x.isfinite().all():
        _check.refuse(op, f"x holds NaN or infinity in row {int((~x.isfinite()).any(1).nonzero()[0])}")
    starts = _check.whole(op, "starts", starts)
    classes, (codes,) = number_labels(read_labels(op, "labels", labels, len(x)))
    return normalized_mutual_information(codes, _k_means(x, len(classes), starts, seed))


def normalized_mutual_information(labels: Any, clusters: Any) -> float:
    """2 I(labels, clusters) / (H(labels) + H(clusters)): 1 for equal partitions, 0 for independent ones.

    Both are (N,). The result for two partitions with a single part each is 1.

    Example:
        >>> normalized_mutual_information(torch.tensor([0, 0, 1, 1]), torch.tensor([5, 5, 2, 2]))
        1.0
        >>> normalized_mutual_information(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]))
        0.0
    """
    from sklearn.metrics import normalized_mutual_info_score

    op = "normalized_mutual_information"
    size = len(labels)
    if size == 0:
        _check.refuse(op, "expected at least one label")
    given = read_labels(op, "labels", labels, size), read_labels(op, "clusters", clusters, size)
    first, second = (number_labels(part)[1][0] for part in given)
    return min(1.0, max(0.0, float(normalized_mutual_info_score(first, second))))


def _k_means(x: Tensor, clusters: int, starts: int, seed: int) -> Tensor:
    """The cluster (N,) of each vector (N, C)."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    values = x.detach().cpu().to(torch.promote_types(x.dtype, torch.float32)).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct vectors than clusters are allowed
        found = KMeans(clusters, n_init=starts, random_state=seed).fit_predict(values)  # type: ignore[arg-type]
        return torch.from_numpy(found)
