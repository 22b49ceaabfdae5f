"""fit: train a metric on items in memory."""

import importlib.util
import logging
import signal
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from likewise import _check
from likewise.data.samplers import Shuffled
from likewise.distances.distance import Distance
from likewise.models.config import describe
from likewise.models.metric import Items, Metric, as_items, put_tensors, tensors_of
from likewise.training.batches import Batches, seed_of
from likewise.training.checkpoint import CHECKPOINT, Checkpoint
from likewise.training.history import History
from likewise.training.rates import parameter_groups
from likewise.training.report import Report
from likewise.training.step import Augment, Term
from likewise.training.validation import Validation, as_labels

if TYPE_CHECKING:
    from likewise.training.learner import Learner, Loss, OptimizerFactory, Plan, SchedulerFactory


def fit(
    metric: Distance,
    train: Items,
    labels: object,
    loss: "Loss | None",
    *,
    val: tuple[object, ...] | Validation | None = None,
    epochs: int = 100,
    batch_size: int = 64,
    lr: float | Mapping[str, float] = 1e-4,
    weight_decay: float = 1e-4,
    clip: float | None = None,
    sampler: Iterable[Any] | None = None,
    augment: Augment | None = None,
    terms: Sequence[Term] = (),
    adversary: Term | None = None,
    optimizer: "OptimizerFactory | None" = None,
    scheduler: "SchedulerFactory | None" = None,
    val_every: int = 1,
    patience: int | None = None,
    monitor: str = "accuracy",
    folder: str | Path | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    seed: int = 0,
    precision: str = "32-true",
    accelerator: str = "auto",
    devices: int | str | list[int] = 1,
    verbose: bool = True,
    trainer: Mapping[str, Any] | None = None,
) -> History:
    """Train a metric in place, on Lightning, and return the History.

    A step encodes a batch, builds its matrix of distances D (B, B), and lowers loss(D, labels). In the end the metric
    has the best weights if there was a validation, the last ones otherwise, and is in eval mode, on its device.

    metric: a Metric, or any Distance that has parameters.
    train, labels: items in memory (a Batch, a tensor (N, T, C), a list of sequences, images (N, C, H, W)) and their
        classes (N,), whole numbers; None makes every item a class of its own. Items may live on a GPU already.
    loss: function of (D, row_labels) or, with augment, of (D, row_labels, col_labels); None for terms alone. A module's
        parameters are trained too. A VectorLoss sees what the encoder gives, (B, C), and the labels instead.
    val: (X, y), queries whose 1-NN accuracy and mean average precision against the training items are measured every
        ``val_every`` epochs, or (X, y, references, reference_labels). The best weights by ``monitor``, "accuracy" or
        "map", are kept, the other number deciding between equals; after ``patience`` validations without a better one,
        training ends. An EpisodeValidation judges by few-shot episodes instead.
    batch_size, sampler: shuffled batches of batch_size, the last one dropped if it is smaller, or those of a sampler
        that gives lists of indices when iterated (and has, if it likes, set_epoch, state_dict and load_state_dict).
    lr, weight_decay, clip: of Adam, and the largest norm of the gradient. ``optimizer`` is a function of the parameters
        that replaces Adam, ``scheduler`` one of the optimiser, whose step() is called after every epoch. Parts learn at
        rates of their own with lr={"encoder.backbone": 1e-4, "loss": 1e-2, "rest": 1e-3}: names of modules in
        "encoder", "distance", "loss", "terms.0" and so on, or "adversary"; an optimizer then gets groups of parameters.
    augment: function of (batch, generator) that returns an object with ``batch`` and ``plans``. The diagonal of D is
        then (d(x, x^) + d(x^, x)) / 2 for original and augmented items.
    terms: functions of a Step that give scalars, added to the loss. Parameters of those that are modules are trained.
    adversary: one more term, a ClassAdversary say, that keeps features from fitting the training classes too well.
    folder: where the best metric (``Metric.load(folder)``), log.csv, TensorBoard's files if it is installed, and a
        checkpoint go: one after every epoch and every ``checkpoint_every`` steps. Nothing is written without it.
    resume: go on from the folder's checkpoint, if there is one. On the CPU the weights end bit for bit as if the run
        had not been interrupted.
    precision, accelerator, devices: as in Lightning: "bf16-mixed", "gpu", 4. With several devices each batch is shared
        out, and its whole matrix gathered: the result is that of one device with the same batches. (Layers that look
        across a batch, such as batch normalisation, see their device's share only.)
    verbose: a progress bar on a terminal, a line for each validation elsewhere; False for silence.
    trainer: further arguments of lightning.Trainer.

    Example:
        >>> import likewise as lw
        >>> from likewise.models.frame_mlp import FrameMLP
        >>> x, y = torch.randn(20, 6, 2).cumsum(1), torch.arange(20) % 2
        >>> x[y == 1] += 1
        >>> metric = Metric(FrameMLP(2, hidden=8), lw.SoftDTWDivergence())
        >>> def spread(D, labels):
        ...     same = labels[:, None] == labels
        ...     return D[same].mean() - D[~same].mean()
        >>> history = fit(metric, x, y, spread, epochs=2, batch_size=10, lr=0.01, verbose=False)
        >>> len(history.losses)
        2
    """
    if not isinstance(metric, Distance):
        raise TypeError(f"fit: expected metric to be a Metric or a Distance, got {type(metric).__name__}")
    whole = metric if isinstance(metric, Metric) else Metric(None, metric)
    items = as_items("fit", "train", train)
    known = None if labels is None else as_labels("labels", labels, len(items))
    every = [*terms] if adversary is None else [*terms, adversary]
    _check_parts(whole, items, loss, every, monitor)
    folder = None if folder is None else Path(folder)
    batch_size = min(_check.whole("fit", "batch_size", batch_size), len(items))
    settings = {"items": len(items), "batch_size": batch_size, "seed": _check.whole("fit", "seed", seed, least=0)}
    if sampler is None:
        sampler = Shuffled(len(items), batch_size, drop_last=True, seed=seed)
    batches = Batches(sampler, len(items), seed)
    with _quiet(), _own_randomness():
        from likewise.training.learner import Learner, Plan

        known_or_own = torch.arange(len(items)) if known is None else known
        _prepare_terms(every, whole, items, known_or_own, seed)
        groups, rate = None, lr
        if isinstance(lr, Mapping):
            groups, rate = partial(parameter_groups, _parts(whole, loss, terms, adversary), lr), 1.0
            groups()  # a name that is wrong is refused before anything is written
        adam = partial(
            torch.optim.Adam,
            lr=_check.positive("fit", "lr", rate),  # type: ignore[arg-type]
            weight_decay=_check.not_negative("fit", "weight_decay", weight_decay),
        )
        plan = Plan(
            items=items,
            labels=known_or_own,
            batches=batches,
            validation=None if val is None else Validation.of(val, items, known),
            optimizer=adam if optimizer is None else optimizer,
            scheduler=scheduler,
            augment=augment,
            epochs=_check.whole("fit", "epochs", epochs),
            val_every=_check.whole("fit", "val_every", val_every),
            patience=None if patience is None else _check.whole("fit", "patience", patience),
            monitor=monitor,
            folder=folder,
            checkpoint_every=None
            if checkpoint_every is None
            else _check.whole("fit", "checkpoint_every", checkpoint_every),
            seed=seed,
            settings=settings,
            layers=sorted({name for term in every for name in getattr(term, "layers", ())}),
            groups=groups,
        )
        options = {
            "precision": precision,
            "accelerator": accelerator,
            "devices": devices,
            "gradient_clip_val": None if clip is None else _check.positive("fit", "clip", clip),
        }
        learner = Learner(whole, loss, every, plan, Report(epochs, verbose=verbose, every=val_every))
        return _train(learner, plan, resume, options | dict(trainer or {}))


