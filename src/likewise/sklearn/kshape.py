"""KShape: clusters of series that have the same shape."""

from typing import Any, Self

from sklearn.base import ClassNamePrefixFeaturesOutMixin

from likewise.clusters.kshape import kshape
from likewise.distances.sbd import SBD
from likewise.sklearn.clusterer import CenterClusterer, Items


class KShape(ClassNamePrefixFeaturesOutMixin, CenterClusterer):
    """Divides series into clusters of similar shape: those that a shift in time and a change of scale make alike.

    k-means under ``SBD(independent=False)``. A centre is the series of the largest squared correlations with its
    members, each shifted to the old centre. Levels and scales do not count: every channel of a series is standardised.

    n_clusters: K.
    init: "k-means++" under the distance, "random" items, or K sequences.
    n_init: number of starts; the one with the least inertia is kept. max_iter: maximum number of assignments of each.
    tol: stop when no label changes and the inertia falls by less than this share of itself.
    length: number of steps of the centres; by default that of the items they start from.
    seed: of the random draws. verbose: print the inertia of each start to stderr.

    Several channels share one shift. Updates maximise squared correlations, so the inertia may rise now and then: the
    centres of the least inertia are kept. A cluster that empties takes the item that is farthest from its centre.

    After ``fit``: cluster_centers_ (a Batch of K, standardised), labels_ (N,), inertia_ (the sum of the distances),
    n_iter_, history_ (the inertia of each iteration), converged_ and, for a table, n_features_in_.
    Reference: Paparrizos & Gravano (2015). The start is k-means++, where the paper draws labels at random.

    Example:
        >>> up, peak = [0.0, 1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 3.0, 0.0, 0.0]
        >>> model = KShape(2).fit([up, peak, [2 * v + 1 for v in up], peak[1:] + peak[:1]])
        >>> model.labels_.tolist()
        [0, 1, 0, 1]
        >>> model.predict([[5.0, 5.0, 5.0, 5.0, 9.0]])
        array([1])
    """

    metric = None
    default = SBD(independent=False)

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-6,
        length: int | None = None,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.length = length
        self.seed = seed
        self.verbose = verbose

    def fit(self, X: Items, y: Any = None) -> Self:
        """Cluster items; y is not used."""
        items = self._read(X, fitting=True)
        found = kshape(
            items,
            self._count(self.n_clusters, len(items)),
            init=self.init,
            n_init=self.n_init,
            max_iter=self.max_iter,
            tol=self.tol,
            length=self.length,
            seed=self.seed,
            verbose=self.verbose,
        )
        return self._keep(found)
