"""History: the record of a training run."""

import csv
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path

from likewise._output import writing


@dataclass(frozen=True)
class Score:
    """The scores of a validation: numbers by name, also as attributes.

    epoch: the number of epochs before it; a fraction within an epoch. step: the total number of steps before it.

    Example:
        >>> score = Score(2, 10, {"accuracy": 0.9, "recall@1": 0.9})
        >>> score.accuracy, score["recall@1"]
        (0.9, 0.9)
    """

    epoch: float
    step: int
    numbers: dict[str, float]

    def __getitem__(self, name: str) -> float:
        return self.numbers[name]

    def __getattr__(self, name: str) -> float:
        numbers = self.__dict__.get("numbers", {})
        if name not in numbers:
            raise AttributeError(f"the validation measured {', '.join(numbers) or 'nothing'}, not {name}")
        return numbers[name]

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.4f}" for name, value in self.numbers.items())


@dataclass
class History:
    """The result of ``fit``: losses and times by epoch, and the scores of the validations.

    losses: mean loss of each epoch. seconds: wall time of each epoch, including validation.
    scores: a Score for each validation. best: the Score whose weights were kept; None without validation.
    stopped: whether patience ended the training.

    Example:
        >>> scores = [Score(1, 5, {"accuracy": 0.9, "map": 0.8}), Score(2, 10, {"accuracy": 0.95, "map": 0.85})]
        >>> history = History([2.0, 1.5], [0.1, 0.1], scores, best_step=10)
        >>> history
        History(2 epochs, loss 1.5, best epoch 2: accuracy 0.9500, map 0.8500, 0.2 s)
        >>> history.rows()[1]
        {'epoch': 2, 'loss': 1.5, 'seconds': 0.1, 'accuracy': 0.95, 'map': 0.85}
    """

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    best_step: int | None = None
    stopped: bool = False

    @property
    def best(self) -> Score | None:
        """The best score, whose weights the metric has after training."""
        return next((score for score in self.scores if score.step == self.best_step), None)

    @property
    def best_epoch(self) -> float | None:
        """The epoch of the best score."""
        return None if self.best is None else self.best.epoch

    @property
    def wall_time(self) -> float:
        """The total time of all epochs in seconds."""
        return sum(self.seconds)

    def rows(self) -> list[dict[str, float | None]]:
        """One mapping for each epoch, for tables, with the last scores of the epoch; None without validation."""
        names = list(dict.fromkeys(name for score in self.scores for name in score.numbers))
        scores = {math.ceil(score.epoch): score.numbers for score in self.scores}
        rows: list[dict[str, float | None]] = []
        for epoch, (loss, seconds) in enumerate(zip(self.losses, self.seconds, strict=True), 1):
            found = scores.get(epoch, {})
            rows.append({"epoch": epoch, "loss": loss, "seconds": seconds} | {name: found.get(name) for name in names})
        return rows

    def write_csv(self, path: Path) -> None:
        """Write ``rows`` as a table."""
        rows = self.rows()
        with writing(path) as part, part.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else ["epoch", "loss", "seconds"])
            writer.writeheader()
            writer.writerows(rows)

    def to_plain(self) -> dict[str, object]:
        """Numbers and lists, for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        parts = [f"{len(self.losses)} epoch{'s' * (len(self.losses) != 1)}"]
        if self.losses:
            parts.append(f"loss {self.losses[-1]:.4g}")
        if self.best:
            parts.append(f"best epoch {self.best.epoch:.4g}: {self.best}")
        return f"History({', '.join([*parts, f'{self.wall_time:.1f} s'])})"
