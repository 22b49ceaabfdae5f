"""select: try several metrics on the data by successive halving, and keep the best."""

import hashlib
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from likewise import _check
from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.data.split import HeldOutClasses
from likewise.evaluation.evaluate import evaluate
from likewise.models.metric import Metric
from likewise.models.storage import read_json, write_json
from likewise.selection.candidates import Candidate, candidates_for
from likewise.selection.course import Course
from likewise.selection.result import Result, Selection
from likewise.training.fit import fit
from likewise.training.options import Checkpoints

STATE, BEST = "search.json", "best"
LEAST_HELD, SHARE, MOST_SHARE = 50, 0.2, 0.4  # validation items of small sets, and the share of others
CHUNKS = 8  # scores in a candidate's whole course
Report = Callable[[Sequence[Result], str], object]


@dataclass(frozen=True)
class Parts:
    """The training items, the validation items, and what these are searched among: None for one another.

    groups: of the validation items, if the data were divided by them.
    """

    train: Dataset
    held: Dataset
    references: Dataset | None
    groups: tuple[str, ...] | None = None


def select(
    data: Dataset,
    candidates: Sequence[Candidate] | None = None,
    *,
    folder: str | Path,
    val: float | HeldOutClasses | None = None,
    groups: object = None,
    minutes: float = 10.0,
    seed: int = 0,
    resume: bool = False,
    device: str = "cpu",
    report: Report = lambda results, text: None,
    side_by_side: "SideBySide | None" = None,
) -> Selection:
    """Try several metrics on labelled data, and return the one with the highest mean average precision.

    Candidates that learn nothing are scored once. The others are trained by successive halving: all for a quarter of
    their usual steps, the better half for a half of them, and so on to one, which is trained to the end. Each round has
    an equal part of the time, so that a slow candidate is trained for fewer steps, and one that cannot finish an epoch
    is left out. Scores are those of validation items, which no candidate is trained on.

    data: a Dataset or an ImageSet with labels. candidates: by default, those of ``candidates_for(data)``.
    folder: for checkpoints and the state of the search. resume: continue the search of that folder.
    val: the share of items to validate with, by default a fifth, and up to two fifths of small sets; or
        ``HeldOutClasses(0.2)``, to score classes that training never sees.
    groups: (N,), the subject of each item: no subject is in both parts, and intervals are those of subjects.
    minutes: the time for all rounds, over all calls that resume one another. device: "cpu" or "cuda".
    report: a function of the results so far, best first, and a line of text.
    side_by_side: trains the candidates of a round at the same time; ``likewise.scale.select`` gives one.

    Ctrl-C ends the search; the result is the best so far, and is not ``complete``. SIGTERM ends the process after a
    checkpoint.

    Reference: Jamieson & Talwalkar (2016), arXiv:1502.07943; here rounds have equal time, and the training goes on.

    Example:
        >>> import tempfile
        >>> from likewise.selection import named_candidate
        >>> x = torch.randn(20, 6, 2).cumsum(1) + torch.tensor([0.0, 3.0]).repeat(10)[:, None, None]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     selection = select(Dataset(x, ["a", "b"] * 10), [named_candidate("dtw")], folder=folder)
        >>> selection.best.name, selection.queries
        ('dtw', 8)
    """
    op = "select"
    if not isinstance(data, Dataset) or data.codes is None:
        raise TypeError(f"{op}: expected a Dataset with class labels, got {type(data).__name__} without")
    minutes, seed = _check.positive(op, "minutes", minutes), _check.whole(op, "seed", seed, least=0)
    chosen = tuple(candidates_for(data) if candidates is None else candidates)
    names = [candidate.name for candidate in chosen]
    if not names or len(set(names)) != len(names):
        _check.refuse(op, "expected at least one candidate, and no two of the same name")
    parts = divide(data, val, groups, seed)
    search = _Search(parts, chosen, Path(folder), seed, device, report, side_by_side)
    search.open(resume, {"data": _fingerprint(data), "seed": seed, "val": repr(val), "candidates": names})
    begun = time.monotonic() - search.spent
    complete = True
    try:
        search.run(begun, begun + 60 * minutes)
    except KeyboardInterrupt:
        if not any(result.left_out is None and result.precision for result in search.results.values()):
            raise
        complete = False
    search.spent = time.monotonic() - begun
    search.write(done=complete)
    ranked = search.ranked()
    if not ranked or ranked[0].left_out is not None:
        reasons = "; ".join(f"{result.name}: {result.left_out}" for result in ranked)
        _check.refuse(op, f"no candidate could be tried ({reasons}); give more minutes, or shorter sequences")
    log = search.folder / _folder_name(ranked[0].name) / "log.csv"
    return Selection(
        search.load(ranked[0].name),
        ranked,
        len(parts.held),
        search.spent,
        complete,
        log if log.is_file() else None,
        parts.groups,
    )


