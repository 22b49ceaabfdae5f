"""Arguments that several subcommands share, and the distances by name.

Every command has ``--json``. ``--force`` comes with every option that writes. ``--seed`` is in the commands that draw
something at random, ``--device`` in those that can use a GPU; the others compute on the CPU. tests/cli/test_contract.py
holds all commands to this.
"""

import inspect
import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

import likewise as lw


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
    MSM = "msm"
    TWE = "twe"
    ADTW = "adtw"
    WDTW = "wdtw"
    ERP = "erp"
    EDR = "edr"
    LCSS = "lcss"
    DDTW = "ddtw"
    WDDTW = "wddtw"
    SHAPE_DTW = "shape-dtw"
    SBD = "sbd"
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
    DistanceName.MSM: lw.MSM,
    DistanceName.TWE: lw.TWE,
    DistanceName.ADTW: lw.ADTW,
    DistanceName.WDTW: lw.WDTW,
    DistanceName.ERP: lw.ERP,
    DistanceName.EDR: lw.EDR,
    DistanceName.LCSS: lw.LCSS,
    DistanceName.DDTW: lw.DDTW,
    DistanceName.WDDTW: lw.WDDTW,
    DistanceName.SHAPE_DTW: lw.ShapeDTW,
    DistanceName.SBD: lw.SBD,
    DistanceName.EUCLIDEAN: lw.Euclidean,
    DistanceName.COSINE: lw.Cosine,
}


class Ground(StrEnum):
    """A cost between two frames."""

    SQEUCLIDEAN = "sqeuclidean"
    EUCLIDEAN = "euclidean"
    COSINE = "cosine"


class Normalization(StrEnum):
    """What DTW is divided by."""

    LENGTHS = "lengths"
    STEPS = "steps"


class DeviceName(StrEnum):
    """Where to compute."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


def device_of(name: DeviceName) -> str:
    """The device of that name; an error if there is no such GPU."""
    if name is DeviceName.CUDA and not torch.cuda.is_available():
        raise ValueError("--device cuda: PyTorch finds no GPU here")
    if name is DeviceName.AUTO:
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name.value


def gpu_of(name: DeviceName) -> str | None:
    """The GPU of that name; None for the CPU, where the items are."""
    found = device_of(name)
    return None if found == "cpu" else found


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


def _parse_columns(text: str) -> dict[str, str]:
    """``id=who,time=t`` as a mapping."""
    pairs = [part.partition("=") for part in text.split(",")]
    known = ("id", "time", "label", "group")
    if not all(name in known and column for name, _, column in pairs) or "id" not in {name for name, _, _ in pairs}:
        raise typer.BadParameter(
            f"{text!r} is not a list such as id=who,time=t,label=kind,group=subject; id is required"
        )
    return {name: column for name, _, column in pairs}


def _parse_setting(text: str) -> tuple[str, Any]:
    """``cost=0.5`` as a name and a value: a number, true, false, null, or text."""
    name, given, value = text.partition("=")
    if not name.isidentifier() or not given:
        raise typer.BadParameter(f"{text!r} is not a setting such as cost=0.5")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


KINDS = "Items: .npz, .ts, a long table (.csv, .tsv, .parquet), or a folder of WAV files or images."
FileA = Annotated[
    Path,
    typer.Argument(
        metavar="A", help="Sequences: .npz, .ts, a long table (.csv, .tsv, .parquet), WAV files.", show_default=False
    ),
]
ItemsA = Annotated[
    Path,
    typer.Argument(
        metavar="A",
        help=KINDS,
        show_default=False,
    ),
]
Items = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help=KINDS,
        show_default=False,
    ),
]
MetricFolder = Annotated[
    Path | None,
    typer.Option(
        "--metric",
        "-m",
        metavar="FOLDER",
        help="A metric that train or tune has written, instead of a distance.",
        show_default=False,
    ),
]
Columns = Annotated[
    Any,
    typer.Option(
        parser=_parse_columns,
        metavar="id=NAME,...",
        help="Columns of a table: id, time, label, group; any other is a channel. id=id,time=time by default.",
        show_default=False,
    ),
]
_SPLIT = "which arrays to read, such as train for X_train and y_train."
Split = Annotated[str | None, typer.Option(metavar="NAME", help=f"Of an .npz file, {_SPLIT}", show_default=False)]
SplitA = Annotated[
    str | None, typer.Option(metavar="NAME", help=f"Of the first .npz file, {_SPLIT}", show_default=False)
]
SplitB = Annotated[
    str | None, typer.Option(metavar="NAME", help="The same, of the second .npz file.", show_default=False)
]
Named = Annotated[
    DistanceName, typer.Option("--distance", "-d", metavar="NAME", help=f"One of {', '.join(DistanceName)}.")
]
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
    typer.Option(help="Weight of the slopes in gdtw, of the entropy in sinkhorn and tcot.", show_default=False),
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
        help="Match all of A's sequence to a stretch of B's.",
        show_default=False,
    ),
]
Settings = Annotated[
    list[Any] | None,
    typer.Option(
        "--set",
        parser=_parse_setting,
        metavar="NAME=VALUE",
        help="Any other setting of the distance, such as cost=0.5 of msm; may be repeated.",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace what exists.")]
Seed = Annotated[int, typer.Option(min=0, help="Determines everything that is random.")]
Size = Annotated[int, typer.Option(min=8, help="Images are scaled to SIZE x SIZE pixels.")]
Device = Annotated[DeviceName, typer.Option(help="Where to compute; auto takes a GPU if there is one.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def build(name: StrEnum, settings: list[tuple[str, Any]] | None = None, **given: Any) -> tuple[lw.Distance, dict]:
    """The distance, and the options that were given for it; ``settings`` are those of ``--set``."""
    kind = DISTANCES[name]
    options = {key: str(value) if isinstance(value, StrEnum) else value for key, value in given.items()}
    options = {key: value for key, value in options.items() if value is not None}
    known = [key for key in given if key in inspect.signature(kind).parameters]
    for key in options:
        if key not in known:
            has = f"it has {', '.join(f'--{key}' for key in known)}" if known else "it has none"
            raise typer.BadParameter(f"{name} has no option --{key}; {has}")
    for key, value in settings or ():
        if key not in inspect.signature(kind).parameters:
            has = ", ".join(inspect.signature(kind).parameters) or "none"
            raise typer.BadParameter(f"{name} has no setting {key!r}; it has {has}")
        options[key] = value
    try:
        return kind(**options), options
    except TypeError as error:  # a value of --set
        raise typer.BadParameter(str(error)) from None


def choose(
    name: StrEnum, metric: Path | None, settings: list[tuple[str, Any]] | None = None, **given: Any
) -> tuple[lw.Distance, dict[str, Any]]:
    """The metric of a folder, or a distance by name with its options, which only a distance has."""
    if metric is None:
        return build(name, settings, **given)
    if settings or any(value is not None for value in given.values()):
        raise typer.BadParameter("--metric has its own settings; leave out those of a distance")
    return lw.Metric.load(metric), {}


def moved(items: Any, device: DeviceName) -> Any:
    """Items, or a Dataset of them, on a device."""
    name = device_of(device)
    if name == "cpu":
        return items
    if isinstance(items, lw.Dataset):
        return replace(items, items=items.items.to(name))
    return items.to(name)
