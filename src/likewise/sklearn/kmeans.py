"""KMeans: clusters around averages under any distance."""

from typing import Any, Self

from sklearn.base import ClassNamePrefixFeaturesOutMixin

from likewise.clusters.kmeans import kmeans
from likewise.distances.distance import Distance
from likewise.distances.euclidean import Euclidean
from likewise.sklearn.clusterer import CenterClusterer, Items
from likewise.sklearn.neighbor_classifier import comparing


class KMeans(ClassNamePrefixFeaturesOutMixin, CenterClusterer):
    """Divides items into clusters around averages, so that the sum of the distances from the averages is small.

    metric: any Distance that ``likewise.barycenter`` averages under, or a Metric, whose encoded items are clustered;
        None is ``Euclidean(squared=True)``, ordinary k-means. Under ``DTW()`` this is k-means with DBA.
    n_clusters: K.
    init: "k-means++" under the distance, the best of several draws each time, as in scikit-learn; "random" items; or K
        sequences.
    n_init: number of starts; the one with the least inertia is kept. max_iter: maximum number of assignments of each.
    tol: stop when no label changes and the inertia falls by less than this share of itself.
    length: number of steps of the centres; by default that of the items they start from.
    seed: of the random draws. verbose: print the inertia of each start to stderr.

    An assignment computes only what bounds leave open: by the triangle inequality where the distance is a metric, by
    envelopes for ``DTW`` with a band. A cluster that empties takes the item that is farthest from its centre.

    After ``fit``: cluster_centers_ (a Batch of K), labels_ (N,), inertia_ (the sum of the distances, of which no root
    is taken), n_iter_, history_ (the inertia of each iteration), converged_ and, for a table, n_features_in_.
    Reference: Petitjean et al. (2011); Arthur & Vassilvitskii (2007); Elkan (2003).

    Example:
        >>> from likewise import DTW
        >>> series = [[0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0], [5.0, 4.0], [5.0, 5.0, 4.0]]
        >>> model = KMeans(DTW(), n_clusters=2).fit(series)
        >>> model.labels_.tolist(), model.inertia_
        ([0, 0, 1, 1], 0.0)
        >>> model.predict([[4.0, 4.0]])
        array([1])
    """

    default = Euclidean(squared=True)

    def __init__(
        self,
        metric: Distance | None = None,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-4,
        length: int | None = None,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.metric = metric
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
        found = kmeans(
            comparing(self._distance()),
            items,
            self._count(self.n_clusters, len(items)),
            init=self.init,
            n_init=self.n_init,
            max_iter=self.max_iter,
            tol=self.tol,
            length=self.length,
            seed=self.seed,
            verbose=self.verbose,
            progress=self.verbose,
        )
        return self._keep(found)