def _train(learner: "Learner", plan: "Plan", resume: bool, options: dict[str, Any]) -> History:
    metric, device = learner.metric, _device(learner.metric)
    _prepare_folder(learner, plan, resume)
    learner.train()  # Lightning keeps the mode that a module comes in: eval, if it was loaded
    left, trainer = plan.epochs - learner.done.epoch, None
    try:
        if left > 0 and not learner.history.stopped:
            trainer = _trainer(options, plan.folder, left)
            _run(trainer, learner, plan.batches)
    finally:
        if device is not None:
            learner.to(device)
        learner.eval()
    if learner.best is not None:
        put_tensors(learner, learner.best)
    if plan.folder is not None and learner.global_rank == 0:
        metric.save(plan.folder)
    if trainer is not None:
        trainer.strategy.barrier()  # no process goes on, to read the folder say, before it is written
    return learner.history


def _prepare_folder(learner: "Learner", plan: "Plan", resume: bool) -> None:
    plan.batches.start(0)
    if plan.folder is None:
        if resume or plan.checkpoint_every:
            _check.refuse("fit", "resume and checkpoint_every need a folder")
        return
    describe(learner.metric)  # what cannot be saved is refused before the training, not after it
    tensors_of(learner)
    path = plan.folder / CHECKPOINT
    if resume and path.exists():
        checkpoint = Checkpoint.read(path, tensors_of(learner), plan.settings)
        learner.resume(checkpoint)
        plan.batches.start(learner.done.epoch, learner.done.step, checkpoint.sampler)
    elif path.exists():
        _check.refuse(
            "fit", f"{plan.folder} holds a checkpoint of an earlier run; go on with resume=True, or give another folder"
        )
    else:
        plan.folder.mkdir(parents=True, exist_ok=True)


