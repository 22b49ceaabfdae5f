"""likewise: learn, compute, explain and search with distances between sequences and between images."""

import importlib
from typing import TYPE_CHECKING, Any

from likewise import clusters, data, distances, evaluation, losses, models, search, training
from likewise.clusters import barycenter, tune
from likewise.data import (
    Batch,
    Dataset,
    Episodes,
    HeldOutClasses,
    ImageSet,
    read_audio_folder,
    read_image_folder,
    read_npz,
    read_table,
    read_ts,
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
)
from likewise.evaluation import evaluate, few_shot_accuracy, few_shot_predict
from likewise.models import (
    TCN,
    AttendedFeatures,
    EfficientNetLite,
    Embedder,
    FrameMLP,
    GradientReversal,
    GRUEncoder,
    Metric,
)
from likewise.search import Index, MilvusStore
from likewise.training import fit

if TYPE_CHECKING:
    from likewise import dynamics, regularizers, scale, selection, sklearn, viz, web
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
    "AttendedFeatures",
    "Batch",
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
    "ImageSet",
    "Index",
    "MeanFrames",
    "Metric",
    "MilvusStore",
    "ShapeDTW",
    "SiameseGRU",
    "Sinkhorn",
    "SoftDTW",
    "SoftDTWDivergence",
    "SoftElastic",
    "TransformerTAP",
    "barycenter",
    "clusters",
    "data",
    "distances",
    "dynamics",
    "evaluate",
    "evaluation",
    "explore",
    "few_shot_accuracy",
    "few_shot_predict",
    "fit",
    "losses",
    "models",
    "read_audio_folder",
    "read_image_folder",
    "read_npz",
    "read_table",
    "read_ts",
    "regularizers",
    "scale",
    "search",
    "selection",
    "sklearn",
    "training",
    "tune",
    "viz",
    "web",
]

# Nothing else here needs these; scikit-learn and matplotlib take a second each to import.
_LATER = ("dynamics", "regularizers", "scale", "selection", "sklearn", "viz", "web")


def __getattr__(name: str) -> Any:
    """Import a subpackage, or ``explore``, on first use."""
    if name == "explore":
        return importlib.import_module("likewise.web").explore
    if name not in _LATER:
        raise AttributeError(f"module 'likewise' has no attribute {name!r}")
    return importlib.import_module(f"likewise.{name}")
