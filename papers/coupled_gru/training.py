"""How ``recipes.coupled_gru`` trains: several small networks at once, each step of them one graph of the GPU.

``lw.fit`` trains one metric, and would do here. But the 630 pairs of a batch are 79 programs, which leave most of a GPU
idle for 128 steps in a row, and much of a step's time would go by between kernels. So a ``Training`` is written such
that its steps are all alike and need nothing of the host: data, batches, rates and the record of the losses lie on the
device. One step is recorded as a CUDA graph, and replayed; and each training has a stream, so that several share the
device.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import likewise as lw
from likewise.distances.coupled_gru import CoupledGRU
from likewise.regularizers.coupling_norm import coupling_norm

EAGER_STEPS = 3  # before one is recorded: kernels are compiled, and the optimiser makes its state


@dataclass(frozen=True)
class Settings:
    """Of one run. Sizes, decay of weights, clip and the weight of the coupling norm are the paper's."""

    data: str = "har"
    model: str = "cgru"
    hidden: tuple[int, ...] = (20,)
    batch_size: int = 36
    lr: float = 1e-2
    decay: float = 0.5  # share of the steps, the last ones, over which the learning rate falls to zero
    average: float = 0.99  # of the weights over steps, which is what is validated and kept; 0 is none
    weight_decay: float = 1e-4
    coupling_weight: float = 0.01  # times the norm of W_hc, added to the loss
    clip: float = 6.0
    steps: int = 4000
    val_every: int = 350  # steps; of all sequences, 175 are an epoch
    patience: int | None = None  # validations without a better one
    margin: float = 1.0
    temperature: float = 1.0
    global_weight: float = 0.1
    val_references: int = 500  # training sequences that a validation looks among
    most_pairs: int | None = None  # that are scored in the end; beyond it, queries and references are thinned


@dataclass
class Record:
    """What happened at each validation: mean loss since the last one, 1-NN accuracy, norm of the coupling."""

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    best: tuple[float, float] = (-1.0, -1.0)  # accuracy, and mean average precision
    best_step: int = 0
    seconds: float = 0.0  # from the start to the last validation, beside the other trainings


