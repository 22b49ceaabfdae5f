"""``likewise demo``: from a file to a trained, judged, searchable and explained metric.

Japanese Vowels: nine men say /ae/; an utterance is 7 to 29 frames of 12 cepstral coefficients. The 270 of the training
set are the references, the 370 of the test set the queries. Each step prints the command that does the same.
"""

import json
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

import likewise as lw
from likewise._output import check_output_folder
from likewise.cli import arguments, serve
from likewise.cli.files import save_figure
from likewise.cli.printing import described, is_terminal
from likewise.cli.train import Progress, begin_search, beside, keep
from likewise.data.japanese_vowels import load_japanese_vowels
from likewise.selection import select
from likewise.selection.division import divide

DATA = "JapaneseVowels"
NAMES = ("alignment.png", "index", "run", "run.search", "test.npz", "train.npz")  # in the folder of a demo
DISTANCES = {
    "Euclidean": lw.Euclidean(),
    "DTW": lw.DTW(),
    "DTW, band 0.1": lw.DTW(band=0.1),
    "DTW, by steps": lw.DTW(normalize="steps"),
    "soft-DTW, gamma 0.1": lw.SoftDTW(gamma=0.1),
    "soft-DTW, gamma 1": lw.SoftDTW(gamma=1.0),
}
DRAWN = "DTW"  # the distance whose alignment is drawn


def demo(
    out: Annotated[Path, typer.Option(help="The folder for all files.")] = Path("demo"),
    minutes: Annotated[float, typer.Option(help="The time to look for the best metric.")] = 0.75,
    explore: Annotated[
        bool | None,
        typer.Option(
            help="Serve the explorer at the end, until Ctrl-C; by default, on a terminal.", show_default=False
        ),
    ] = None,
    seed: arguments.Seed = 0,
    device: arguments.Device = arguments.DeviceName.CPU,
    force: arguments.Force = False,
    as_json: arguments.Json = False,
) -> None:
    """Recognise speakers: train, evaluate, index, search and explain, on data that come with likewise.

    Each step prints the command that does the same. With --force, the files of an earlier demo are replaced.
    """
    start = time.perf_counter()
    where = arguments.device_of(device)
    check_output_folder(out, overwrite=force, known=NAMES)
    train, test = load_japanese_vowels()
    say = _nothing if as_json else typer.echo
    out.mkdir(parents=True, exist_ok=True)
    lw.data.write_npz(train, out / "train.npz")
    lw.data.write_npz(test, out / "test.npz")
    say(f"{DATA}, {described(train)}: which of nine speakers says /ae/?")
    scores = {name: score(distance, test, train) for name, distance in DISTANCES.items()}

    run, index = out / "run", out / "index"
    say(f"\nlikewise train {out}/train.npz -o {run} --minutes {minutes:g}")
    metric, learned, summary = learn(train, run, minutes, out / "train.npz", seed, where, quiet=as_json)
    say(summary)

    say(f"\nlikewise evaluate {out}/test.npz {out}/train.npz --metric {run}")
    scores[learned] = score(metric, test, train)
    if not as_json:
        print_scores(scores)

    say(f"\nlikewise index {out}/train.npz --metric {run} -o {index}")
    built = lw.Index(metric, train)
    built.save(index)
    i = worth_drawing(test, train)
    say(f"likewise search {index} {out}/test.npz -k 3")
    hits = built.search(test[i : i + 1].items, k=3)
    near = [f"{hits.ids[0, n]} (speaker {hits.labels[0, n]}, {hits.distances[0, n]:.4g})" for n in range(3)]  # type: ignore[index]
    say(f"nearest to test item {i} of speaker {test.labels[i]}: {', '.join(near)}")
    say(f"\nlikewise explain {index} {out}/test.npz --query {i}")
    explanation = explain(hits)
    say(explanation)

    picture = draw_alignments(out, test, train, metric, i)
    say(f"\nan alignment: {picture}\nthe card of the metric: {run}/README.md")
    result = {
        "data": DATA,
        "references": len(train),
        "queries": len(test),
        "scores": scores,
        "learned": learned,
        "picture": str(picture),
        "metric": str(run),
        "index": str(index),
        "nearest": [str(hits.ids[0, n]) for n in range(3)],
        "explanation": explanation,
        "seconds": time.perf_counter() - start,
    }
    if as_json:
        typer.echo(json.dumps(result))
        return
    say(f"{result['seconds']:.0f} seconds\n\nlikewise explore {run} {out}/test.npz")
    if explore is None:
        explore = is_terminal() and sys.stdin.isatty() and find_spec("fastapi") is not None
    if not explore:
        say("shows all of it in a browser, at http://127.0.0.1:8000/")
        return
    serve.explore(run, out / "test.npz", distance=[arguments.DistanceName.DTW], port=0)


