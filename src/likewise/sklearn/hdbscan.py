"""HDBSCAN: scikit-learn's clustering by density, on the matrix of any distance."""

from typing import Any, Self

import numpy as np
from sklearn.cluster import HDBSCAN as SKLEARN_HDBSCAN

from likewise import _check
from likewise.distances.distance import Distance
from likewise.sklearn.clusterer import Clusterer, Items


class HDBSCAN(Clusterer):
    """Finds dense clusters and leaves the rest as noise: ``sklearn.cluster.HDBSCAN`` on the matrix of a distance.

    metric: any symmetric Distance or Metric whose values are not negative; None is ``Euclidean()``.
    min_cluster_size: the fewest items of a cluster.
    options: further arguments of ``sklearn.cluster.HDBSCAN``, such as {"min_samples": 3}.
    verbose: draw a progress bar of the matrix on stderr.

    After ``fit``: labels_ (N,), -1 for noise; probabilities_ (N,), how strongly each item belongs to
        its cluster.
    Reference: Campello, Moulavi & Sander (2013).

    Example:
        >>> from likewise import DTW
        >>> series = [[0.0, 0.1 * i, 1.0] for i in range(6)] + [[9.0, 8.0 + 0.1 * i] for i in range(6)] + [[50.0]]
        >>> HDBSCAN(DTW(), min_cluster_size=4).fit(series).labels_.tolist()
        [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, -1]
    """

    def __init__(
        self,
        metric: Distance | None = None,
        *,
        min_cluster_size: int = 5,
        options: dict[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        self.metric = metric
        self.min_cluster_size = min_cluster_size
        self.options = options
        self.verbose = verbose

    def fit(self, X: Items, y: Any = None) -> Self:
        """Cluster items; y is not used."""
        _check.whole("HDBSCAN", "min_cluster_size", self.min_cluster_size, least=2)
        items = self._read(X, fitting=True)
        if len(items) < 2:
            _check.refuse("HDBSCAN", f"expected at least 2 items, got n_samples={len(items)}")
        metric = self._distance()
        if not metric.symmetric:
            _check.refuse("HDBSCAN", f"{metric.name} is not symmetric: density needs one distance for each pair")
        D = self._matrix(items).astype(np.float64)
        if D.min() < 0:
            _check.refuse(
                "HDBSCAN", f"{metric.name} gives negative values; use one that does not, such as a divergence"
            )
        options: dict[str, Any] = {"min_cluster_size": self.min_cluster_size, "copy": False, **(self.options or {})}
        found = SKLEARN_HDBSCAN(metric="precomputed", **options).fit((D + D.T) / 2)
        self.labels_ = found.labels_
        self.probabilities_ = found.probabilities_
        return self
