"""MetricLearner: a scikit-learn estimator that learns a metric and classifies with it."""

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from likewise import _check
from likewise._labels import is_map_style
from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.models.metric import as_items
from likewise.sklearn.neighbor_classifier import Items, NeighborClassifier, embedded, labelled
from likewise.training.fit import fit


class MetricLearner(TransformerMixin, NeighborClassifier):
    """Learns a metric from labelled items, and classifies by the k nearest training items under it.

    metric: a Metric, or any Distance with parameters, such as a CoupledGRU; a copy of it is trained.
    loss: as in ``fit``, by default the metric's own; a copy of it is used.
    k: the number of neighbours that vote; ties between labels go to the smallest.
    epochs, batch_size, lr, seed, verbose: as in ``fit``; None takes the metric's own ``training_defaults``.
    options: further arguments of ``fit``, such as {"val": 0.2}.

    After ``fit``: metric_ (trained), history_, classes_ and references_, the training items, encoded where the metric
    has an encoder. ``transform`` works if the encoder returns vectors.

    Example:
        >>> from likewise import Euclidean, GRUEncoder, Metric
        >>> def spread(D, labels):
        ...     same = labels[:, None] == labels
        ...     return D[same].mean() - D[~same].mean()
        >>> series = [[0.0, 0.1, 0.2], [0.1, 0.3], [5.0, 5.1], [5.2, 5.0, 5.1, 5.3]]
        >>> learner = MetricLearner(Metric(GRUEncoder(1, 4), Euclidean()), spread, epochs=5)
        >>> learner.fit(series, ["low", "low", "high", "high"]).predict([[0.2, 0.2], [5.1]])
        array(['low', 'high'], dtype='<U4')
        >>> learner.transform(series).shape
        (4, 4)
    """

    def __init__(
        self,
        metric: Distance,
        loss: Any = None,
        *,
        k: int = 1,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        seed: int = 0,
        verbose: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.metric = metric
        self.loss = loss
        self.k = k
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.seed = seed
        self.verbose = verbose
        self.options = options

    def fit(self, X: Items, y: Any = None) -> Self:
        """Train a copy of the metric on items X with labels y (N,), numbers or names; or on a Dataset or a pair."""
        if not isinstance(self.metric, Distance):
            raise TypeError(f"MetricLearner: expected metric to be a Distance, got {type(self.metric).__name__}")
        if not any(weight.requires_grad for weight in self.metric.parameters()):
            name = type(self.metric).__name__
            _check.refuse("MetricLearner", f"{name} has no parameters to learn; use NearestNeighbors({name}(...))")
        X, y = labelled("MetricLearner", X, y)
        items = self._read(X)
        codes = self._number(y, len(items))
        metric, loss = copy.deepcopy((self.metric, self.loss))
        self.history_ = fit(
            metric,
            (items, codes),
            loss,
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            seed=self.seed,
            verbose=self.verbose,
            **(self.options or {}),
        )
        self.metric_ = metric.eval()
        self.references_ = embedded(metric, items)
        return self

    def transform(self, X: Items) -> np.ndarray:
        """Encoded items as vectors (n, D); raises an error if the encoder returns sequences."""
        check_is_fitted(self)
        if isinstance(self.references_, Batch):
            _check.refuse(
                "MetricLearner",
                "its encoder returns sequences; transform needs one that returns vectors, such as "
                "GRUEncoder(...) or TCN(..., steps=False)",
            )
        vectors = self._queries(self.metric_, self.references_, X)
        assert isinstance(vectors, Tensor)
        return vectors.cpu().numpy()

    def _read(self, X: Items) -> Batch | Tensor:
        """Convert arrays of objects to lists, and whole numbers to floats; tables are vectors."""
        if is_map_style(X):
            return X  # read item by item
        if not isinstance(X, (Batch, Tensor, list, tuple)):
            X = np.asarray(X)
            if X.dtype == object and X.ndim == 1:
                X = list(X)
            elif X.dtype.kind not in "f":
                X = X.astype(np.float32)
        return as_items("MetricLearner", "X", X)
