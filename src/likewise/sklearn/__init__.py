"""Estimators for scikit-learn's pipelines, searches and cross-validation.

All are classifiers by nearest neighbours. ``NearestNeighbors`` uses a distance without training; ``MetricLearner``,
``RVSML`` and ``DeepRVSML`` learn one first. ``fit`` takes items and labels, or a Dataset in place of both.

Example:
    >>> from likewise import DTW
    >>> NearestNeighbors(DTW()).fit([[0.0, 1.0], [5.0]], ["low", "high"]).predict([[0.5]])
    array(['low'], dtype='<U4')
"""

from likewise.sklearn.deep_rvsml import DeepRVSML
from likewise.sklearn.metric_learner import MetricLearner
from likewise.sklearn.nearest_neighbors import NearestNeighbors
from likewise.sklearn.rvsml import RVSML

__all__ = ["RVSML", "DeepRVSML", "MetricLearner", "NearestNeighbors"]
