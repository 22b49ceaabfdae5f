"""likewise: learn, compute, explain and search with distances between sequences and between images."""

from likewise.data.arabic_digits import read_arabic_digits
from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.data.har import read_har
from likewise.data.npz import read_npz, write_npz
from likewise.data.ts import read_ts, write_ts
from likewise.distances.alignment import Alignment
from likewise.distances.cosine import Cosine
from likewise.distances.distance import Distance
from likewise.distances.dtw import DTW
from likewise.distances.euclidean import Euclidean
from likewise.distances.soft_dtw import SoftDTW, SoftDTWDivergence
from likewise.evaluation.retrieval import mean_average_precision, nearest_neighbor_accuracy

__version__ = "0.1.0"

__all__ = [
    "DTW",
    "Alignment",
    "Batch",
    "Cosine",
    "Dataset",
    "Distance",
    "Euclidean",
    "SoftDTW",
    "SoftDTWDivergence",
    "mean_average_precision",
    "nearest_neighbor_accuracy",
    "read_arabic_digits",
    "read_har",
    "read_npz",
    "read_ts",
    "write_npz",
    "write_ts",
]
