"""RVSML on UCI HAR: the baselines of the coupled-GRU paper's Table II.

    python -m likewise.recipes.rvsml
    python -m likewise.recipes.rvsml --aligner opw --queries 300 --references 750
    python -m likewise.recipes.rvsml --deep --rounds 5 --epochs 1

A linear map of frames is learned in closed form from all training sequences; test sequences then find training
sequences by the aligner's distance. The paper prints accuracy .698, macro-F1 .687 and MAP .437 with DTW, and .597, .568
and .438 with OPW, and says only that the values are those recommended by the authors of RVSML: here, as in their code
for MSR Action3D, r = 4, ridge 0.1 with DTW and 0.01 with OPW, at most 200 rounds, a change of less than 1e-6 to stop.
The channels are as they come, as in the paper ("no further preprocessing"); --standardize gives each a mean of 0 and a
deviation of 1 over the training set. The aligner opw stops after 20 iterations as the authors'
does, opw_converged goes on to the solution.

OPW of all 2,947 x 7,352 pairs takes a GPU: --queries and --references score every n-th sequence only.
Nothing is chosen on test data. Data come from --data-dir or $LIKEWISE_DATA: uci_har.npz.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

import likewise as lw
from likewise.distances.opw import OPW
from likewise.recipes.common import emit, known, load, spread, thinned
from likewise.training.deep_rvsml import DeepRVSML
from likewise.training.rvsml import RVSML

ALIGNERS: dict[str, Callable[[], lw.Distance]] = {
    "dtw": lw.DTW,
    "softdtw": lambda: lw.SoftDTW(gamma=0.1),
    "opw": lambda: OPW(n_iter=20),  # as in the authors' code: far from its solution
    "opw_converged": OPW,
}
RIDGES = {"dtw": 0.1, "softdtw": 0.1, "opw": 0.01, "opw_converged": 0.01}
KEPT, WEIGHTS = "learned.json", "metric"


@dataclass(frozen=True)
class Settings:
    """One row of the table."""

    aligner: str = "dtw"
    ridge: float | None = None  # the authors', by default
    standardize: bool = False
    max_iter: int = 200
    deep: bool = False
    rounds: int = 5
    epochs: int = 1
    lr: float = 1e-4
    seed: int = 0

    @property
    def name(self) -> str:
        """What the table calls it."""
        deep = "deep " if self.deep else ""
        return f"{deep}rvsml {self.aligner}{', standardised' if self.standardize else ''}"


def main(
    aligner: Annotated[list[str] | None, typer.Option(help=", ".join(ALIGNERS) + "; repeat it for several")] = None,
    standardize: Annotated[bool, typer.Option(help="Scale each channel by the training set.")] = False,
    ridge: Annotated[float | None, typer.Option(help="By default 0.1, and 0.01 with OPW.")] = None,
    max_iter: Annotated[int, typer.Option(help="Most rounds of the closed form.")] = 200,
    deep: Annotated[bool, typer.Option(help="A network in place of the linear map.")] = False,
    rounds: Annotated[int, typer.Option(help="Most rounds of the network.")] = 5,
    epochs: Annotated[int, typer.Option(help="Epochs of each round: 940,000 frames each.")] = 1,
    lr: Annotated[float, typer.Option(help="Of the network.")] = 1e-4,
    seeds: Annotated[int, typer.Option(help="How many runs of the network; the closed form has no chance in it.")] = 1,
    first_seed: Annotated[int, typer.Option(help="Where the seeds begin.")] = 0,
    items: Annotated[int | None, typer.Option(help="Use every n-th item only, so that about so many train.")] = None,
    queries: Annotated[int | None, typer.Option(help="Score about so many test sequences, every n-th.")] = None,
    references: Annotated[int | None, typer.Option(help="Search about so many training sequences, every n-th.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the .npz file is; else $LIKEWISE_DATA.")] = None,
    out: Annotated[Path | None, typer.Option(help="Append the JSON lines to this file.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep metrics here, and score those that are there.")] = None,
    verbose: bool = False,
) -> None:
    """Learn metrics from virtual sequences of UCI HAR, and score them by retrieval."""
    chosen = aligner or ["dtw"]
    for name in chosen:
        if name not in ALIGNERS:
            raise SystemExit(f"error: unknown {name!r}; expected one of {', '.join(ALIGNERS)}")
    source = data_dir or Path(os.environ.get("LIKEWISE_DATA", "."))
    train, test = (thinned(part, items) for part in read_har(source, standardize=standardize))
    pairs = thinned(test, queries), thinned(train, references)
    lines = []
    for name in chosen:
        for seed in range(first_seed, first_seed + (seeds if deep else 1)):
            settings = Settings(name, ridge, standardize, max_iter, deep, rounds, epochs, lr, seed)
            kept = None if folder is None else folder / f"{settings.name}, seed {seed}"
            lines.append(run(settings, train, *pairs, folder=kept, verbose=verbose))
            emit(lines[-1], out)
    print_table(lines)


def run(
    settings: Settings,
    train: lw.Dataset,
    queries: lw.Dataset,
    references: lw.Dataset,
    *,
    folder: Path | None = None,
    verbose: bool = False,
) -> dict:
    """Learn and score one metric; a mapping that goes to JSON."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    wanted = {**asdict(settings), "train": len(train)}
    if folder is not None and (folder / KEPT).exists():
        kept = json.loads((folder / KEPT).read_text())
        if kept["wanted"] != wanted:
            raise SystemExit(f"error: {folder} keeps a metric of other settings; give another --folder")
        metric, learned = lw.Metric.load(folder / WEIGHTS), kept["learned"]
    else:
        metric, learned = learn(settings, train, device, verbose)
        if folder is not None:
            metric.save(folder / WEIGHTS)
            (folder / KEPT).write_text(json.dumps({"wanted": wanted, "learned": learned}))
    metric.to(device)
    start = time.perf_counter()
    scores = lw.evaluate(
        metric,
        (queries.sequences.to(device), known(queries.labels)),
        (references.sequences.to(device), known(references.labels)),
        progress=verbose,
    )
    seconds = time.perf_counter() - start
    return {
        "recipe": "rvsml",
        "data": "uci_har",
        **asdict(settings),
        **learned,
        "test": len(queries),
        "references": len(references),
        "accuracy": scores.accuracy,
        "f1": scores.f1,
        "map": scores.map,
        "test_seconds": seconds,
        "pairs_a_second": len(queries) * len(references) / seconds,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }


