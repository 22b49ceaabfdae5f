"""Tables with one row per time step (long) or per series (wide): CSV, Parquet, pandas, polars, pyarrow.

They are read with narwhals and pyarrow (extra ``tables``). Rows of a file are counted as in an editor, from 1, with a
CSV file's header as row 1; rows of a frame, and of Parquet, from 0.
"""

import math
import os
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from likewise import _check
from likewise._labels import number_labels
from likewise.data.batch import Batch
from likewise.data.columns import Path, Table, narwhals_module, open_table
from likewise.data.dataset import Dataset
from likewise.data.padding import pad_stacked
from likewise.data.text import numpy_type

Fill = Literal["linear", "previous"] | float | None

LIMIT = 4 << 30  # bytes of the numbers, and of the file
TOLERANCE = 1e-6  # share of a step: times this close to a multiple of the step are regular


def from_frame(
    frame: Any,
    *,
    id: str,  # noqa: A002
    time: str | None = None,
    label: str | None = None,
    channels: Sequence[str] | None = None,
    group: str | None = None,
    fill: Fill = None,
    dtype: torch.dtype = torch.float32,
    limit: int = LIMIT,
) -> Dataset:
    """Implements ``Dataset.from_frame``; ``read_table`` calls it too."""
    op = "Dataset.from_frame"
    nw = narwhals_module()
    try:
        table = nw.from_native(frame, eager_only=True)
    except TypeError as error:
        kind = type(frame).__name__
        raise TypeError(f"{op}: expected a pandas, polars or pyarrow table, got {kind}") from error
    return _read(Table(op, table), id, time, label, channels, group, fill, dtype, limit)


def to_frame(
    dataset: Dataset,
    *,
    backend: str = "pyarrow",
    channels: Sequence[str] | None = None,
    id: str = "id",  # noqa: A002
    time: str = "time",
    label: str = "label",
    group: str = "group",
) -> Any:
    """Implements ``Dataset.to_frame``."""
    op, nw, items = "Dataset.to_frame", narwhals_module(), dataset.items
    if not isinstance(items, Batch):
        raise TypeError(f"{op}: expected sequences, got {dataset!r}")
    if len(set(dataset.ids)) != len(dataset.ids):
        _check.refuse(op, "two items have the same id; give the Dataset other ids")
    names = [f"channel_{i}" for i in range(items.channels)] if channels is None else list(channels)
    if len(names) != items.channels:
        _check.refuse(op, f"expected {items.channels} names of channels, got {len(names)}")
    lengths = items.lengths.numpy()
    values = items.values.detach().cpu()[items.mask.cpu()].numpy()  # (sum of T_i, C)
    columns: dict[str, Any] = {id: np.repeat(np.array(dataset.ids, dtype=object), lengths)}
    columns[time] = np.concatenate([np.arange(n) for n in lengths]) if len(lengths) else np.empty(0, np.int64)
    for name, part in ((label, dataset.labels), (group, dataset.groups)):
        if part is not None:
            columns[name] = np.repeat(part.astype(object) if part.dtype.kind == "U" else part, lengths)
    taken = len(columns)
    columns |= {name: values[:, i] for i, name in enumerate(names)}
    if len(columns) != taken + len(names):
        _check.refuse(op, f"two columns would have the same name, of {', '.join([*list(columns)[:taken], *names])}")
    try:
        return nw.from_dict(columns, backend=backend).to_native()
    except ImportError as error:
        raise ImportError(f"{op}: install {backend}, or choose another backend") from error


def read_table(
    path: Path,
    *,
    id: str,  # noqa: A002
    time: str | None = None,
    label: str | None = None,
    channels: Sequence[str] | None = None,
    group: str | None = None,
    fill: Fill = None,
    dtype: torch.dtype = torch.float32,
    limit: int = LIMIT,
) -> Dataset:
    r"""Read a long table, one row per time step, from a .csv, .tsv or .parquet file.

    The arguments are those of ``Dataset.from_frame``. In a CSV file, ids and labels are text: "01" is not "1". Labels
    that are all numbers, some with a decimal point, are regression targets. Empty cells, NA, NaN, null and '?' are
    missing values. A file that takes more than limit bytes, on disk or in memory, raises an error.

    Example:
        >>> import pathlib, tempfile
        >>> rows = "id,t,kind,x,y\na,0,walk,1.0,2.0\na,1,walk,1.5,2.5\nb,0,run,0.0,1.0\n"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "gait.csv")
        ...     _ = path.write_text(rows)
        ...     data = read_table(path, id="id", time="t", label="kind")
        >>> data, data.ids, data.labels.tolist()
        (Dataset(2 sequences, 1..2 steps, 2 channels, 2 classes), ('a', 'b'), ['walk', 'run'])
    """
    wanted = None if channels is None else [c for c in (id, time, label, group, *channels) if c is not None]
    table = open_table(path, [id, *(c for c in (label, group) if c is not None)], wanted, limit)
    return _read(table, id, time, label, channels, group, fill, dtype, limit)


