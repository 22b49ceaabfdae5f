"""fit: train a metric."""

import difflib
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from likewise import _check
from likewise.data.episodes import Episodes
from likewise.data.samplers import MPerClass, Shuffled
from likewise.distances.distance import Distance
from likewise.distances.tap import PairNetwork
from likewise.distances.training_defaults import TrainingDefaults
from likewise.losses.hard_mining import HardMiningMeans
from likewise.losses.path_loss import PathLoss
from likewise.losses.relative import Relative
from likewise.losses.vector_loss import VectorLoss
from likewise.losses.warp_error import WarpError
from likewise.models.metric import Metric
from likewise.training.batches import Batches, seed_of
from likewise.training.few_shot import EpisodeLoss
from likewise.training.history import History
from likewise.training.options import Checkpoints, Optimization, OptimizerFactory, falling, parameter_groups
from likewise.training.pairs import AlignedPairs
from likewise.training.path_step import path_step
from likewise.training.self_supervised import SelfSupervised
from likewise.training.slow import warn_if_slow
from likewise.training.source import Source
from likewise.training.step import Augment, Loss, StepFunction, Term, matrix_step, vector_step
from likewise.training.validation import examiner

STANDARDIZED = 256  # items used for the mean and deviation of channels

# Arguments that are commonly passed to fit by mistake, and where they belong.
ELSEWHERE = {
    "labels": "the data: fit(metric, (items, labels))",
    "clip": "optimizer=Optimization(clip=...)",
    "weight_decay": "optimizer=Optimization(weight_decay=...)",
    "scheduler": "optimizer=Optimization(schedule=...)",
    "schedule": "optimizer=Optimization(schedule=...)",
    "patience": "val=Validation(..., patience=...)",
    "monitor": "val=Validation(..., monitor=...)",
    "val_every": "val=Validation(..., every=...)",
    "groups": "val=Validation(0.2, groups=...)",
    "folder": "checkpoints=folder",
    "checkpoint_every": "checkpoints=Checkpoints(folder, every=...)",
    "resume": "checkpoints=Checkpoints(folder, resume=True)",
    "adversary": "terms=[...]",
}


