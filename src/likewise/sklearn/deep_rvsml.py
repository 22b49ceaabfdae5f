"""DeepRVSML: a network that maps the frames of a class to its virtual sequence."""

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
from likewise.models.frame_mlp import FrameMLP
from likewise.models.metric import Metric
from likewise.sklearn.neighbor_classifier import Items, NeighborClassifier, labelled
from likewise.sklearn.rvsml import (
    align_with,
    finite_sequences,
    ready_aligner,
    several_classes,
    uniform_plan,
    virtual_sequences,
)

FRAMES_OF_A_CLASS = 8  # at least, in a batch


class DeepRVSML(TransformerMixin, NeighborClassifier):
    """RVSML with a network in place of the linear map.

    The network is 3 x [batch norm - linear - ReLU] of 1024 units, then batch norm - linear to R^{rK}, scaled to unit
    length. With plans T that align each sequence x with the virtual sequence v of its class, as in ``RVSML``, it is
    trained to minimise the mean over frames i of

        sum_j T[i, j] ||f(x[i]) - v[j]||^2

    for some epochs; then the plans are updated by ``aligner.align(f(x), v)``, and so on.

    aligner, steps (r), k: as in ``RVSML``. hidden, depth: width and number of the hidden layers.
    rounds, epochs: the maximum number of alternations, and the epochs in each. The paper's 50 and 500 suit hundreds of
    sequences: an epoch uses as many frames as the data have, so lower both for large sets.
    batch_size: frames per batch, of up to 16 classes in equal numbers, drawn with replacement.
    lr: of Adam. tol: stop when the mean distance to the virtual sequences changes by less between rounds.
    device: where to train; by default a GPU if there is one. seed: for weights and batches. verbose: show a progress
        bar.

    After ``fit``: classes_ (K,), virtual_ (K, r, rK), metric_ (a Metric: it can be saved), references_ (the encoded
    training sequences), n_iter_, converged_, costs_ (n_iter_,), the mean distance after each round, and losses_, the
    mean loss of each epoch. Where the paper does not specify it, the first plan is RVSML's, the optimiser is kept
    between rounds, and tol is that of its largest data set.
    Reference: Su & Wu (2020), learning meta-distance for sequences via virtual sequence regression, TPAMI.

    Example:
        >>> series = [[0.0, 0.1, 0.2], [0.1, 0.3], [5.0, 5.1], [5.2, 5.0, 5.1, 5.3]]
        >>> learner = DeepRVSML(hidden=16, rounds=2, epochs=20, batch_size=16, lr=0.01, device="cpu")
        >>> learner.fit(series, ["low", "low", "high", "high"]).predict([[0.2, 0.2], [5.1]])
        array(['low', 'high'], dtype='<U4')
    """

    def __init__(
        self,
        aligner: Distance | None = None,
        *,
        steps: int = 4,
        hidden: int = 1024,
        depth: int = 3,
        k: int = 1,
        rounds: int = 50,
        epochs: int = 500,
        batch_size: int = 128,
        lr: float = 1e-5,
        tol: float = 1e-2,
        device: str | None = None,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.aligner = aligner
        self.steps = steps
        self.hidden = hidden
        self.depth = depth
        self.k = k
        self.rounds = rounds
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.tol = tol
        self.device = device
        self.seed = seed
        self.verbose = verbose

    def fit(self, X: Items, y: Any = None) -> Self:
        """Learn from sequences X with labels y (N,) of two classes or more; or from a Dataset or a pair."""
        self._check_settings()
        aligner = ready_aligner("DeepRVSML", self.aligner)
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        X, y = labelled("DeepRVSML", X, y)
        x = finite_sequences("DeepRVSML", X).to(device)
        codes = self._number(y, len(x)).to(device)
        several_classes("DeepRVSML", self.classes_)
        classes, real = len(self.classes_), x.mask
        self.virtual_ = virtual_sequences(classes, self.steps).to(x.values)
        metric = self._network(x, aligner)
        frames = Frames(x.values[real], codes[real.nonzero()[:, 0]], self.batch_size, self.seed)
        optimizer = torch.optim.Adam(metric.parameters(), self.lr)
        plan, losses, costs = uniform_plan(x, self.steps), [], []
        self.converged_ = False
        epochs = range(self.rounds * self.epochs)
        for epoch in track(epochs, "DeepRVSML") if self.verbose else epochs:
            losses.append(train_epoch(metric, optimizer, frames, plan[real]))
            if (epoch + 1) % self.epochs:
                continue
            plan, values = self._align(metric, x, codes)
            costs.append(values.double().mean().item())
            if len(costs) > 1 and abs(costs[-1] - costs[-2]) < self.tol:
                self.converged_ = True
                break
        self.n_iter_, self.costs_, self.losses_ = len(costs), np.array(costs), np.array(losses)
        self.metric_ = metric.eval()
        self.references_ = self.transform(x)
        return self

    def transform(self, X: Items) -> Batch:
        """The encoded sequences, as the learned metric compares them."""
        check_is_fitted(self, "metric_")
        return self._queries(self.metric_, None, X)

    def _check_settings(self) -> None:
        for name in ("steps", "hidden", "depth", "rounds", "epochs"):
            _check.whole("DeepRVSML", name, getattr(self, name))
        _check.whole("DeepRVSML", "batch_size", self.batch_size, least=2)  # batch norm needs more than one frame
        _check.whole("DeepRVSML", "seed", self.seed, least=0)
        for name in ("lr", "tol"):
            _check.positive("DeepRVSML", name, getattr(self, name))

    def _network(self, x: Batch, aligner: Distance) -> Metric:
        out = len(self.classes_) * self.steps
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            encoder = FrameMLP(x.channels, self.hidden, out, depth=self.depth, batch_norm=True, standardize=False)
        return Metric(encoder.to(x.dtype), aligner.requires_grad_(False)).to(x.device)

    @torch.no_grad()
    def _align(self, metric: Metric, x: Batch, codes: Tensor) -> tuple[Tensor, Tensor]:
        encoded = metric.embed(x)
        assert isinstance(encoded, Batch)
        return align_with(metric.distance, encoded, self.virtual_, codes)


class Frames:
    """Frames (F, C) with their classes (F,), and balanced batches of them, drawn with replacement.

    A batch holds at least 8 frames of a class, so with many classes each batch has a random subset of them.
    """

    def __init__(self, values: Tensor, codes: Tensor, batch_size: int, seed: int) -> None:
        self.values, self.codes = values, codes
        self.counts = codes.bincount()
        self.order = codes.argsort(stable=True)  # frames by class
        self.classes = min(len(self.counts), max(1, batch_size // FRAMES_OF_A_CLASS))
        self.each = batch_size // self.classes
        self.generator = torch.Generator(values.device).manual_seed(seed)

    def draw(self) -> Tensor:
        """The batches of an epoch, (steps, classes * each), as indices of frames, about as many as the data have."""
        steps, device = -(-len(self.values) // (self.classes * self.each)), self.values.device
        chance = torch.rand(steps, len(self.counts), generator=self.generator, device=device)
        chosen = chance.argsort(1)[:, : self.classes]
        place = torch.rand(steps, self.classes, self.each, generator=self.generator, device=device, dtype=torch.float64)
        counts, starts = self.counts, self.counts.cumsum(0) - self.counts
        index = starts[chosen][..., None] + (place * counts[chosen][..., None]).long()
        return self.order[index].flatten(1)


def train_epoch(metric: Metric, optimizer: torch.optim.Optimizer, frames: Frames, plan: Tensor) -> float:
    """Train for an epoch towards plans (F, r), and return the mean loss."""
    encoder = metric.encoder
    assert isinstance(encoder, FrameMLP)
    total, batches = plan.new_zeros(()), frames.draw()
    for index in batches:
        optimizer.zero_grad(set_to_none=True)
        encoded = encoder(frames.values[index][None]).values[0]
        loss = virtual_loss(encoded, frames.codes[index], plan[index])
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return (total / len(batches)).item()


def virtual_loss(encoded: Tensor, codes: Tensor, plan: Tensor) -> Tensor:
    """Mean over frames (n, rK) of sum_j plan[i, j] ||encoded[i] - e_{codes[i] r + j}||^2, for plans (n, r).

    Example:
        >>> virtual_loss(torch.tensor([[0.0, 1.0]]), torch.tensor([1]), torch.tensor([[0.5]]))  # two classes, r = 1
        tensor(0.)
    """
    steps = plan.shape[1]
    rows = encoded.unflatten(1, (-1, steps))  # (n, K, r)
    own = rows[torch.arange(len(rows), device=rows.device), codes]
    squares = encoded.square().sum(1, keepdim=True)
    return (plan * (squares - 2 * own + 1)).sum() / len(plan)