def read_wide(
    path: Path,
    *,
    label: str | int | None = None,
    id: str | int | None = None,  # noqa: A002
    header: bool = True,
    ragged: bool = False,
    dtype: torch.dtype = torch.float32,
    limit: int = LIMIT,
) -> Dataset:
    r"""Read a table with one row per univariate series and one column per step: .csv, .tsv or .parquet.

    label, id: the columns of labels and ids, by name or by number from 0; all others are steps, in the file's order.
    header: whether the first row of a CSV file names the columns. ragged: allow shorter series, which end in empty
        cells.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "gait.csv")
        ...     _ = path.write_text("walk,1,2,3\nrun,4,5,\n")
        ...     data = read_wide(path, label=0, header=False, ragged=True)
        >>> data.items[1].flatten(), data.labels.tolist()
        (tensor([4., 5.]), ['walk', 'run'])
    """
    name, number = os.fspath(path), numpy_type("read_wide", dtype)
    table = open_table(path, [label, id], None, limit, header=header)
    label, id = (table.column_at(column) for column in (label, id))  # noqa: A001
    steps = [column for column in table.columns if column not in (label, id)]
    if not steps or not table.rows:
        _check.refuse(name, "there are no steps" if table.rows else "there are no rows")
    values, missing = table.numbers(steps, number, limit)
    lengths = np.full(table.rows, len(steps), np.int64)
    if ragged:  # cells after the last number are the end of the series, not missing values
        lengths = len(steps) - (~missing)[:, ::-1].argmax(1)
        if missing.all(1).any():
            table.refuse(int(missing.all(1).argmax()), steps[0], "the series is empty")
        missing &= np.arange(len(steps)) < lengths[:, None]
    if missing.any():
        row, column = np.unravel_index(missing.argmax(), missing.shape)
        hint = "" if ragged else "; pass ragged=True if series end early"
        table.refuse(int(row), steps[int(column)], f"missing value{hint}")
    real = np.arange(len(steps)) < lengths[:, None]
    items = pad_stacked(name, values[real][:, None], lengths, limit)
    labels = None if label is None else table.labels(label)
    return Dataset(items, labels, ids=None if id is None else table.names(id))


def _read(
    table: Table,
    id: str,  # noqa: A002
    time: str | None,
    label: str | None,
    channels: Sequence[str] | None,
    group: str | None,
    fill: Fill,
    dtype: torch.dtype,
    limit: int,
) -> Dataset:
    number = numpy_type(table.name, dtype)
    _check_fill(table.name, fill)
    special = [column for column in (id, time, label, group) if column is not None]
    channels = [c for c in table.columns if c not in special] if channels is None else list(channels)
    if len({*special, *channels}) != len(special) + len(channels):
        _check.refuse(table.name, "a column is given twice among id, time, label, group and channels")
    if not channels or not table.rows:
        _check.refuse(table.name, "there are no channels" if table.rows else "there are no rows")
    ids = table.names(id)
    sorted_ids, (codes,) = number_labels(ids)
    # Series in the order of their first rows, each in the order of its rows.
    starts = np.full(len(sorted_ids), table.rows, np.int64)
    np.minimum.at(starts, codes, np.arange(table.rows))
    series = np.argsort(np.argsort(starts))[codes]
    order = np.argsort(series, kind="stable")
    lengths = np.bincount(series)
    begins = np.cumsum(lengths) - lengths
    firsts = order[begins]
    values, missing = table.numbers(channels, number, limit)
    values, missing = values[order], missing[order]
    if fill is None and missing.any():
        row, column = (int(i) for i in np.unravel_index(missing.argmax(), missing.shape))
        hint = "; fill it with fill='linear', 'previous' or a number"
        table.refuse(int(order[row]), channels[column], f"missing value{hint}")
    steps = None if time is None else _steps(table, table.times(time)[order], order, begins, time, fill)
    labels = None if label is None else _constant(table, table.labels(label), order, lengths, begins, label)
    groups = None if group is None else _constant(table, table.names(group), order, lengths, begins, group)
    if fill is not None:
        values, lengths = _filled(table, values, missing, lengths, steps, fill, channels, order, limit)
    items = pad_stacked(table.name, values, lengths, limit)
    return Dataset(items, labels, ids=ids[firsts], groups=groups)


