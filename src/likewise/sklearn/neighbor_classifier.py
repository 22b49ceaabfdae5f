"""NeighborClassifier: the base class of the estimators."""

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from likewise import _check, _labels
from likewise._labels import class_names
from likewise._modes import evaluating
from likewise.data.batch import Batch, as_sequences
from likewise.distances.distance import Distance
from likewise.evaluation import ranking
from likewise.evaluation.candidates import Candidates, rerank
from likewise.evaluation.labels import read_k, ready_strip, row_slices
from likewise.ops.ground import at_least_float32
from likewise.search.choice import quick

# A Batch, a list of sequences (T_i, C) or (T_i,), an array of such objects, an array (N, T, C), or a Dataset.
Items = Any


class NeighborClassifier(ClassifierMixin, BaseEstimator):
    """Classifies items by their k nearest training items.

    ``fit``, which subclasses write, sets classes_ and _codes (by ``_number``), metric_ and references_, the encoded
    training items. Subclasses override ``_read``, which converts X to the metric's input.
    """

    k: int
    metric_: Distance
    references_: Batch | Tensor
    candidates: Candidates | None = None
    _cheap_references: Any = None

    def kneighbors(self, X: Items = None, k: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Distances (n, k) and indices (n, k) of the training items nearest to each item of X, nearest first.

        k: the number of neighbours that vote, unless given. Without X, the neighbours of the training items, each left
        out of its own. Ties between items go to the first. Under DTW with a band, lower bounds rule out most pairs, as
        in ``Index``; the result is the same.
        """
        check_is_fitted(self)
        name, own = type(self).__name__, X is None
        metric, references = self._metric(), self.references_
        k = read_k(name, self.k if k is None else k, len(references) - own)
        keep = None if self.candidates is None else self.candidates.count(len(references) - own)
        if keep is not None and keep < k:
            _check.refuse(name, f"k is {k}, but candidates keep {keep}; raise keep")
        queries = references if own else self._queries(metric, references, X)
        searcher = None if keep is not None else quick(comparing(metric), references, k)
        if searcher is not None and len(queries):
            skip = torch.arange(len(queries)) if own else None
            hits = searcher.search(queries, k=k, within=None, exclude=0.0, skip=skip)
            return hits.distances.numpy(), hits.items.numpy()
        first, kept, chooser = queries, references, metric
        if self.candidates is not None:
            kept, chooser = self._cheap_references, self._cheap()
            first = kept if own else self._queries(chooser, kept, X)
        found: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad(), evaluating(metric, chooser):
            for part in row_slices(len(queries), len(references)):
                D = ready_strip(name, comparing(chooser).matrix(first[part], kept), part.start, own)
                if keep is None:
                    columns = ranking.nearest(D, k)
                    D = D.gather(1, columns)
                else:
                    columns, D = rerank(name, D, comparing(metric), queries[part], references, keep)
                    nearest = ranking.nearest(D, k)
                    columns, D = columns.gather(1, nearest), D.gather(1, nearest)
                found.append((D.cpu(), columns.cpu()))
        if not found:
            return np.empty((0, k), np.float32), np.empty((0, k), np.int64)
        distances, indices = (torch.cat(parts).numpy() for parts in zip(*found, strict=True))
        return distances, indices

    def predict(self, X: Items) -> np.ndarray:
        """The most frequent label among the k nearest training items of each item, (n,)."""
        predicted = ranking.vote(self._votes(X)).numpy()
        return self.classes_[predicted]

    def predict_proba(self, X: Items) -> np.ndarray:
        """Each class's share of the k votes, (n, K), in the order of classes_."""
        votes = self._votes(X)
        shares = torch.zeros(len(votes), len(self.classes_), dtype=torch.float64)
        return shares.scatter_add_(1, votes, torch.full(votes.shape, 1 / votes.shape[1], dtype=torch.float64)).numpy()

    def score(self, X: Items, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy on items X with their labels y (n,), or on a Dataset or a pair (items, labels)."""
        items, labels = labelled(type(self).__name__, X, y)
        found, true = self.predict(items), np.asarray(labels)
        if {found.dtype.kind, true.dtype.kind} & {"U"} and {found.dtype.kind, true.dtype.kind} & set("biuf"):
            found, true = class_names(found), class_names(true)  # 3 and "3" are the same class
        return float(accuracy_score(true, found, sample_weight=sample_weight))

    def _votes(self, X: Items) -> Tensor:
        """The classes of the k nearest training items, (n, k), as indices of classes_."""
        check_is_fitted(self)
        if X is None:
            _check.refuse(type(self).__name__, "expected X to be sequences or a table, got None")
        return self._codes[torch.from_numpy(self.kneighbors(X)[1])]

    def _number(self, y: Any, count: int) -> Tensor:
        """The index of each item's class; sets classes_."""
        name, y = type(self).__name__, np.asarray(y)
        check_classification_targets(y)
        if y.shape != (count,):
            _check.refuse(name, f"expected y of shape ({count},), got {y.shape}")
        if _check.whole(name, "k", self.k) > count:
            _check.refuse(name, f"k is {self.k}, but X holds {count} sample{'s' * (count != 1)}")
        self.classes_, codes = np.unique(y, return_inverse=True)
        self._codes = torch.from_numpy(codes)
        return self._codes

    def _metric(self) -> Distance:
        """The distance between items."""
        return self.metric_

    def _cheap(self) -> Distance:
        """The candidates, if any."""
        raise NotImplementedError

    def _queries(self, metric: Distance, references: Any, X: Items) -> Any:
        """Items X, encoded, to be compared with the references."""
        return embedded(metric, self._read(_labels.items_of(X)))

    def _read(self, X: Items) -> Any:
        return read_sequences(type(self).__name__, X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def labelled(op: str, X: Items, y: Any) -> tuple[Items, Any]:
    """Items and labels, from X and y, or from a Dataset or a pair (items, labels) in place of both."""
    if y is None and not hasattr(X, "iloc"):  # a data frame may have a column named labels
        X, y = _labels.labelled(op, "X", X, need_labels=False)
    if y is None:
        _check.refuse(op, "requires y to be passed, but the target y is None; pass labels (N,), or a labelled Dataset")
    return _labels.items_of(X), y


def read_sequences(op: str, X: Items) -> Batch:
    """Sequences in float32 or better; arrays of objects are lists."""
    if isinstance(X, np.ndarray) and X.dtype == object:
        X = list(X)
    values, lengths = as_sequences(op, "X", X)
    return Batch(at_least_float32(values.detach()), lengths)


def embedded(metric: Any, items: Any) -> Any:
    """Items as the metric compares them: encoded once if it has an encoder."""
    return metric.embed(items) if callable(getattr(metric, "embed", None)) else items


def comparing(metric: Any) -> Distance:
    """The distance between embedded items."""
    return metric.distance if callable(getattr(metric, "embed", None)) else metric
