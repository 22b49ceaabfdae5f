"""NearestNeighbors: a scikit-learn classifier under any distance.

This module imports scikit-learn, which takes a second: nothing that ``import likewise`` runs may import it.
"""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from likewise import _check
from likewise.data.batch import Batch, as_sequences
from likewise.distances.distance import Distance
from likewise.distances.euclidean import Euclidean
from likewise.evaluation import ranking
from likewise.evaluation.candidates import Candidates, rerank
from likewise.evaluation.labels import read_k, ready_strip, row_slices
from likewise.models.metric import Metric, evaluating

# A Batch, a list of sequences (T_i, C) or (T_i,), an array (N, T, C), or a table (N, F) with or without names.
Items = Any

FLOATS = [np.float64, np.float32]


class NearestNeighbors(ClassifierMixin, BaseEstimator):
    """A classifier by the k nearest references under a distance; it works in scikit-learn's pipelines and searches.

    metric: a Distance or a Metric; None is ``Euclidean()``. It is used as it is, and nothing is trained: a Metric's
        encoder runs once for each reference in ``fit``, so fit again after the metric has changed.
    k: how many neighbours vote; of equally frequent labels, the smallest counts.
    candidates: Candidates(cheap distance, keep): neighbours are sought among the references that it keeps for a query,
        and only these are compared under the metric. It must keep k or more.

    X is whatever the distance takes: a Batch, an array (N, T, C), a list of sequences of unequal length, and, for a
    Metric, what its encoder takes. A table (N, F), as scikit-learn has it, is N series of F steps and one channel; for
    Euclidean and Cosine that is the same as N vectors. A Metric is given the table itself.

    After ``fit``: classes_ (K,), references_ (what queries are compared with) and, for a table, n_features_in_.
    Distances are computed by strips of about a million and reduced at once: never all pairs.

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

    def fit(self, X: Items, y: Any) -> Self:
        """Keep references X with their labels y (N,), numbers or names."""
        metric = self._metric()
        if _is_table(X):
            X, y = validate_data(self, _array(X), y, dtype=FLOATS)
        elif y is None:
            _check.refuse("NearestNeighbors", "fit requires y, the labels of the references")
        else:
            self.__dict__.pop("n_features_in_", None)  # of an earlier table
            width = _common_width(X)
            if width is not None:
                self.n_features_in_ = width
        y = np.asarray(y)
        check_classification_targets(y)
        if y.shape != (len(X),):
            _check.refuse("NearestNeighbors", f"expected y of shape ({len(X)},), got {y.shape}")
        if _check.whole("NearestNeighbors", "k", self.k) > len(X):
            _check.refuse("NearestNeighbors", f"k is {self.k}, but X holds {len(X)} sample{'s' * (len(X) != 1)}")
        self.classes_, codes = np.unique(y, return_inverse=True)
        self._codes = torch.from_numpy(codes)
        self.references_ = _embedded(metric, _items(metric, X))
        cheap = self._cheap()
        self._cheap_references = None if cheap is None else _embedded(cheap, _items(cheap, X))
        return self

    def kneighbors(self, X: Items = None, k: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Distances (n, k) and indices (n, k) of the references nearest to each item of X, nearest first.

        k: as many as vote, unless given. Without X, the neighbours of the references, none being its own. Of equally
        near references, the first comes first.
        """
        check_is_fitted(self)
        metric, own = self._metric(), X is None
        references = self.references_
        k = read_k("NearestNeighbors", self.k if k is None else k, len(references) - own)
        cheap, keep = self._cheap(), k
        if self.candidates is not None:
            keep = self.candidates.count(len(references) - own)
            if keep < k:
                _check.refuse("NearestNeighbors", f"k is {k}, but candidates keep {keep}; let them keep more")
        queries = references if own else self._queries(metric, references, X)
        first: Any = queries
        kept, chooser = references, metric
        if cheap is not None:
            kept, chooser = self._cheap_references, cheap
            first = kept if own else self._queries(cheap, kept, X)
        found: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad(), evaluating(metric), evaluating(chooser):
            for part in row_slices(len(queries), len(references)):
                D = ready_strip("NearestNeighbors", _comparing(chooser).matrix(first[part], kept), part.start, own)
                if cheap is None:
                    columns = ranking.nearest(D, k)
                    D = D.gather(1, columns)
                else:
                    columns, D = rerank("NearestNeighbors", D, _comparing(metric), queries[part], references, keep)
                    nearest = ranking.nearest(D, k)
                    columns, D = columns.gather(1, nearest), D.gather(1, nearest)
                found.append((D.cpu(), columns.cpu()))
        distances, indices = (torch.cat(parts).numpy() for parts in zip(*found, strict=True))
        return distances, indices

    def predict(self, X: Items) -> np.ndarray:
        """The most frequent label among the k nearest references of each item, (n,)."""
        predicted = ranking.vote(self._votes(X)).numpy()
        return self.classes_[predicted]

    def predict_proba(self, X: Items) -> np.ndarray:
        """Each class's share of the k votes, (n, K), in the order of classes_."""
        votes = self._votes(X)
        shares = torch.zeros(len(votes), len(self.classes_), dtype=torch.float64)
        return shares.scatter_add_(1, votes, torch.full(votes.shape, 1 / votes.shape[1], dtype=torch.float64)).numpy()

    def _votes(self, X: Items) -> Tensor:
        """The classes of the k nearest references, (n, k), as indices of classes_."""
        check_is_fitted(self)
        if X is None:
            _check.refuse("NearestNeighbors", "expected X to be sequences or a table, got None")
        return self._codes[torch.from_numpy(self.kneighbors(X)[1])]

    def _queries(self, metric: Distance, references: Any, X: Items) -> Batch | Tensor:
        if _is_table(X):
            fitted_on_table = hasattr(self, "n_features_in_")
            X = validate_data(self, _array(X), dtype=FLOATS, reset=False) if fitted_on_table else check_array(_array(X))
        items = _items(metric, X)
        return _embedded(metric, items if isinstance(metric, Metric) else items.to(references.dtype))

    def _metric(self) -> Distance:
        metric = Euclidean() if self.metric is None else self.metric
        if not isinstance(metric, Distance):
            raise TypeError(f"NearestNeighbors: expected metric to be a Distance, got {type(metric).__name__}")
        return metric

    def _cheap(self) -> Distance | None:
        if self.candidates is None:
            return None
        if not isinstance(self.candidates, Candidates):
            kind = type(self.candidates).__name__
            raise TypeError(f"NearestNeighbors: expected candidates to be Candidates(metric, keep), got {kind}")
        if not isinstance(self.candidates.metric, Distance):
            kind = type(self.candidates.metric).__name__
            raise TypeError(f"NearestNeighbors: expected the candidates' metric to be a Distance, got {kind}")
        return self.candidates.metric

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _is_table(X: Items) -> bool:
    """Whether X is for scikit-learn to check: a table (N, F), whatever holds it, and no sequences."""
    if isinstance(X, Batch):
        return False
    if isinstance(X, (np.ndarray, Tensor)):
        return X.ndim < 3 and not (X.ndim == 1 and len(X) and _is_sequence(X[0]))
    return not (isinstance(X, (list, tuple)) and len(X) and _is_sequence(X[0]))