def divide(data: Dataset, val: float | HeldOutClasses | None, groups: object, seed: int) -> Parts:
    """Divide data for training and for validation."""
    if val is None:
        val = min(MOST_SHARE, max(SHARE, LEAST_HELD / len(data)))
    if groups is not None:
        data = replace(data, groups=groups)
    if isinstance(val, HeldOutClasses):
        train, held = data.split(val)
        return Parts(train, held, None, None if groups is None else tuple(map(str, held.groups)))
    train, held = data.split(val, seed=seed, groups=groups)
    known = torch.isin(held.codes, train.codes)  # type: ignore[arg-type]
    if not known.all():  # a class of a single subject
        held = held[known]
    if not len(held):
        _check.refuse("select", "no class is in both parts; hold out classes with val=HeldOutClasses(0.2)")
    return Parts(train, held, train, None if groups is None else tuple(map(str, held.groups)))


@dataclass(frozen=True)
class Turn:
    """The training of one candidate in one round: up to a share of its course, or for some seconds."""

    result: Result
    round: int
    goal: float
    seconds: float


@dataclass(frozen=True)
class Trainer:
    """What another process needs to train a candidate; checkpoints and weights go to the folder."""

    parts: Parts
    candidates: Sequence[Candidate]
    folder: Path
    seed: int
    device: str

    def take(self, turn: Turn) -> Result:
        """Train a candidate for its turn, from its last checkpoint."""
        name = turn.result.name
        search = _Search(self.parts, self.candidates, self.folder, self.seed, self.device, lambda results, text: None)
        search.results[name], search.round = turn.result, turn.round
        search.train(search.candidates[name], turn.goal, turn.seconds)
        return search.results[name]


class SideBySide(Protocol):
    """Lets ``trainer.take(turn)`` run for several turns at once, and gives the results as they are done."""

    @property
    def workers(self) -> int:
        """The number of turns at once."""
        ...

    def __call__(self, trainer: Trainer, turns: Sequence[Turn]) -> Iterator[Result]:
        """The results of all turns, in any order."""
        ...