def _steps(
    table: Table, times: np.ndarray, order: np.ndarray, begins: np.ndarray, column: str, fill: Fill
) -> np.ndarray:
    """Steps from the previous row to each row, (rows,): 0 for the first row of a series, 1 without gaps."""
    inside = np.ones(len(times), bool)
    inside[begins] = False
    difference = np.diff(times, prepend=times[:1])
    wrong = inside & ~(difference > 0)
    if wrong.any():
        place = int(wrong.argmax())
        earlier = "the time is before that of the previous row"
        problem = "the time occurs twice in its series" if difference[place] == 0 else earlier
        table.refuse(int(order[place]), column, problem)
    jumps = difference[inside]
    if len(jumps) == 0:
        return inside.astype(np.int64)
    step = jumps.min()
    counts = jumps / step
    whole = np.abs(counts - np.round(counts)) <= TOLERANCE * np.maximum(1, counts)
    if not whole.all():
        if fill is None:
            return inside.astype(np.int64)  # irregular times: take rows as steps
        place = int(order[np.flatnonzero(inside)[int((~whole).argmax())]])
        table.refuse(place, column, f"steps are not multiples of the smallest, {step}, so there is no grid to fill")
    gaps = np.round(counts).astype(np.int64)
    if fill is None and (gaps > 1).any():
        first = int((gaps > 1).argmax())
        lost = f"{gaps[first] - 1} steps are" if gaps[first] > 2 else "a step is"
        hint = "fill it with fill='linear', 'previous' or a number, or pass time=None to take rows as steps"
        table.refuse(int(order[np.flatnonzero(inside)[first]]), column, f"{lost} missing before this row; {hint}")
    found = np.zeros(len(times), np.int64)
    found[inside] = gaps
    return found


def _constant(
    table: Table, values: np.ndarray, order: np.ndarray, lengths: np.ndarray, begins: np.ndarray, column: str
) -> np.ndarray:
    """The value of each series, which must be constant."""
    values = values[order]
    first = np.repeat(values[begins], lengths)
    changed = values != first
    if changed.any():
        place = int(changed.argmax())
        problem = f"{values[place]!s}, but the first row of this series has {first[place]!s}"
        table.refuse(int(order[place]), column, problem)
    return values[begins]


def _filled(
    table: Table,
    values: np.ndarray,
    missing: np.ndarray,
    lengths: np.ndarray,
    steps: np.ndarray | None,
    fill: Fill,
    channels: Sequence[str],
    order: np.ndarray,
    limit: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows for every step of every series, and the lengths; missing values and missing steps are filled alike."""
    ends = np.cumsum(lengths)
    steps = np.ones(len(values), np.int64) if steps is None else steps
    places = [np.cumsum(steps[a:b]) - steps[a] for a, b in zip(ends - lengths, ends, strict=True)]
    full = np.array([place[-1] + 1 for place in places])
    if int(full.sum()) * values.shape[1] * values.itemsize > limit:
        _check.refuse(table.name, f"{int(full.sum())} steps, filled, take more than limit={limit} bytes")
    out = np.empty((int(full.sum()), values.shape[1]), values.dtype)
    begin = 0
    for first, length, place, size in zip(ends - lengths, lengths, places, full, strict=True):
        rows = slice(first, first + length)
        for i, channel in enumerate(channels):
            known = ~missing[rows, i]
            if not isinstance(fill, str):
                out[begin : begin + size, i] = fill
                out[begin + place[known], i] = values[rows, i][known]
                continue
            if not known.any() or (fill == "previous" and not known[0]):
                problem = "no value to fill from" if not known.any() else "no previous value to fill from"
                table.refuse(int(order[first]), channel, problem)
            at, grid = place[known], np.arange(size)
            if fill == "linear":  # halved, so that the difference of two huge numbers does not overflow
                line = 2 * np.interp(grid, at, values[rows, i][known].astype(np.float64) / 2)
                line[at] = values[rows, i][known]
            else:
                line = values[rows, i][known][np.searchsorted(at, grid, "right") - 1]
            out[begin : begin + size, i] = line
        begin += size
    return out, full


def _check_fill(op: str, fill: object) -> None:
    if fill is None or (isinstance(fill, str) and fill in ("linear", "previous")):
        return
    if isinstance(fill, str):
        _check.refuse(op, f"expected fill to be 'linear', 'previous', a number or None, got {fill!r}")
    if not math.isfinite(_check.number(op, "fill", fill)):
        _check.refuse(op, f"fill must be finite, got {fill}")
