"""Larger than one machine: all pairs, evaluation, k-NN graphs and encoding of data that do not fit in memory.

Everything runs in this process, or with ``engine="ray"`` on a Ray cluster; results are the same.

Example:
    >>> import tempfile
    >>> from likewise import DTW, scale
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     scale.matrix(DTW(), [[0.0, 1.0], [2.0]], out=folder + "/D.zarr")[0, 1].item()
    5.0
"""

from likewise.scale.embed import Embedded, embed
from likewise.scale.evaluate import evaluate
from likewise.scale.knn_graph import KNNGraph, knn_graph
from likewise.scale.matrix import matrix
from likewise.scale.precomputed import Precomputed
from likewise.scale.progress import Report
from likewise.scale.tiled_matrix import TiledMatrix
from likewise.scale.tune import select, tune

__all__ = [
    "Embedded",
    "KNNGraph",
    "Precomputed",
    "Report",
    "TiledMatrix",
    "embed",
    "evaluate",
    "knn_graph",
    "matrix",
    "select",
    "tune",
]
