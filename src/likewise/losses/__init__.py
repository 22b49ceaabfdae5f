"""Losses of a matrix of distances: ``loss(D, row_labels, col_labels=None)``.

A loss never sees how D (N, M) was made. Rows are anchors. Without col_labels, columns are the rows themselves, and the
diagonal is no pair; with them every cell counts.

Example:
    >>> import torch
    >>> D = torch.tensor([[0.0, 0.2, 0.9], [0.2, 0.0, 0.4], [0.9, 0.4, 0.0]])
    >>> Contrastive(margin=0.5)(D, torch.tensor([0, 0, 1]))
    tensor(0.0158)
"""

from likewise.losses.binomial_deviance import BinomialDeviance
from likewise.losses.contrastive import Contrastive
from likewise.losses.hard_mining import HardMining, HardMiningMeans
from likewise.losses.lifted_structure import LiftedStructure
from likewise.losses.loss import Loss
from likewise.losses.margin import Margin
from likewise.losses.multi_similarity import MultiSimilarity
from likewise.losses.n_pair import NPair
from likewise.losses.pairs import Pairs
from likewise.losses.pml import from_pml
from likewise.losses.soft_nearest_neighbor import SoftNearestNeighbor
from likewise.losses.structural import Structural
from likewise.losses.triplet import Triplet, Triplets, all_triplets, hard_triplets, semi_hard_triplets

__all__ = [
    "BinomialDeviance",
    "Contrastive",
    "HardMining",
    "HardMiningMeans",
    "LiftedStructure",
    "Loss",
    "Margin",
    "MultiSimilarity",
    "NPair",
    "Pairs",
    "SoftNearestNeighbor",
    "Structural",
    "Triplet",
    "Triplets",
    "all_triplets",
    "from_pml",
    "hard_triplets",
    "semi_hard_triplets",
]
