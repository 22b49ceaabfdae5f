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
    """Classifies sequences by their k nearest training sequences under a learned metric.

    ``fit``, which subclasses write, sets classes_, metric_ and references_, the encoded training sequences.
    """

    k: int
    metric_: Metric
    references_: Batch

    def transform(self, X: Items) -> Batch:
        """Sequences as the learned metric compares them: a Batch of as many, of the same lengths."""
        check_is_fitted(self)
        encoded = self.metric_.embed(self._sequences(X))
        assert isinstance(encoded, Batch)
        return encoded

    def kneighbors(self, X: Items, k: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Distances (n, k) and indices (n, k) of the training sequences nearest to each one of X, nearest first."""
        check_is_fitted(self)
        name, references = type(self).__name__, self.references_
        k = read_k(name, self.k if k is None else k, len(references))
        queries = self.transform(X)
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
        """The most frequent label among the k nearest training sequences of each one, (n,)."""
        indices = torch.from_numpy(self.kneighbors(X)[1])
        return self.classes_[ranking.vote(self._codes[indices]).numpy()]

    def _read(self, X: Items, y: Any) -> tuple[Batch, Tensor]:
        """Training sequences, with zeros for padding, and the index of each one's class; sets classes_."""
        name, x = type(self).__name__, self._sequences(X)
        y = np.asarray(y)
        check_classification_targets(y)
        if y.shape != (len(x),):
            _check.refuse(name, f"expected y of shape ({len(x)},), got {y.shape}")
        if _check.whole(name, "k", self.k) > len(x):
            _check.refuse(name, f"k is {self.k}, but X holds {len(x)} sequence{'s' * (len(x) != 1)}")
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            _check.refuse(name, f"expected at least two classes, got one, {self.classes_[0]!r}")
        self._codes = torch.from_numpy(codes)
        _check.finite(name, "X", x.values, x.lengths)
        return Batch(x.values.masked_fill(~x.mask[..., None], 0), x.lengths), self._codes.to(x.device)

    def _sequences(self, X: Items) -> Batch:
        if isinstance(X, np.ndarray) and X.dtype == object:
            X = list(X)
        values, lengths = as_sequences(type(self).__name__, "X", X)
        return Batch(at_least_float32(values.detach()), lengths)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
