"""Check the inputs of the plots and convert them to NumPy: one series, one path, two lengths."""

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from likewise import _check

# One sequence as an array or tensor (T, C) or (T,), or several from which item selects one: a Batch, an array or tensor
# (B, T, C), or a list of sequences.
Series = object


class Aligned(Protocol):
    """The attributes of an alignment that the plots use, such as those of ``likewise.distances.Alignment``.

    x_lengths and y_lengths, (B,), are used too if present; otherwise the plan's shape gives the lengths.
    """

    @property
    def plan(self) -> Any:
        """(B, Tx, Ty)."""
        ...

    def path(self, b: int) -> Tensor:
        """(K, 2) int64."""
        ...


def read_series(op: str, x: Series, y: Series, alignment: Aligned, item: int) -> tuple[np.ndarray, np.ndarray]:
    """Both sequences of an item, (Tx, C) and (Ty, C), with the lengths that were aligned."""
    steps = read_lengths(op, alignment, item)
    pair = one_series(op, "x", x, item), one_series(op, "y", y, item)
    for name, values, length in zip("xy", pair, steps, strict=True):
        if len(values) != length:
            _check.refuse(op, f"{name} has {len(values)} steps, but {length} were aligned in item {item}")
    return pair


def read_path(op: str, alignment: Aligned, item: int) -> np.ndarray:
    """The path of an item, (K, 2) int64."""
    steps = read_lengths(op, alignment, item)
    cells = to_numpy(alignment.path(item))
    if cells.ndim != 2 or cells.shape[1] != 2 or len(cells) == 0:
        _check.refuse(op, f"expected alignment.path({item}) of shape (K, 2), got {cells.shape}")
    if (cells < 0).any() or (cells >= steps).any():
        _check.refuse(op, f"alignment.path({item}) leaves the {steps[0]} x {steps[1]} cells of x and y")
    return cells.astype(np.int64)


def read_lengths(op: str, alignment: Aligned, item: int) -> tuple[int, int]:
    """Tx and Ty of an item."""
    if not callable(getattr(alignment, "path", None)):
        raise TypeError(f"{op}: expected an Alignment, which has .path and .plan, got {type(alignment).__name__}")
    if isinstance(item, bool) or not isinstance(item, (int, np.integer)):
        raise TypeError(f"{op}: expected item to be an int, got {type(item).__name__}")
    lengths: Any = getattr(alignment, "x_lengths", None), getattr(alignment, "y_lengths", None)
    known = lengths[0] is not None and lengths[1] is not None
    pairs = len(lengths[0] if known else alignment.plan)
    if not -pairs <= item < pairs:
        raise IndexError(f"{op}: item {item} is out of range for {pairs} alignments")
    if known:
        return int(lengths[0][item]), int(lengths[1][item])
    return int(alignment.plan.shape[1]), int(alignment.plan.shape[2])


def to_numpy(value: object) -> np.ndarray:
    """Convert a tensor to an array: on the CPU, without its graph, in a type that NumPy has."""
    if not isinstance(value, Tensor):
        return np.asarray(value)
    value = value.detach().cpu()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def one_series(op: str, name: str, value: Series, item: int) -> np.ndarray:
    """One sequence, (T, C) float64, without padding."""
    several: Any = value
    is_batch = hasattr(value, "values") and hasattr(value, "lengths")
    if not is_batch and not isinstance(value, (Tensor, np.ndarray, list, tuple)):
        got = type(value).__name__
        raise TypeError(f"{op}: expected {name} to be an array or a tensor (T, C), a Batch or a list, got {got}")
    if is_batch or isinstance(value, (list, tuple)) or several.ndim == 3:
        if not -len(several) <= item < len(several):
            raise IndexError(f"{op}: item {item} is out of range for the {len(several)} sequences of {name}")
        value = several[item]  # from a Batch, without padding
    values = to_numpy(value)
    if values.ndim not in (1, 2) or 0 in values.shape:
        _check.refuse(op, f"expected {name} of shape (T, C) or (T,), not empty, got {values.shape}")
    values = values.reshape(len(values), -1).astype(np.float64)
    if not np.isfinite(values).all():
        step, channel = np.argwhere(~np.isfinite(values))[0]
        _check.refuse(op, f"{name} holds {values[step, channel]} at step {step}, channel {channel}")
    return values