def _common_width(X: Items) -> int | None:
    """F, where X is a list of N flat lists of F numbers: scikit-learn then holds later tables, not lists, to F."""
    shapes = {np.shape(item) for item in X} if isinstance(X, (list, tuple)) else set()
    return shapes.pop()[0] if len(shapes) == 1 and len(next(iter(shapes))) == 1 else None


def _array(X: Items) -> Items:
    return X.detach().cpu().numpy() if isinstance(X, Tensor) else X


def _is_sequence(item: object) -> bool:
    return isinstance(item, (list, tuple, np.ndarray, Tensor)) and len(np.shape(item)) > 0


def _items(metric: Distance, X: Items) -> Any:
    """What the metric takes, as something that slices: a Batch, or for a Metric also a tensor or a list."""
    if isinstance(X, np.ndarray) and X.dtype == object:
        X = list(X)
    if isinstance(metric, Metric):
        return X
    if isinstance(X, np.ndarray) and X.ndim == 2:
        X = X[..., None]
    return Batch(*as_sequences("NearestNeighbors", "X", X))


def _embedded(metric: Any, items: Any) -> Batch | Tensor:
    return metric.embed(items) if callable(getattr(metric, "embed", None)) else items


def _comparing(metric: Any) -> Distance:
    """What compares embeddings, where the metric has them."""
    return metric.distance if callable(getattr(metric, "embed", None)) else metric
