"""What recipes share: their data, their lines of JSON, and the cells of their tables."""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

import likewise as lw


def load(path: Path, mend: str = "give --data-dir or set LIKEWISE_DATA") -> dict[str, np.ndarray]:
    """The arrays of an .npz file, none of them unpickled, or an error that says where it was sought."""
    if not path.is_file():
        raise SystemExit(f"error: {path} is not there; {mend}")
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def thinned(part: lw.Dataset, items: int | None) -> lw.Dataset:
    """Every n-th item, so that about ``items`` are left."""
    step = 1 if items is None else max(1, len(part) // items)
    return lw.Dataset(part.sequences[::step], known(part.labels)[::step], part.classes)


def known(labels: Tensor | None) -> Tensor:
    """Labels, which these data have."""
    assert labels is not None
    return labels


def rounded(value: Any, digits: int = 5) -> Any:
    """The value, numbers in its mappings and lists included, with floats to so many significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {name: rounded(each, digits) for name, each in value.items()}
    return [rounded(each, digits) for each in value] if isinstance(value, (list, tuple)) else value


def emit(line: dict, out: Path | None) -> None:
    """Print a line of JSON, and append it to a file if asked to."""
    text = json.dumps(line) + "\n"  # written at once: several processes may share the output
    sys.stdout.write(text)
    sys.stdout.flush()
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a") as file:
            file.write(text)


def spread(values: list[float], form: str) -> str:
    """Mean, and standard deviation where there are several; nothing of nothing."""
    if not values:
        return ""
    mean = form.format(statistics.mean(values))
    return mean if len(values) < 2 else f"{mean} ± {form.format(statistics.stdev(values))}"
