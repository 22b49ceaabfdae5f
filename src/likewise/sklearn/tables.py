"""Tell scikit-learn's tables (N, F) from sequences, and read both."""

from typing import Any

import numpy as np
from torch import Tensor

from likewise._labels import is_map_style
from likewise.data.batch import Batch, as_sequences
from likewise.distances.distance import Distance
from likewise.models.metric import Metric

Items = Any
FLOATS = [np.float64, np.float32]


def is_table(X: Items) -> bool:
    """Whether X is a table (N, F), which scikit-learn checks, and not sequences."""
    if isinstance(X, Batch) or (is_map_style(X) and not hasattr(X, "iloc")):  # a data frame may have a column "labels"
        return False
    if isinstance(X, (np.ndarray, Tensor)):
        return X.ndim < 3 and not (X.ndim == 1 and len(X) and _is_sequence(X[0]))
    return not (isinstance(X, (list, tuple)) and len(X) and _is_sequence(X[0]))


def common_width(X: Items) -> int | None:
    """F, if X is a list of N flat lists of F numbers; scikit-learn then expects F columns of later tables."""
    shapes = {np.shape(item) for item in X} if isinstance(X, (list, tuple)) else set()
    return shapes.pop()[0] if len(shapes) == 1 and len(next(iter(shapes))) == 1 else None


def as_array(X: Items) -> Items:
    """Tensors as arrays."""
    return X.detach().cpu().numpy() if isinstance(X, Tensor) else X


def _is_sequence(item: object) -> bool:
    return isinstance(item, (list, tuple, np.ndarray, Tensor)) and len(np.shape(item)) > 0


def as_items(op: str, metric: Distance, X: Items) -> Any:
    """The metric's input in a form that can be sliced: a Batch or, for a Metric, also a tensor or a list."""
    if isinstance(X, np.ndarray) and X.dtype == object:
        X = list(X)
    if isinstance(metric, Metric):
        return X
    if isinstance(X, np.ndarray) and X.ndim == 2:
        X = X[..., None]
    return Batch(*as_sequences(op, "X", X))
