"""Shared by the papers: settings from the command line, data files, lines of JSON, and Markdown tables."""

import argparse
import inspect
import json
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np
import torch

import likewise as lw


@dataclass(frozen=True)
class Run:
    """The options of every run.py besides its settings: seeds, data and outputs."""

    seeds: tuple[int, ...] = (0, 1, 2)
    data_dir: Path = Path(os.environ.get("LIKEWISE_DATA") or ".")
    out: Path | None = None  # append the lines here; a line that is there already is not run again
    folder: Path | None = None  # keep checkpoints and trained metrics here, and resume from them
    items: int | None = None  # use every n-th item only, about this many in all: for a quick try
    device: str = "cuda" if torch.cuda.is_available() else "cpu"

    def kept(self, *words: object) -> Path | None:
        """The folder of one training, or None if nothing is kept."""
        return None if self.folder is None else self.folder / ", ".join(map(str, words)).replace("/", "_")


def from_command_line(*given: Any, arguments: Sequence[str] | None = None) -> Any:
    """The given dataclasses with what the command line says instead: ``--batch-size 5`` sets the field batch_size.

    A field that is a tuple takes several words; a field that is True or False takes --name or --no-name.

    Example:
        >>> from_command_line(Run(), arguments=["--seeds", "3", "4"])[0].seeds
        (3, 4)
    """
    module = inspect.getmodule(type(given[-1]))
    parser = argparse.ArgumentParser(
        description=module and module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for part in given:
        hints = get_type_hints(type(part))
        group = parser.add_argument_group(type(part).__name__.lower(), (type(part).__doc__ or "").splitlines()[0])
        for field in fields(part):
            flag, value = f"--{field.name.replace('_', '-')}", getattr(part, field.name)
            if isinstance(value, bool):
                group.add_argument(flag, action=argparse.BooleanOptionalAction, default=value)
            else:
                kinds = [kind for kind in get_args(hints[field.name]) if kind not in (NoneType, Ellipsis)]
                kind, several = (kinds or [hints[field.name]])[0], "+" if isinstance(value, tuple) else None
                group.add_argument(flag, type=kind, nargs=several, default=value, help=f"default: {value}")
    found = vars(parser.parse_args(arguments))
    for part in given:
        for field in fields(part):
            if isinstance(getattr(part, field.name), tuple):
                found[field.name] = tuple(found[field.name])
    return [replace(part, **{field.name: found[field.name] for field in fields(part)}) for part in given]


def check_choice(name: str, given: str, choices: Iterable[str]) -> None:
    """Refuse a word that is not one of the choices."""
    if given not in choices:
        raise SystemExit(f"error: {name} is {given!r}; expected one of {', '.join(choices)}")


def load(path: Path, remedy: str = "give --data-dir or set LIKEWISE_DATA") -> dict[str, np.ndarray]:
    """The arrays of an .npz file, none of them unpickled."""
    if not path.is_file():
        raise SystemExit(f"error: {path} does not exist; {remedy}")
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def thinned(data: lw.Dataset, items: int | None) -> lw.Dataset:
    """Every n-th item, so that about ``items`` are left; all of them for None."""
    return data if items is None else data[:: max(1, len(data) // items)]


def moved(data: lw.Dataset, device: str) -> lw.Dataset:
    """The same with its items on a device."""
    return replace(data, items=data.items.to(device))


def rounded(value: Any, digits: int = 5) -> Any:
    """The value with its floats, those in mappings and lists included, rounded to this many significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {name: rounded(each, digits) for name, each in value.items()}
    return [rounded(each, digits) for each in value] if isinstance(value, (list, tuple)) else value


def emit(line: dict, out: Path | None) -> None:
    """Print a line of JSON, and append it to a file if one is given."""
    text = json.dumps(line) + "\n"  # written at once: several processes may share the output
    sys.stdout.write(text)
    sys.stdout.flush()
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a") as file:
            file.write(text)


def read_lines(path: Path | None) -> list[dict]:
    """The lines of a file, none if it does not exist; a last line that was cut off is left out."""
    lines = []
    for text in path.read_text().splitlines() if path is not None and path.is_file() else ():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def find_line(wanted: dict, out: Path | None) -> dict | None:
    """The line of an earlier run with the given values, to five digits."""
    wanted = rounded(wanted)
    for line in read_lines(out):
        if all(rounded(line.get(name)) == value for name, value in wanted.items()):
            return line
    return None


def accelerator(device: str | torch.device) -> str:
    """The accelerator for ``fit``, which would otherwise take a GPU if there is one, whatever --device says."""
    return "cpu" if torch.device(device).type == "cpu" else "auto"


def device_name(device: str | torch.device) -> str:
    """The name of the device, for a line."""
    return torch.cuda.get_device_name() if torch.device(device).type == "cuda" else "cpu"


def spread(values: Sequence[float], form: str) -> str:
    """The mean, and the standard deviation of several values; an empty cell for no values."""
    if not values:
        return ""
    mean = form.format(statistics.mean(values))
    return mean if len(values) < 2 else f"{mean} ± {form.replace('+', '').format(statistics.stdev(values))}"


def decimals(values: Sequence[float]) -> str:
    """Mean and deviation to three decimals, without the leading zero: .899 ± .009."""
    return spread(values, "{:.3f}").replace("0.", ".")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table.

    Example:
        >>> print(table(["method", "MAP"], [["DTW", 0.5]]))
        | method | MAP |
        |---|---|
        | DTW | 0.5 |
    """
    lines = [f"| {' | '.join(map(str, row))} |" for row in (headings, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(headings), *lines[1:]]).replace("|  |", "| |").replace("|  |", "| |")


def bold(rows: list[list[str]], *, least: bool = False) -> list[list[str]]:
    """The rows with the best cell of each column in bold, by the number that it begins with; the first is a name.

    Example:
        >>> bold([["a", "1.5 ± 0.1"], ["b", "0.7"]])
        [['a', '**1.5 ± 0.1**'], ['b', '0.7']]
    """
    marked = [list(row) for row in rows]
    for column in range(1, len(rows[0])):
        found = [float(row[column].split()[0].rstrip(",%")) for row in rows if row[column]]
        best = min(found) if least else max(found)
        for row in marked:
            if row[column] and float(row[column].split()[0].rstrip(",%")) == best:
                row[column] = f"**{row[column]}**"
    return marked