class Training:
    """One network, its data and where it stands.

    x (N, T, C), y (N,): training sequences, of one length, and their classes, on the device of ``distance``.
    validation: queries, their labels, references and their labels.
    graphs: on a GPU, record a step and replay it.
    """

    def __init__(
        self,
        settings: Settings,
        distance: lw.Distance,
        x: Tensor,
        y: Tensor,
        validation: tuple[Tensor, Tensor, Tensor, Tensor],
        seed: int,
        *,
        graphs: bool = True,
    ) -> None:
        self.settings, self.distance, self.x, self.y, self.validation = settings, distance, x, y, validation
        device, steps = x.device, settings.steps
        self.loss = lw.losses.Structural(
            settings.margin, settings.temperature, global_weight=settings.global_weight
        )  # fmt: skip
        self.order = shuffled(len(x), settings.batch_size, steps, seed).to(device)  # (steps, B)
        self.rates = falling(settings.lr, settings.decay, steps).to(device)  # (steps,)
        self.taken = torch.zeros(1, dtype=torch.int64, device=device)  # steps so far
        self.losses = torch.zeros(steps, device=device)
        self.rate = torch.full((), settings.lr, device=device)
        self.parameters = list(distance.parameters())
        self.optimizer = torch.optim.Adam(
            self.parameters, lr=settings.lr, weight_decay=settings.weight_decay, capturable=device.type == "cuda"
        )
        self.optimizer.param_groups[0]["lr"] = self.rate  # a tensor, which a graph can change
        self.averages = [each.detach().clone() for each in self.parameters]
        self.record, self.best = Record(), {name: value.clone() for name, value in distance.state_dict().items()}
        self.stopped = False
        self.stream = torch.cuda.Stream() if device.type == "cuda" else None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.graphs = graphs and self.stream is not None

    def step(self) -> None:
        """One step of Adam. Nothing in it reads a number, so that it can be recorded."""
        chosen = self.order.index_select(0, self.taken)[0]  # (B,)
        loss = self.loss(self.distance.matrix(self.x.index_select(0, chosen)), self.y.index_select(0, chosen))
        if isinstance(self.distance, CoupledGRU):
            loss = loss + self.settings.coupling_weight * coupling_norm(self.distance)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
        self.rate.copy_(self.rates.index_select(0, self.taken)[0])
        self.optimizer.step()
        with torch.no_grad():
            for mean, parameter in zip(self.averages, self.parameters, strict=True):
                mean.lerp_(parameter, 1 - self.settings.average)
        self.losses.index_copy_(0, self.taken, loss.detach()[None])
        self.taken += 1

    def advance(self, done: int) -> None:
        """Take the next step, after ``done`` of them, on the training's own stream."""
        if self.stream is None:
            self.step()
        elif not self.graphs or done < EAGER_STEPS:
            with torch.cuda.stream(self.stream):
                self.step()
        else:
            graph = self.graph = self.graph or self._recorded()
            with torch.cuda.stream(self.stream):
                graph.replay()

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """A step as a graph; it is not taken now."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self.step()
        return graph

    @torch.no_grad()
    def validate(self, done: int, seconds: float) -> None:
        """Score the averaged weights after ``done`` steps, keep them if they are the best, and note how it goes."""
        trained = [each.clone() for each in self.parameters]
        self._set(self.averages)
        self._validate(done, seconds)
        self._set(trained)

    def _set(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.copy_(value)

    def _validate(self, done: int, seconds: float) -> None:
        queries, labels, references, reference_labels = self.validation
        scores = lw.evaluate(self.distance, (queries, labels), (references, reference_labels))
        record, found = self.record, (scores.accuracy, scores.map)
        last = record.steps[-1] if record.steps else 0
        record.steps.append(done)
        record.losses.append(statistics.mean(self.losses[last:done].tolist()))
        record.accuracies.append(scores.accuracy)
        if isinstance(self.distance, CoupledGRU):
            record.norms.append(float(coupling_norm(self.distance)))
        record.seconds = seconds
        if found > record.best:
            record.best, record.best_step = found, done
            self.best = {name: value.clone() for name, value in self.distance.state_dict().items()}
        patience = self.settings.patience
        self.stopped = patience is not None and len(record.steps) - 1 - record.steps.index(record.best_step) >= patience


def train_together(trainings: Sequence[Training], *, verbose: bool = False) -> None:
    """Train until each has taken its steps or stopped; each network then has its best weights."""
    start, on_gpu = time.perf_counter(), any(training.stream is not None for training in trainings)
    most = max((training.settings.steps for training in trainings), default=0)
    if on_gpu:
        torch.cuda.synchronize()  # the streams begin where the data are there
    for done in range(most):
        running = [training for training in trainings if not training.stopped and done < training.settings.steps]
        for training in running:
            training.advance(done)
        due = [t for t in running if (done + 1) % t.settings.val_every == 0 or done + 1 == t.settings.steps]
        if due and on_gpu:
            torch.cuda.synchronize()
        for training in due:
            training.validate(done + 1, time.perf_counter() - start)
        if due and on_gpu:
            torch.cuda.synchronize()
        if due and verbose:
            scores = " ".join(f"{training.record.accuracies[-1]:.3f}" for training in due)
            print(f"step {done + 1}, {time.perf_counter() - start:.0f} s: {scores}", flush=True)
    for training in trainings:
        training.distance.load_state_dict(training.best)
        training.graph = None


def shuffled(items: int, batch_size: int, steps: int, seed: int) -> Tensor:
    """Indices (steps, batch_size) of batches: of all items in a new order again and again, less a smaller last batch.

    Example:
        >>> shuffled(5, 2, steps=4, seed=0).shape
        torch.Size([4, 2])
    """
    generator, size = torch.Generator().manual_seed(seed), min(batch_size, items)
    epochs = [
        torch.randperm(items, generator=generator)[: items // size * size].reshape(-1, size)
        for _ in range(-(-steps // (items // size)))
    ]
    return torch.cat(epochs)[:steps]


def falling(lr: float, decay: float, steps: int) -> Tensor:
    """The learning rate at each step, (steps,): constant, then falling to zero in a line over a share of the steps.

    Example:
        >>> falling(1.0, 0.5, 4)
        tensor([1.0000, 1.0000, 1.0000, 0.5000])
    """
    left = (steps - torch.arange(steps)) / max(1.0, decay * steps)
    return lr * left.clamp(max=1.0)
