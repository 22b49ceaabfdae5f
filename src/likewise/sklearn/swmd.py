"""SWMD: a linear map of frames, learned so that sequences of a class are close under optimal transport."""

import math
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import TransformerMixin
from sklearn.cluster import KMeans
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from likewise import _check
from likewise._progress import track
from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.distances.emd import EMD
from likewise.models.metric import Metric
from likewise.ops.transport import Settings, transport_cost
from likewise.sklearn.neighbor_classifier import Items, NeighborClassifier, labelled
from likewise.sklearn.rvsml import finite_sequences, linear_encoder, ready_aligner, several_classes

SHRINKAGE = 0.1  # added to each channel's variance in whitening, as a share of the mean variance
SPREAD = 10.0  # mean ground cost of two frames at the start, so that a few neighbours count in the softmax
TOLERANCE = 1e-4  # of the masses


class SWMD(TransformerMixin, NeighborClassifier):
    """Supervised word mover's distance: frames are words, mapped by A and weighted by importance.

    The frames of a sequence have masses a_i in proportion to w[c_i], where c_i is the nearest of ``codewords`` centres
    of the training frames (k-means). D(x, y) is the value of entropic transport between the masses with ground cost
    |A (x_i - y_j)|^2. A (C, C) and w minimise, over batches, by Adam,

        - mean_a log sum_{b of the class of a} p_ab,    p_ab = softmax over b != a of -D(a, b).

    Derivatives are those of the solved problem: the plan for the cost, the potentials for the masses.

    aligner: the distance between mapped sequences after learning, by default ``EMD``; DTW and OPW also work.
    codewords: the number of importances w.
    reg: of the transport in learning, as a share of the initial mean ground cost.
    epochs, batch_size, lr: of the training. k: the number of neighbours that vote; ties between labels go to the
    smallest. seed: of centres and batches. verbose: draw a progress bar on stderr.

    After ``fit``: classes_ (K,), weight_ (C, C), A', so that frames are mapped to x weight_; importances_ (codewords,)
    and codebook_ (codewords, C); metric_ (a Metric: it can be saved), references_ (the mapped training sequences),
    losses_ (epochs,).

    A is initially the whitening of the frames, and w is one. The importances are used in learning only: metric_ gives
    the frames of a sequence equal masses, as its aligner does.
    Reference: Huang, Guo, Kusner, Sun, Sha & Weinberger (2016), supervised word mover's distance, NeurIPS. Departures:
    w is the exponential of the learned parameter, which keeps it positive; a batch replaces the nearest documents.

    Example:
        >>> series = [[[0.0, 3.0], [0.1, -2.0]], [[0.1, -4.0]], [[1.0, 3.0]], [[1.1, -4.0], [1.0, -2.0]]]
        >>> learner = SWMD(codewords=2, epochs=30).fit(series, ["low", "low", "high", "high"])
        >>> learner.predict([[[0.1, 3.0]], [[1.0, -4.0]]])
        array(['low', 'high'], dtype='<U4')
    """

    def __init__(
        self,
        aligner: Distance | None = None,
        *,
        codewords: int = 32,
        reg: float = 0.05,
        epochs: int = 20,
        batch_size: int = 32,
        lr: float = 0.01,
        k: int = 1,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.aligner = aligner
        self.codewords = codewords
        self.reg = reg
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.k = k
        self.seed = seed
        self.verbose = verbose

    def fit(self, X: Items, y: Any = None) -> Self:
        """Learn from sequences X with labels y (N,) of two classes or more; or from a Dataset or a pair."""
        reg = SPREAD * _check.positive("SWMD", "reg", self.reg)
        lr = _check.positive("SWMD", "lr", self.lr)
        rounds = range(_check.whole("SWMD", "epochs", self.epochs))
        size = _check.whole("SWMD", "batch_size", self.batch_size)
        aligner = EMD() if self.aligner is None else ready_aligner("SWMD", self.aligner)
        X, y = labelled("SWMD", X, y)
        given = finite_sequences("SWMD", X)
        codes = self._number(y, len(given)).to(given.device)
        several_classes("SWMD", self.classes_)
        x = Batch(given.values.double(), given.lengths)
        words = self._words(x)
        weight = whitening(x.values[x.mask]).requires_grad_()
        importances = weight.new_zeros(len(self.codebook_)).requires_grad_()  # logarithms of w
        optimizer, losses = torch.optim.Adam([weight, importances], lr=lr), []
        generator = torch.Generator().manual_seed(self.seed)
        for _ in track(rounds, "SWMD") if self.verbose else rounds:
            total = 0.0
            for part in torch.randperm(len(x), generator=generator).to(x.device).split(size):
                optimizer.zero_grad()
                mass = masses(importances, words[part], x.mask[part])
                D = transport_distances(Batch(x.values[part] @ weight, x.lengths[part.cpu()]), mass, reg)
                loss = neighbour_loss(D, codes[part])
                if loss is not None:
                    loss.backward()
                    optimizer.step()
                    total += loss.item() * len(part)
            losses.append(total / len(x))
        self.losses_, self.importances_ = np.array(losses), importances.detach().exp()
        self.weight_ = weight.detach().to(given.dtype)
        self.metric_ = Metric(linear_encoder(self.weight_), aligner.to(given.device))
        self.references_ = self.transform(given)
        return self

    def transform(self, X: Items) -> Batch:
        """The mapped sequences, as the learned metric compares them."""
        check_is_fitted(self, "metric_")
        return self._queries(self.metric_, None, X)

    def _words(self, x: Batch) -> Tensor:
        """The nearest codeword of each frame (N, T); sets codebook_."""
        frames = x.values[x.mask]
        count = min(_check.whole("SWMD", "codewords", self.codewords), len(frames.unique(dim=0)))
        found = KMeans(count, n_init="auto", random_state=self.seed).fit(frames.cpu().numpy())
        self.codebook_ = torch.from_numpy(found.cluster_centers_).to(x.values)
        words = torch.zeros(x.mask.shape, dtype=torch.int64, device=x.device)
        words[x.mask] = torch.from_numpy(found.labels_).long().to(x.device)
        return words


def whitening(frames: Tensor) -> Tensor:
    """A map (C, C) after which the channels of frames (n, C) are about uncorrelated; see SHRINKAGE and SPREAD."""
    covariance = frames.T.cov(correction=0).reshape(frames.shape[1], -1)
    covariance.diagonal().add_(SHRINKAGE * covariance.diagonal().mean().clamp(min=1e-12))
    values, vectors = torch.linalg.eigh(covariance)
    weight = vectors / values.sqrt() @ vectors.T
    cost = 2 * (frames @ weight).var(0, correction=0).sum()  # the mean over pairs of frames
    return weight * (SPREAD / cost.clamp(min=1e-12)).sqrt()


def masses(importances: Tensor, words: Tensor, mask: Tensor) -> Tensor:
    """The masses (B, T) of frames: softmax of their words' importances within each sequence, zero in the padding."""
    return importances[words].masked_fill(~mask, -torch.inf).softmax(1)


def transport_distances(x: Batch, mass: Tensor, reg: float) -> Tensor:
    """Values of entropic transport (B, B) between weighted sequences, zero on the diagonal; differentiable."""
    first, second = torch.triu_indices(len(x), len(x), 1)
    steps = int(x.lengths.max())  # of this batch
    a, b, mass = x.values[first, :steps], x.values[second, :steps], mass[:, :steps]
    cost = (a.square().sum(2)[:, :, None] + b.square().sum(2)[:, None] - 2 * a @ b.mT).clamp(min=0)
    values = transport_value(cost, mass[first], mass[second], reg, x.lengths[first], x.lengths[second])
    D = values.new_zeros(len(x), len(x)).index_put((first, second), values)
    return D + D.T


def transport_value(
    cost: Tensor, a: Tensor, b: Tensor, reg: float, x_lengths: Tensor | None = None, y_lengths: Tensor | None = None
) -> Tensor:
    """min <T, C> + reg KL(T | a b') over plans with masses a and b: cost (P, Tx, Ty), (P, Tx), (P, Ty) -> (P,).

    At the solution T = a_i b_j exp((f_i + g_j - C_ij) / reg), and the value is <f, a> + <g, b>. By the envelope theorem
    its derivatives are T for the cost, and f and g for the masses, whose sum must not change. Masses are zero in the
    padding.
    """
    with torch.no_grad():
        plan = transport_cost(
            cost.detach(), x_lengths, y_lengths, settings=Settings(reg, tolerance=TOLERANCE),
            x_mass=a.detach(), y_mass=b.detach(),
        ).plan  # fmt: skip
        f, g = potentials(plan, cost, a, b, reg)
    return (plan * (cost - cost.detach())).sum((1, 2)) + (f * a).sum(1) + (g * b).sum(1)


def potentials(plan: Tensor, cost: Tensor, a: Tensor, b: Tensor, reg: float) -> tuple[Tensor, Tensor]:
    """f (P, Tx) and g (P, Ty) of a solved problem.

    The column with the most mass gives f up to a constant. One Sinkhorn iteration then gives g and f, even where the
    plan underflows to zero.
    """
    scores, log_a, log_b = -cost / reg, a.log(), b.log()
    heaviest = b.argmax(1)[:, None, None].expand(-1, cost.shape[1], 1)
    smallest = torch.finfo(plan.dtype).tiny
    column = plan.gather(2, heaviest)[..., 0].clamp(min=smallest).log() - log_a.clamp(min=math.log(smallest))
    f = reg * (column - scores.gather(2, heaviest)[..., 0])
    g = -reg * (scores + (log_a + f / reg)[:, :, None]).logsumexp(1)
    f = -reg * (scores + (log_b + g / reg)[:, None]).logsumexp(2)
    return f, g


def neighbour_loss(D: Tensor, labels: Tensor) -> Tensor | None:
    """-mean log of the chance that an item's neighbour, drawn by softmax of -D, has its label.

    Items that are alone in their class are left out; None if all are.
    """
    itself = torch.eye(len(D), dtype=torch.bool, device=D.device)
    same = (labels[:, None] == labels) & ~itself
    kept = same.any(1)
    if not kept.any():
        return None
    scores = (-D).masked_fill(itself, -torch.inf)[kept]
    return (scores.logsumexp(1) - scores.masked_fill(~same[kept], -torch.inf).logsumexp(1)).mean()
