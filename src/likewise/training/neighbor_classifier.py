"""NeighborClassifier: what scikit-learn estimators that learn a metric share.

This module imports scikit-learn, which takes a second: nothing that ``import likewise`` runs may import it.
"""

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from likewise import _check
from likewise.data.batch import Batch, as_sequences
from likewise.evaluation import ranking
from likewise.evaluation.labels import read_k, ready_strip, row_slices
from likewise.models.metric import Metric, evaluating, take
from likewise.ops.ground import at_least_float32

# A Batch, a list of sequences (T_i, C) or (T_i,), an array of such objects, or an array (N, T, C).
Items = Any


class NeighborClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):
    """Classifies items by their k nearest training items under a learned metric.

    ``fit``, which subclasses write, sets classes_ and _codes (by ``_number``), metric_, and references_, the encoded
    training items. Items are sequences unless ``_embed`` says otherwise.
    """

    k: int
    metric_: Metric
    references_: Batch | Tensor

    def transform(self, X: Items) -> Any:
        """Sequences as the learned metric compares them: a Batch of as many, of the same lengths."""
        check_is_fitted(self)
        return self._embed(X)

    def kneighbors(self, X: Items, k: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Distances (n, k) and indices (n, k) of the training items nearest to each item of X, nearest first."""
        check_is_fitted(self)
        name, references = type(self).__name__, self.references_
        k = read_k(name, self.k if k is None else k, len(references))
        queries = self._embed(X)
        found: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad(), evaluating(self.metric_):
            for part in row_slices(len(queries), len(references)):
                D = self.metric_.distance.matrix(take(queries, part), references)
                nearest = ranking.nearest(ready_strip(name, D, part.start, own=False), k)
                found.append((D.gather(1, nearest).cpu(), nearest.cpu()))
        if not found:
            return np.empty((0, k), np.float32), np.empty((0, k), np.int64)
        distances, indices = (torch.cat(parts).numpy() for parts in zip(*found, strict=True))
        return distances, indices

    def predict(self, X: Items) -> np.ndarray:
        """The most frequent label among the k nearest training items of each item, (n,)."""
        indices = torch.from_numpy(self.kneighbors(X)[1])
        return self.classes_[ranking.vote(self._codes[indices]).numpy()]

    def _number(self, y: Any, count: int) -> Tensor:
        """The index of each item's class; sets classes_."""
        name, y = type(self).__name__, np.asarray(y)
        check_classification_targets(y)
        if y.shape != (count,):
            _check.refuse(name, f"expected y of shape ({count},), got {y.shape}")
        if _check.whole(name, "k", self.k) > count:
            _check.refuse(name, f"k is {self.k}, but X holds {count} item{'s' * (count != 1)}")
        self.classes_, codes = np.unique(y, return_inverse=True)
        self._codes = torch.from_numpy(codes)
        return self._codes

    def _embed(self, X: Items) -> Batch | Tensor:
        return self.metric_.embed(read_sequences(type(self).__name__, X))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def read_sequences(op: str, X: Items) -> Batch:
    """Sequences in float32 or better; arrays of objects are lists."""
    if isinstance(X, np.ndarray) and X.dtype == object:
        X = list(X)
    values, lengths = as_sequences(op, "X", X)
    return Batch(at_least_float32(values.detach()), lengths)
