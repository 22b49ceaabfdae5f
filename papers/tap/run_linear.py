"""LDMLT and SWMD: linear maps of frames that are learned with an alignment, and used under DTW and OPW.

    python -m papers.tap.run_linear --method ldmlt --out lines.jsonl
    python -m papers.tap.run_linear --method swmd --out lines.jsonl

Every setting of GRIDS is learned without some training subjects or speakers, who then find the others by each aligner.
By the mean of 1-NN accuracy and MAP there, each aligner gets its own setting. With that setting a map is learned on all
training sequences and scored on the test sequences. Both kinds of lines are kept ("validate": true or false).
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import likewise as lw
from likewise.data.shl import standardize
from likewise.sklearn import LDMLT, SWMD
from papers.common import Run, check_choice, device_name, emit, find_line, from_command_line, moved, thinned
from papers.tap.data import READERS, held_out

LEARNERS: dict[str, Callable[..., LDMLT | SWMD]] = {
    "ldmlt": LDMLT,
    "swmd": lambda **options: SWMD(lw.DTW(), **options),
}
GRIDS: dict[str, list[dict]] = {
    "ldmlt": [{"rate": rate, "max_iter": sweeps} for rate in (0.01, 0.1, 1.0) for sweeps in (2, 10, 40)],
    "swmd": [{"lr": lr, "epochs": epochs} for lr in (0.003, 0.03) for epochs in (1, 4)],
}
ALIGNERS: dict[str, Callable[[], lw.Distance]] = {"dtw": lw.DTW, "opw": lambda: lw.OPW(n_iter=20)}


@dataclass(frozen=True)
class Settings:
    """The learned distance and its data."""

    data: str = "msr_action3d"
    method: str = "ldmlt"


def main(run: Run, settings: Settings) -> None:
    """Choose a setting for each aligner on held-out training sequences, and score it on the test sequences."""
    check_choice("--data", settings.data, READERS)
    check_choice("--method", settings.method, LEARNERS)
    train, test = (moved(thinned(part, run.items), run.device) for part in READERS[settings.data](run.data_dir))
    known, asked = held_out(train)
    for seed in run.seeds:
        about = {"recipe": "linear", **asdict(settings), "seed": seed}
        tried = [line for options in GRIDS[settings.method]
                 for line in lines_of(run, {**about, "validate": True}, options, known, asked)]  # fmt: skip
        for aligner in ALIGNERS:
            same = [line for line in tried if line["aligner"] == aligner]
            best = max(same, key=lambda line: line["accuracy"] + line["map"])
            lines_of(run, {**about, "validate": False}, best["options"], train, test, [aligner])


def lines_of(
    run: Run, about: dict, options: dict, train: lw.Dataset, test: lw.Dataset, aligners: list[str] | None = None
) -> list[dict]:
    """A line for each aligner: as it is kept already, or of a map that is learned now."""
    wanted = {name: {**about, "options": options, "aligner": name} for name in aligners or ALIGNERS}
    found = {name: find_line(each, run.out) for name, each in wanted.items()}
    if None in found.values():
        start = time.perf_counter()
        first, second = standardize(train, test)  # channels that never change, as a hip's, stay zero
        learner = LEARNERS[about["method"]](seed=about["seed"], **options).fit(first)
        learning = time.perf_counter() - start
        y, x = learner.references_, learner.transform(second)
        for name, each in wanted.items():
            scores = lw.evaluate(ALIGNERS[name](), (x, second.labels), (y, first.labels),
                                 ks=[k for k in (1, 5, 30) if k <= len(first)])  # fmt: skip
            found[name] = {
                **each, "accuracy": scores.accuracy, "map": scores.map, "f1": scores.f1,
                "knn": {str(k): v for k, v in scores.knn.items()}, "train": len(first), "test": len(second),
                "learning_seconds": learning, "device": device_name(run.device),
            }  # fmt: skip
            emit(found[name], run.out)
    return [line for line in found.values() if line is not None]


if __name__ == "__main__":
    main(*from_command_line(Run(seeds=(0,)), Settings()))
