"""NearestNeighbors: a scikit-learn classifier under any distance."""

from typing import Any, Self

from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from likewise._labels import items_of
from likewise.distances.distance import Distance
from likewise.distances.euclidean import Euclidean
from likewise.evaluation.candidates import Candidates
from likewise.models.metric import Metric
from likewise.sklearn.neighbor_classifier import Items, NeighborClassifier, embedded, labelled
from likewise.sklearn.tables import FLOATS, as_array, as_items, common_width, is_table


class NearestNeighbors(NeighborClassifier):
    """Classifies items by their k nearest references under a distance, which is not trained.

    metric: a Distance or a Metric; None is ``Euclidean()``. The encoder of a Metric runs once for each reference, in
        ``fit``: fit again after the metric has changed.
    k: the number of neighbours that vote; ties between labels go to the smallest.
    candidates: Candidates(cheap distance, keep): only the references that it keeps for a query are compared under the
        metric. It must keep at least k.

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
        if is_table(X):
            X, y = validate_data(self, as_array(X), y, dtype=FLOATS)
        else:
            self.__dict__.pop("n_features_in_", None)  # from an earlier table
            width = common_width(X)
            if width is not None:
                self.n_features_in_ = width
        self._number(y, len(X))
        self.references_ = embedded(metric, as_items("NearestNeighbors", metric, X))
        if self.candidates is not None:
            self._cheap_references = embedded(self._cheap(), as_items("NearestNeighbors", self._cheap(), X))
        return self

    def _queries(self, metric: Distance, references: Any, X: Items) -> Any:
        X = items_of(X)
        if is_table(X):
            fitted_on_table = hasattr(self, "n_features_in_")
            X = as_array(X)
            X = validate_data(self, X, dtype=FLOATS, reset=False) if fitted_on_table else check_array(X)
        items = as_items("NearestNeighbors", metric, X)
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
