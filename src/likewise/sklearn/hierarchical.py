"""Hierarchical: SciPy's hierarchical clustering on the matrix of any distance."""

from typing import Any, Self

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from likewise import _check
from likewise.distances.distance import Distance
from likewise.sklearn.clusterer import Clusterer, Items

LINKAGES = ("single", "complete", "average", "weighted")


class Hierarchical(Clusterer):
    """Joins the nearest clusters until one is left: ``scipy.cluster.hierarchy`` on the matrix of a distance.

    metric: any symmetric Distance or Metric; None is ``Euclidean()``.
    n_clusters: where to cut the tree; or threshold: the distance at which to cut it, instead.
    linkage: the distance between two clusters: the "average" distance of their items, the least ("single"), the largest
        ("complete"), or "weighted". Ward's and centroid linkage need a Euclidean space and are not offered.
    verbose: draw a progress bar of the matrix on stderr.

    After ``fit``: labels_ (N,), numbered by first appearance, n_clusters_, and linkage_ (N - 1, 4), SciPy's table,
    which ``viz.plot_dendrogram`` draws.

    Example:
        >>> from likewise import DTW
        >>> series = [[0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0], [5.0, 4.0], [5.0, 5.0, 4.0]]
        >>> Hierarchical(DTW(), n_clusters=2).fit(series).labels_.tolist()
        [0, 0, 1, 1]
    """

    def __init__(
        self,
        metric: Distance | None = None,
        n_clusters: int | None = 2,
        *,
        threshold: float | None = None,
        linkage: str = "average",
        verbose: bool = False,
    ) -> None:
        self.metric = metric
        self.n_clusters = n_clusters
        self.threshold = threshold
        self.linkage = linkage
        self.verbose = verbose

    def fit(self, X: Items, y: Any = None) -> Self:
        """Build the tree and cut it; y is not used."""
        if self.linkage not in LINKAGES:
            _check.refuse("Hierarchical", f"linkage must be one of {', '.join(LINKAGES)}, got {self.linkage!r}")
        if self.n_clusters is None and self.threshold is None:
            _check.refuse("Hierarchical", "give n_clusters or threshold")
        items = self._read(X, fitting=True)
        if len(items) < 2:
            _check.refuse("Hierarchical", f"expected at least 2 items, got n_samples={len(items)}")
        metric = self._distance()
        if not metric.symmetric:
            _check.refuse("Hierarchical", f"{metric.name} is not symmetric: a tree needs one distance for each pair")
        D = self._matrix(items).astype(np.float64)
        self.linkage_ = linkage(squareform((D + D.T) / 2, checks=False), method=self.linkage)
        if self.threshold is not None:
            limit = _check.number("Hierarchical", "threshold", self.threshold)
            found = fcluster(self.linkage_, limit, criterion="distance")
        else:
            found = fcluster(self.linkage_, self._count(self.n_clusters, len(items)), criterion="maxclust")
        self.labels_ = _by_appearance(found)
        self.n_clusters_ = int(self.labels_.max()) + 1
        return self


def _by_appearance(labels: np.ndarray) -> np.ndarray:
    """Labels numbered from 0 in the order in which they appear."""
    _, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[codes]
