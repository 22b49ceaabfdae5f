"""Classes in plots: labels and names, checked, and a colour for each class."""

from collections.abc import Sequence

import matplotlib
import numpy as np

from likewise import _check
from likewise.viz._inputs import to_numpy

MOST_NAMED = 20  # the largest numbers of classes in a legend, and in a table with counts
# Okabe and Ito's colours, which are distinguishable with colour blindness; black is for text.
EIGHT = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#7F7F7F")


def read_names(op: str, names: Sequence[object] | None, found: np.ndarray) -> list[str]:
    """A name for each class, in the order of the sorted labels: as given, or the label itself."""
    if names is None:
        return [f"{label:g}" if isinstance(label, np.floating) else str(label) for label in found]
    if len(names) != len(found):
        _check.refuse(op, f"expected a name for each of the {len(found)} classes, got {len(names)}")
    return [str(to_numpy(name)) for name in names]


def class_colors(count: int) -> list:
    """A colour for each class: 8, 10 or 20 distinct ones, or as many as needed along the rainbow."""
    if count <= len(EIGHT):
        return list(EIGHT[:count])
    if count <= MOST_NAMED:
        ten_or_twenty = matplotlib.colormaps["tab10" if count <= 10 else "tab20"]
        return [ten_or_twenty(i) for i in range(count)]
    return list(matplotlib.colormaps["turbo"](np.linspace(0, 1, count)))
