"""KMedoids: clusters around items, under any distance."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin

from likewise import _check
from likewise.distances.distance import Distance
from likewise.sklearn.clusterer import CenterClusterer, Items


class KMedoids(ClassNamePrefixFeaturesOutMixin, CenterClusterer):
    """Divides items into clusters around some of them, the medoids, so that the sum of distances from them is small.

    Needs no averages, only the matrix of distances, (N, N), on which FasterPAM of the ``kmedoids`` package works;
    install it with pip install "likewise[clusters]".

    metric: any Distance or Metric; None is ``Euclidean()``. n_clusters: K.
    init: "build" (greedy) or "random". n_init: number of random starts; the one with the least inertia is kept.
    max_iter: maximum number of passes over the items. seed: of the random draws.
    verbose: draw a progress bar of the matrix on stderr.

    After ``fit``: medoid_indices_ (K,), cluster_centers_ (a Batch of the medoids), labels_ (N,), inertia_ (the sum of
    the distances), n_iter_ and, for a table, n_features_in_.
    Reference: Schubert & Rousseeuw (2021), arXiv:2008.05171.

    Example:
        >>> from likewise import DTW
        >>> series = [[0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0], [5.0, 4.0], [5.0, 5.0, 4.5]]
        >>> model = KMedoids(DTW(), n_clusters=2).fit(series)
        >>> model.labels_.tolist()
        [0, 0, 1, 1]
    """

    def __init__(
        self,
        metric: Distance | None = None,
        n_clusters: int = 8,
        *,
        init: str = "build",
        n_init: int = 1,
        max_iter: int = 100,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.metric = metric
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.seed = seed
        self.verbose = verbose

    def fit(self, X: Items, y: Any = None) -> Self:
        """Cluster items; y is not used."""
        try:
            import kmedoids  # type: ignore[import-not-found]
        except ImportError as error:
            raise ImportError('KMedoids needs the package kmedoids: pip install "likewise[clusters]"') from error
        if self.init not in ("build", "random"):
            _check.refuse("KMedoids", f'init must be "build" or "random", got {self.init!r}')
        items = self._read(X, fitting=True)
        count = self._count(self.n_clusters, len(items))
        starts = _check.whole("KMedoids", "n_init", self.n_init) if self.init == "random" else 1
        passes = _check.whole("KMedoids", "max_iter", self.max_iter)
        D = self._matrix(items).astype(np.float64)
        best: Any = None
        for start in range(starts):
            found = kmedoids.fasterpam(
                D, count, max_iter=passes, init=self.init, random_state=self.seed + start, n_cpu=1
            )
            best = found if best is None or found.loss < best.loss else best
        chosen = np.unique(np.asarray(best.medoids, np.int64))  # in the order of the items
        if len(chosen) < count:  # fewer different items than clusters: copies are medoids too
            others = np.setdiff1d(np.arange(len(D)), chosen)[: count - len(chosen)]
            chosen = np.sort(np.concatenate([chosen, others]))
        self.medoid_indices_ = chosen
        self.cluster_centers_ = items[torch.from_numpy(chosen)]
        self.labels_ = D[:, chosen].argmin(1)
        self.labels_[chosen] = np.arange(count)  # a medoid belongs to itself, even if it equals another
        self.inertia_ = float(D[np.arange(len(D)), chosen[self.labels_]].sum())
        self.n_iter_ = int(best.n_iter)
        return self
