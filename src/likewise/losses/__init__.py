"""Losses of a matrix of distances: ``loss(D, row_labels, col_labels=None)``.

Rows of D (N, M) are anchors. Without col_labels, rows and columns are the same items, and the diagonal is left out;
with col_labels, every cell is a pair. Losses with proxies or class centres take vectors instead, as ``loss(x,
labels)``; they are VectorLosses. A PathLoss takes the result of a warp or of soft-DTW, and a known alignment.

Example:
    >>> import torch
    >>> D = torch.tensor([[0.0, 0.2, 0.9], [0.2, 0.0, 0.4], [0.9, 0.4, 0.0]])
    >>> Contrastive(margin=0.5)(D, torch.tensor([0, 0, 1]))
    tensor(0.0158)
"""

from likewise.losses.along_truth import AlongPath, AlongWarp
from likewise.losses.am_softmax import AMSoftmax
from likewise.losses.angular import Angular
from likewise.losses.binomial_deviance import BinomialDeviance
from likewise.losses.contrastive import Contrastive
from likewise.losses.dilate import Dilate, delay_penalty
from likewise.losses.hard_mining import HardMining, HardMiningMeans
from likewise.losses.lifted_structure import LiftedStructure
from likewise.losses.loss import Loss
from likewise.losses.margin import Margin
from likewise.losses.multi_similarity import MultiSimilarity
from likewise.losses.n_pair import NPair
from likewise.losses.pairs import Pairs
from likewise.losses.path_loss import PathLoss
from likewise.losses.pml import from_pml, from_pml_vectors
from likewise.losses.proxy_nca import ProxyNCA
from likewise.losses.relative import Relative
from likewise.losses.soft_nearest_neighbor import SoftNearestNeighbor
from likewise.losses.soft_subsequence_dtw import SoftSubsequenceDTW
from likewise.losses.structural import Structural
from likewise.losses.triplet import Triplet, Triplets, all_triplets, hard_triplets, semi_hard_triplets
from likewise.losses.vector_loss import VectorLoss
from likewise.losses.warp_error import MaxPositionError, TimeError, WarpError

__all__ = [
    "AMSoftmax",
    "AlongPath",
    "AlongWarp",
    "Angular",
    "BinomialDeviance",
    "Contrastive",
    "Dilate",
    "HardMining",
    "HardMiningMeans",
    "LiftedStructure",
    "Loss",
    "Margin",
    "MaxPositionError",
    "MultiSimilarity",
    "NPair",
    "Pairs",
    "PathLoss",
    "ProxyNCA",
    "Relative",
    "SoftNearestNeighbor",
    "SoftSubsequenceDTW",
    "Structural",
    "TimeError",
    "Triplet",
    "Triplets",
    "VectorLoss",
    "WarpError",
    "all_triplets",
    "delay_penalty",
    "from_pml",
    "from_pml_vectors",
    "hard_triplets",
    "semi_hard_triplets",
]