def _trainer(options: dict[str, Any], folder: Path | None, epochs: int) -> Any:
    from lightning import Trainer

    from likewise.training.learner import Together

    devices = options["devices"]
    several = len(devices) > 1 if isinstance(devices, list) else devices not in (1, "1")
    if several and "strategy" not in options:
        options["strategy"] = Together()
    logger: Any = False
    if folder is not None and importlib.util.find_spec("tensorboard") is not None:
        from lightning.pytorch.loggers import TensorBoardLogger

        logger = TensorBoardLogger(folder, name="tensorboard", version="")
    defaults = {
        "max_epochs": epochs,
        "logger": logger,
        "default_root_dir": folder,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "use_distributed_sampler": False,
    }
    return Trainer(**defaults | options)


def _run(trainer: Any, learner: "Learner", batches: Batches) -> None:
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if main else None
    try:
        trainer.fit(learner, train_dataloaders=batches)
    except SystemExit as error:
        # Lightning turns Ctrl-C into an exit, and stops listening to it.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    finally:
        learner.report.close()
        if handler is not None:
            signal.signal(signal.SIGINT, handler)


def _check_parts(metric: Metric, items: object, loss: object, terms: Sequence[Term], monitor: str) -> None:
    if not len(items):  # type: ignore[arg-type]
        _check.refuse("fit", "there are no training items")
    if loss is None and not terms:
        _check.refuse("fit", "give a loss, or terms")
    if loss is not None and not callable(loss):
        raise TypeError(f"fit: expected loss to be a function of (D, labels), got {type(loss).__name__}")
    for i, term in enumerate(terms):
        if not callable(term):
            raise TypeError(f"fit: expected terms[{i}] to be a function of a Step, got {type(term).__name__}")
    modules = [metric, *(part for part in (loss, *terms) if isinstance(part, nn.Module))]
    if not any(parameter.requires_grad for module in modules for parameter in module.parameters()):
        _check.refuse("fit", "there is nothing to learn: neither the metric nor the loss has parameters")
    if monitor not in ("accuracy", "map"):
        _check.refuse("fit", f'monitor must be "accuracy" or "map", got {monitor!r}')


def _prepare_terms(terms: Sequence[Term], metric: Metric, items: Any, labels: torch.Tensor, seed: int) -> None:
    for term in terms:
        if hasattr(term, "prepare"):
            torch.manual_seed(seed_of(seed))  # the run's seed decides its weights, whatever other terms there are
            term.prepare(metric, items, labels)  # type: ignore[attr-defined]


def _parts(metric: Metric, loss: object, terms: Sequence[Term], adversary: Term | None) -> dict[str, nn.Module]:
    """What is trained, by the names that lr may use."""
    named = {"encoder": metric.encoder, "distance": metric.distance, "loss": loss}
    named |= {f"terms.{i}": term for i, term in enumerate(terms)} | {"adversary": adversary}
    return {name: part for name, part in named.items() if isinstance(part, nn.Module)}


def _device(metric: Metric) -> torch.device | None:
    return next((parameter.device for parameter in metric.parameters()), None)


@contextmanager
def _own_randomness() -> Iterator[None]:
    """Leave PyTorch's generators to the caller as they were."""
    before = torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        if before[1]:
            torch.cuda.set_rng_state_all(before[1])


@contextmanager
def _quiet() -> Iterator[None]:
    """Let Lightning say nothing: neither banners nor advice about loaders that fit does not use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import lightning  # noqa: F401, it sets its loggers' levels

    loggers = [logging.getLogger(name) for name in ("lightning", "lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning\..*")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
