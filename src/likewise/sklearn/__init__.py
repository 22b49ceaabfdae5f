"""Estimators for scikit-learn's pipelines, searches and cross-validation.

Classifiers by nearest neighbours: ``NearestNeighbors`` uses a distance without training; ``MetricLearner``,
``RVSML``, ``DeepRVSML``, ``LDMLT`` and ``SWMD`` learn one first. ``fit`` takes items and labels, or a Dataset in place
of both.

Clusterers under any distance: ``KMeans`` around averages, ``KMedoids`` around items, ``Hierarchical`` (SciPy's) and
``HDBSCAN`` (scikit-learn's) on the matrix of distances. ``KShape`` finds series of similar shape.

Example:
    >>> from likewise import DTW
    >>> NearestNeighbors(DTW()).fit([[0.0, 1.0], [5.0]], ["low", "high"]).predict([[0.5]])
    array(['low'], dtype='<U4')
"""

from likewise.sklearn.deep_rvsml import DeepRVSML
from likewise.sklearn.hdbscan import HDBSCAN
from likewise.sklearn.hierarchical import Hierarchical
from likewise.sklearn.kmeans import KMeans
from likewise.sklearn.kmedoids import KMedoids
from likewise.sklearn.kshape import KShape
from likewise.sklearn.ldmlt import LDMLT
from likewise.sklearn.metric_learner import MetricLearner
from likewise.sklearn.nearest_neighbors import NearestNeighbors
from likewise.sklearn.rvsml import RVSML
from likewise.sklearn.swmd import SWMD

__all__ = [
    "HDBSCAN",
    "LDMLT",
    "RVSML",
    "SWMD",
    "DeepRVSML",
    "Hierarchical",
    "KMeans",
    "KMedoids",
    "KShape",
    "MetricLearner",
    "NearestNeighbors",
]