def fit(
    metric: Distance,
    train: Any,
    loss: Loss | None = None,
    *,
    val: Any = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | Mapping[str, float] | None = None,
    optimizer: Optimization | OptimizerFactory | None = None,
    sampler: Any = None,
    augment: Augment | None = None,
    step: StepFunction | None = None,
    terms: Sequence[Term] = (),
    average: float | None = None,
    checkpoints: Checkpoints | str | Path | None = None,
    workers: int = 0,
    seed: int = 0,
    verbose: bool = True,
    **fabric: Any,
) -> History:
    """Train a metric in place and return the History.

    A step encodes a batch, builds its matrix of distances D (B, B), and lowers loss(D, labels). Afterwards the metric
    has the best weights if there was a validation, otherwise the last ones. It is in eval mode, on its device. Default
    arguments come from ``metric.training_defaults``. Modules that standardise channels compute the mean and deviation
    of the training items, unless they already have them.

    metric: a Metric, or any Distance that has parameters.
    train: a Dataset or an ImageSet; a pair (items, labels), where labels are numbers or names; a map-style dataset of
        (item, label) that has ``labels``, for data that do not fit in memory; AlignedPairs; or items without labels,
        where each is its own class. Items may be on a GPU.
    loss: function of (D, labels) or, with augment, of (D, row_labels, col_labels); labels are numbered from 0 in the
        order of the classes. A VectorLoss gets the encoder's output (B, C) instead, and a PathLoss the alignments of
        AlignedPairs. A module's parameters are trained too.
    val: a share of the training items, such as 0.2; other items as a Dataset or a pair, of the training classes or of
        new ones; ``HeldOutClasses(0.2)``; a function of the metric, such as an EpisodeValidation; or a Validation of
        one of these, which also sets the interval, the patience, and the score that selects the best weights.
    batch_size, sampler: shuffled batches of batch_size, the last one dropped if it is smaller; or those of a sampler,
        which yields lists of indices (and may have set_epoch, state_dict and load_state_dict); or those of a sampler
        that a function of the labels returns.
    lr: the learning rate, or separate rates for parts, lr={"encoder.backbone": 1e-4, "loss": 1e-2,
        "rest": 1e-3}: names of modules in "encoder", "distance", "loss", "step", "terms.0" and so on.
    optimizer: an Optimization (optimiser, weight decay, clipping, schedule), or a function of the parameters (or of
        parameter groups, if lr has several rates) that returns an optimiser.
    augment: function of (batch, generator) that returns an object with ``batch`` and ``plans``. The diagonal of D is
        then (d(x, x^) + d(x^, x)) / 2 for original and augmented items.
    step: function of a Step that returns a scalar, in place of the loss's usual step. An EpisodeLoss and a
        SelfSupervised are steps.
    terms: more such functions, added to the loss, such as a Regularizer or an adversary. Modules among them are
        trained.
    average: the decay per step of a moving average of the weights, such as 0.99. The average is validated and kept; 0
        disables it.
    checkpoints: a folder for the best metric (``Metric.load(folder)``), log.csv, TensorBoard's files if it is
        installed, and a checkpoint after every epoch; or Checkpoints(folder, every=steps, resume=True). Ctrl-C and
        SIGTERM end the run after the current step, with a checkpoint. By default nothing is written.
    workers: the number of processes that read the items of a map-style dataset ahead of training. Random datasets are
        seeded for each batch, so the results do not depend on workers.
    verbose: show a progress bar on a terminal, or a line for each validation elsewhere.
    fabric: arguments of lightning.Fabric: precision="bf16-mixed", accelerator="gpu", devices=4, strategy, num_nodes,
        loggers, plugins, callbacks. On GPUs, convolutions and TAP may have the precision of TensorFloat-32 unless you
        pass precision="32-true". With several devices each batch is divided among them, and its whole matrix is
        gathered: the result is that of one device with the same batches, batch normalisation included. Each process
        reads only its own part of a map-style dataset.

    Example:
        >>> import likewise as lw
        >>> x, y = torch.randn(20, 6, 2).cumsum(1), ["walk", "run"] * 10
        >>> x[1::2] += 1
        >>> metric = lw.Metric(lw.FrameMLP(2, hidden=8), lw.SoftDTWDivergence())
        >>> history = fit(metric, (x, y), lw.losses.Triplet(), val=0.2, epochs=2, lr=0.01, verbose=False)
        >>> len(history.losses), sorted(history.best.numbers)
        (2, ['accuracy', 'map'])
    """
    if not isinstance(metric, Distance):
        raise TypeError(f"fit: expected metric to be a Metric or a Distance, got {type(metric).__name__}")
    _check_fabric(fabric)
    whole = metric if isinstance(metric, Metric) else Metric(None, metric)
    workers = _check.whole("fit", "workers", workers, least=0)
    defaults, source = whole.training_defaults, Source.of("train", train, workers=workers)
    if not len(source):
        _check.refuse("fit", "there are no training items")
    seed, epochs = _check.whole("fit", "seed", seed, least=0), _whole_or_none("epochs", epochs)
    loss, step = _loss_and_step(whole, source, loss, step, terms, augment, sampler, defaults)
    functions = [*terms, *([] if step is None else [step])]
    _check_parts(whole, loss, step, terms)
    if isinstance(step, SelfSupervised) and not terms:
        step.warn_if_alone(whole)
    validator = None
    if val is not None:
        sampled = sampler is not None and not _makes_sampler(sampler)
        source, validator = examiner(val, source, step=step, loss=loss, sampled=sampled)
    count = len(source)
    batch_size = min(_whole_or_none("batch_size", batch_size) or defaults.batch_size, count)
    order = _sampler(sampler, source, batch_size, defaults, seed)
    batches = Batches(order, count, seed)
    if epochs is None:
        epochs = max(1, round(defaults.steps / max(1, batches.count or count // batch_size)))
    with _own_randomness(), _quiet(not verbose), _exactly(fabric.get("precision")):
        from likewise.training.loop import Plan
        from likewise.training.loop import train as run

        if whole.unprepared:
            whole.prepare(_some(source, seed))
        _prepare(functions, whole, source, seed)
        parts = {"encoder": whole.encoder, "distance": whole.distance, "loss": loss, "step": step}
        parts |= {f"terms.{i}": term for i, term in enumerate(terms)}
        groups, rate = _groups_and_rate(parts, defaults.lr if lr is None else lr)
        steps = epochs * (batches.count or 1)
        given = _default_optimization(defaults, steps) if optimizer is None else optimizer
        options, make = Optimization.of(given, _check.positive("fit", "lr", rate))  # type: ignore[arg-type]
        plan = Plan(
            metric=whole,
            source=source,
            batches=batches,
            loss=loss,
            step=step,
            terms=tuple(terms),
            augment=augment,
            epochs=epochs,
            examiner=validator,
            optimizer=make,
            groups=groups,
            clip=options.clip,
            schedule=options.schedule,
            schedule_per_step=options.per_step,
            average=_share(_default_average(defaults, steps) if average is None else average),
            checkpoints=Checkpoints.of(checkpoints),
            seed=seed,
            verbose=verbose,
            fabric=fabric,
            settings={"items": count, "batch_size": batch_size, "seed": seed},
            layers=tuple(sorted({name for function in functions for name in getattr(function, "layers", ())})),
        )
        if step is matrix_step:
            warn_if_slow(whole, source, getattr(order, "batch_size", batch_size), fabric)
        return run(plan)


def _groups_and_rate(
    parts: Mapping[str, object], lr: float | Mapping[str, float]
) -> tuple[Callable[[], list[dict[str, Any]]] | None, float]:
    """The parameter groups, if parts have separate learning rates, and the learning rate."""
    if not isinstance(lr, Mapping):
        return None, lr
    modules = {name: part for name, part in parts.items() if isinstance(part, nn.Module)}
    groups = partial(parameter_groups, modules, lr)
    groups()  # check the names before anything is written
    return groups, 1.0


def _loss_and_step(
    metric: Metric,
    source: Source,
    loss: Loss | None,
    step: StepFunction | None,
    terms: Sequence[Term],
    augment: Augment | None,
    sampler: Any,
    defaults: TrainingDefaults,
) -> tuple[Loss | None, StepFunction | None]:
    """The loss and the step: as given, or the defaults for the metric and the data."""
    if loss is not None and not callable(loss):
        hint = "; labels go with the items: fit(metric, (items, labels), loss)"
        raise TypeError(f"fit: expected loss to be a function of (D, labels), got {type(loss).__name__}{hint}")
    if step is not None or loss is not None:
        return loss, _choose_step(source.items, loss) if step is None else step
    if isinstance(sampler, Episodes):
        return None, EpisodeLoss(sampler)
    if isinstance(source.items, AlignedPairs):
        loss = WarpError(power=1)
    elif source.labels is not None:
        loss = Relative(HardMiningMeans()) if defaults.loss is None else defaults.loss()
    elif terms:
        return None, None
    elif augment is not None and isinstance(metric.distance, PairNetwork):
        return None, SelfSupervised()
    else:
        _check.refuse("fit", "there are no labels: pass a pair (items, labels), or a step that needs none")
    return loss, _choose_step(source.items, loss)


def _choose_step(items: Any, loss: Any) -> StepFunction | None:
    """The step for this loss and these items; None without a loss."""
    aligned = isinstance(items, AlignedPairs)
    if loss is None:
        return None
    if aligned != isinstance(loss, PathLoss):
        kind = type(loss).__name__
        need = "AlignedPairs need a PathLoss" if aligned else f"{kind} learns from AlignedPairs(x, y, truth)"
        _check.refuse("fit", f"{need}, or your own step; got {'loss ' + kind if aligned else type(items).__name__}")
    if aligned:
        return path_step
    return vector_step if isinstance(loss, VectorLoss) else matrix_step


def _sampler(given: Any, source: Source, batch_size: int, defaults: TrainingDefaults, seed: int) -> Iterable[Any]:
    """The order of the items."""
    if given is not None:
        return given(source.codes.numpy()) if _makes_sampler(given) else given
    each = defaults.per_class
    if each is not None and source.labels is not None:
        ways = min(len(source.codes.unique()), batch_size // each)
        if ways > 1:
            return MPerClass(source.codes, ways * each, each, repeat=True, seed=seed)
    return Shuffled(len(source), batch_size, drop_last=True, seed=seed)


def _makes_sampler(given: Any) -> bool:
    """Whether this is a function of labels, rather than a sampler."""
    return callable(given) and not hasattr(given, "__iter__")


def _default_optimization(defaults: TrainingDefaults, steps: int) -> Optimization:
    schedule = falling(defaults.decay, steps) if defaults.decay else None
    return Optimization(weight_decay=defaults.weight_decay, clip=defaults.clip, schedule=schedule, per_step=True)


def _default_average(defaults: TrainingDefaults, steps: int) -> float | None:
    """Limit the decay, so the initial weights make up at most e^-10 of the final average."""
    if defaults.average is None or steps <= 10:
        return None
    return min(defaults.average, 1 - 10 / steps)


def _some(source: Source, seed: int) -> Any:
    """A random sample of the items, for standardising channels."""
    drawn = torch.randperm(len(source), generator=torch.Generator().manual_seed(seed))[:STANDARDIZED]
    items = source.take(drawn.sort().values)
    return items.x if isinstance(items, AlignedPairs) else items


def _check_parts(metric: Metric, loss: object, step: object, terms: Sequence[Term]) -> None:
    for name, function in [("step", step), *[(f"terms[{i}]", term) for i, term in enumerate(terms)]]:
        if function is not None and not callable(function):
            raise TypeError(f"fit: expected {name} to be a function of a Step, got {type(function).__name__}")
    if [part for part in (step, *terms) if hasattr(part, "prepare")]:
        return  # they may make parameters
    for part in (metric, loss, step, *terms):
        if isinstance(part, nn.Module) and any(parameter.requires_grad for parameter in part.parameters()):
            return
    _check.refuse("fit", "there is nothing to learn: neither the metric nor the loss has parameters")


def _check_fabric(given: Mapping[str, Any]) -> None:
    """Raise an error for arguments that Fabric does not have, with the most similar one."""
    if not given:
        return
    from lightning.fabric import Fabric

    known = set(inspect.signature(Fabric.__init__).parameters) - {"self"}
    for name in given.keys() - known:
        if name in ELSEWHERE:
            raise TypeError(f"fit: got an unexpected argument {name!r}; it belongs to {ELSEWHERE[name]}")
        own = set(inspect.signature(fit).parameters) - {"fabric"}
        near = difflib.get_close_matches(name, own | known, 1)
        hint = (
            f"; did you mean {near[0]!r}?"
            if near
            else f"; fit also takes the arguments of Fabric: {', '.join(sorted(known))}"
        )
        raise TypeError(f"fit: got an unexpected argument {name!r}{hint}")


def _prepare(functions: Sequence[object], metric: Metric, source: Source, seed: int) -> None:
    for function in functions:
        if hasattr(function, "prepare"):
            torch.manual_seed(seed_of(seed))  # the weights depend only on the run's seed
            function.prepare(metric, source.whole(), source.codes)  # type: ignore[attr-defined]


def _whole_or_none(name: str, value: object) -> int | None:
    return None if value is None else _check.whole("fit", name, value)


def _share(average: float | None) -> float | None:
    return None if average is None or average == 0 else _check.fraction("fit", "average", average)


@contextmanager
def _own_randomness() -> Iterator[None]:
    """Restore the state of PyTorch's generators after the block."""
    before = torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        if before[1]:
            torch.cuda.set_rng_state_all(before[1])


@contextmanager
def _exactly(precision: object) -> Iterator[None]:
    """Disable TensorFloat-32 in convolutions if the precision is float32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = before and str(precision) not in ("32", "32-true")
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


@contextmanager
def _quiet(quiet: bool) -> Iterator[None]:
    """Silence Fabric's information messages, such as the processes that it starts, but not its warnings."""
    import lightning.fabric  # noqa: F401, it sets its loggers' levels

    loggers = [logging.getLogger(name) for name in ("lightning", "lightning.fabric", "lightning.pytorch")]
    levels = [logger.level for logger in loggers]
    for logger in loggers if quiet else ():
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
