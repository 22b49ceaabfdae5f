"""Learner: the LightningModule behind ``fit``. Imported when fit is called: it brings Lightning."""

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn

from likewise import _check
from likewise.data.batch import Batch
from likewise.losses.vector_loss import VectorLoss
from likewise.models.metric import Metric, take, tensors_of
from likewise.training.batches import Batches, Chosen, seed_of
from likewise.training.checkpoint import CHECKPOINT, Checkpoint, Progress, optimizer_state, put_optimizer_state
from likewise.training.history import History, Score
from likewise.training.ranks import Ranks
from likewise.training.report import Report
from likewise.training.step import Augment, Step, Term, take_step
from likewise.training.validation import Validation

Loss = Callable[..., Tensor]
OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
SchedulerFactory = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]


@dataclass(frozen=True)
class Plan:
    """What ``fit`` was asked to do, checked."""

    items: Batch | Tensor
    labels: Tensor
    batches: Batches
    validation: Validation | None
    optimizer: OptimizerFactory
    scheduler: SchedulerFactory | None
    augment: Augment | None
    epochs: int
    val_every: int
    patience: int | None
    monitor: str
    folder: Path | None
    checkpoint_every: int | None
    seed: int
    settings: dict[str, int] = field(default_factory=dict)
    layers: Sequence[str] = ()  # of the encoder, that terms look at
    groups: Callable[[], list[dict[str, Any]]] | None = None  # of parameters, with learning rates of their own


class Together(DDPStrategy):
    """Several processes that start alike and gather what they compute; see Ranks. Nothing is wrapped."""

    def configure_ddp(self) -> None:
        """Give every process the weights of the first."""
        assert self.model is not None
        with torch.no_grad():
            for tensor in (*self.model.parameters(), *self.model.buffers()):
                torch.distributed.broadcast(tensor, 0)


