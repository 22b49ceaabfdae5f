"""The command ``likewise``: a subcommand parses, calls the library and prints.

What is wrong with the data or with an argument's value ends in one line on stderr and exit code 1; wrong usage ends in
2, Ctrl-C in 130. Anything else is a mistake of ours and shows its traceback.
"""

import inspect
import json
import math
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor
from typer.core import TyperGroup

import likewise as lw
from likewise.cli_environment import environment
from likewise.cli_files import read, save, select
from likewise.data.episodes import Episodes
from likewise.evaluation.few_shot import few_shot_accuracy

MOST_PRINTED = 10_000  # numbers of a matrix that --json prints


class DistanceName(StrEnum):
    """A distance that fills a matrix."""

    DTW = "dtw"
    SOFT_DTW = "soft-dtw"
    SOFT_DTW_DIVERGENCE = "soft-dtw-divergence"
    GDTW = "gdtw"
    SINKHORN = "sinkhorn"
    OPW = "opw"
    TCOT = "tcot"
    EMD = "emd"
    OTAM = "otam"
    EUCLIDEAN = "euclidean"
    COSINE = "cosine"


DISTANCES: dict[str, type[lw.Distance]] = {
    DistanceName.DTW: lw.DTW,
    DistanceName.SOFT_DTW: lw.SoftDTW,
    DistanceName.SOFT_DTW_DIVERGENCE: lw.SoftDTWDivergence,
    DistanceName.GDTW: lw.GDTW,
    DistanceName.SINKHORN: lw.Sinkhorn,
    DistanceName.OPW: lw.OPW,
    DistanceName.TCOT: lw.TCOT,
    DistanceName.EMD: lw.EMD,
    DistanceName.OTAM: lw.OTAM,
    DistanceName.EUCLIDEAN: lw.Euclidean,
    DistanceName.COSINE: lw.Cosine,
}


class AlignerName(StrEnum):
    """A distance that aligns sequences."""

    DTW = "dtw"
    SOFT_DTW = "soft-dtw"
    GDTW = "gdtw"
    SINKHORN = "sinkhorn"
    OPW = "opw"
    TCOT = "tcot"
    EMD = "emd"


class Ground(StrEnum):
    """A cost between two frames."""

    SQEUCLIDEAN = "sqeuclidean"
    EUCLIDEAN = "euclidean"
    COSINE = "cosine"


class Normalization(StrEnum):
    """What DTW is divided by."""

    LENGTHS = "lengths"
    STEPS = "steps"


class Kind(StrEnum):
    """A plot of ``likewise.viz``."""

    TWO_WAY = "two-way"
    THREE_WAY = "three-way"
    DENSITY = "density"
    PATH = "path"


class _Commands(TyperGroup):
    """Commands whose mistakes in data or values are one line, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of our output has gone, which typer knows how to treat
            raise
        except (ValueError, OSError) as error:
            named = isinstance(error, OSError) and error.filename and error.strerror
            text = f"{error.filename}: {error.strerror}" if named else str(error)  # type: ignore[union-attr]
            typer.echo(f"error: {' '.join(text.split())}", err=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    name="likewise",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _parse_band(text: str) -> int | float:
    """A whole number counts steps; one with a point is a fraction."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a whole number nor a fraction") from None


