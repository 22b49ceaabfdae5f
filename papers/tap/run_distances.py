"""Distances without learning, and RVSML: Tables 2, 6 and 7 of the paper.

    python -m papers.tap.run_distances --data msr_action3d
    python -m papers.tap.run_distances --data sad --distances dtw ldtw ndtw softdtw --queries 220
    python -m papers.tap.run_distances --data sad --distances opw sinkhorn tcot --queries 55

Test sequences find training sequences by each distance: mean average precision and 1-, 5- and 30-NN accuracy as in
Tables 6 and 7, and the seconds that one test sequence takes against all training sequences, as in Table 2.

The settings are those of the authors' code: DTW of squared distances (ldtw: divided by both lengths, ndtw: by the
steps of the path), OPW with 50, 0.1, 1 and 20 iterations, TCOT with lambda = 1 and 100 iterations. They do not print
Sinkhorn's, nor soft-DTW's: here 0.1 and 1. opw_converged, sinkhorn and ot are solved to convergence. tap is timed with
random weights, and not scored. RVSML learns a linear map without intercept: its frames are centred first.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

import likewise as lw
from likewise.sklearn import RVSML
from papers.common import Run, check_choice, device_name, emit, from_command_line, moved, thinned
from papers.tap.data import READERS

UNTRAINED: dict[str, Callable[[], lw.Distance]] = {
    "dtw": lw.DTW,
    "ldtw": lambda: lw.DTW(normalize="lengths"),
    "ndtw": lambda: lw.DTW(normalize="steps"),
    "ot": lw.EMD,
    "sinkhorn": lw.Sinkhorn,
    "tcot": lambda: lw.TCOT(n_iter=100),
    "opw": lambda: lw.OPW(n_iter=20),
    "opw_converged": lw.OPW,
    "softdtw": lw.SoftDTW,
    "tap": lw.TAP,
}
LEARNED: dict[str, Callable[[], RVSML]] = {
    "rvsml_dtw": lambda: RVSML(ridge=0.1),
    "rvsml_opw": lambda: RVSML(lw.OPW(n_iter=20), ridge=0.01),
}
EVERY = (*UNTRAINED, *LEARNED)


@dataclass(frozen=True)
class Settings:
    """Which distances are scored, on what."""

    data: str = "msr_action3d"
    distances: tuple[str, ...] = EVERY
    queries: int | None = None  # score about so many test sequences, every n-th
    pairs: int = 200_000  # most pairs of ot, a linear program for each, on the CPU


def main(run: Run, settings: Settings) -> None:
    """Score and time each distance by retrieval."""
    check_choice("--data", settings.data, READERS)
    train, test = (thinned(part, run.items) for part in READERS[settings.data](run.data_dir))
    test = thinned(test, settings.queries)
    for name in settings.distances:
        check_choice("--distances", name, EVERY)
        asked = thinned(test, max(1, settings.pairs // len(train))) if name == "ot" else test
        emit(experiment(run, settings.data, name, train, asked), run.out)


def experiment(run: Run, data: str, name: str, train: lw.Dataset, test: lw.Dataset) -> dict:
    """Score and time one distance."""
    train, test = moved(train, run.device), moved(test, run.device)
    torch.manual_seed(0)
    if name in LEARNED:
        train, test = centred(train, test)
    start = time.perf_counter()
    metric = LEARNED[name]().fit(train.items, train.labels).metric_ if name in LEARNED else UNTRAINED[name]()
    metric.to(run.device)
    learning = time.perf_counter() - start if name in LEARNED else None
    if run.device == "cuda":  # compile kernels before the clock runs
        lw.evaluate(metric, test[:1], train)
    start = time.perf_counter()
    scores = lw.evaluate(metric, test, train, ks=[k for k in (1, 5, 30) if k <= len(train)])
    seconds = time.perf_counter() - start
    line = {
        "recipe": "distances", "data": data, "distance": name, "train": len(train), "test": len(test),
        "seconds_a_query": seconds / len(test), "test_seconds": seconds,
        "pairs_a_second": len(train) * len(test) / seconds, "learning_seconds": learning,
        "device": device_name(run.device), "threads": torch.get_num_threads(),
    }  # fmt: skip
    if name != "tap":  # random weights say nothing
        line |= {"accuracy": scores.accuracy, "map": scores.map, "f1": scores.f1}
        line["knn"] = {str(k): v for k, v in scores.knn.items()}
    return line


def centred(train: lw.Dataset, test: lw.Dataset) -> tuple[lw.Dataset, lw.Dataset]:
    """Both without the mean of the training frames: RVSML has no intercept. Other distances do not see the mean."""
    mean = train.items.values[train.items.mask].mean(0)
    first, second = (replace(part, items=lw.Batch(part.items.values - mean, part.items.lengths))
                     for part in (train, test))  # fmt: skip
    return first, second


if __name__ == "__main__":
    main(*from_command_line(Run(seeds=(0,)), Settings()))
