"""Distances without learning, and with a linear map: Tables 2, 6 and 7 of "Temporal alignment prediction" (ICLR 2022).

    python -m likewise.recipes.distances --data msr_action3d
    python -m likewise.recipes.distances --data sad --distance dtw --distance opw --queries 220
    python -m likewise.recipes.distances --data sad --tap runs/self-supervised

Test sequences find training sequences by each distance: mean average precision and 1-, 5- and 30-NN accuracy as in
Tables 6 and 7, and the seconds that one test sequence takes against all training sequences, as in Table 2. Each
distance prints a JSON line, the end a table. rvsml_dtw and rvsml_opw learn a linear map of frames first, as in Table 1.

The settings are those of the authors' code: DTW of squared distances (ldtw: divided by both lengths, ndtw: by the
steps of the path), OPW with 50, 0.1, 1 and 20 iterations, TCOT with lambda = 1 and 100 iterations. They do not print
Sinkhorn's, nor soft-DTW's: here 0.1 and 1. opw_converged, sinkhorn and ot are solved to convergence. tap is timed with
random weights, and scored only where --tap names a metric that ``likewise.recipes.tap --self-supervised`` kept.

ot, a linear program for each pair, runs on the CPU: at most --pairs of them, for which test sequences are left out.
Data are those of ``likewise.recipes.tap``: the paper's MSR Action3D has 192 features of a frame, ours 60.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

import likewise as lw
from likewise.distances.emd import EMD
from likewise.distances.opw import OPW
from likewise.distances.sinkhorn import Sinkhorn
from likewise.distances.tcot import TCOT
from likewise.recipes.common import emit, known, thinned
from likewise.recipes.tap import READERS, fitting
from likewise.training.rvsml import RVSML

NEIGHBORS = (1, 5, 30)
UNTRAINED: dict[str, Callable[[], lw.Distance]] = {
    "dtw": lw.DTW,
    "ldtw": lambda: lw.DTW(normalize="lengths"),
    "ndtw": lambda: lw.DTW(normalize="steps"),
    "ot": EMD,
    "sinkhorn": Sinkhorn,
    "tcot": lambda: TCOT(n_iter=100),
    "opw": lambda: OPW(n_iter=20),
    "opw_converged": OPW,
    "softdtw": lw.SoftDTW,
    "tap": lw.TAP,
}
LEARNED: dict[str, Callable[[], RVSML]] = {
    "rvsml_dtw": lambda: RVSML(ridge=0.1),
    "rvsml_opw": lambda: RVSML(OPW(n_iter=20), ridge=0.01),
}
# MAP, and the accuracies of 1, 5 and 30 neighbours; of other features of the same sequences.
PUBLISHED = {
    "dtw": (0.590, 81.32, 80.95, 72.53), "ldtw": (0.567, 82.78, 79.12, 64.84), "ndtw": (0.565, 79.85, 76.92, 67.40),
    "ot": (0.544, 78.02, 75.09, 59.34), "sinkhorn": (0.546, 78.02, 74.73, 60.44), "tcot": (0.578, 80.59, 79.49, 67.03),
    "opw": (0.587, 84.25, 80.22, 67.03), "softdtw": (0.589, 81.32, 80.95, 72.89), "tap": (0.557, 79.85, 78.02, 67.77),
}  # fmt: skip
# Seconds of one test sequence against all training sequences.
PUBLISHED_SECONDS = {
    "msr_action3d": {"dtw": 0.9212, "ot": 279.6414, "opw": 0.8029, "softdtw": 0.217, "tap": 0.138},
    "sad": {"dtw": 29.568, "ot": 794.9984, "opw": 25.309, "softdtw": 4.922, "tap": 3.009},
}


def main(
    data: Annotated[str, typer.Option(help="sad or msr_action3d")] = "msr_action3d",
    distance: Annotated[
        list[str] | None, typer.Option(help=", ".join([*UNTRAINED, *LEARNED]) + "; repeat it for several, default all")
    ] = None,
    tap: Annotated[Path | None, typer.Option(help="A metric with TAP, as Metric.save writes it.")] = None,
    items: Annotated[int | None, typer.Option(help="Use every n-th item only, so that about so many train.")] = None,
    queries: Annotated[int | None, typer.Option(help="Score about so many test sequences, every n-th.")] = None,
    pairs: Annotated[int, typer.Option(help="Most pairs of ot.")] = 200_000,
    device: Annotated[str | None, typer.Option(help="By default cuda, if there is one.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the .npz files are; else $LIKEWISE_DATA.")] = None,
    out: Annotated[Path | None, typer.Option(help="Append the JSON lines to this file.")] = None,
    verbose: bool = False,
) -> None:
    """Score and time distances between sequences by retrieval."""
    chosen = distance or [*UNTRAINED, *LEARNED]
    for given, known_names in ((data, [*READERS]), *((name, [*UNTRAINED, *LEARNED]) for name in chosen)):
        if given not in known_names:
            raise SystemExit(f"error: unknown {given!r}; expected one of {', '.join(known_names)}")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    source = data_dir or Path(os.environ.get("LIKEWISE_DATA", "."))
    train, test = (thinned(part, items) for part in READERS[data](source))
    test = thinned(test, queries)
    lines = []
    for name in chosen:
        asked = thinned(test, max(1, pairs // len(train))) if name == "ot" else test
        lines.append(run(name, data, train, asked, device, tap=tap, verbose=verbose))
        emit(lines[-1], out)
    print_table(data, lines)


def run(
    name: str,
    data: str,
    train: lw.Dataset,
    test: lw.Dataset,
    device: str,
    *,
    tap: Path | None = None,
    verbose: bool = False,
) -> dict:
    """Score and time one distance; a mapping that goes to JSON."""
    x, y = train.sequences.to(device), known(train.labels)
    queries = test.sequences.to(device)
    start = time.perf_counter()
    trained = name in LEARNED or (name == "tap" and tap is not None)
    if name in LEARNED:
        metric: lw.Distance = LEARNED[name]().fit(x, y.numpy()).metric_
    elif trained:
        assert tap is not None
        metric = lw.Metric.load(tap)
    else:
        torch.manual_seed(0)
        metric = UNTRAINED[name]()
    metric.to(device)
    learning = time.perf_counter() - start
    if device == "cuda":  # compile kernels before the clock runs
        lw.evaluate(metric, (queries[:1], known(test.labels)[:1]), (x, y))
    start = time.perf_counter()
    scores = lw.evaluate(metric, (queries, known(test.labels)), (x, y), ks=fitting(NEIGHBORS, y), progress=verbose)
    seconds = time.perf_counter() - start
    line = {
        "recipe": "distances",
        "data": data,
        "distance": name,
        "train": len(train),
        "test": len(test),
        "seconds_a_query": seconds / len(test),
        "test_seconds": seconds,
        "pairs_a_second": len(train) * len(test) / seconds,
        "learning_seconds": learning if trained else None,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
    }
    if name != "tap" or trained:  # random weights say nothing
        line |= {"accuracy": scores.accuracy, "map": scores.map, "f1": scores.f1}
        line["knn"] = {str(k): v for k, v in scores.knn.items()}
    return line


def print_table(data: str, lines: list[dict]) -> None:
    """Print scores and times, with the paper's in brackets."""
    table = Table(title=f"{data}: retrieval of training sequences by test sequences (in brackets: the paper)")
    for heading in ("distance", "test", "MAP", "1-NN", "5-NN", "30-NN", "s a query", "pairs/s"):
        table.add_column(heading, justify="left" if heading == "distance" else "right")
    for line in lines:
        name, knn = line["distance"], line.get("knn", {})
        published = PUBLISHED.get(name) if data == "msr_action3d" else None
        shown = [line.get("map"), *(knn.get(str(k)) for k in NEIGHBORS)]
        forms = [(1, "{:.3f}"), (100, "{:.2f}"), (100, "{:.2f}"), (100, "{:.2f}")]
        table.add_row(
            name,
            str(line["test"]),
            *(
                beside(value and scale * value, published and published[place], form)
                for place, (value, (scale, form)) in enumerate(zip(shown, forms, strict=True))
            ),
            beside(line["seconds_a_query"], PUBLISHED_SECONDS[data].get(name), "{:.3g}"),
            f"{line['pairs_a_second']:,.0f}",
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def beside(ours: float | None, theirs: float | None, form: str) -> str:
    """Our number, and the paper's in brackets, where there are any."""
    shown = "" if ours is None else form.format(ours)
    return shown if theirs is None else f"{shown} ({form.format(theirs)})".strip()


if __name__ == "__main__":
    typer.run(main)
