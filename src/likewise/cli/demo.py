"""``likewise demo``: recognise speakers by their nearest neighbour, under several distances and a learned one.

Japanese Vowels: nine men say /ae/; an utterance is 7 to 29 frames of 12 cepstral coefficients. The 270 of the training
set are the references, the 370 of the test set the queries. A metric, TAP between encoded frames, is learned from the
references, saved, and loaded again.
"""

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

import likewise as lw
from likewise.data.japanese_vowels import load_japanese_vowels

DATA = "JapaneseVowels"
DISTANCES = {
    "Euclidean": lw.Euclidean(),
    "DTW": lw.DTW(),
    "DTW, band 0.1": lw.DTW(band=0.1),
    "DTW, by steps": lw.DTW(normalize="steps"),
    "soft-DTW, gamma 0.1": lw.SoftDTW(gamma=0.1),
    "soft-DTW, gamma 1": lw.SoftDTW(gamma=1.0),
}
DRAWN = "DTW"  # the distance whose alignment is drawn
LEARNED = "TAP, learned"


def demo(
    out: Annotated[Path, typer.Option(help="The folder for alignment.png.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(help="How long to learn; 12 take half a minute on two cores.")] = 12,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Recognise speakers by several distances, learn a better one, and draw an alignment; the last line is JSON."""
    start = time.perf_counter()
    references, queries = load_japanese_vowels()
    scores, matrices = {}, {}
    quiet = as_json or not sys.stderr.isatty()
    for name, distance in track(DISTANCES.items(), "distances", console=Console(stderr=True), disable=quiet):
        began = time.perf_counter()
        D = distance.matrix(queries.items, references.items)  # (370, 270)
        scores[name] = score(D, queries, references) | {"seconds": time.perf_counter() - began}
        matrices[name] = D
    metric, began = learn(references, epochs, out / "metric", verbose=not as_json), time.perf_counter()
    with torch.no_grad():
        D = metric.matrix(standardized(queries, references), standardized(references, references))
    scores[LEARNED] = score(D, queries, references) | {"seconds": time.perf_counter() - began}
    picture = draw_alignments(out, queries, references, matrices[DRAWN], metric)
    if not as_json:
        print_scores(scores, picture)
    result = {
        "data": DATA,
        "references": len(references),
        "queries": len(queries),
        "scores": scores,
        "picture": str(picture),
        "metric": str(out / "metric"),
        "seconds": time.perf_counter() - start,
    }
    print(json.dumps(result))


def score(D: Tensor, queries: lw.Dataset, references: lw.Dataset) -> dict[str, float]:
    """1-NN accuracy and mean average precision."""
    scores = lw.evaluate_matrix(D, queries.codes, references.codes)
    return {"accuracy": scores.accuracy, "map": scores.map}


def learn(references: lw.Dataset, epochs: int, folder: Path, *, verbose: bool) -> lw.Metric:
    """Learn a metric from the references, save it, and return it as it is loaded again."""
    torch.manual_seed(0)
    metric = lw.Metric(lw.FrameMLP(12, hidden=256), lw.TAP(width=16))
    lw.fit(
        metric,
        standardized(references, references),
        references.codes,
        lw.losses.HardMiningMeans(),
        epochs=epochs,
        lr=1e-3,
        sampler=lw.MPerClass(references.codes, 36, per_class=4),
        verbose=verbose,
    )
    metric.save(folder)
    return lw.Metric.load(folder)


def standardized(data: lw.Dataset, references: lw.Dataset) -> lw.Batch:
    """Sequences with the references' means at 0 and their deviations at 1."""
    frames = references.items.values[references.items.mask]
    return lw.Batch((data.items.values - frames.mean(0)) / frames.std(0), data.items.lengths)


def draw_alignments(folder: Path, queries: lw.Dataset, references: lw.Dataset, D: Tensor, metric: lw.Metric) -> Path:
    """Draw how DTW and TAP align the recognised query whose nearest reference differs most from it in length."""
    from matplotlib.figure import Figure

    from likewise import viz

    nearest = D.argmin(1)
    recognised = references.codes[nearest] == queries.codes
    difference = (queries.items.lengths - references.items.lengths[nearest]).abs()
    i = int((difference * recognised).argmax())
    j = int(nearest[i])
    x, y = queries.items.to_list()[i], references.items.to_list()[j]  # (Tx, 12), (Ty, 12)
    alignment = DISTANCES[DRAWN].align([x], [y])
    figure = Figure(figsize=(15, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(3, 2, 2))
    viz.plot_two_way(x, y, alignment, ax=left)
    viz.plot_density(alignment, cost=torch.cdist(x, y).square(), ax=middle)
    pair = (standardized(part, references)[k][None] for part, k in ((queries, i), (references, j)))
    with torch.no_grad():
        viz.plot_density(metric.align(*pair), ax=right)
    middle.set_title(DRAWN)
    right.set_title(LEARNED)
    speaker = queries.labels[i]
    figure.suptitle(f"Speaker {speaker} says /ae/ twice: x, test utterance {i}, and y, training utterance {j}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "alignment.png"
    figure.savefig(path, dpi=150)
    return path


def print_scores(scores: dict[str, dict[str, float]], picture: Path) -> None:
    """Print a table, and where the picture is."""
    table = Table(title=f"{DATA}: which of nine speakers?")
    table.add_column("distance")
    for heading in ("1-NN accuracy", "MAP", "seconds"):
        table.add_column(heading, justify="right")
    for name, score in scores.items():
        table.add_row(name, f"{score['accuracy']:.1%}", f"{score['map']:.3f}", f"{score['seconds']:.3f}")
    console = Console()
    console.print(table)
    console.print(f"An alignment: {picture}", soft_wrap=True)