class _Search:
    """The state of a search, which search.json holds between calls."""

    def __init__(
        self,
        parts: Parts,
        candidates: Sequence[Candidate],
        folder: Path,
        seed: int,
        device: str,
        report: Report,
        side_by_side: SideBySide | None = None,
    ) -> None:
        self.parts, self.side_by_side = parts, side_by_side
        self.candidates = {candidate.name: candidate for candidate in candidates}
        self.folder, self.seed, self.device, self.report = folder, seed, device, report
        self.results: dict[str, Result] = {}
        self.alive = [candidate.name for candidate in candidates if candidate.learns]
        self.round, self.spent, self.done = 0, 0.0, False
        self.settings: dict[str, Any] = {}

    def open(self, resume: bool, settings: dict[str, Any]) -> None:
        """Make the folder, or read the state of an earlier call."""
        path = self.folder / STATE
        self.settings = settings
        if not resume:
            if path.exists():
                _check.refuse("select", f"{self.folder} holds an earlier search; resume it, or give another folder")
            self.folder.mkdir(parents=True, exist_ok=True)
            return
        if not path.exists():
            _check.refuse("select", f"{self.folder} holds no search to resume")
        found = read_json(path)
        if not isinstance(found, dict) or found.get("settings") != settings:
            _check.refuse(str(path), "the search was of other data, candidates, seed or validation part")
        try:
            self.results = {name: _read_result(value) for name, value in found["results"].items()}
            self.alive = [name for name in found["alive"] if name in self.candidates]
            self.round, self.spent = int(found["round"]), float(found["seconds"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path}: damaged: {error}") from error

    def write(self, *, done: bool = False) -> None:
        """Write the state."""
        results = {
            name: result.as_dict() | {"precision": list(result.precision)} for name, result in self.results.items()
        }
        state = {"settings": self.settings, "alive": self.alive, "round": self.round, "seconds": self.spent}
        write_json(self.folder / STATE, state | {"done": done, "results": results})

    def ranked(self) -> tuple[Result, ...]:
        """All results, best first; what was left out comes last."""
        return tuple(sorted(self.results.values(), key=lambda result: (result.left_out is not None, -result.map)))

    def run(self, begun: float, deadline: float) -> None:
        """All rounds."""
        for name, candidate in self.candidates.items():
            if not candidate.learns and name not in self.results:
                self.score_untrained(candidate)
                self._say(f"{name} learns nothing and is scored once", begun)
        rounds = max(1, math.ceil(math.log2(max(2, sum(c.learns for c in self.candidates.values())))) + 1)
        while self.alive and self.round < rounds:
            goal = 2.0 ** (self.round + 1 - rounds)  # share of a candidate's whole course
            waiting = [name for name in self.alive if self._result(name).rounds <= self.round]
            for name in self.train_all(waiting, goal, deadline, rounds - self.round):
                self._say(f"round {self.round + 1} of {rounds}: {name}", begun)
            kept = sorted(self._tried(), key=lambda name: -self.results[name].map)
            self.alive = kept[: max(1, math.ceil(len(kept) / 2))] if self.round + 1 < rounds else kept
            self.round += 1
            self.write()

    def train_all(self, waiting: Sequence[str], goal: float, deadline: float, rounds: int) -> Iterator[str]:
        """Train candidates in turn or side by side; gives the name of each that is done. ``rounds`` are left."""
        if self.side_by_side is None:
            for place, name in enumerate(waiting):
                left = (deadline - time.monotonic()) / rounds / (len(waiting) - place)
                self.train(self.candidates[name], goal, left)
                yield name
            return
        share = min(1.0, self.side_by_side.workers / max(1, len(waiting)))
        left = (deadline - time.monotonic()) / rounds * share
        turns = [Turn(self._result(name), self.round, goal, left) for name in waiting]
        trainer = Trainer(self.parts, tuple(self.candidates.values()), self.folder, self.seed, self.device)
        for result in self.side_by_side(trainer, turns):
            self.results[result.name] = result
            yield result.name

    def score_untrained(self, candidate: Candidate) -> None:
        """Score a candidate that learns nothing."""
        begin, result = time.monotonic(), self._result(candidate.name)
        metric = self._made(candidate, result)
        if metric is not None:
            self._score(metric, result, begin)

    def train(self, candidate: Candidate, goal: float, seconds: float) -> None:
        """Train a candidate to a share of its course, but not for longer than some seconds."""
        import likewise.training.loop  # noqa: F401, which takes seconds, outside of the measured time

        begin, result = time.monotonic(), self._result(candidate.name)
        metric = self._made(candidate, result)
        if metric is None:
            return
        course = Course(metric, len(self.parts.train))
        target = max(1, round(goal * course.epochs))
        pace = result.pace if result.epochs else course.predict(self.parts.train, self.device)
        if not result.epochs and pace > seconds:
            text = f"an epoch takes about {pace:.0f} s, and {max(0.0, seconds):.0f} s were left for it"
            self.results[candidate.name] = replace(result, left_out=text)
            return
        while result.epochs < target and time.monotonic() - begin + pace <= seconds:
            affordable = int((seconds - (time.monotonic() - begin)) / max(pace, 1e-9))
            more = min(target - result.epochs, max(1, course.epochs // CHUNKS), max(1, affordable))
            start = time.monotonic()
            self._fit(candidate, metric, result.epochs + more, course)
            epochs = result.epochs + more
            result = replace(result, epochs=epochs, steps=epochs * course.per_epoch)
            result = self._score(metric, result, start)
            pace = (time.monotonic() - start) / more
            self.results[candidate.name] = result = replace(result, pace=pace)
        self.results[candidate.name] = replace(result, rounds=self.round + 1)

    def _fit(self, candidate: Candidate, metric: Metric, epochs: int, course: Course) -> None:
        """Train up to some epochs, from the last checkpoint."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "fit: a step of")  # the time is bounded here
            fit(
                metric,
                self.parts.train,
                None if candidate.loss is None else candidate.loss(),
                epochs=epochs,
                average=course.average,
                checkpoints=Checkpoints(self.folder / _folder_name(candidate.name), resume=True),
                seed=self.seed,
                verbose=False,
                loggers=[],
                accelerator="gpu" if self.device == "cuda" else self.device,
                **dict(candidate.settings),
            )

    def _score(self, metric: Metric, result: Result, begin: float) -> Result:
        """Score a metric on the validation items, and keep it if it is the best of its candidate."""
        scores = evaluate(metric.to(self.device), self.parts.held, self.parts.references)
        result = replace(result, seconds=result.seconds + time.monotonic() - begin)
        if not result.precision or scores.map > result.map:
            result = replace(
                result,
                map=scores.map,
                interval=scores.interval(groups=self.parts.groups),
                accuracy=scores.accuracy,
                precision=tuple(None if math.isnan(value) else value for value in scores.precision.tolist()),
            )
            metric.save(self.folder / _folder_name(result.name) / BEST)
        self.results[result.name] = result
        return result

    def load(self, name: str) -> Metric:
        """The best weights of a candidate."""
        return Metric.load(self.folder / _folder_name(name) / BEST)

    def _made(self, candidate: Candidate, result: Result) -> Metric | None:
        """The untrained metric; None, with the reason in its result, where it does not suit the data."""
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                return candidate.make(self.parts.train)
        except (ValueError, ImportError) as error:
            self.results[candidate.name] = replace(result, left_out=str(error))
            return None

    def _result(self, name: str) -> Result:
        candidate = self.candidates[name]
        return self.results.get(name, Result(name, candidate.about, candidate.learns))

    def _tried(self) -> list[str]:
        return [name for name in self.alive if name in self.results and self.results[name].left_out is None]

    def _say(self, text: str, begun: float) -> None:
        self.spent = time.monotonic() - begun
        self.write()
        self.report(self.ranked(), text)


def _fingerprint(data: Dataset) -> str:
    """A hash of the items and labels."""
    found = hashlib.sha256("\n".join(data.labels).encode())
    if isinstance(data.items, Batch):
        for item in data.items:
            found.update(item.contiguous().numpy().tobytes())
    else:
        found.update(data.items.contiguous().numpy().tobytes())
    return found.hexdigest()


def _folder_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in name)


def _read_result(value: dict[str, Any]) -> Result:
    made = dict(value)
    made["interval"], made["precision"] = tuple(made["interval"]), tuple(made["precision"])
    return Result(**made)
