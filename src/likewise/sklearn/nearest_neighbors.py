"""NearestNeighbors: a scikit-learn classifier under any distance."""

from typing import Any, Self

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data
from torch import Tensor

from likewise._labels import items_of
from likewise.data.batch import Batch, as_sequences
from likewise.distances.distance import Distance
from likewise.distances.euclidean import Euclidean
from likewise.evaluation.candidates import Candidates
from likewise.models.metric import Metric
from likewise.sklearn.neighbor_classifier import Items, NeighborClassifier, embedded, labelled

FLOATS = [np.float64, np.float32]


class NearestNeighbors(NeighborClassifier):
    """Classifies items by their k nearest references under a distance, which is not trained.

    metric: a Distance or a Metric; None is ``Euclidean()``. The encoder of a Metric runs once for each reference, in
        ``fit``: fit again after the metric has changed.
    k: the number of neighbours that vote; of equally frequent labels, the smallest wins.
    candidates: Candidates(cheap distance, keep): only the references that it keeps for a query are compared under the
        metric. It must keep k or more.

    X is the input of the distance: a Dataset, a Batch, an array (N, T, C), a list of sequences of unequal length or,
    for a Metric, the input of its encoder. A table (N, F), as in scikit-learn, is taken as N series of F steps and one
    channel; for Euclidean and Cosine this is the same as N vectors. A Metric gets the table itself.

    After ``fit``: classes_ (K,), references_ (the items or their embeddings) and, for a table, n_features_in_.
    Distances are computed and reduced in strips of about a million: memory does not grow with the number of pairs.

    Example:
        >>> from likewise import DTW
        >>> series = [[0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0], [5.0, 4.0], [4.0, 4.0, 5.0]]
        >>> classifier = NearestNeighbors(DTW()).fit(series, ["low", "low", "high", "high"])
        >>> classifier.predict([[0.0, 1.0], [4.0]])
        array(['low', 'high'], dtype='<U4')
        >>> distances, indices = classifier.kneighbors([[0.0, 1.0]], k=2)
        >>> indices
        array([[0, 1]])
    """

    def __init__(self, metric: Distance | None = None, k: int = 1, *, candidates: Candidates | None = None) -> None:
        self.metric = metric
        self.k = k
        self.candidates = candidates

    def fit(self, X: Items, y: Any = None) -> Self:
        """Store references X with their labels y (N,), numbers or names; or a Dataset, or a pair (items, labels)."""
        metric = self._metric()
        X, y = labelled("NearestNeighbors", X, y)
        if _is_table(X):
            X, y = validate_data(self, _array(X), y, dtype=FLOATS)
        else:
            self.__dict__.pop("n_features_in_", None)  # from an earlier table
            width = _common_width(X)
            if width is not None:
                self.n_features_in_ = width
        self._number(y, len(X))
        self.references_ = embedded(metric, _items(metric, X))
        if self.candidates is not None:
            self._cheap_references = embedded(self._cheap(), _items(self._cheap(), X))
        return self

    def _queries(self, metric: Distance, references: Any, X: Items) -> Any:
        X = items_of(X)
        if _is_table(X):
            fitted_on_table = hasattr(self, "n_features_in_")
            X = validate_data(self, _array(X), dtype=FLOATS, reset=False) if fitted_on_table else check_array(_array(X))
        items = _items(metric, X)
        return embedded(metric, items if isinstance(metric, Metric) else items.to(references.dtype))

    def _metric(self) -> Distance:
        metric = Euclidean() if self.metric is None else self.metric
        if not isinstance(metric, Distance):
            raise TypeError(f"NearestNeighbors: expected metric to be a Distance, got {type(metric).__name__}")
        return metric

    def _cheap(self) -> Distance:
        if not isinstance(self.candidates, Candidates):
            kind = type(self.candidates).__name__
            raise TypeError(f"NearestNeighbors: expected candidates to be Candidates(metric, keep), got {kind}")
        if not isinstance(self.candidates.metric, Distance):
            kind = type(self.candidates.metric).__name__
            raise TypeError(f"NearestNeighbors: expected the candidates' metric to be a Distance, got {kind}")
        return self.candidates.metric


def _is_table(X: Items) -> bool:
    """Whether X is a table (N, F), which scikit-learn checks, and not sequences."""
    if isinstance(X, Batch):
        return False
    if isinstance(X, (np.ndarray, Tensor)):
        return X.ndim < 3 and not (X.ndim == 1 and len(X) and _is_sequence(X[0]))
    return not (isinstance(X, (list, tuple)) and len(X) and _is_sequence(X[0]))


def _common_width(X: Items) -> int | None:
    """F, if X is a list of N flat lists of F numbers; scikit-learn then expects F columns of later tables."""
    shapes = {np.shape(item) for item in X} if isinstance(X, (list, tuple)) else set()
    return shapes.pop()[0] if len(shapes) == 1 and len(next(iter(shapes))) == 1 else None


def _array(X: Items) -> Items:
    return X.detach().cpu().numpy() if isinstance(X, Tensor) else X


def _is_sequence(item: object) -> bool:
    return isinstance(item, (list, tuple, np.ndarray, Tensor)) and len(np.shape(item)) > 0


def _items(metric: Distance, X: Items) -> Any:
    """The metric's input in a form that can be sliced: a Batch or, for a Metric, also a tensor or a list."""
    if isinstance(X, np.ndarray) and X.dtype == object:
        X = list(X)
    if isinstance(metric, Metric):
        return X
    if isinstance(X, np.ndarray) and X.ndim == 2:
        X = X[..., None]
    return Batch(*as_sequences("NearestNeighbors", "X", X))
