"""Distances as modules, one file each: paired ``d(x, y)``, all pairs ``d.matrix(x, y)``, and ``d.align(x, y)``.

Example:
    >>> DTW()([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
    tensor([1.])
"""

from likewise.distances.alignment import Alignment
from likewise.distances.cosine import Cosine
from likewise.distances.coupled_gru import CoupledAlignment, CoupledGRU
from likewise.distances.distance import Distance
from likewise.distances.dtw import DTW
from likewise.distances.emd import EMD
from likewise.distances.euclidean import Euclidean
from likewise.distances.gdtw import GDTW
from likewise.distances.mean_frames import MeanFrames
from likewise.distances.opw import OPW
from likewise.distances.otam import OTAM
from likewise.distances.siamese_gru import SiameseGRU
from likewise.distances.sinkhorn import Sinkhorn
from likewise.distances.soft_dtw import SoftDTW, SoftDTWDivergence
from likewise.distances.tap import TAP, TransformerTAP
from likewise.distances.tcot import TCOT
from likewise.distances.training_defaults import TrainingDefaults
from likewise.distances.warp import Warp, WarpAlignment

__all__ = [
    "DTW",
    "EMD",
    "GDTW",
    "OPW",
    "OTAM",
    "TAP",
    "TCOT",
    "Alignment",
    "Cosine",
    "CoupledAlignment",
    "CoupledGRU",
    "Distance",
    "Euclidean",
    "MeanFrames",
    "SiameseGRU",
    "Sinkhorn",
    "SoftDTW",
    "SoftDTWDivergence",
    "TrainingDefaults",
    "TransformerTAP",
    "Warp",
    "WarpAlignment",
]
