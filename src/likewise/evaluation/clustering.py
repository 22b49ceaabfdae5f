"""How well clusters of vectors agree with their classes."""

from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise._labels import number_labels, read_labels

STEPS = 100  # of k-means, at most, from each start
NUMBERS_A_STRIP = 1 << 22  # distances to centres that are held at once


def clustering_agreement(x: Tensor, labels: object, *, starts: int = 10, seed: int = 0) -> float:
    """Normalised mutual information between the labels and a k-means clustering, with as many clusters as classes.

    x: (N, C) vectors, compared by Euclidean distance as they are; give unit vectors for a clustering by angle.
    labels: (N,). starts: k-means runs so often, and the clustering with the closest centres counts.

    There is no such number from distances alone: centres need vectors.

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
    classes, (codes,) = number_labels(read_labels(op, "labels", labels, len(x)))
    return normalized_mutual_information(codes, k_means(x.detach(), len(classes), starts=starts, seed=seed))


def normalized_mutual_information(labels: Any, clusters: Any) -> float:
    """2 I(labels, clusters) / (H(labels) + H(clusters)): 1 for equal partitions, 0 for independent ones.

    Both (N,). Two partitions of one part each are equal: 1, as in scikit-learn, with its arithmetic mean.

    Example:
        >>> normalized_mutual_information(torch.tensor([0, 0, 1, 1]), torch.tensor([5, 5, 2, 2]))
        1.0
        >>> normalized_mutual_information(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]))
        0.0
    """
    op = "normalized_mutual_information"
    size = len(labels)
    if size == 0:
        _check.refuse(op, "expected at least one label")
    given = read_labels(op, "labels", labels, size), read_labels(op, "clusters", clusters, size)
    pairs = torch.stack([torch.from_numpy(number_labels(part)[1][0]) for part in given])  # (2, N)
    first, second = (_entropy(row.bincount()) for row in pairs)
    if first == second == 0:
        return 1.0
    shared = first + second - _entropy(pairs.unique(dim=1, return_counts=True)[1])
    return min(1.0, max(0.0, 2 * shared / (first + second)))


def k_means(x: Tensor, clusters: int, *, starts: int = 10, seed: int = 0) -> Tensor:
    """The cluster (N,) of each vector (N, C), by Lloyd's algorithm from k-means++ starts; the best of them counts.

    Memory beside x: O(N + K C), never (N, K) at once. A cluster that loses its last vector keeps its centre.

    Reference: Arthur & Vassilvitskii (2007), "k-means++: the advantages of careful seeding".
    """
    starts = _check.whole("k_means", "starts", starts)
    clusters = _check.whole("k_means", "clusters", clusters)
    if clusters > len(x):
        _check.refuse("k_means", f"{clusters} clusters of {len(x)} vectors")
    x = x if x.dtype == torch.float64 else x.float()
    x = x - x.mean(0)  # for the digits of the squares
    generator = torch.Generator().manual_seed(seed)
    best, found = torch.inf, torch.zeros(len(x), dtype=torch.int64)
    for _ in range(starts):
        total, nearest = _lloyd(x, _spread(x, clusters, generator))
        if total < best:
            best, found = total, nearest
    return found


def _lloyd(x: Tensor, centers: Tensor) -> tuple[float, Tensor]:
    """From these centres (K, C): the sum of squared distances, and the clusters (N,)."""
    distance, nearest = _nearest_center(x, centers)
    for _ in range(STEPS):
        count = nearest.bincount(minlength=len(centers))[:, None]
        sums = torch.zeros_like(centers).index_add_(0, nearest, x)
        centers = torch.where(count > 0, sums / count.clamp(min=1), centers)
        before = nearest
        distance, nearest = _nearest_center(x, centers)
        if torch.equal(nearest, before):
            break
    return distance.double().sum().item(), nearest


def _spread(x: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Centres (K, C) among the vectors, each drawn with a chance that grows with its squared distance to the others."""
    centers = x[torch.randint(len(x), (1,), generator=generator)]
    left = (x - centers).square().sum(1)
    for _ in range(clusters - 1):
        # Where every vector is a centre already, any will do.
        weights = left.double().cpu() if left.any() else torch.ones(len(x), dtype=torch.float64)
        place = weights.cumsum(0)
        drawn = torch.searchsorted(
            place, place[-1] * torch.rand(1, generator=generator, dtype=torch.float64), right=True
        )
        center = x[drawn.clamp(max=len(x) - 1)]
        centers, left = torch.cat([centers, center]), torch.minimum(left, (x - center).square().sum(1))
    return centers


def _nearest_center(x: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distance (N,) to the nearest centre, and which it is (N,); the first of equally near ones."""
    size, step = centers.square().sum(1), max(1, NUMBERS_A_STRIP // len(centers))
    nearest = torch.cat([(size - 2 * rows @ centers.T).argmin(1) for rows in x.split(step)])
    return (x - centers[nearest]).square().sum(1), nearest


def _entropy(counts: Tensor) -> float:
    """Of parts of these sizes, in nats."""
    share = counts.double() / counts.sum()
    return -(share * share.log()).sum().item()