def learn(settings: Settings, train: lw.Dataset, device: str, verbose: bool) -> tuple[lw.Metric, dict]:
    """A metric, and how its learning went."""
    aligner = ALIGNERS[settings.aligner]()
    ridge = RIDGES[settings.aligner] if settings.ridge is None else settings.ridge
    if settings.deep:
        learner = DeepRVSML(
            aligner,
            rounds=settings.rounds,
            epochs=settings.epochs,
            lr=settings.lr,
            device=device,
            seed=settings.seed,
            verbose=verbose,
        )
    else:
        learner = RVSML(aligner, ridge=ridge, max_iter=settings.max_iter, verbose=verbose)
    start = time.perf_counter()
    learner.fit(train.sequences.to(device), known(train.labels).numpy())
    learned = {
        "train": len(train),
        "wall_time": time.perf_counter() - start,
        "rounds_taken": learner.n_iter_,
        "converged": learner.converged_,
        "cost": float(learner.costs_[-1]),
    }
    if isinstance(learner, RVSML):
        learned |= {"ridge": ridge, "norm": float(learner.norms_[-1])}
    return learner.metric_, learned


def read_har(folder: Path, *, standardize: bool) -> tuple[lw.Dataset, lw.Dataset]:
    """UCI HAR, 9 channels of 128 steps."""
    data = load(folder / "uci_har.npz")
    mean, deviation = data["X_train"].mean((0, 1)), data["X_train"].std((0, 1))
    classes = tuple(str(name) for name in data["classes"])
    train, test = (
        lw.Dataset(
            lw.Batch(torch.from_numpy((data[f"X_{part}"] - mean) / deviation if standardize else data[f"X_{part}"])),
            torch.from_numpy(data[f"y_{part}"].astype(np.int64)),
            classes,
        )
        for part in ("train", "test")
    )
    return train, test


def print_table(lines: list[dict]) -> None:
    """Print scores, and how long they took."""
    table = Table(title="UCI HAR: retrieval of training sequences by test sequences")
    for heading in ("method", "seeds", "accuracy", "macro-F1", "MAP", "rounds", "s to learn", "pairs", "pairs/s"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    names = [Settings(**{key: line[key] for key in Settings.__dataclass_fields__}).name for line in lines]
    for name in dict.fromkeys(names):
        same = [line for line, its in zip(lines, names, strict=True) if its == name]
        table.add_row(
            name,
            str(len(same)),
            *(spread([line[key] for line in same], "{:.3f}") for key in ("accuracy", "f1", "map")),
            spread([line["rounds_taken"] for line in same], "{:.0f}"),
            spread([line["wall_time"] for line in same], "{:.1f}"),
            f"{same[0]['test']:,} x {same[0]['references']:,}",
            spread([line["pairs_a_second"] for line in same], "{:,.0f}"),
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    typer.run(main)
