"""RVSML: a linear metric between sequences, learned in closed form from virtual sequences."""

import copy
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
from likewise.distances.dtw import DTW
from likewise.models.frame_mlp import FrameMLP
from likewise.models.metric import Metric
from likewise.sklearn.neighbor_classifier import Items, NeighborClassifier, labelled, read_sequences

NUMBERS_AT_ONCE = 1 << 24  # size limit for sequences that are encoded, aligned and summed at once


class RVSML(TransformerMixin, NeighborClassifier):
    """Regressive virtual sequence metric learning: a linear map of frames from each class to its virtual sequence.

    The virtual sequence of class c has r rows, the unit vectors e_{cr}, ..., e_{cr + r - 1} of R^{rK}, K classes. With
    plans T that align each sequence x with that of its class, the map W (C, rK) minimises

        1/N sum_n sum_ij T_n[i, j] ||x_n[i] W - v_{y_n}[j]||^2 + ridge tr(W'W),

    that is W = (sum T[i, j] x[i] x[i]' + ridge N I)^-1 sum T[i, j] x[i] v[j]'. Then the plans are those of
    ``aligner.align(x W, v)``, and so on; the first plan is 1 / (length r) everywhere.

    aligner: a Distance whose ground cost is the squared Euclidean: DTW (the default), SoftDTW, OPW, ... Its plans are
        used unchanged: ones on the path for DTW, weights that sum to one for OPW.
    ridge: lambda of the paper, which has 0.1 for DTW and 0.01 for OPW on MSR Action3D.
    steps: r. k: the number of neighbours that vote; ties between labels go to the smallest.
    max_iter, tol: stop after max_iter rounds, or when the mean distance to the virtual sequences plus tr(W'W) (without
    the ridge, as in the published code) changes by less than tol.
    verbose: draw a progress bar on stderr.

    After ``fit``: classes_ (K,), virtual_ (K, r, rK), weight_ (C, rK), metric_ (a Metric: it can be saved), references_
    (the mapped training sequences), n_iter_, converged_, costs_ and norms_ (n_iter_,): the mean distance and tr(W'W)
    after each round. costs_ + ridge norms_ never increases with DTW and SoftDTW; with other aligners it may.

    There is no intercept: standardise, or centre, the channels first. The equations are solved in float64. After the
    first plan all rows of a class have the same image, so many DTW paths have the same cost and rounding decides
    between them: another machine may find another local optimum. ``viz.plot_virtual_alignment`` draws the result.
    Reference: Su & Wu (2019), learning distance for sequences by learning a ground metric, ICML.

    Example:
        >>> series = [[0.0, 0.1, 0.2], [0.1, 0.3], [5.0, 5.1], [5.2, 5.0, 5.1, 5.3]]
        >>> learner = RVSML(ridge=0.01).fit(series, ["low", "low", "high", "high"])
        >>> learner.predict([[0.2, 0.2], [5.1]])
        array(['low', 'high'], dtype='<U4')
        >>> learner.transform(series)
        Batch(4 sequences, 2..4 steps, 8 channels, torch.float32, cpu)
    """

    def __init__(
        self,
        aligner: Distance | None = None,
        *,
        ridge: float = 0.1,
        steps: int = 4,
        k: int = 1,
        max_iter: int = 200,
        tol: float = 1e-6,
        verbose: bool = False,
    ) -> None:
        self.aligner = aligner
        self.ridge = ridge
        self.steps = steps
        self.k = k
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose

    @torch.no_grad()
    def fit(self, X: Items, y: Any = None) -> Self:
        """Learn from sequences X with labels y (N,) of two classes or more; or from a Dataset or a pair."""
        ridge = _check.positive("RVSML", "ridge", self.ridge)
        tol = _check.positive("RVSML", "tol", self.tol)
        steps = _check.whole("RVSML", "steps", self.steps)
        rounds = range(_check.whole("RVSML", "max_iter", self.max_iter))
        aligner = ready_aligner("RVSML", self.aligner)
        X, y = labelled("RVSML", X, y)
        x = finite_sequences("RVSML", X)
        codes = self._number(y, len(x)).to(x.device)
        several_classes("RVSML", self.classes_)
        aligner.to(x.device)
        virtual = virtual_sequences(len(self.classes_), steps).to(x.values)
        plan, weight = uniform_plan(x, steps), virtual.new_empty(0)
        costs, norms, self.converged_ = [], [], False
        for _ in track(rounds, "RVSML") if self.verbose else rounds:
            weight = regress(x, codes, plan, len(self.classes_), ridge).to(x.dtype)
            plan, values = align_with(aligner, Batch(x.values @ weight, x.lengths), virtual, codes)
            costs.append(values.double().mean().item())
            norms.append(weight.double().square().sum().item())
            if len(costs) > 1 and abs(costs[-1] + norms[-1] - costs[-2] - norms[-2]) < tol:
                self.converged_ = True
                break
        self.n_iter_, self.costs_, self.norms_ = len(costs), np.array(costs), np.array(norms)
        self.virtual_, self.weight_ = virtual, weight
        self.metric_ = Metric(linear_encoder(weight), aligner)
        self.references_ = self.transform(x)
        return self

    def transform(self, X: Items) -> Batch:
        """The mapped sequences, as the learned metric compares them."""
        check_is_fitted(self, "metric_")
        return self._queries(self.metric_, None, X)


