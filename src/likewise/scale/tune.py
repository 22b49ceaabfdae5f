"""tune and select: try settings of a distance, or whole metrics, side by side."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from likewise.clusters.tune import Tuning, read_grid
from likewise.clusters.tune import tune as tune_here
from likewise.data.dataset import Dataset
from likewise.distances.distance import Distance
from likewise.scale.engine import Plan
from likewise.scale.progress import watched
from likewise.selection.candidates import Candidate
from likewise.selection.result import Result, Selection
from likewise.selection.search import select as select_here
from likewise.selection.trainer import Trainer, Turn


@dataclass(frozen=True)
class Shared:
    """The data that all settings share."""

    distance: Distance
    train: Any
    most: int | None
    seed: int


def tune(
    distance: Distance,
    train: Any,
    grid: Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]],
    *,
    most: int | None = None,
    seed: int = 0,
    engine: str | None = None,
    cores: int | None = None,
    progress: bool = False,
) -> Tuning:
    """Choose settings of a distance as ``likewise.tune`` does, with the same result, several settings at once.

    distance, train, grid, most, seed: as in ``likewise.tune``. engine, cores, progress: as in ``scale.matrix``.

    The grid is divided into runs of neighbouring settings, one for each worker, since a setting often bounds the next.

    Example:
        >>> from likewise import DTW
        >>> items = [[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 1.0]]
        >>> tune(DTW(), (items, ["peak", "peak", "dip", "dip"]), {"band": [0, 1, 2]}).setting
        {'band': 1}
    """
    plan, begin = Plan.read("scale.tune", engine, None, cores), time.perf_counter()
    settings = read_grid(grid)
    found: dict[int, Tuning] = {}
    with plan.connected():
        count = min(plan.slots, len(settings))
        ends = [len(settings) * n // count for n in range(count + 1)]
        parts = [tuple(settings[ends[n] : ends[n + 1]]) for n in range(count)]
        shared = Shared(distance, train, most, seed)
        with watched("tune", count, count, progress=progress) as (_, tally):
            for done in plan.run(tune_some, (shared, parts), range(count)):
                found[done.job] = done.result
                tally(done, 1)
    tunings = [found[n] for n in range(count)]
    best = max(tunings, key=lambda tuning: tuning.accuracy)  # the first of equals
    return replace(
        best,
        settings=tuple(settings),
        accuracies=torch.cat([tuning.accuracies for tuning in tunings]),
        computed=sum(tuning.computed for tuning in tunings),
        seconds=time.perf_counter() - begin,
    )


def tune_some(given: tuple[Shared, Sequence[Any]], job: int, device: str) -> Tuning:
    """Try some of the settings."""
    shared, settings = given
    return tune_here(shared.distance, shared.train, settings[job], most=shared.most, seed=shared.seed)


def select(
    data: Dataset,
    candidates: Sequence[Candidate] | None = None,
    *,
    folder: str | Path,
    engine: str | None = None,
    devices: Any = None,
    cores: int | None = None,
    **settings: Any,
) -> Selection:
    """Try several metrics as ``selection.select`` does, those of a round side by side.

    data, candidates, folder: as in ``selection.select``; all machines must see the folder. engine, devices, cores: as
        in ``scale.matrix``. settings: further arguments of ``selection.select``, such as minutes and val.

    The candidates of a round are trained at the same time, one per worker, so that each has more of the time; halving,
    checkpoints and ``resume`` are those of ``selection.select``. If a worker is lost, its candidate continues from its
    last checkpoint.

    Example:
        >>> import tempfile
        >>> from likewise.selection import named_candidate
        >>> x = torch.randn(20, 6, 2).cumsum(1) + torch.tensor([0.0, 3.0]).repeat(10)[:, None, None]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     select(Dataset(x, ["a", "b"] * 10), [named_candidate("dtw")], folder=folder).best.name
        'dtw'
    """
    plan = Plan.read("scale.select", engine, devices, cores)
    device = "cuda" if plan.on_gpu else "cpu"
    path = str(Path(folder).absolute())
    with plan.connected():
        if engine is None:
            return select_here(data, candidates, folder=path, device=device, **settings)
        return select_here(data, candidates, folder=path, device=device, side_by_side=_SideBySide(plan), **settings)


class _SideBySide:
    """Trains the candidates of a round on Ray."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @property
    def workers(self) -> int:
        return self.plan.slots

    def __call__(self, trainer: Trainer, turns: Sequence[Turn]) -> Iterator[Result]:
        for done in self.plan.run(take_turn, (trainer, tuple(turns)), range(len(turns))):
            yield done.result


def take_turn(given: tuple[Trainer, Sequence[Turn]], job: int, device: str) -> Result:
    """Train one candidate for its turn."""
    trainer, turns = given
    return trainer.take(turns[job])
