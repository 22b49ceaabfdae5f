"""select: try several metrics on the data by successive halving, and keep the best."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from likewise import _check
from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.data.split import HeldOutClasses
from likewise.models.metric import Metric
from likewise.models.storage import read_json, write_json
from likewise.selection.candidates import Candidate, candidates_for
from likewise.selection.division import divide
from likewise.selection.result import SCORES, Result, Selection
from likewise.selection.trainer import SideBySide, Trainer, Turn

STATE, REFITTED = "search.json", "refitted"
RESERVED = 1 / 6  # of the time, for training the best on all items
Report = Callable[[Sequence[Result], str], object]


def select(
    data: Dataset,
    candidates: Sequence[Candidate] | None = None,
    *,
    folder: str | Path,
    val: float | HeldOutClasses | None = None,
    groups: object = None,
    by: str = "map",
    refit: bool = True,
    minutes: float = 10.0,
    seed: int = 0,
    resume: bool = False,
    device: str = "cpu",
    report: Report = lambda results, text: None,
    side_by_side: SideBySide | None = None,
) -> Selection:
    """Try several metrics on labelled data, and return the one with the highest mean average precision.

    Candidates that learn nothing are scored once. The others are trained by successive halving: all for a quarter of
    their usual steps, the better half for a half of them, and so on to one, which is trained to the end. Each round has
    an equal part of the time, so that a slow candidate is trained for fewer steps, and one that cannot finish an epoch
    is left out. Scores are those of validation items, which no candidate is trained on. At the end, the best is
    trained for some more steps with all items, the validation items too.

    data: a Dataset or an ImageSet with labels. candidates: by default, those of ``candidates_for(data)``.
    folder: for checkpoints and the state of the search. resume: continue the search of that folder.
    val: the share of items to validate with, by default a fifth, and up to two fifths of small sets; or
        ``HeldOutClasses(0.2)``, to score classes that training never sees.
    groups: (N,), the subject of each item: no subject is in both parts, and intervals are those of subjects.
    by: "map", or "accuracy" of the nearest neighbour, the score to choose by; the other decides between equals.
    refit: whether to train the best with all items at the end, in a sixth of the time and what the rounds left of it.
    minutes: the time for everything, over all calls that resume one another. Training ends within a step of it.
    device: "cpu" or "cuda".
    report: a function of the results so far, best first, and a line of text.
    side_by_side: trains the candidates of a round at the same time; ``likewise.scale.select`` gives one.

    Ctrl-C ends the search; the result is the best so far, and is not ``complete``. SIGTERM ends the process after a
    checkpoint.

    Reference: Jamieson & Talwalkar (2016), arXiv:1502.07943; here rounds have equal time, and the training goes on.

    Example:
        >>> import tempfile, torch
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
    if by not in SCORES:
        _check.refuse(op, f"by must be one of {', '.join(SCORES)}, got {by!r}")
    parts = divide(data, val, groups, seed)
    trainer = Trainer(parts, {candidate.name: candidate for candidate in chosen}, Path(folder), seed, device, by)
    search = _Search(trainer, report, side_by_side)
    settings = {"data": _fingerprint(data), "seed": seed, "val": repr(val), "candidates": names, "by": by}
    search.open(resume, settings)
    begun = time.monotonic() - search.spent
    deadline, complete, final = begun + 60 * minutes, True, None
    reserved = 60 * minutes * RESERVED if refit and search.alive else 0.0
    try:
        search.run(begun, deadline - reserved)
        if refit and search.found:
            final = search.refit(data, begun, deadline)
    except KeyboardInterrupt:
        if not search.found:
            raise
        complete = False
    search.spent = time.monotonic() - begun
    search.write(done=complete)
    ranked = search.ranked()
    if not search.found:
        reasons = "; ".join(f"{result.name}: {result.left_out}" for result in ranked)
        _check.refuse(op, f"no candidate could be tried ({reasons}); give more minutes, or shorter sequences")
    log = trainer.place(ranked[0].name) / "log.csv"
    validated = trainer.load(ranked[0].name)
    return Selection(
        validated if final is None else final,
        ranked,
        len(parts.held),
        search.spent,
        complete=complete,
        log=log if log.is_file() else None,
        groups=parts.groups,
        by=by,
        validated=None if final is None else validated,
        refit=0 if final is None else int(search.refitted["steps"]),
    )


