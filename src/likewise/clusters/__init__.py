"""Averages and clusters of sequences under any distance, and the choice of a distance's settings.

``barycenter`` averages, ``interpolate`` goes from one sequence to another along their alignment, ``tune`` chooses the
settings of a distance. ``likewise.sklearn`` has the estimators: KMeans, KMedoids, KShape and others.

Example:
    >>> from likewise import DTW
    >>> barycenter(DTW(), [[0.0, 0.0, 1.0, 3.0], [0.0, 1.0, 3.0, 3.0]], init="medoid").sequence.flatten()
    tensor([0., 0., 1., 3.])
"""

from likewise.clusters.barycenter import Barycenter, barycenter
from likewise.clusters.interpolation import interpolate
from likewise.clusters.kmeans import Clustering, kmeans
from likewise.clusters.kshape import kshape
from likewise.clusters.lbfgs import LBFGS
from likewise.clusters.majorize import MajorizeMinimize
from likewise.clusters.subgradient import Subgradient
from likewise.clusters.tune import Tuning, tune

__all__ = [
    "LBFGS",
    "Barycenter",
    "Clustering",
    "MajorizeMinimize",
    "Subgradient",
    "Tuning",
    "barycenter",
    "interpolate",
    "kmeans",
    "kshape",
    "tune",
]
