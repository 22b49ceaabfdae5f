"""Trainer: trains one candidate for a while, scores it on the validation items, and keeps its best weights."""

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from likewise.data.dataset import Dataset
from likewise.evaluation.evaluate import evaluate
from likewise.models.metric import Metric
from likewise.selection.candidates import Candidate
from likewise.selection.course import Course
from likewise.selection.division import Parts
from likewise.selection.result import Result
from likewise.training.fit import fit
from likewise.training.options import Checkpoints, Optimization
from likewise.training.step import Step

BEST = "best"  # the subfolder of a candidate's best weights
CHUNKS = 8  # scores in a candidate's whole course
REFIT = 1 / 3  # of the steps of the best weights: how many more are taken with all items
SAFETY = 1.5  # how much longer steps may take than those before


class OutOfTime(Exception):  # noqa: N818  it is not an error
    """The time of a candidate is up."""


@dataclass(frozen=True)
class Turn:
    """The training of one candidate in one round: up to a share of its course, or for some seconds."""

    result: Result
    round: int
    goal: float
    seconds: float


@dataclass(frozen=True)
class Trainer:
    """Trains and scores candidates. Checkpoints and weights go to the folder; another process can go on from there."""

    parts: Parts
    candidates: Mapping[str, Candidate]
    folder: Path
    seed: int
    device: str
    by: str = "map"

    def place(self, name: str) -> Path:
        """The folder of a candidate."""
        return self.folder / "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in name)

    def load(self, name: str) -> Metric:
        """A candidate with its best weights."""
        return Metric.load(self.place(name) / BEST)

    def score_untrained(self, result: Result) -> Result:
        """Score a candidate that learns nothing."""
        begin = time.monotonic()
        metric, result = self._made(result)
        return result if metric is None else self._score(metric, result, begin)

    def take(self, turn: Turn) -> Result:
        """Train a candidate for its turn, from its last checkpoint."""
        import likewise.training.loop  # noqa: F401, which takes seconds, outside of the measured time

        begin = time.monotonic()
        metric, result = self._made(turn.result)
        if metric is None:
            return result
        course = Course(metric, len(self.parts.train))
        target = max(1, round(turn.goal * course.epochs))
        if not result.epochs:
            pace, scoring = course.predict(self.parts.train, self.parts.pairs, self.device)
            if pace + scoring > turn.seconds:
                text = f"an epoch takes about {pace + scoring:.0f} s, and {max(0.0, turn.seconds):.0f} s were left"
                return replace(result, left_out=text)
            result = replace(result, pace=pace, scoring=scoring)
        while result.epochs < target and time.monotonic() - begin + result.pace + result.scoring <= turn.seconds:
            left = turn.seconds - (time.monotonic() - begin) - result.scoring
            # The first epoch shows how long the others take; epochs that end too late count only in the next round.
            affordable = int(left / max(result.pace, 1e-9) / SAFETY) if result.epochs else 1
            more = min(target - result.epochs, max(1, course.epochs // CHUNKS), max(1, affordable))
            start = time.monotonic()
            try:
                seconds = self._fit(turn.result.name, metric, result.epochs + more, course, start + left)
            except OutOfTime:
                if not result.epochs:
                    text = f"an epoch did not end within the {max(0.0, left):.0f} s that were left for it"
                    result = replace(result, left_out=text)
                break
            # An interrupted search may have computed these epochs, but not scored them.
            spent = max(time.monotonic() - start, sum(seconds[result.epochs :]))
            pace = spent / max(1, len(seconds) - result.epochs)
            result = replace(result, epochs=len(seconds), steps=len(seconds) * course.per_epoch, pace=pace)
            result = self._score(metric, replace(result, seconds=result.seconds + spent), time.monotonic())
        return replace(result, rounds=turn.round + 1)

    def refit(self, result: Result, data: Dataset, seconds: float) -> tuple[Metric, int]:
        """Train a candidate's best weights on all items for some more steps; the metric, and how many there were.

        There are none if the candidate learns nothing, or if the time does not suffice: the metric is then the best.
        """
        metric, candidate = self.load(result.name), self.candidates[result.name]
        if not candidate.learns or not result.best_steps:
            return metric, 0
        seconds -= 2 * result.scoring  # for those who score it afterwards
        step = result.pace / Course(metric, len(self.parts.train)).per_epoch  # seconds
        steps = min(REFIT * result.best_steps, seconds / SAFETY / max(step, 1e-9))
        course = Course(metric, len(data), steps)
        if course.per_epoch > steps:
            return metric, 0
        deadline, options = time.monotonic() + seconds, falling_rate(metric, course.epochs * course.per_epoch)
        try:
            self._train(candidate, metric, data, course, course.epochs, deadline, seed=self.seed + 1, **options)
        except OutOfTime:
            return self.load(result.name), 0
        return metric, course.epochs * course.per_epoch

    def _fit(self, name: str, metric: Metric, epochs: int, course: Course, deadline: float) -> list[float]:
        """Train up to some epochs, from the last checkpoint, and return the seconds of all."""
        files = Checkpoints(self.place(name), resume=True)
        candidate, options = self.candidates[name], {"seed": self.seed, "checkpoints": files}
        return self._train(candidate, metric, self.parts.train, course, epochs, deadline, **options)

    def _train(
        self,
        candidate: Candidate,
        metric: Metric,
        data: Dataset,
        course: Course,
        epochs: int,
        deadline: float,
        **options: Any,
    ) -> list[float]:
        """Call ``fit``, within the time; returns the seconds of each epoch."""

        def watch_time(step: Step) -> torch.Tensor:
            if time.monotonic() > deadline:
                raise OutOfTime
            return torch.zeros((), device=step.labels.device)  # adds nothing to the loss

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "fit: a step of")  # the time is bounded here
            history = fit(
                metric,
                data,
                None if candidate.loss is None else candidate.loss(),
                epochs=epochs,
                average=course.average,
                verbose=False,
                loggers=[],
                accelerator="gpu" if self.device == "cuda" else self.device,
                terms=[watch_time],
                **options,
                **dict(candidate.settings),
            )
        return history.seconds

    def _score(self, metric: Metric, result: Result, begin: float) -> Result:
        """Score a metric on the validation items, and keep it if it is the best of its candidate."""
        start = time.monotonic()
        scores = evaluate(metric.to(self.device), self.parts.held, self.parts.references)
        now = time.monotonic()
        result = replace(result, seconds=result.seconds + now - begin, scoring=now - start)
        found = replace(
            result,
            map=scores.map,
            interval=scores.interval(groups=self.parts.groups),
            accuracy=scores.accuracy,
            best_steps=result.steps,
            precision=tuple(None if math.isnan(value) else value for value in scores.precision.tolist()),
            right=tuple((scores.actual == scores.predicted).tolist()),
        )
        if result.precision and found.scores(self.by) <= result.scores(self.by):
            return result
        metric.save(self.place(result.name) / BEST)
        return found

    def _made(self, result: Result) -> tuple[Metric | None, Result]:
        """The untrained metric; None, with the reason in the result, where it does not suit the data."""
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                return self.candidates[result.name].make(self.parts.train), result
        except (ValueError, ImportError) as error:
            return None, replace(result, left_out=str(error))


def falling_rate(metric: Metric, steps: int) -> dict[str, Any]:
    """Arguments of ``fit``: the metric's usual optimiser, with a rate that falls to zero over that many steps.

    No validation chooses among the last weights, so they should not depend on the last batch.
    """
    defaults = metric.training_defaults

    def schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)

    clip, decay = defaults.clip, defaults.weight_decay
    return {"optimizer": Optimization(weight_decay=decay, clip=clip, schedule=schedule, per_step=True)}


class SideBySide(Protocol):
    """Runs ``trainer.take(turn)`` for several turns at once, and yields the results as they finish."""

    @property
    def workers(self) -> int:
        """The number of turns at once."""
        ...

    def __call__(self, trainer: Trainer, turns: Sequence[Turn]) -> Iterator[Result]:
        """The results of all turns, in any order."""
        ...
