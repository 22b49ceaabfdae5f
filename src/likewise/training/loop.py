"""The training loop of ``fit``, on Lightning Fabric. It is imported only when fit is called."""

import importlib.util
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn

from likewise import _check
from likewise._output import remove_leftovers
from likewise.losses.vector_loss import VectorLoss
from likewise.models.config import describe
from likewise.models.metric import CONFIG, WEIGHTS, Metric, put_tensors, tensors_of
from likewise.training.averaging import MovingAverage
from likewise.training.batch_norm import together
from likewise.training.batches import Batches, Chosen, seed_of
from likewise.training.checkpoint import (
    CHECKPOINT,
    Checkpoint,
    Progress,
    functions_state,
    optimizer_state,
    put_functions_state,
    put_optimizer_state,
)
from likewise.training.history import History, Score
from likewise.training.options import Checkpoints, OptimizerFactory, Schedule
from likewise.training.ranks import Ranks
from likewise.training.report import Report
from likewise.training.signals import Stop, StoppedError, listening
from likewise.training.source import Source
from likewise.training.step import Augment, Loss, Step, StepFunction, Term
from likewise.training.validation import Examiner

LOG = "log.csv"


class Trained(nn.Module):
    """All trained parts as one module: the metric, and the loss, terms and step if they are modules."""

    def __init__(self, metric: Metric, loss: object, functions: Sequence[object]) -> None:
        super().__init__()
        self.metric = metric
        self.loss = loss if isinstance(loss, nn.Module) else None
        self.functions = nn.ModuleList([part for part in functions if isinstance(part, nn.Module)])


@dataclass(frozen=True)
class Plan:
    """The checked arguments of ``fit``."""

    metric: Metric
    source: Source
    batches: Batches
    loss: Loss | None
    step: StepFunction | None
    terms: Sequence[Term]
    augment: Augment | None
    epochs: int
    examiner: Examiner | None
    optimizer: OptimizerFactory
    groups: Callable[[], list[dict[str, Any]]] | None  # parameter groups with their learning rates
    clip: float | None
    schedule: Schedule | None
    schedule_per_step: bool
    average: float | None
    checkpoints: Checkpoints | None
    seed: int
    verbose: bool
    fabric: dict[str, Any]
    settings: dict[str, int] = field(default_factory=dict)  # must not change when the run is resumed
    layers: tuple[str, ...] = ()  # layers of the encoder that steps and terms use


class Together(DDPStrategy):
    """Several processes that start with the same weights and gather their results; see Ranks. No module is wrapped."""

    def setup_module(self, module: nn.Module) -> nn.Module:  # type: ignore[override]
        """Copy the weights of the first process to all."""
        with torch.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                torch.distributed.broadcast(tensor, 0)
        return module


