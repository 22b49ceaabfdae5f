"""History: what happened during training."""

import csv
from dataclasses import asdict, dataclass, field
from pathlib import Path

from likewise.models.storage import write_whole


@dataclass(frozen=True)
class Score:
    """Retrieval of the validation items after an epoch: 1-NN accuracy and mean average precision."""

    epoch: int
    accuracy: float
    map: float


@dataclass
class History:
    """What ``fit`` returns: losses and times by epoch, and the scores of the validations.

    losses: mean loss of each epoch. seconds: wall time of each, validation included.
    scores: a Score for each validation. best: the one whose weights were kept; None without validation.
    stopped: whether patience ended the training.

    Example:
        >>> history = History([2.0, 1.5], [0.1, 0.1], [Score(1, 0.9, 0.8), Score(2, 0.95, 0.85)], best_epoch=2)
        >>> history
        History(2 epochs, loss 1.5, best epoch 2: accuracy 0.9500, map 0.8500, 0.2 s)
        >>> history.rows()[1]
        {'epoch': 2, 'loss': 1.5, 'seconds': 0.1, 'accuracy': 0.95, 'map': 0.85}
    """

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    best_epoch: int | None = None
    stopped: bool = False

    @property
    def best(self) -> Score | None:
        """The best score, whose weights the metric has in the end."""
        return next((score for score in self.scores if score.epoch == self.best_epoch), None)

    @property
    def wall_time(self) -> float:
        """Seconds of all epochs."""
        return sum(self.seconds)

    def rows(self) -> list[dict[str, float | None]]:
        """One mapping for each epoch, for tables; scores are None in epochs without validation."""
        scores = {score.epoch: score for score in self.scores}
        rows: list[dict[str, float | None]] = []
        for epoch, (loss, seconds) in enumerate(zip(self.losses, self.seconds, strict=True), 1):
            score = scores.get(epoch)
            found = (score.accuracy, score.map) if score else (None, None)
            rows.append({"epoch": epoch, "loss": loss, "seconds": seconds, "accuracy": found[0], "map": found[1]})
        return rows

    def write_csv(self, path: Path) -> None:
        """Write ``rows`` as a table."""

        def write(part: Path) -> None:
            with part.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, ["epoch", "loss", "seconds", "accuracy", "map"])
                writer.writeheader()
                writer.writerows(self.rows())

        write_whole(path, write)

    def to_plain(self) -> dict[str, object]:
        """Numbers and lists, for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        parts = [f"{len(self.losses)} epoch{'s' * (len(self.losses) != 1)}"]
        if self.losses:
            parts.append(f"loss {self.losses[-1]:.4g}")
        if self.best:
            best = self.best
            parts.append(f"best epoch {best.epoch}: accuracy {best.accuracy:.4f}, map {best.map:.4f}")
        return f"History({', '.join([*parts, f'{self.wall_time:.1f} s'])})"
