"""likewise: learn, compute, explain and search with distances between sequences and between images."""

import importlib
from typing import TYPE_CHECKING, Any

from likewise import clusters, data, distances, evaluation, losses, models, search, training
from likewise.clusters import Barycenter, Tuning, barycenter, tune
from likewise.data import (
    Batch,
    Dataset,
    Episodes,
    HeldOutClasses,
    ImageSet,
    MPerClass,
    read_arabic_digits,
    read_audio_folder,
    read_har,
    read_image_folder,
    read_npz,
    read_shl,
    read_table,
    read_ts,
    read_wide,
    write_npz,
    write_ts,
)
from likewise.distances import (
    ADTW,
    DDTW,
    DTW,
    EDR,
    EMD,
    ERP,
    GDTW,
    LCSS,
    MSM,
    OPW,
    OTAM,
    SBD,
    TAP,
    TCOT,
    TWE,
    WDDTW,
    WDTW,
    Alignment,
    Cosine,
    CoupledGRU,
    Distance,
    DTWGlobalInvariance,
    Euclidean,
    MeanFrames,
    ShapeDTW,
    SiameseGRU,
    Sinkhorn,
    SoftDTW,
    SoftDTWDivergence,
    SoftElastic,
    TransformerTAP,
    Warp,
)
from likewise.evaluation import Candidates, Scores, evaluate, evaluate_matrix, few_shot_accuracy, few_shot_predict
from likewise.models import (
    TCN,
    AttendedFeatures,
    EfficientNetLite,
    Embedder,
    FrameMLP,
    GradientReversal,
    GRUEncoder,
    Metric,
    SelfAttention,
    SmallCNN,
)
from likewise.search import Hits, Index
from likewise.training import Checkpoints, History, SoftAdversary, Validation, fit

if TYPE_CHECKING:
    from likewise import dynamics, regularizers, selection, sklearn, viz, web
    from likewise.web import explore

__version__ = "0.1.0"

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
    "TCN",
    "TCOT",
    "TWE",
    "WDDTW",
    "WDTW",
    "Alignment",
    "AttendedFeatures",
    "Barycenter",
    "Batch",
    "Candidates",
    "Checkpoints",
    "Cosine",
    "CoupledGRU",
    "DTWGlobalInvariance",
    "Dataset",
    "Distance",
    "EfficientNetLite",
    "Embedder",
    "Episodes",
    "Euclidean",
    "FrameMLP",
    "GRUEncoder",
    "GradientReversal",
    "HeldOutClasses",
    "History",
    "Hits",
    "ImageSet",
    "Index",
    "MPerClass",
    "MeanFrames",
    "Metric",
    "Scores",
    "SelfAttention",
    "ShapeDTW",
    "SiameseGRU",
    "Sinkhorn",
    "SmallCNN",
    "SoftAdversary",
    "SoftDTW",
    "SoftDTWDivergence",
    "SoftElastic",
    "TransformerTAP",
    "Tuning",
    "Validation",
    "Warp",
    "barycenter",
    "clusters",
    "data",
    "distances",
    "dynamics",
    "evaluate",
    "evaluate_matrix",
    "evaluation",
    "explore",
    "few_shot_accuracy",
    "few_shot_predict",
    "fit",
    "losses",
    "models",
    "read_arabic_digits",
    "read_audio_folder",
    "read_har",
    "read_image_folder",
    "read_npz",
    "read_shl",
    "read_table",
    "read_ts",
    "read_wide",
    "regularizers",
    "search",
    "selection",
    "sklearn",
    "training",
    "tune",
    "viz",
    "web",
    "write_npz",
    "write_ts",
]

# Nothing else here needs these; scikit-learn and matplotlib take a second each to import.
_LATER = ("dynamics", "regularizers", "selection", "sklearn", "viz", "web")


def __getattr__(name: str) -> Any:
    """Import a subpackage, or ``explore``, on first use."""
    if name == "explore":
        return importlib.import_module("likewise.web").explore
    if name not in _LATER:
        raise AttributeError(f"module 'likewise' has no attribute {name!r}")
    return importlib.import_module(f"likewise.{name}")
