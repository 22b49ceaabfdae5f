"""Validation: how and when a metric is evaluated during training."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from likewise import _check
from likewise._labels import number_labels
from likewise._modes import evaluating
from likewise.data.overlap import Overlap, overlap
from likewise.data.split import HeldOutClasses, split_items
from likewise.evaluation.evaluate import evaluate
from likewise.evaluation.retrieval import mean_average_precision, nearest_neighbor_accuracy
from likewise.models.metric import CHUNK, Encoded, Metric, take
from likewise.training.pairs import AlignedPairs
from likewise.training.ranks import ALONE, Ranks
from likewise.training.source import Source
from likewise.training.step import Loss, Step, StepFunction

MOST_DISTANCES = 1 << 24  # held at once
Numbers = dict[str, float]
Measure = Callable[[Metric, Ranks], Numbers]


@dataclass(frozen=True)
class Validation:
    """Settings of the validation in ``fit(val=...)``: the data, the interval, and the score.

    data: items that are not trained on. Items of the training data are refused, also if they are copies; a few equal
        items with other ids are only counted in a warning. One of
        a share of the training items, such as 0.2, drawn by class, or by group with ``groups``, and left out of
        training,
        a Dataset or a pair (items, labels) of the training classes: queries, whose 1-NN accuracy and mean average
            precision against the training items are measured,
        a Dataset or a pair of classes that training never sees, or ``HeldOutClasses(share)``, which takes such classes
            out of the training items: Recall@1, MAP@R and MAP, where each item is left out of its own references,
        AlignedPairs, or a share of them: the mean of the path loss,
        a function of the metric that returns a number, or numbers by name; an EpisodeValidation is one.
    every: epochs between validations; a fraction, such as 0.2, validates several times an epoch. The end of the last
        epoch is always validated. every_steps: steps between validations, instead.
    patience: end training after this many validations without improvement.
    monitor: the score that selects the best weights; by default the first one, and the others break ties. lowest:
        smaller is better.
    groups: (N,), the subject of each training item, for a share: no subject is in both parts. The Dataset's groups are
        not used by default. seed: determines the items of a share.
    before: validate before the first step too, so that the metric is unchanged if training only makes it worse.

    Example:
        >>> Validation(0.2, every=5, patience=3, monitor="map").every
        5
    """

    data: Any
    every: float = 1
    patience: int | None = None
    monitor: str | None = None
    lowest: bool = False
    groups: Any = None
    seed: int = 0
    every_steps: int | None = None
    before: bool = False

    def __post_init__(self) -> None:
        op = "Validation"
        every = _check.positive(op, "every", self.every)
        if every > 1 and every != int(every):
            _check.refuse(op, f"every must be a fraction of an epoch or a whole number of epochs, got {self.every}")
        if self.every_steps is not None:
            _check.whole(op, "every_steps", self.every_steps)
        if self.patience is not None:
            _check.whole(op, "patience", self.patience)
        if self.monitor is not None and not isinstance(self.monitor, str):
            raise TypeError(f"{op}: expected monitor to be the name of a number, got {type(self.monitor).__name__}")
        _check.whole(op, "seed", self.seed, least=0)

    def due(self, epoch: int, step: int, total: int, *, ended: bool, batches: int | None, epochs: int) -> bool:
        """Whether it is time after this step of this epoch: ``ended`` after its last one."""
        if ended and epoch + 1 == epochs:
            return True
        if self.every_steps is not None:
            return total % self.every_steps == 0
        if self.every >= 1:
            return ended and (epoch + 1) % int(self.every) == 0
        if ended:
            return True
        if batches is None:
            _check.refuse("fit", f"every={self.every} needs a sampler with a length; give every_steps")
        each = self.every * batches
        return int(step / each + 1e-9) > int((step - 1) / each + 1e-9)


@dataclass(frozen=True)
class Examiner:
    """A prepared validation: ``measure`` returns the scores of a metric."""

    settings: Validation
    measure: Measure
    names: tuple[str, ...] = ()  # names of the scores, if known before the first validation

    def __post_init__(self) -> None:
        monitor = self.settings.monitor
        if monitor is not None and self.names:
            self._check(monitor, self.names)

    def better(self, numbers: Numbers, best: Numbers | None) -> bool:
        """Whether these numbers are better than the best so far."""
        monitor = next(iter(numbers)) if self.settings.monitor is None else self.settings.monitor
        self._check(monitor, tuple(numbers))
        if best is None:
            return True
        order = [monitor, *(name for name in numbers if name != monitor)]
        now, then = (
            [-found[name] if self.settings.lowest else found[name] for name in order] for found in (numbers, best)
        )
        return now > then

    def _check(self, monitor: str, names: tuple[str, ...]) -> None:
        if monitor not in names:
            known = " or ".join(f'"{name}"' for name in names)
            _check.refuse("fit", f"monitor must be {known}, got {monitor!r}")


def examiner(
    val: Any, train: Source, *, step: StepFunction | None, loss: Loss | None, sampled: bool
) -> tuple[Source, Examiner]:
    """The remaining training items and the validation, from the argument of ``fit(val=...)``.

    sampled: whether the user's sampler draws from all training items.
    """
    settings = val if isinstance(val, Validation) else Validation(val)
    data = settings.data
    if isinstance(data, (float, int, np.floating)) and not isinstance(data, bool):
        if train.labels is None and not isinstance(train.items, AlignedPairs):
            _check.refuse("fit", "a share of items without labels cannot be scored; pass a function of the metric")
        rest, held = split_items(
            "fit", train.labels, len(train), float(data), seed=settings.seed, groups=settings.groups
        )
    elif isinstance(data, HeldOutClasses):
        if train.labels is None:
            _check.refuse("fit", "HeldOutClasses needs training items with labels")
        rest, held = data.split(train.labels)
    elif settings.groups is not None:
        _check.refuse("fit", "groups are for a share of the training items, Validation(0.2, groups=...)")
    elif callable(data) and not hasattr(data, "labels"):
        if isinstance(known := getattr(data, "source", None), Source):  # an EpisodeValidation
            _refuse_training_items(known, train)
        return train, Examiner(settings, _by_function(data))
    else:
        return train, _given(settings, data, train, step, loss)
    if sampled:
        _check.refuse(
            "fit",
            "val takes a share of the training items, but the sampler draws from all of them; split the data first, "
            "and build the sampler from the labels of the rest",
        )
    _warn_of_repeats(train, rest, held)
    left, out = train.part(rest), train.part(held)
    if isinstance(train.items, AlignedPairs):
        return left, _of_pairs(settings, out, step, loss)
    if isinstance(data, HeldOutClasses):
        return left, _held_out(settings, out)
    return left, _queries(settings, out, left)


def _given(settings: Validation, data: Any, train: Source, step: StepFunction | None, loss: Loss | None) -> Examiner:
    """A validation with data other than the training items."""
    if isinstance(data, AlignedPairs):
        pairs = Source.of("val", data)
        _refuse_training_items(pairs, train)
        return _of_pairs(settings, pairs, step, loss)
    queries = Source.of("val", data, need_labels=True, workers=train.workers)
    if not len(queries):
        _check.refuse("fit", "val is empty")
    _refuse_training_items(queries, train)
    assert queries.labels is not None
    if train.labels is None:
        return _held_out(settings, queries)
    classes, (known, asked) = number_labels(train.labels, queries.labels)
    seen = np.isin(asked, known)
    if not seen.any():
        return _held_out(settings, queries)
    if not seen.all():
        names = list(dict.fromkeys(str(classes[code]) for code in asked[~seen]))
        few = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        _check.refuse(
            "fit",
            f"some classes of val are not training classes: {few}; give items of the training classes, or of new "
            "classes alone",
        )
    return _queries(
        settings, replace(queries, codes=torch.from_numpy(asked)), replace(train, codes=torch.from_numpy(known))
    )


def _queries(settings: Validation, queries: Source, references: Source) -> Examiner:
    return Examiner(settings, lambda metric, ranks: search(metric, queries, references, ranks), ("accuracy", "map"))


def _held_out(settings: Validation, items: Source) -> Examiner:
    if len(items) < 2:
        _check.refuse("fit", "val needs at least two items, since each is compared with the others")

    def measure(metric: Metric, ranks: Ranks) -> Numbers:
        scores = evaluate(_Whole(metric), (embed(metric, items), items.codes), ks=(1,))
        return {"recall@1": scores.recall[1], "map@r": scores.map_at_r, "map": scores.map}

    return Examiner(settings, measure, ("recall@1", "map@r", "map"))


def _of_pairs(settings: Validation, pairs: Source, step: StepFunction | None, loss: Loss | None) -> Examiner:
    if step is None:
        _check.refuse("fit", "val has AlignedPairs, but there is neither a path loss nor a step to score them")

    def measure(metric: Metric, ranks: Ranks) -> Numbers:
        total = 0.0
        with torch.no_grad(), evaluating(metric):
            for first in range(0, len(pairs), CHUNK):
                some = pairs.take(slice(first, first + CHUNK))
                made = Step(metric, some, torch.arange(len(some)), loss, generator=torch.Generator())
                total += float(step(made)) * len(some)
        return {"loss": total / len(pairs)}

    return Examiner(replace(settings, lowest=True), measure, ("loss",))


def _by_function(function: Callable[[Metric], object]) -> Measure:
    def measure(metric: Metric, ranks: Ranks) -> Numbers:
        with torch.no_grad(), evaluating(metric):
            found = function(metric)
        numbers = dict(found) if isinstance(found, Mapping) else {"score": found}
        return {str(name): float(value) for name, value in numbers.items()}  # type: ignore[arg-type]

    return measure


def search(metric: Metric, queries: Source, references: Source, ranks: Ranks = ALONE) -> Numbers:
    """1-NN accuracy and mean average precision of queries among references; each process ranks its part."""
    rows = ranks.rows(len(queries))
    labels, columns = queries.codes[rows], references.codes
    hits = precision = found = 0.0
    with torch.no_grad(), evaluating(metric):
        others = embed(metric, references)
        own = embed(metric, queries.part(torch.arange(len(queries))[rows]))
        chunk = max(1, MOST_DISTANCES // len(references))
        for start in range(0, len(labels), chunk):
            part = slice(start, start + chunk)
            D = metric.distance.matrix(take(own, part), others)
            known = int(torch.isin(labels[part], columns).sum())  # rows without a matching class have no precision
            hits += nearest_neighbor_accuracy(D, labels[part], columns) * len(D)
            precision += mean_average_precision(D, labels[part], columns) * known
            found += known
    hits, precision, found = ranks.sum([hits, precision, found], others.device)
    return {"accuracy": hits / len(queries), "map": precision / found if found else 0.0}


def embed(metric: Metric, source: Source) -> Encoded:
    """All items of a source, encoded; those that are not in memory are read a few at a time."""
    if source.in_memory:
        return metric.embed(source.whole())
    return metric.embed_pieces(source.pieces(CHUNK), len(source))


class _Whole:
    """A metric's distance between encoded items."""

    def __init__(self, metric: Metric) -> None:
        self.matrix = metric.distance.matrix


