"""Distances as modules, one file each: paired ``d(x, y)``, all pairs ``d.matrix(x, y)``, and ``d.align(x, y)``.

Example:
    >>> DTW()([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
    tensor([1.])
"""

from likewise.distances.adtw import ADTW
from likewise.distances.alignment import Alignment
from likewise.distances.cosine import Cosine
from likewise.distances.coupled_gru import CoupledAlignment, CoupledGRU
from likewise.distances.ddtw import DDTW, WDDTW
from likewise.distances.distance import Distance
from likewise.distances.dtw import DTW
from likewise.distances.dtw_global_invariance import DTWGlobalInvariance
from likewise.distances.edr import EDR
from likewise.distances.elastic import Elastic
from likewise.distances.emd import EMD
from likewise.distances.erp import ERP
from likewise.distances.euclidean import Euclidean
from likewise.distances.gdtw import GDTW
from likewise.distances.lcss import LCSS
from likewise.distances.mean_frames import MeanFrames
from likewise.distances.msm import MSM
from likewise.distances.opw import OPW
from likewise.distances.otam import OTAM
from likewise.distances.sbd import SBD
from likewise.distances.shape_dtw import ShapeDTW
from likewise.distances.siamese_gru import SiameseGRU
from likewise.distances.sinkhorn import Sinkhorn
from likewise.distances.soft_dtw import SoftDTW, SoftDTWDivergence
from likewise.distances.soft_elastic import SoftElastic
from likewise.distances.tap import TAP, TransformerTAP
from likewise.distances.tcot import TCOT
from likewise.distances.training_defaults import TrainingDefaults
from likewise.distances.twe import TWE
from likewise.distances.warp import Warp, WarpAlignment
from likewise.distances.wdtw import WDTW

__all__ = [
    "ADTW",
    "DDTW",
    "DTW",
    "EDR",
    "EMD",
    "ERP",
    "GDTW",
    "LCSS",
    "MSM",
    "OPW",
    "OTAM",
    "SBD",
    "TAP",
    "TCOT",
    "TWE",
    "WDDTW",
    "WDTW",
    "Alignment",
    "Cosine",
    "CoupledAlignment",
    "CoupledGRU",
    "DTWGlobalInvariance",
    "Distance",
    "Elastic",
    "Euclidean",
    "MeanFrames",
    "ShapeDTW",
    "SiameseGRU",
    "Sinkhorn",
    "SoftDTW",
    "SoftDTWDivergence",
    "SoftElastic",
    "TrainingDefaults",
    "TransformerTAP",
    "Warp",
    "WarpAlignment",
]