class Learner(LightningModule):
    """Trains a metric: a step for each batch, a validation and a checkpoint after epochs."""

    def __init__(self, metric: Metric, loss: Loss | None, terms: Sequence[Term], plan: Plan, report: Report) -> None:
        super().__init__()
        self.metric = metric
        self.loss = loss
        self.terms = list(terms)
        self.modules_of_terms = nn.ModuleList(term for term in terms if isinstance(term, nn.Module))
        self.plan = plan
        self.report = report
        self.done = Progress()
        self.best: dict[str, Tensor] | None = None
        self._resumed: Checkpoint | None = None
        self._scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
        self._clock = 0.0

    @property
    def history(self) -> History:
        """Losses and scores so far."""
        return self.done.history

    @property
    def ranks(self) -> Ranks:
        """Which of the processes that train together this one is."""
        return Ranks(self.trainer.global_rank, self.trainer.world_size)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint when training starts."""
        self.done, self.best = checkpoint.progress, checkpoint.best
        self.load_state_dict(checkpoint.model)
        self._resumed = checkpoint

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimiser, over everything that can be learned."""
        groups = self.plan.groups
        given = [p for p in self.parameters() if p.requires_grad] if groups is None else groups()
        optimizer = self.plan.optimizer(given)  # type: ignore[arg-type]
        if self.plan.scheduler is not None:
            self._scheduler = self.plan.scheduler(optimizer)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
                for _ in range(self.done.epoch):  # to where the run was: schedules are functions of the epoch
                    self._scheduler.step()
        return optimizer

    def on_train_start(self) -> None:
        """Take up the optimiser's state, or write the first checkpoint."""
        if self._resumed is not None:
            where = str(self._path)
            put_optimizer_state(where, self._optimizer, self._resumed.optimizer)
            if self._resumed.precision:
                self.trainer.precision_plugin.load_state_dict(self._resumed.precision)  # type: ignore[arg-type]
            self._resumed = None
        else:
            self._write_checkpoint()
        if self.trainer.is_global_zero:
            self.report.start(self.done.epoch)
        self._clock = time.perf_counter() - self.done.seconds

    def transfer_batch_to_device(self, batch: Chosen, device: torch.device, dataloader_idx: int) -> Chosen:
        """Leave indices where they are: the metric moves the items that it encodes."""
        return batch

    def training_step(self, chosen: Chosen) -> Tensor:
        """The loss of one batch."""
        plan, done, ranks = self.plan, self.done, self.ranks
        # Every step has its own randomness: a resumed run needs no state of a generator.
        torch.manual_seed(seed_of(plan.seed, done.epoch, done.step, ranks.rank))
        batch, labels = take(plan.items, chosen.index), plan.labels[chosen.index]
        augmented = None
        if plan.augment is not None:
            generator = torch.Generator().manual_seed(seed_of(plan.seed, done.epoch, done.step))
            augmented = plan.augment(batch, generator)  # type: ignore[arg-type]
        with self._place(chosen):
            step = take_step(
                self.metric,
                batch,
                labels,
                augmented=augmented,
                matrix=self.loss is not None and not isinstance(self.loss, VectorLoss),
                ranks=ranks,
                epoch=done.epoch,
                total=done.total,
                layers=plan.layers,
            )
            loss = self._value(step)
            value = loss.item()
            if not math.isfinite(value):
                raise ValueError(f"the loss is {value}; lower lr, or clip gradients with clip=1.0")
        if step.D is not None:
            plan.batches.update(step.D, labels)
        done.loss_sum += value
        return loss

    def on_after_backward(self) -> None:
        """Share the gradients."""
        if self.ranks.size > 1:
            self.ranks.average(self.parameters())

    def on_train_batch_end(self, outputs: Any, batch: Chosen, batch_idx: int) -> None:
        """Count the step; write a checkpoint where one is due."""
        self.done.step += 1
        self.done.total += 1
        every = self.plan.checkpoint_every
        if every and self.done.total % every == 0 and not batch.last:
            self._write_checkpoint()

    def on_train_epoch_end(self) -> None:
        """Validate, keep the best weights, log, write a checkpoint, and see whether it is time to stop."""
        plan, done = self.plan, self.done
        if not done.step:
            _check.refuse("fit", "the sampler gave no batch")
        loss = done.loss_sum / done.step
        done.epoch += 1
        done.step, done.loss_sum = 0, 0.0
        if self._scheduler is not None:
            self._scheduler.step()
        score = None
        if plan.validation is not None and (done.epoch % plan.val_every == 0 or done.epoch == plan.epochs):
            score = Score(done.epoch, *plan.validation.score(self.metric, self.ranks))
            self._judge(score)
        seconds, self._clock = time.perf_counter() - self._clock, time.perf_counter()
        self.history.losses.append(loss)
        self.history.seconds.append(seconds)
        plan.batches.start(done.epoch)
        self._log(loss, seconds, score)
        self._write_checkpoint()
        self.trainer.should_stop = self.history.stopped

    def on_fit_end(self) -> None:
        """Leave the terminal as it was."""
        self.report.close()

    def weights(self) -> dict[str, Tensor]:
        """All parameters and buffers, copied to the CPU."""
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors_of(self).items()}

    @contextmanager
    def _place(self, chosen: Chosen) -> Iterator[None]:
        """Let errors say in which step they came up: weights that diverge often show in a distance first."""
        try:
            yield
        except ValueError as error:
            place = f"epoch {self.done.epoch + 1}, step {self.done.step + 1}, items {chosen.index[:4].tolist()}..."
            raise ValueError(f"fit: in {place}: {error}") from error

    def _parts(self, step: Step) -> list[Tensor]:
        """The terms, and the loss if there is one."""
        if isinstance(self.loss, VectorLoss):
            with self.loss.sharing():
                terms = [term(step) for term in self.terms]
                return [*terms, self.loss(step.features, step.labels)]  # type: ignore[arg-type]
        terms = [term(step) for term in self.terms]
        if self.loss is None:
            return terms
        more = () if step.augmented is None else (step.labels,)
        return [*terms, self.loss(step.D, step.labels, *more)]

    def _value(self, step: Step) -> Tensor:
        parts = self._parts(step)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        if not isinstance(total, Tensor) or total.ndim:
            got = f"shape {tuple(total.shape)}" if isinstance(total, Tensor) else type(total).__name__
            raise TypeError(f"fit: expected the loss and its terms to be scalar tensors, got {got}")
        if not total.requires_grad:
            if total != 0:
                raise TypeError("fit: the loss does not depend on what is trained: it carries no gradient")
            features = step.features.values if isinstance(step.features, Batch) else step.features
            total = total + 0 * features.sum()  # a batch that there is nothing to learn from
        return total

    def _judge(self, score: Score) -> None:
        """Note a score, and the weights if it is the best."""
        history, best = self.history, self.history.best
        history.scores.append(score)
        if best is None or _rank(score, self.plan.monitor) > _rank(best, self.plan.monitor):
            history.best_epoch, self.done.waited = score.epoch, 0
            self.best = self.weights()
            if self._path is not None and self.trainer.is_global_zero:
                self.metric.save(self._path.parent)
        else:
            self.done.waited += 1
        history.stopped = self.plan.patience is not None and self.done.waited >= self.plan.patience

    def _log(self, loss: float, seconds: float, score: Score | None) -> None:
        if not self.trainer.is_global_zero:
            return
        epoch = self.done.epoch
        self.report.epoch(epoch, loss, seconds, score)
        numbers = {"loss": loss, "lr": self._optimizer.param_groups[0]["lr"], "epoch": epoch}
        if score is not None:
            numbers |= {"accuracy": score.accuracy, "map": score.map}
        for logger in self.trainer.loggers:
            logger.log_metrics(numbers, step=self.done.total)
            logger.save()
        if self._path is not None:
            self.history.write_csv(self._path.with_name("log.csv"))

    def _write_checkpoint(self) -> None:
        if self._path is None or not self.trainer.is_global_zero:
            return
        self.done.seconds = time.perf_counter() - self._clock if self.done.step else 0.0
        Checkpoint(
            self.done,
            tensors_of(self),
            self.best,
            optimizer_state(self._optimizer),
            self.plan.batches.state(self.done.step),
            self.trainer.precision_plugin.state_dict(),
            self.plan.settings,
        ).write(self._path)

    @property
    def _path(self) -> Path | None:
        return None if self.plan.folder is None else self.plan.folder / CHECKPOINT

    @property
    def _optimizer(self) -> torch.optim.Optimizer:
        return self.trainer.optimizers[0]


def _rank(score: Score, monitor: str) -> tuple[float, float]:
    """What is compared: the monitored number, and the other one where that is equal."""
    return (score.accuracy, score.map) if monitor == "accuracy" else (score.map, score.accuracy)
