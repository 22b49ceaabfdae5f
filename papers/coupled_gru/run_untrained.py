"""Distances that learn nothing on UCI HAR, beside the networks: test sequences find training sequences.

    python -m papers.coupled_gru.run_untrained --distance dtw --band 0.1 --out lines.jsonl
    python -m papers.coupled_gru.run_untrained --distance euclidean --out lines.jsonl
    python -m papers.coupled_gru.run_untrained --part folds --out lines.jsonl

A fold's three subjects find the other training subjects, as in ``run.py``, so that a band or a standardisation can be
chosen without the test set.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import likewise as lw
from likewise.data.shl import standardize
from papers.common import Run, check_choice, device_name, emit, find_line, from_command_line, moved, thinned
from papers.coupled_gru.data import FOLDS, fold_mask, read_har_npz

DISTANCES: dict[str, Callable[[float | None], lw.Distance]] = {
    "dtw": lambda band: lw.DTW(band=band),
    "softdtw": lambda band: lw.SoftDTW(gamma=0.1, band=band),
    "euclidean": lambda band: lw.Euclidean(),
}
SCORES = ("accuracy", "f1", "map")


@dataclass(frozen=True)
class Settings:
    """One row of the table."""

    distance: str = "dtw"
    band: float | None = None  # of DTW, as a share of the 128 steps
    standardize: bool = False  # give each channel mean 0 and deviation 1; the paper does no preprocessing
    part: str = "test"  # folds or test


def main(run: Run, settings: Settings) -> None:
    """Score a distance on the folds, or on the test set."""
    check_choice("--distance", settings.distance, DISTANCES)
    check_choice("--part", settings.part, ("folds", "test"))
    train, test = (moved(thinned(part, run.items), run.device) for part in read_har_npz(run.data_dir))
    if settings.standardize:
        train, test = standardize(train, test)
    distance = DISTANCES[settings.distance](settings.band)
    for number in range(FOLDS) if settings.part == "folds" else (None,):
        about = {"recipe": "har_untrained", **asdict(settings), "number": number, "train": len(train)}
        if find_line(about, run.out) is not None:
            continue
        queries, references = test, train
        if number is not None:
            held_out = fold_mask(train, number)
            queries, references = train[held_out], train[~held_out]
        start = time.perf_counter()
        scores = lw.evaluate(distance, queries, references)
        emit(
            about | {name: getattr(scores, name) for name in SCORES}
            | {"pairs": scores.queries * scores.references, "test_seconds": time.perf_counter() - start,
               "device": device_name(run.device)},
            run.out,
        )  # fmt: skip


if __name__ == "__main__":
    main(*from_command_line(Run(seeds=(0,)), Settings()))
