"""LDMLT: a Mahalanobis metric between frames, learned from triplets of aligned sequences by LogDet steps."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from likewise import _check
from likewise._progress import track
from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.models.metric import Metric
from likewise.sklearn.neighbor_classifier import Items, NeighborClassifier, labelled
from likewise.sklearn.rvsml import finite_sequences, linear_encoder, ready_aligner, several_classes

CONDITION = 1e-10  # smallest eigenvalue that a metric may have, as a share of its largest


class LDMLT(TransformerMixin, NeighborClassifier):
    """LogDet divergence-based metric learning with triplets: cost (x_i - y_j)' M (x_i - y_j), M positive definite.

    With the plan T that aligns x and y under M, and S(x, y) = sum_ij T[i, j] (x_i - y_j) (x_i - y_j)', the distance is
    tr(M S(x, y)). A triplet (x, y of the same class, z of another) requires tr(M S(x, z)) >= tr(M S(x, y)) + margin.
    If it is violated, M takes the step of least LogDet divergence,

        M <- (M^-1 + rate (S(x, y) - S(x, z)))^-1,

    with rate halved until M stays positive definite. A sweep visits every training sequence x with its ``neighbors``
    nearest y and z under the current M, in random order, and finally scales M to trace C.

    aligner: a Distance whose ground cost is the squared Euclidean: DTW (the default), OPW, ...
    margin, rate: relative to the mean distance between a sequence and its nearest neighbour of the same class before
    learning: a margin of 0.1 is a tenth of it, and a rate of 0.1 a tenth of its inverse.
    neighbors: triplets of each sequence in a sweep. max_iter: the maximum number of sweeps; it stops when no triplet is
    violated.
    k: the number of neighbours that vote; ties between labels go to the smallest.
    seed: of the order of the triplets. verbose: draw a progress bar on stderr.

    After ``fit``: classes_ (K,), mahalanobis_ (C, C), M; weight_ (C, C) with M = weight_ weight_'; metric_ (a Metric:
    it can be saved), references_ (the mapped training sequences), n_iter_, violations_ (n_iter_,): the share of
    triplets that were violated in each sweep.

    M is initially the identity: standardise the channels first. Computed in float64.
    Reference: Mei, Liu, Karimi & Gao (2014), LogDet divergence-based metric learning with triplet constraints, IEEE
    Trans. Cybernetics. Departures: margin and rate are relative, and neighbours choose the triplets.

    Example:
        >>> series = [[[0.0, 3.0], [0.1, -2.0]], [[0.1, -4.0]], [[1.0, 3.0]], [[1.1, -4.0], [1.0, -2.0]]]
        >>> learner = LDMLT(rate=1.0).fit(series, ["low", "low", "high", "high"])
        >>> learner.predict([[[0.1, 3.0]], [[1.0, -4.0]]])
        array(['low', 'high'], dtype='<U4')
        >>> bool(learner.mahalanobis_[0, 0] > 10 * learner.mahalanobis_[1, 1])
        True
    """

    def __init__(
        self,
        aligner: Distance | None = None,
        *,
        margin: float = 0.1,
        rate: float = 0.1,
        neighbors: int = 1,
        max_iter: int = 20,
        k: int = 1,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.aligner = aligner
        self.margin = margin
        self.rate = rate
        self.neighbors = neighbors
        self.max_iter = max_iter
        self.k = k
        self.seed = seed
        self.verbose = verbose

    @torch.no_grad()
    def fit(self, X: Items, y: Any = None) -> Self:
        """Learn from sequences X with labels y (N,) of two classes or more; or from a Dataset or a pair."""
        margin = _check.positive("LDMLT", "margin", self.margin)
        rate = _check.positive("LDMLT", "rate", self.rate)
        neighbors = _check.whole("LDMLT", "neighbors", self.neighbors)
        rounds = range(_check.whole("LDMLT", "max_iter", self.max_iter))
        aligner = ready_aligner("LDMLT", self.aligner)
        X, y = labelled("LDMLT", X, y)
        given = finite_sequences("LDMLT", X)
        codes = self._number(y, len(given)).to(given.device)
        several_classes("LDMLT", self.classes_)
        if (codes.bincount() < 2).all():
            _check.refuse("LDMLT", "expected a class with two sequences or more, got one sequence of each class")
        aligner.to(given.device)
        x = Batch(given.values.double(), given.lengths)
        generator = torch.Generator().manual_seed(self.seed)
        M = torch.eye(x.channels, dtype=torch.float64, device=x.device)
        unit, violations = None, []
        for _ in track(rounds, "LDMLT") if self.verbose else rounds:
            D = aligner.matrix(mapped(x, M))
            if unit is None:
                unit = nearest_distance(D, codes)
            triplets = nearest_triplets(D, codes, neighbors)
            failed = 0
            for i in torch.randperm(len(triplets), generator=generator).tolist():
                change = scatter_difference(aligner, x, M, triplets[i])
                if (M * change).sum() + margin * unit > 0:
                    M, failed = logdet_step(M, change, rate / unit), failed + 1
            M *= x.channels / M.trace()
            violations.append(failed / len(triplets))
            if not failed:
                break
        self.n_iter_, self.violations_ = len(violations), np.array(violations)
        self.mahalanobis_, self.weight_ = M, torch.linalg.cholesky(M).to(given.dtype)
        self.metric_ = Metric(linear_encoder(self.weight_), aligner)
        self.references_ = self.transform(given)
        return self

    def transform(self, X: Items) -> Batch:
        """The mapped sequences, as the learned metric compares them."""
        check_is_fitted(self, "metric_")
        return self._queries(self.metric_, None, X)


def mapped(x: Batch, M: Tensor) -> Batch:
    """Frames x L with M = L L', between which squared distances are those of M."""
    return Batch(x.values @ torch.linalg.cholesky(M), x.lengths)


