"""``likewise demo``: recognise speakers by their nearest neighbour, under several distances and a learned one.

Japanese Vowels: nine men say /ae/; an utterance is 7 to 29 frames of 12 cepstral coefficients. The 270 of the training
set are the references, the 370 of the test set the queries. A metric, TAP between encoded frames, is learned from the
references, saved, and loaded again.
"""

import json
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

import likewise as lw
from likewise.cli import arguments
from likewise.cli.files import save_figure
from likewise.data.japanese_vowels import load_japanese_vowels
from likewise.data.shl import standardize

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
    out: Annotated[Path, typer.Option(help="The folder for alignment.png and metric/; replaces them.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(help="How long to learn; 12 take half a minute on two cores.")] = 12,
    as_json: arguments.Json = False,
) -> None:
    """Recognise speakers by several distances, learn a better one, and draw an alignment; the last line is JSON."""
    start = time.perf_counter()
    train, test = load_japanese_vowels()
    scores = {name: score(distance, test, train) for name, distance in DISTANCES.items()}
    scaled_train, scaled_test = standardize(train, test)
    metric = learn(scaled_train, epochs, out / "metric", verbose=not as_json)
    scores[LEARNED] = score(metric, scaled_test, scaled_train)
    picture = draw_alignments(out, test, train, metric, scaled_test, scaled_train)
    if not as_json:
        print_scores(scores, picture)
    result = {
        "data": DATA,
        "references": len(train),
        "queries": len(test),
        "scores": scores,
        "picture": str(picture),
        "metric": str(out / "metric"),
        "seconds": time.perf_counter() - start,
    }
    typer.echo(json.dumps(result))


def score(distance: lw.Distance, queries: lw.Dataset, references: lw.Dataset) -> dict[str, float]:
    """1-NN accuracy, mean average precision, and how long they took."""
    began = time.perf_counter()
    scores = lw.evaluate(distance, queries, references)
    return {"accuracy": scores.accuracy, "map": scores.map, "seconds": time.perf_counter() - began}


def learn(train: lw.Dataset, epochs: int, folder: Path, *, verbose: bool) -> lw.Metric:
    """Learn a metric, save it, and return it as it is loaded again."""
    torch.manual_seed(0)
    metric = lw.Metric(lw.FrameMLP(12, hidden=256, out=12, standardize=False), lw.TAP(width=16))
    sampler = lw.MPerClass(train.codes, 36, per_class=4)
    lw.fit(metric, train, lw.losses.HardMiningMeans(), epochs=epochs, lr=1e-3, sampler=sampler, verbose=verbose)
    metric.save(folder)
    return lw.Metric.load(folder)


def draw_alignments(
    folder: Path,
    test: lw.Dataset,
    train: lw.Dataset,
    metric: lw.Metric,
    scaled_test: lw.Dataset,
    scaled_train: lw.Dataset,
) -> Path:
    """Draw how DTW and TAP align the recognised query whose nearest reference differs most from it in length."""
    from matplotlib.figure import Figure

    from likewise import viz

    nearest = DISTANCES[DRAWN].matrix(test, train).argmin(1)
    recognised = torch.from_numpy(train.labels[nearest.numpy()] == test.labels)
    difference = (test.items.lengths - train.items.lengths[nearest]).abs()
    i = int((difference * recognised).argmax())
    j = int(nearest[i])
    x, y = test.items[i], train.items[j]  # (Tx, 12), (Ty, 12)
    alignment = DISTANCES[DRAWN].align([x], [y])
    with torch.no_grad():
        learned = metric.align([scaled_test.items[i]], [scaled_train.items[j]])
    figure = Figure(figsize=(15, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(3, 2, 2))
    viz.plot_two_way(x, y, alignment, ax=left)
    viz.plot_density(alignment, cost=torch.cdist(x, y).square(), ax=middle)
    viz.plot_density(learned, ax=right)
    middle.set_title(DRAWN)
    right.set_title(LEARNED)
    figure.suptitle(f"Speaker {test.labels[i]} says /ae/ twice: x, test utterance {i}, and y, training utterance {j}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "alignment.png"
    save_figure(path, figure, force=True)
    return path


def print_scores(scores: dict[str, dict[str, float]], picture: Path) -> None:
    """Print a table, and where the picture is."""
    table = Table(title=f"{DATA}: which of nine speakers?")
    table.add_column("distance")
    for heading in ("1-NN accuracy", "MAP", "seconds"):
        table.add_column(heading, justify="right")
    for name, found in scores.items():
        table.add_row(name, f"{found['accuracy']:.1%}", f"{found['map']:.3f}", f"{found['seconds']:.3f}")
    console = Console()
    console.print(table)
    console.print(f"An alignment: {picture}", soft_wrap=True)
