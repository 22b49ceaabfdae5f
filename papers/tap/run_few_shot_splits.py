"""Few-shot classification over many splits of the classes, by distances that learn nothing and by trained ones.

    python -m papers.tap.run_few_shot_splits --data msr_action3d --out lines.jsonl
    python -m papers.tap.run_few_shot_splits --data utd_mhad --out lines.jsonl
    python -m papers.tap.run_few_shot_splits --data msr_action3d --methods softdtw --trained --out lines.jsonl

One split's choice of classes moves a method by points, so each is scored on ten. On each split, validation classes
choose how many frames a sequence is resampled to, and how several shots of a class count (their mean, the nearest, or a
soft minimum). No method sees the test classes before that. Where nothing is learned, all distances between all items
are computed once; splits and episodes only look them up.

--trained trains a metric on each split's training classes, for each number of frames, as ``run_few_shot`` does. The
validation classes choose the epoch too.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import torch

import likewise as lw
from likewise.evaluation import SoftNearestShot, mean_shot, nearest_shot
from likewise.evaluation.few_shot import few_shot_accuracy_matrix
from papers.common import Run, check_choice, device_name, emit, find_line, from_command_line
from papers.tap import run_few_shot as single
from papers.tap.data_few_shot import READERS, parts, read, read_all

DISTANCES: dict[str, Callable[[], lw.Distance]] = {
    "mean": lw.MeanFrames,
    "dtw": lw.DTW,
    "softdtw": lambda: lw.SoftDTW(gamma=0.1),
    "otam": lambda: lw.OTAM(gamma=0.1),
    "otam_sharp": lambda: lw.OTAM(gamma=0.01),  # 0.1 is as large as most cosine distances between poses
}
TRAINED = ("softdtw", "otam", "tap", "satap", "tap_ordered")  # of run_few_shot
COMBINED = {
    "mean": mean_shot, "nearest": nearest_shot, "soft .03": SoftNearestShot(0.03), "soft .1": SoftNearestShot(0.1),
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """The distances to score, and the number of episodes."""

    data: str = "utd_mhad"
    methods: tuple[str, ...] = ("mean", "dtw", "softdtw", "otam")
    frames: tuple[int, ...] = (16, 32, 64)  # of which validation classes choose
    splits: int = 10
    ways: tuple[int, ...] = (5, 10)
    shots: tuple[int, ...] = (1, 5)
    episodes: int = 1_000  # of a split, in the test
    validations: int = 500
    trained: bool = False
    steps: int = 600  # of training
    only: tuple[int, ...] = ()  # of the splits; all of them otherwise


Drawn = dict[tuple, tuple[torch.Tensor, torch.Tensor]]  # episodes, which are the same for every method


def main(run: Run, settings: Settings) -> None:
    """Score every method on every split; a line for each number of ways and shots."""
    check_choice("--data", settings.data, READERS)
    drawn: Drawn = {}
    for method in settings.methods:
        check_choice("--methods", method, TRAINED if settings.trained else DISTANCES)
        about = {"recipe": "few_shot_splits", **asdict(settings), "method": method}
        del about["methods"], about["only"]
        if not settings.trained:  # earlier lines do not have these
            del about["trained"], about["steps"]
        given = {name: about[name] for name in ("recipe", "data", "method", "trained", "steps") if name in about}
        known = {} if settings.trained else untrained(run, settings, method)
        for split in settings.only or range(settings.splits):
            if find_line({**given, "split": split, "ways": settings.ways[-1], "shots": settings.shots[-1]}, run.out):
                continue
            start = time.perf_counter()
            found = known or trained(run, settings, method, split)
            every = read_all(settings.data, run.data_dir, settings.frames[0])
            for line in scores(settings, every, found, split, drawn):
                seconds = {"seconds": time.perf_counter() - start, "device": device_name(run.device)}
                emit({**about, "split": split, **line, **seconds}, run.out)


@torch.no_grad()
def untrained(run: Run, settings: Settings, method: str) -> dict[int, torch.Tensor]:
    """Distances (N, N) between all items, for each number of frames."""
    distance = DISTANCES[method]()
    return {
        frames: distance.matrix(read_all(settings.data, run.data_dir, frames).items.to(run.device)).cpu()
        for frames in settings.frames
    }


def trained(run: Run, settings: Settings, method: str, split: int) -> dict[int, torch.Tensor]:
    """The same by metrics that were trained on a split's training classes, one for each number of frames."""
    found = {}
    for frames in settings.frames:
        options = single.Settings(
            settings.data, method, steps=settings.steps, frames=frames, validations=settings.validations
        )
        data = read(settings.data, run.data_dir, frames, split)
        torch.manual_seed(split)
        metric = single.build(options, data.test.items.channels).to(run.device)
        validation = single.validate_by(options, data.val, run.device)
        kept = replace(run, folder=run.folder and run.folder / f"split {split}, {frames} frames")
        single.learn(kept, options, split, metric, data, validation)
        items = read_all(settings.data, run.data_dir, frames).items
        with torch.no_grad():
            found[frames] = metric.to(run.device).matrix(items.to(run.device)).cpu()
    return found


def scores(
    settings: Settings, every: lw.Dataset, found: dict[int, torch.Tensor], split: int, drawn: Drawn
) -> list[dict]:
    """Accuracies on one split, with what its validation classes chose, for every number of ways and shots."""
    _, val, test = (torch.from_numpy(part) for part in parts(every.codes.numpy(), settings.data, split))
    lines = []
    for shots in settings.shots:
        ways = min(5, int(every.codes[val].unique().numel()))
        key = split, "val", ways, shots
        if key not in drawn:
            drawn[key] = episodes(every, val, ways, shots, seed=0, count=settings.validations)
        tried = {
            (frames, name): few_shot_accuracy_matrix(D[val][:, val], *drawn[key], combine=combine).accuracy
            for frames, D in found.items()
            for name, combine in (COMBINED.items() if shots > 1 else [("mean", mean_shot)])
        }
        frames, name = max(tried, key=lambda key: tried[key])
        for ways in settings.ways:
            key = split, "test", ways, shots
            if key not in drawn:
                drawn[key] = episodes(every, test, ways, shots, seed=1, count=settings.episodes)
            D = found[frames][test][:, test]
            each = {
                how: few_shot_accuracy_matrix(D, *drawn[key], combine=combine).accuracy
                for how, combine in COMBINED.items()
            }
            lines.append(
                {"ways": ways, "shots": shots, "chosen_frames": frames, "chosen": name, "accuracy": each[name],
                 "validation_accuracy": tried[frames, name], "every": each if shots > 1 else None}
            )  # fmt: skip
    return lines


def episodes(
    every: lw.Dataset, items: torch.Tensor, ways: int, shots: int, *, seed: int, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Episodes of some of the items, as positions among these; support and query are of different people."""
    groups = torch.as_tensor(every.groups)[items]
    return lw.Episodes(every.codes[items], ways, shots, 1, groups=groups, seed=seed).take(count)


if __name__ == "__main__":
    main(*from_command_line(Run(seeds=(0,)), Settings()))