def _refuse_training_items(val: Source, train: Source) -> None:
    """Refuse validation with items that are trained on, and warn of a few others that are equal to such items."""
    found = _overlap(val, train)
    if not found and val.items is not train.items:
        return
    hint = "pass items that are not trained on, or a share of them, val=0.2"
    if val.items is train.items or len(found) == len(val) == len(train):
        _check.refuse("fit", f"val is the training items; {hint}")
    text = found.named("val", "train")
    if len(found) == len(val):
        _check.refuse("fit", f"every item of val is among the training items: {text}; {hint}")
    if found.known:
        _check.refuse("fit", f"{len(found.known)} items of val are training items, with the same ids: {text}; {hint}")
    warnings.warn(
        f"fit: {len(found)} of {len(val)} items of val are equal to training items: {text}. They raise the scores; "
        "leave them out of one of the two unless the data really repeat.",
        stacklevel=4,
    )


def _warn_of_repeats(train: Source, rest: np.ndarray, held: np.ndarray) -> None:
    """Warn if some of the held-out items are equal to items that remain for training."""
    items = (train.items.x, train.items.y) if isinstance(train.items, AlignedPairs) else train.items
    found = overlap(items, items, held, rest)
    if found:
        text = found.named("item", "item", held, rest)
        warnings.warn(
            f"fit: {len(found)} of {len(held)} items that are held out for val are equal to training items: {text}. "
            "They raise the scores; leave out one of each unless the data really repeat.",
            stacklevel=4,
        )


def _overlap(val: Source, train: Source) -> Overlap:
    """The validation items that are equal to training items."""
    aligned = [isinstance(source.items, AlignedPairs) for source in (val, train)]
    if any(aligned) and not all(aligned):
        return Overlap({})
    items = [(source.items.x, source.items.y) if all(aligned) else source.items for source in (val, train)]
    return overlap(items[0], items[1], ids=(val.ids, train.ids), read=True)