def score(distance: lw.Distance, queries: lw.Dataset, references: lw.Dataset) -> dict[str, float]:
    """1-NN accuracy, mean average precision, and how long they took."""
    began = time.perf_counter()
    scores = lw.evaluate(distance, queries, references)
    return {"accuracy": scores.accuracy, "map": scores.map, "seconds": time.perf_counter() - began}


def learn(
    train: lw.Dataset, run: Path, minutes: float, data: Path, seed: int, device: str, *, quiet: bool
) -> tuple[lw.Metric, str, str]:
    """The best metric, loaded again, with its name, and by how much it is better."""
    begin_search(run, resume=False)
    with Progress(minutes, quiet=quiet) as progress:
        options = {"minutes": minutes, "seed": seed, "device": device, "report": progress.report}
        selection = select(train, folder=beside(run), **options)
    keep(run, selection, divide(train, None, None, seed), data=data, command="likewise demo", seed=seed)
    return lw.Metric.load(run), f"{selection.best.name}, chosen", str(selection)


def explain(hits: lw.search.Hits) -> str:
    """Why the nearest item is near, for metrics that align."""
    try:
        return str(hits.explain(0, 0))
    except (NotImplementedError, TypeError, ValueError) as error:
        return str(error)


def worth_drawing(test: lw.Dataset, train: lw.Dataset) -> int:
    """The recognised query whose nearest reference differs most from it in length."""
    nearest = DISTANCES[DRAWN].matrix(test, train).argmin(1)
    recognised = torch.from_numpy(train.labels[nearest.numpy()] == test.labels)
    difference = (test.items.lengths - train.items.lengths[nearest]).abs()
    return int((difference * recognised).argmax())


def draw_alignments(folder: Path, test: lw.Dataset, train: lw.Dataset, metric: lw.Metric, i: int) -> Path:
    """Draw how DTW aligns a query to its nearest reference, and how the metric does, if it aligns."""
    from matplotlib.figure import Figure

    from likewise import viz

    j = int(DISTANCES[DRAWN].matrix(test.items[i : i + 1], train).argmin())
    x, y = test.items[i], train.items[j]  # (Tx, 12), (Ty, 12)
    alignment = DISTANCES[DRAWN].align([x], [y])
    figure = Figure(figsize=(15, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(3, 2, 2))
    viz.plot_two_way(x, y, alignment, ax=left)
    viz.plot_density(alignment, cost=torch.cdist(x, y).square(), ax=middle)
    middle.set_title(DRAWN)
    try:
        with torch.no_grad():
            viz.plot_density(metric.align([x], [y]), ax=right)
        right.set_title("the learned metric")
    except (NotImplementedError, TypeError, ValueError):  # it compares vectors
        right.set_axis_off()
    figure.suptitle(f"Speaker {test.labels[i]} says /ae/ twice: x, test utterance {i}, and y, training utterance {j}")
    path = folder / "alignment.png"
    save_figure(path, figure, force=True)
    return path


def print_scores(scores: dict[str, dict[str, float]]) -> None:
    """Print a table."""
    table = Table()
    table.add_column("distance")
    for heading in ("1-NN accuracy", "MAP", "seconds"):
        table.add_column(heading, justify="right")
    for name, found in scores.items():
        table.add_row(name, f"{found['accuracy']:.1%}", f"{found['map']:.3f}", f"{found['seconds']:.3f}")
    Console().print(table)


def _nothing(text: Any) -> None:
    """Say nothing."""