class Loop:
    """The state of a run: the weights, the optimiser, and the progress."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.folder = None if plan.checkpoints is None else plan.checkpoints.folder  # where files go
        self.trained = Trained(plan.metric, plan.loss, [*plan.terms, plan.step])
        self.done = Progress()
        self.best: dict[str, Tensor] | None = None
        resumed = self._open_folder()
        self.finished = self.done.epoch >= plan.epochs or self.done.history.stopped
        self.fabric = make_fabric(plan)
        if self.folder is not None and self.fabric.is_global_zero:
            for name in (CHECKPOINT, LOG, CONFIG, WEIGHTS):
                remove_leftovers(self.folder / name)
        if self.finished:
            return
        self.fabric.launch()
        self.ranks = Ranks(self.fabric.global_rank, self.fabric.world_size)
        self.model = self.fabric.setup_module(self.trained)
        parameters = [p for p in self.trained.parameters() if p.requires_grad]
        optimizer = plan.optimizer(parameters if plan.groups is None else plan.groups())
        self.schedule = None if plan.schedule is None else plan.schedule(optimizer)
        self.optimizer: Any = self.fabric.setup_optimizers(optimizer)
        self.average = None if plan.average is None else MovingAverage(self.trained, plan.average)
        every = 1 if plan.examiner is None else max(1, int(plan.examiner.settings.every))
        self.report = Report(plan.epochs, verbose=plan.verbose and self.fabric.is_global_zero, every=every)
        self.clock = time.perf_counter() - self.done.seconds
        put_functions_state((*plan.terms, plan.step), {} if resumed is None else resumed.functions, self.fabric.device)
        if resumed is None:
            self.write_checkpoint()
        else:
            self._take_up(resumed)

    def run(self) -> History:
        """Train: the loop."""
        plan, done, fabric, optimizer = self.plan, self.done, self.fabric, self.optimizer
        self.trained.train()
        with listening(self.report.say) as stop:
            self.report.start(done.epoch)
            self.validate_if_due(stop)  # the run may have been stopped before the validation
            while done.epoch < plan.epochs and not done.history.stopped:
                for chosen, batch in self.batches():
                    step = self.make_step(chosen, batch)
                    loss = self.value_of(step, chosen)
                    optimizer.zero_grad()
                    fabric.backward(loss)
                    if self.ranks.size > 1:
                        self.ranks.average(self.trained.parameters())
                    if plan.clip is not None:
                        fabric.clip_gradients(self.model, optimizer, max_norm=plan.clip, error_if_nonfinite=False)
                    optimizer.step()
                    if self.schedule is not None and plan.schedule_per_step:
                        self.schedule.step()
                    if self.average is not None:
                        self.average.update()
                    done.step += 1
                    done.total += 1
                    done.ended = chosen.last
                    self.stop_if_asked(stop)
                    self.validate_if_due(stop)
                    if done.history.stopped:
                        break
                    self.write_checkpoint_if_due()
                self.end_epoch()
        return done.history

    def batches(self) -> Iterator[tuple[Chosen, Any]]:
        """The remaining batches of this epoch."""
        if self.done.ended:  # the run stopped after the last step, but before the end of the epoch
            return iter(())
        plan, done = self.plan, self.done
        return plan.source.batches(plan.batches, seed_of(plan.seed, done.epoch), done.step, self.ranks)

    def make_step(self, chosen: Chosen, batch: Any) -> Step:
        """The Step for a batch. Every step has its own seed, so a resumed run needs no generator state."""
        plan, done, device = self.plan, self.done, self.fabric.device
        torch.manual_seed(seed_of(plan.seed, done.epoch, done.step, self.ranks.rank))
        return Step(
            plan.metric,
            batch,
            plan.source.codes[chosen.index].to(device, non_blocking=device.type == "cuda"),
            loss=plan.loss,
            index=chosen.index,
            augment=plan.augment,
            generator=torch.Generator().manual_seed(seed_of(plan.seed, done.epoch, done.step)),
            epoch=done.epoch,
            total=done.total,
            layers=plan.layers,
            ranks=self.ranks,
        )

    def value_of(self, step: Step, chosen: Chosen) -> Tensor:
        """The loss of a step and its terms."""
        plan, done = self.plan, self.done
        with self._place(chosen), self.fabric.autocast(), together(self.trained, self.ranks):
            with plan.loss.sharing() if isinstance(plan.loss, VectorLoss) else nullcontext():
                parts = [function(step) for function in (*plan.terms, plan.step) if function is not None]
            loss = self._checked(sum(parts[1:], parts[0]))
            value = loss.item()
            if not math.isfinite(value):
                raise ValueError(f"the loss is {value}; lower lr, or clip gradients: optimizer=Optimization(clip=1.0)")
        if "D" in step.__dict__:  # if it was computed
            plan.batches.update(step.D, step.labels)
        done.loss_sum += value
        return loss

    def stop_if_asked(self, stop: Stop) -> None:
        """After a signal, write a checkpoint and stop."""
        if self.ranks.any(stop.signal is not None, self.fabric.device):
            self.write_checkpoint()
            raise stop.exception()

    def validate_if_due(self, stop: Stop) -> None:
        """Validate the metric if it is time, record its score, and keep its weights if it is the best."""
        examiner, done, plan = self.plan.examiner, self.done, self.plan
        if examiner is None or done.judged == done.total:
            return
        batches = plan.batches.count
        settings = examiner.settings
        if done.total == 0 and not settings.before:
            return
        if done.total and not settings.due(
            done.epoch, done.step, done.total, ended=done.ended, batches=batches, epochs=plan.epochs
        ):
            return
        try:
            with self.average.in_place() if self.average is not None else nullcontext():
                with stop.interruptible() if self.ranks.size == 1 else nullcontext():
                    numbers = examiner.measure(plan.metric, self.ranks)
                better = examiner.better(numbers, None if done.history.best is None else done.history.best.numbers)
                weights = self.weights() if better else None
                if better and self.folder is not None and self.fabric.is_global_zero:
                    plan.metric.save(self.folder)
        except StoppedError:
            self.write_checkpoint()
            raise stop.exception() from None
        whole = done.ended or not done.step
        epoch = done.epoch + int(done.ended) if whole else done.epoch + done.step / (batches or math.inf)
        done.history.scores.append(Score(epoch, done.total, numbers))
        done.judged = done.total
        if better:
            done.history.best_step, done.waited, self.best = done.total, 0, weights
        else:
            done.waited += 1
        done.history.stopped = settings.patience is not None and done.waited >= settings.patience

    def end_epoch(self) -> None:
        """Record the epoch, log it, and write a checkpoint."""
        done, history = self.done, self.done.history
        if not done.step:
            _check.refuse("fit", "the sampler yielded no batch")
        history.losses.append(done.loss_sum / done.step)
        now = time.perf_counter()
        history.seconds.append(now - self.clock)
        self.clock = now
        done.epoch += 1
        done.step, done.loss_sum, done.ended = 0, 0.0, False
        if self.schedule is not None and not self.plan.schedule_per_step:
            self.schedule.step()
        self.plan.batches.start(done.epoch)
        self.log()
        self.write_checkpoint()

    def log(self) -> None:
        """Write the last epoch to the report, the loggers and log.csv."""
        if not self.fabric.is_global_zero:
            return
        done, history = self.done, self.done.history
        score = history.scores[-1] if history.scores and history.scores[-1].step == done.total else None
        self.report.epoch(done.epoch, history.losses[-1], history.seconds[-1], score)
        numbers = {"loss": history.losses[-1], "lr": self.optimizer.param_groups[0]["lr"], "epoch": done.epoch}
        self.fabric.log_dict(numbers | (score.numbers if score else {}), step=done.total)
        for logger in self.fabric.loggers:
            logger.save()
        if self.folder is not None:
            history.write_csv(self.folder / LOG)

    def weights(self) -> dict[str, Tensor]:
        """All parameters and buffers, copied to the CPU."""
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors_of(self.trained).items()}

    def write_checkpoint_if_due(self) -> None:
        """Write a checkpoint within an epoch; one is always written at its end."""
        every = None if self.plan.checkpoints is None else self.plan.checkpoints.every
        if every and self.done.total % every == 0 and not self.done.ended:
            self.write_checkpoint()

    def write_checkpoint(self) -> None:
        """Write a checkpoint to resume from here."""
        if self.folder is None or not self.fabric.is_global_zero:
            return
        self.done.seconds = time.perf_counter() - self.clock if self.done.step else 0.0
        Checkpoint(
            self.done,
            tensors_of(self.trained),
            self.best,
            None if self.average is None else self.average.tensors,
            optimizer_state(self.optimizer.optimizer),
            self.plan.batches.state(self.done.step),
            self.fabric.strategy.precision.state_dict(),
            self.plan.settings,
            functions_state((*self.plan.terms, self.plan.step)),
        ).write(self.folder / CHECKPOINT)

    def finish(self) -> None:
        """Put the best weights, or the last ones, into the metric and the folder."""
        kept = self.best
        if kept is None and not self.finished and self.average is not None:
            kept = self.average.tensors
        if kept is not None:
            put_tensors(self.trained, kept)
        if self.folder is not None and (self.finished or self.fabric.is_global_zero):
            self.plan.metric.save(self.folder)
        if not self.finished:
            self.fabric.barrier()  # no process may continue, for example to read the folder, before it is written

    def _open_folder(self) -> Checkpoint | None:
        """Read the checkpoint to resume from, or make the folder."""
        plan = self.plan
        plan.batches.start(0)
        if plan.checkpoints is None or self.folder is None:
            return None
        describe(plan.metric)  # fail before training if the metric cannot be saved
        path = self.folder / CHECKPOINT
        own = tensors_of(self.trained)
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            return None
        if not plan.checkpoints.resume:
            hint = "resume it with Checkpoints(folder, resume=True), or give another folder"
            _check.refuse("fit", f"{self.folder} has a checkpoint of an earlier run; {hint}")
        found = Checkpoint.read(path, own, plan.settings)
        if (found.average is None) != (plan.average is None):
            was = "without" if found.average is None else "with"
            _check.refuse("fit", f"{path} is from a run {was} average=; use that, or another folder")
        self.done, self.best = found.progress, found.best
        put_tensors(self.trained, found.model)
        if self.done.epoch >= plan.epochs and found.average is not None:
            put_tensors(self.trained, found.average)
        plan.batches.start(self.done.epoch, self.done.step, found.sampler)
        return found

    def _take_up(self, found: Checkpoint) -> None:
        """Restore the state of the schedule, the optimiser, the average and the precision."""
        if self.schedule is not None:
            self.optimizer.optimizer.step()  # no effect without gradients; schedules expect it
            for _ in range(self.done.total if self.plan.schedule_per_step else self.done.epoch):
                self.schedule.step()
        put_optimizer_state(f"{self.folder}/{CHECKPOINT}", self.optimizer.optimizer, found.optimizer)
        if self.average is not None and found.average is not None:
            self.average.load(found.average)
        if found.precision:
            self.fabric.strategy.precision.load_state_dict(found.precision)  # type: ignore[arg-type]

    def _checked(self, loss: Any) -> Tensor:
        if not isinstance(loss, Tensor) or loss.ndim:
            got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise TypeError(f"fit: expected the loss and its terms to be scalar tensors, got {got}")
        if not loss.requires_grad:
            if loss != 0:
                raise TypeError("fit: the loss does not depend on any trained parameter: it has no gradient")
            # The batch has no useful pairs.
            loss = loss + sum(0 * p.sum() for p in self.trained.parameters() if p.requires_grad)
        return loss

    @contextmanager
    def _place(self, chosen: Chosen) -> Iterator[None]:
        """Add the step to errors: diverging weights often show up in a distance first."""
        try:
            yield
        except ValueError as error:
            place = f"epoch {self.done.epoch + 1}, step {self.done.step + 1}, items {chosen.index[:4].tolist()}..."
            raise ValueError(f"fit: in {place}: {str(error).removeprefix('fit: ')}") from error


def make_fabric(plan: Plan) -> Fabric:
    """Fabric with the user's arguments; by default one device, and TensorBoard if it is installed."""
    options: dict[str, Any] = {"devices": 1} | plan.fabric
    devices = options["devices"]
    several = len(devices) > 1 if isinstance(devices, list) else devices not in (1, "1")
    several = several or options.get("num_nodes", 1) != 1
    if several and "strategy" not in options:
        options["strategy"] = Together()
    if "loggers" not in options and plan.checkpoints is not None and importlib.util.find_spec("tensorboard"):
        from lightning.fabric.loggers.tensorboard import TensorBoardLogger

        options["loggers"] = TensorBoardLogger(plan.checkpoints.folder, name="tensorboard", version="")
    return Fabric(**options)


def train(plan: Plan) -> History:
    """Run a plan. Afterwards the modules are in eval mode, on their original device."""
    device = next((parameter.device for parameter in plan.metric.parameters()), None)
    loop = Loop(plan)
    try:
        if not loop.finished:
            loop.run()
    finally:
        if not loop.finished:
            loop.report.close()
        if device is not None:
            loop.trained.to(device)
        loop.trained.eval()
    loop.finish()
    return loop.done.history
