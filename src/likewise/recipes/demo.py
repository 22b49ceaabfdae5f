"""Recognise speakers from a spoken vowel by its nearest neighbour, under several distances.

    python -m likewise.recipes.demo [--out demo] [--json]

JapaneseVowels (UEA archive): nine men say /ae/; an utterance is 7 to 29 frames of 12 cepstral coefficients. The 270 of
the training set are the references, the 370 of the test set the queries. The last line of output is JSON.
"""

import json
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import torch
import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

import likewise as lw
from likewise import viz

DATA = "JapaneseVowels"  # its files come with aeon
DISTANCES = {
    "Euclidean": lw.Euclidean(),
    "DTW": lw.DTW(),
    "DTW, band 0.1": lw.DTW(band=0.1),
    "DTW, by steps": lw.DTW(normalize="steps"),
    "soft-DTW, gamma 0.1": lw.SoftDTW(gamma=0.1),
    "soft-DTW, gamma 1": lw.SoftDTW(gamma=1.0),
}
DRAWN = "DTW"  # the distance whose alignment is drawn


def main(
    out: Annotated[Path, typer.Option(help="The folder for alignment.png.")] = Path("demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON line only.")] = False,
) -> None:
    """Recognise speakers from a spoken vowel, and draw an alignment."""
    start = time.perf_counter()
    references, queries = (lw.read_ts(find_data(part)) for part in ("TRAIN", "TEST"))
    assert queries.labels is not None
    assert references.labels is not None
    scores, matrices = {}, {}
    quiet = as_json or not sys.stderr.isatty()
    for name, distance in track(DISTANCES.items(), "distances", console=Console(stderr=True), disable=quiet):
        began = time.perf_counter()
        D = distance.matrix(queries.sequences, references.sequences)  # (370, 270)
        seconds = time.perf_counter() - began
        scores[name] = {
            "accuracy": lw.nearest_neighbor_accuracy(D, queries.labels, references.labels),
            "map": lw.mean_average_precision(D, queries.labels, references.labels),
            "seconds": seconds,
        }
        matrices[name] = D
    picture = draw_alignment(out, queries, references, matrices[DRAWN])
    if not as_json:
        print_scores(scores, picture)
    result = {
        "recipe": "demo",
        "data": DATA,
        "references": len(references),
        "queries": len(queries),
        "scores": scores,
        "picture": str(picture),
        "seconds": time.perf_counter() - start,
    }
    print(json.dumps(result))


def find_data(part: str) -> Path:
    """The .ts file of TRAIN or TEST, inside aeon, which is found and not imported: that would take seconds."""
    aeon = find_spec("aeon")
    if aeon is None or not aeon.submodule_search_locations:
        raise SystemExit(f"error: {DATA} comes with aeon, which is not installed: pip install aeon")
    path = Path(aeon.submodule_search_locations[0], "datasets", "data", DATA, f"{DATA}_{part}.ts")
    if not path.is_file():
        raise SystemExit(f"error: this aeon comes without {path.name}: pip install --upgrade aeon")
    return path


def draw_alignment(folder: Path, queries: lw.Dataset, references: lw.Dataset, D: Tensor) -> Path:
    """Draw the recognised query whose nearest reference differs most from it in length."""
    assert queries.labels is not None
    assert references.labels is not None
    nearest = D.argmin(1)
    recognised = references.labels[nearest] == queries.labels
    difference = (queries.sequences.lengths - references.sequences.lengths[nearest]).abs()
    i = int((difference * recognised).argmax())
    j = int(nearest[i])
    x, y = queries.sequences.to_list()[i], references.sequences.to_list()[j]  # (Tx, 12), (Ty, 12)
    alignment = DISTANCES[DRAWN].align([x], [y])
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    viz.two_way(x, y, alignment, ax=left)
    viz.density(alignment, cost=torch.cdist(x, y).square(), ax=right)
    speaker = queries.classes[int(queries.labels[i])]
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


if __name__ == "__main__":
    typer.run(main)
