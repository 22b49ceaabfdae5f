"""MetricLearner: a scikit-learn estimator that learns a metric and classifies by it.

This module imports scikit-learn, which takes a second: nothing that ``import likewise`` runs may import it.
"""

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from likewise import _check
from likewise.data.batch import Batch
from likewise.models.metric import Metric, as_items
from likewise.training.fit import fit
from likewise.training.neighbor_classifier import NeighborClassifier

# A Batch, a list of sequences, an array (N, T, C), images (N, C, H, W) or a table (N, F): what the metric takes.
Items = Any


class MetricLearner(NeighborClassifier):
    """Learns a metric from labelled items, and classifies others by their k nearest training items under it.

    metric: the Metric to start from; a copy of it is trained. loss: a function of (D, labels); also copied.
    k: how many neighbours vote; of equally frequent labels, the smallest counts.
    epochs, batch_size, lr, weight_decay, seed, verbose: as in ``fit``. options: further arguments of ``fit``.

    After ``fit``: metric_, the trained Metric, history_, classes_ and references_, the encoded training items.
    ``transform`` gives vectors where the encoder does. Works in pipelines and grid searches.

    Example:
        >>> from likewise import Euclidean
        >>> from likewise.models.gru_encoder import GRUEncoder
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
        metric: Metric,
        loss: Any,
        *,
        k: int = 1,
        epochs: int = 100,
        batch_size: int = 64,
        lr: float = 1e-4,
        weight_decay: float = 1e-4,
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
        self.weight_decay = weight_decay
        self.seed = seed
        self.verbose = verbose
        self.options = options

    def fit(self, X: Items, y: Any) -> Self:
        """Train a copy of the metric on items X with their labels y (N,), numbers or names."""
        if not isinstance(self.metric, Metric):
            raise TypeError(f"MetricLearner: expected metric to be a Metric, got {type(self.metric).__name__}")
        items = _items(X)
        codes = self._number(y, len(items))
        self.metric_, loss = copy.deepcopy((self.metric, self.loss))
        self.history_ = fit(
            self.metric_,
            items,
            codes,
            loss,
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            weight_decay=self.weight_decay,
            seed=self.seed,
            verbose=self.verbose,
            **(self.options or {}),
        )
        self.references_ = self.metric_.embed(items)
        return self

    def transform(self, X: Items) -> np.ndarray:
        """Encoded items as vectors (n, D); refused where the encoder gives sequences."""
        check_is_fitted(self)
        if isinstance(self.references_, Batch):
            _check.refuse(
                "MetricLearner",
                "its encoder gives sequences, which have no table; transform needs one that gives vectors, such as "
                "GRUEncoder(...) or TCN(..., steps=False)",
            )
        vectors = self._embed(X)
        assert isinstance(vectors, Tensor)
        return vectors.cpu().numpy()

    def _embed(self, X: Items) -> Batch | Tensor:
        return self.metric_.embed(_items(X))


def _items(X: Items) -> Batch | Tensor:
    """Items as the metric takes them: arrays of objects are lists, tables are vectors, whole numbers become floats."""
    if not isinstance(X, (Batch, Tensor, list, tuple)):
        X = np.asarray(X)
        if X.dtype == object and X.ndim == 1:
            X = list(X)
        elif X.dtype.kind not in "f":
            X = X.astype(np.float32)
    return as_items("MetricLearner", "X", X)