def nearest_distance(D: Tensor, codes: Tensor) -> float:
    """The mean distance between an item and the nearest of its class, over items with another of their class."""
    nearest = D.masked_fill(~others_of_class(codes), torch.inf).amin(1)
    mean = nearest[nearest.isfinite()].mean().item()
    return mean if mean > 0 else 1.0  # all distances are zero: any unit will do


def nearest_triplets(D: Tensor, codes: Tensor, count: int) -> Tensor:
    """Triplets (n, 3): an item, its r-th nearest of the same class and of the others, r up to count.

    Example:
        >>> D = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
        >>> nearest_triplets(D, torch.tensor([0, 0, 1]), 5)
        tensor([[0, 1, 2],
                [1, 0, 2]])
    """
    same, other = others_of_class(codes), codes[:, None] != codes
    ranks = [D.masked_fill(~wanted, torch.inf).argsort(dim=1, stable=True)[:, :count] for wanted in (same, other)]
    most = torch.minimum(same.sum(1), other.sum(1))  # (N,)
    item, rank = (torch.arange(ranks[0].shape[1], device=D.device) < most[:, None]).nonzero().T
    return torch.stack([item, ranks[0][item, rank], ranks[1][item, rank]], 1)


def others_of_class(codes: Tensor) -> Tensor:
    """Which items (N, N) have the class of an item, without the item itself."""
    same = codes[:, None] == codes
    return same.fill_diagonal_(False)


def scatter_difference(aligner: Distance, x: Batch, M: Tensor, triplet: Tensor) -> Tensor:
    """S(x, y) - S(x, z) of a triplet (3,), each aligned under M: (C, C)."""
    anchor, others = x[triplet[:1].repeat(2)], x[triplet[1:]]
    plan = aligner.align(mapped(anchor, M), mapped(others, M)).plan  # (2, Tx, Ty)
    a, b = anchor.values, others.values
    cross = a.mT @ plan @ b
    S = (a * plan.sum(2)[..., None]).mT @ a + (b * plan.sum(1)[..., None]).mT @ b - cross - cross.mT
    return S[0] - S[1]


def logdet_step(M: Tensor, change: Tensor, rate: float) -> Tensor:
    """(M^-1 + rate change)^-1, with the rate halved until that is positive definite."""
    inverse = torch.linalg.inv(M)
    while rate > 0:
        stepped = inverse + rate * change
        values, vectors = torch.linalg.eigh((stepped + stepped.T) / 2)
        if values[0] > CONDITION * values[-1]:
            return (vectors / values) @ vectors.T
        rate /= 2
    return M