class _Search:
    """The state of a search, which search.json holds between calls."""

    def __init__(self, trainer: Trainer, report: Report, side_by_side: SideBySide | None = None) -> None:
        self.trainer, self.report, self.side_by_side = trainer, report, side_by_side
        self.folder, self.candidates = trainer.folder, trainer.candidates
        self.results: dict[str, Result] = {}
        self.alive = [name for name, candidate in self.candidates.items() if candidate.learns]
        self.round, self.spent = 0, 0.0
        self.settings: dict[str, Any] = {}
        self.refitted: dict[str, Any] = {}  # the name of the candidate that was trained on all items, and the steps

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
            _check.refuse("select", f"{self.folder} has no search to resume")
        found = read_json(path)
        if not isinstance(found, dict) or found.get("settings") != settings:
            _check.refuse(str(path), "the search was of other data, candidates, seed or validation part")
        try:
            self.results = {name: _read_result(value) for name, value in found["results"].items()}
            self.alive = [name for name in found["alive"] if name in self.candidates]
            self.round, self.spent = int(found["round"]), float(found["seconds"])
            self.refitted = dict(found["refitted"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path}: damaged: {error}") from error

    def write(self, *, done: bool = False) -> None:
        """Write the state."""
        results = {
            name: result.as_dict() | {"precision": list(result.precision), "right": list(result.right)}
            for name, result in self.results.items()
        }
        state = {"settings": self.settings, "alive": self.alive, "round": self.round, "seconds": self.spent}
        write_json(self.folder / STATE, state | {"done": done, "refitted": self.refitted, "results": results})

    @property
    def found(self) -> bool:
        """Whether a candidate has a score."""
        return any(result.left_out is None and result.precision for result in self.results.values())

    def ranked(self) -> tuple[Result, ...]:
        """All results, best first; candidates that were left out come last."""
        tried = [result for result in self.results.values() if result.left_out is None]
        tried.sort(key=lambda result: result.scores(self.trainer.by), reverse=True)
        return (*tried, *(result for result in self.results.values() if result.left_out is not None))

    def run(self, begun: float, deadline: float) -> None:
        """All rounds."""
        for name, candidate in self.candidates.items():
            if not candidate.learns and name not in self.results:
                self.results[name] = self.trainer.score_untrained(self._result(name))
                self._say(f"{name} learns nothing and is scored once", begun)
        rounds = max(1, math.ceil(math.log2(max(2, sum(c.learns for c in self.candidates.values())))) + 1)
        while self.alive and self.round < rounds:
            goal = 2.0 ** (self.round + 1 - rounds)  # share of a candidate's whole course
            waiting = [name for name in self.alive if self._result(name).rounds <= self.round]
            for name in self.train_all(waiting, goal, deadline, rounds - self.round):
                self._say(f"round {self.round + 1} of {rounds}: {name}", begun)
            kept = [result.name for result in self.ranked() if result.left_out is None and result.name in self.alive]
            self.alive = kept[: max(1, math.ceil(len(kept) / 2))] if self.round + 1 < rounds else kept
            self.round += 1
            self.write()

    def train_all(self, waiting: Sequence[str], goal: float, deadline: float, rounds: int) -> Iterator[str]:
        """Train candidates in turn or side by side; gives the name of each that is done. ``rounds`` are left."""
        if self.side_by_side is None:
            for place, name in enumerate(waiting):
                left = (deadline - time.monotonic()) / rounds / (len(waiting) - place)
                self.results[name] = self.trainer.take(Turn(self._result(name), self.round, goal, left))
                yield name
            return
        share = min(1.0, self.side_by_side.workers / max(1, len(waiting)))
        left = (deadline - time.monotonic()) / rounds * share
        turns = [Turn(self._result(name), self.round, goal, left) for name in waiting]
        for result in self.side_by_side(self.trainer, turns):
            self.results[result.name] = result
            yield result.name

    def refit(self, data: Dataset, begun: float, deadline: float) -> Metric | None:
        """The best, trained for some more steps on all items; None if there was no time left, or nothing to learn."""
        best = self.ranked()[0]
        if self.refitted.get("name") != best.name:
            if best.learns:
                self._say(f"{best.name} is trained with all items", begun)
            metric, steps = self.trainer.refit(best, data, deadline - time.monotonic())
            if steps:
                metric.save(self.folder / REFITTED)
            self.refitted = {"name": best.name, "steps": steps}
        return Metric.load(self.folder / REFITTED) if self.refitted.get("steps") else None

    def _result(self, name: str) -> Result:
        candidate = self.candidates[name]
        return self.results.get(name, Result(name, candidate.about, candidate.learns))

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


def _read_result(value: dict[str, Any]) -> Result:
    made = dict(value)
    for key in ("interval", "precision", "right"):
        made[key] = tuple(made[key])
    result = Result(**made)
    texts = [result.name, result.about, "" if result.left_out is None else result.left_out]
    numbers = [result.map, result.accuracy, *result.interval, *(each for each in result.precision if each is not None)]
    numbers += [result.epochs, result.steps, result.best_steps, result.rounds]
    numbers += [result.seconds, result.pace, result.scoring]
    flags = [result.learns, *result.right]
    if {type(text) for text in texts} != {str} or not {type(number) for number in numbers} <= {int, float}:
        raise TypeError("expected texts and numbers")
    if {type(flag) for flag in flags} != {bool} or len(result.interval) != 2:
        raise TypeError("expected true or false, and intervals of two numbers")
    return result