def virtual_sequences(classes: int, steps: int) -> Tensor:
    """Virtual sequences (K, r, rK) of K classes: r rows of the identity for each.

    Example:
        >>> virtual_sequences(2, 2)[1]
        tensor([[0., 0., 1., 0.],
                [0., 0., 0., 1.]])
    """
    return torch.eye(classes * steps).reshape(classes, steps, -1)


def finite_sequences(op: str, X: Items) -> Batch:
    """Sequences of finite numbers, with zeros for padding."""
    x = read_sequences(op, X)
    _check.finite(op, "X", x.values, x.lengths)
    return Batch(x.values.masked_fill(~x.mask[..., None], 0), x.lengths)


def several_classes(op: str, classes: np.ndarray) -> None:
    """Raise an error if there is only one class."""
    if len(classes) < 2:
        _check.refuse(op, f"expected at least two classes, got one, {classes[0]!r}")


def uniform_plan(x: Batch, steps: int) -> Tensor:
    """Uniform plans (N, T, r), which sum to one; zero in the padding."""
    share = x.mask.to(x.dtype) / (x.lengths.to(x.device)[:, None] * steps)
    return share[..., None].repeat(1, 1, steps)


def regress(x: Batch, codes: Tensor, plan: Tensor, classes: int, ridge: float) -> Tensor:
    """The optimal map (C, rK) for plans (N, T, r), in float64; x holds zeros for padding."""
    channels, steps = x.channels, plan.shape[2]
    squares = plan.new_zeros(channels, channels, dtype=torch.float64)
    products = plan.new_zeros(classes, steps, channels, dtype=torch.float64)
    for part in parts(len(x), x.values.shape[1] * max(channels, steps)):
        frames, share = x.values[part].double(), plan[part].double()  # (n, T, C), (n, T, r)
        weighted = frames * share.sum(2, keepdim=True)
        squares += weighted.flatten(0, 1).T @ frames.flatten(0, 1)
        products.index_add_(0, codes[part], share.mT @ frames)
    squares.diagonal().add_(ridge * len(x))
    # Positive definite because of the ridge: use Cholesky.
    return torch.cholesky_solve(products.flatten(0, 1).T, torch.linalg.cholesky(squares))


def align_with(aligner: Distance, encoded: Batch, virtual: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Plans (N, T, r) and distances (N,) between sequences and the virtual ones of their classes."""
    plans, values = [], []
    for part in parts(len(encoded), encoded.values.shape[1] * encoded.channels):
        alignment = aligner.align(encoded[part], virtual[codes[part]])
        plans.append(alignment.plan.detach())
        values.append(alignment.value.detach())
    return torch.cat(plans), torch.cat(values)


def ready_aligner(op: str, aligner: Distance | None) -> Distance:
    """A copy of the aligner, in eval mode; DTW by default."""
    if aligner is None:
        return DTW()
    if not isinstance(aligner, Distance):
        raise TypeError(f"{op}: expected aligner to be a Distance, got {type(aligner).__name__}")
    return copy.deepcopy(aligner).eval()


def linear_encoder(weight: Tensor) -> FrameMLP:
    """The map x W of frames, as an encoder."""
    channels, out = weight.shape
    with torch.random.fork_rng(devices=[]):  # drawing the initial weights must not advance the caller's generator
        encoder = FrameMLP(channels, out=out, depth=0, normalize=False, standardize=False).to(weight)
    encoder.layers[0].load_state_dict({"weight": weight.T, "bias": weight.new_zeros(out)})
    return encoder.eval()


def parts(count: int, numbers: int) -> list[slice]:
    """Split the items into parts of at most NUMBERS_AT_ONCE numbers."""
    step = max(1, NUMBERS_AT_ONCE // numbers)
    return [slice(first, first + step) for first in range(0, count, step)]