FileA = Annotated[Path, typer.Argument(metavar="A", help="Sequences, .npz or .ts.", show_default=False)]
SplitA = Annotated[str | None, typer.Option(help="Read A's X_<split>, y_<split> ...; for .npz.", show_default=False)]
SplitB = Annotated[str | None, typer.Option(help="The same for B.", show_default=False)]
Band = Annotated[
    Any,
    typer.Option(
        parser=_parse_band,
        metavar="STEPS|FRACTION",
        help="Sakoe-Chiba radius: 10 is ten steps, 0.1 a tenth of the shorter length.",
        show_default=False,
    ),
]
Gamma = Annotated[
    float | None,
    typer.Option(help="How soft soft-DTW is, in the unit of the ground cost; 1 by default.", show_default=False),
]
Reg = Annotated[
    float | None,
    typer.Option(help="What slopes cost in GDTW (lambda), entropy in sinkhorn and tcot.", show_default=False),
]
GroundCost = Annotated[
    Ground | None, typer.Option(help="Cost between two frames; sqeuclidean by default.", show_default=False)
]
Normalize = Annotated[
    Normalization | None, typer.Option(help="Divide DTW by Tx + Ty, or by the path's cells.", show_default=False)
]
Subsequence = Annotated[
    bool | None,
    typer.Option(
        "--subsequence",
        help="Match all of A's sequence to a stretch of B's; with gdtw, all of B's to a stretch of A's.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"likewise {lw.__version__}")
        raise typer.Exit


@app.callback()
def likewise(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Distances between sequences by alignment. Files are .npz (see likewise.read_npz) or .ts, by their ending."""


@app.command()
def distance(
    a: FileA,
    b: Annotated[
        Path | None, typer.Argument(metavar="B", help="More of them; without, A against itself.", show_default=False)
    ] = None,
    distance: Annotated[DistanceName, typer.Option("--distance", "-d", help="Which distance.")] = DistanceName.DTW,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the matrix here, as .npz.", show_default=False)
    ] = None,
    band: Band = None,
    gamma: Gamma = None,
    reg: Reg = None,
    ground: GroundCost = None,
    normalize: Normalize = None,
    subsequence: Subsequence = None,
    split_a: SplitA = None,
    split_b: SplitB = None,
    as_json: Json = False,
) -> None:
    """Distances between every sequence of A and every sequence of B.

    With -o, the matrix goes to a file, under the key "distances": np.load("D.npz")["distances"]. A file of that name is
    replaced once the new one is complete. --json describes the matrix and, without -o and up to 10,000 numbers, holds
    it: otherwise its "distances" is null.
    """
    chosen, options = _build(
        distance, band=band, gamma=gamma, reg=reg, ground=ground, normalize=normalize, subsequence=subsequence
    )
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise ValueError(f"{output}: {'is a folder' if output.is_dir() else 'its folder does not exist'}")
    x, y = _read_both(a, b, split_a, split_b)
    start = time.perf_counter()
    D = chosen.matrix(x, y, progress=_is_terminal()).numpy()
    seconds = time.perf_counter() - start
    if output is not None:
        save(output, D)
    small = output is None and D.size <= MOST_PRINTED
    facts = {
        "distance": distance.value,
        "options": options,
        "shape": list(D.shape),
        "min": _finite(D.min()),
        "mean": _finite(D.mean(dtype=np.float64)),
        "max": _finite(D.max()),
        "seconds": round(seconds, 6),
        "output": None if output is None else str(output),
    }
    if as_json:
        facts["distances"] = [[_finite(value) for value in row] for row in D] if small else None
        typer.echo(json.dumps(facts, allow_nan=False))
    else:
        _print_facts(facts | {"shape": f"{len(D):,} x {D.shape[1]:,}", "seconds": f"{seconds:.3g}"})


@app.command()
def align(
    a: FileA,
    b: Annotated[Path, typer.Argument(metavar="B", help="The file of the second sequence.", show_default=False)],
    item_a: Annotated[int, typer.Option("--item-a", "-i", help="Which sequence of A, from 0.")] = 0,
    item_b: Annotated[int, typer.Option("--item-b", "-j", help="Which sequence of B, from 0.")] = 0,
    distance: Annotated[AlignerName, typer.Option("--distance", "-d", help="Which distance.")] = AlignerName.DTW,
    plot: Annotated[Path | None, typer.Option(help="Draw it here: .png, .pdf, .svg.", show_default=False)] = None,
    kind: Annotated[Kind, typer.Option(help="What --plot draws.")] = Kind.TWO_WAY,
    band: Band = None,
    gamma: Gamma = None,
    reg: Reg = None,
    ground: GroundCost = None,
    normalize: Normalize = None,
    subsequence: Subsequence = None,
    split_a: SplitA = None,
    split_b: SplitB = None,
    as_json: Json = False,
) -> None:
    """How a sequence of A matches one of B: their distance and the path of matched steps.

    --json prints the path as well: pairs (step of A, step of B), from 0.
    """
    chosen, options = _build(
        distance, band=band, gamma=gamma, reg=reg, ground=ground, normalize=normalize, subsequence=subsequence
    )
    first, second = _read_both(a, b, split_a, split_b)
    x, y = select(first, item_a, a), select(first if second is None else second, item_b, b)
    alignment = chosen.align(x, y)
    path = alignment.path(0)
    facts = {
        "distance": distance.value,
        "options": options,
        "items": [item_a, item_b],
        "lengths": [int(x.lengths[0]), int(y.lengths[0])],
        "value": _finite(alignment.value[0].item()),
        "plot": None if plot is None else str(plot),
    }
    if plot is not None:
        _draw(plot, kind, x, y, alignment)
    if as_json:
        typer.echo(json.dumps(facts | {"path": path.tolist()}, allow_nan=False))
    else:
        shown = {key: " and ".join(map(str, facts[key])) for key in ("items", "lengths")}
        _print_facts(facts | shown | {"path": f"{len(path):,} cells, {_ends(path)}"})


@app.command()
def fewshot(
    a: Annotated[Path, typer.Argument(metavar="A", help="Sequences with labels, .npz or .ts.", show_default=False)],
    distance: Annotated[DistanceName, typer.Option("--distance", "-d", help="Which distance.")] = DistanceName.DTW,
    metric: Annotated[
        Path | None, typer.Option(help="A folder with a learned metric, instead of a distance.", show_default=False)
    ] = None,
    ways: Annotated[int, typer.Option(help="Classes of an episode.")] = 5,
    shots: Annotated[int, typer.Option(help="Examples of each class.")] = 1,
    queries: Annotated[int, typer.Option(help="Sequences to classify, of each class.")] = 1,
    episodes: Annotated[int, typer.Option(help="How many episodes.")] = 10_000,
    other_groups: Annotated[
        bool, typer.Option("--other-groups", help="Examples and queries of a class are of different subjects.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Which episodes are drawn.")] = 0,
    split: SplitA = None,
    as_json: Json = False,
) -> None:
    """Classify sequences from a few examples of each class: mean accuracy of random episodes, with a 95 % interval."""
    data = read(a, split)
    if data.labels is None or data.labels.is_floating_point():
        raise ValueError(f"{a}: holds no classes")
    if other_groups and data.groups is None:
        raise ValueError(f"{a}: holds no groups, which --other-groups needs")
    chosen = DISTANCES[distance]() if metric is None else lw.Metric.load(metric)
    groups = data.groups if other_groups else None
    drawn = Episodes(data.labels, ways, shots, queries, groups=groups, seed=seed).take(episodes)
    start = time.perf_counter()
    with torch.no_grad():
        D = chosen.matrix(data.sequences, progress=_is_terminal())
    score = few_shot_accuracy(D, *drawn)
    facts = {
        "distance": distance.value if metric is None else str(metric),
        "ways": ways,
        "shots": shots,
        "episodes": episodes,
        "sequences": len(data),
        "accuracy": score.accuracy,
        "interval": score.interval,
        "seconds": round(time.perf_counter() - start, 6),
    }
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        share = f"{100 * score.accuracy:.2f} % ± {100 * score.interval:.2f} %"
        _print_facts({name: value for name, value in facts.items() if name != "interval"} | {"accuracy": share})


@app.command()
def info(as_json: Json = False) -> None:
    """Versions, kernels and hardware that likewise runs with.

    GPU kernels are written in Triton, and are found only where it is installed.
    """
    facts = environment()
    if as_json:
        typer.echo(json.dumps(facts))
        return
    kernels = facts.pop("kernels")
    _print_facts(facts | {"triton": facts["triton"] or "absent", "gpus": ", ".join(facts["gpus"]) or "none"})
    table = Table("op", "CPU kernel", "GPU kernel", box=None, header_style="dim")
    for op, found in kernels.items():
        table.add_row(op, *("yes" if found[device] else "no" for device in ("cpu", "gpu")))
    Console().print(table)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for alignment.png.")] = Path("demo"),
    as_json: Json = False,
) -> None:
    """Recognise speakers by several distances, and draw an alignment. Needs aeon, which has the data."""
    from likewise.recipes.demo import main as run_demo

    run_demo(out, as_json)


def _build(name: StrEnum, **given: Any) -> tuple[lw.Distance, dict[str, Any]]:
    """The distance, and the options that were given for it."""
    kind = DISTANCES[name]
    options = {key: str(value) if isinstance(value, StrEnum) else value for key, value in given.items()}
    options = {key: value for key, value in options.items() if value is not None}
    known = [key for key in given if key in inspect.signature(kind).parameters]
    for key in options:
        if key not in known:
            has = f"it has {', '.join(f'--{key}' for key in known)}" if known else "it has none"
            raise typer.BadParameter(f"{name} has no option --{key}; {has}")
    return kind(**options), options


def _read_both(a: Path, b: Path | None, split_a: str | None, split_b: str | None) -> tuple[lw.Batch, lw.Batch | None]:
    """Both files in one type of number; None for the second where it is the first."""
    if b is None and split_b is not None:
        raise typer.BadParameter("--split-b needs B")
    x = read(a, split_a).sequences
    if b is None or (a, split_a) == (b, split_b):
        return x, None
    y = read(b, split_b).sequences
    dtype = torch.promote_types(x.dtype, y.dtype)
    return x.to(dtype), y.to(dtype)


def _draw(path: Path, kind: Kind, x: lw.Batch, y: lw.Batch, alignment: lw.Alignment) -> None:
    from matplotlib.figure import Figure

    from likewise import viz

    figure = Figure(figsize=(7.0, 3.4) if kind is Kind.TWO_WAY else (5.4, 5.0), layout="constrained")
    if kind is Kind.TWO_WAY or kind is Kind.THREE_WAY:
        plot = viz.two_way if kind is Kind.TWO_WAY else viz.three_way
        plot(x, y, alignment, ax=figure.subplots())
    else:
        plot = viz.density if kind is Kind.DENSITY else viz.path
        plot(alignment, ax=figure.subplots())
    figure.savefig(path, dpi=150)


def _is_terminal() -> bool:
    return sys.stderr.isatty()


def _print_facts(facts: dict[str, Any]) -> None:
    table = Table(show_header=False, box=None)
    table.add_column(style="dim")
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key}={option}" for key, option in value.items()) or "none"
        if value is not None:
            table.add_row(name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value))
    Console().print(table, soft_wrap=True)


def _ends(path: Tensor) -> str:
    first, last = path[[0, -1]].tolist()
    return f"from ({first[0]}, {first[1]}) to ({last[0]}, {last[1]})"


def _finite(value: Any) -> float | None:
    """A number that JSON can hold."""
    return float(value) if math.isfinite(value) else None


def main() -> None:
    """Run the command."""
    app()
