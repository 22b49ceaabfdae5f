"""Clusterer: the base class of the estimators that divide items into clusters."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils import Tags, check_array
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from likewise import _check
from likewise._labels import items_of
from likewise._modes import evaluating
from likewise.clusters.kmeans import Clustering
from likewise.data.batch import Batch, as_sequences
from likewise.distances.distance import Distance
from likewise.distances.euclidean import Euclidean
from likewise.sklearn.neighbor_classifier import comparing, embedded
from likewise.sklearn.tables import FLOATS, as_array, as_items, common_width, is_table

# A Batch, a list of sequences (T_i, C) or (T_i,), an array (N, T, C), a table (N, F), or a Dataset.
Items = Any


class Clusterer(ClusterMixin, BaseEstimator):
    """Reads items and compares them under ``metric``, a Distance or a Metric; None is ``default``."""

    metric: Distance | None
    default: Distance = Euclidean()

    def _distance(self) -> Distance:
        metric = self.default if self.metric is None else self.metric
        if not isinstance(metric, Distance):
            raise TypeError(f"{type(self).__name__}: expected metric to be a Distance, got {type(metric).__name__}")
        return metric

    def _read(self, X: Items, *, fitting: bool) -> Batch:
        """Items as sequences, encoded if the metric has an encoder; vectors are sequences of one step."""
        name, metric, X = type(self).__name__, self._distance(), items_of(X)
        if X is None:
            _check.refuse(name, "expected X to be sequences or a table, got None")
        if is_table(X):
            checked = fitting or hasattr(self, "n_features_in_")
            X = as_array(X)
            X = validate_data(self, X, dtype=FLOATS, reset=fitting) if checked else check_array(X)
        elif fitting:
            self.__dict__.pop("n_features_in_", None)  # from an earlier table
            width = common_width(X)
            if width is not None:
                self.n_features_in_ = width
        found: Any = embedded(metric, as_items(name, metric, X))
        vectors = isinstance(found, Tensor) and found.ndim == 2
        return Batch(found[:, None]) if vectors else Batch(*as_sequences(name, "X", found))

    def _matrix(self, items: Batch, centers: Batch | None = None) -> np.ndarray:
        """Distances (N, N), or (N, K) from the centres, as an array."""
        metric = self._distance()
        if centers is not None:
            items = items.to(centers.dtype)
        with torch.no_grad(), evaluating(metric):
            verbose = bool(getattr(self, "verbose", False))
            if centers is None:
                return comparing(metric).matrix(items, progress=verbose).cpu().numpy()
            return comparing(metric).matrix(centers, items).T.cpu().numpy()

    def _count(self, clusters: object, items: int) -> int:
        name = type(self).__name__
        count = _check.whole(name, "n_clusters", clusters)
        if count > items:
            _check.refuse(name, f"n_clusters is {count}, but X holds n_samples={items}")
        return count

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


class CenterClusterer(TransformerMixin, Clusterer):
    """A clusterer whose clusters have centres, which other items can be assigned to."""

    cluster_centers_: Batch
    labels_: np.ndarray

    def _keep(self, found: Clustering) -> Self:
        """Set the attributes of a fitted clusterer."""
        self.cluster_centers_ = found.centers
        self.labels_ = found.labels
        self.inertia_ = found.inertia
        self.n_iter_ = found.iterations
        self.history_ = found.history
        self.converged_ = found.converged
        return self

    def transform(self, X: Items) -> np.ndarray:
        """Distances (n, K) of the items to the centres."""
        check_is_fitted(self)
        return self._matrix(self._read(X, fitting=False), self.cluster_centers_)

    def predict(self, X: Items) -> np.ndarray:
        """The nearest centre (n,) of each item."""
        return self.transform(X).argmin(1)

    def score(self, X: Items, y: Any = None) -> float:
        """Minus the sum of the items' distances to their nearest centres: larger is better."""
        return -float(self.transform(X).min(1).astype(np.float64).sum())

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)
