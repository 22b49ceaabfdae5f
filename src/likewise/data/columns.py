"""Table: the checked columns of a file (CSV, Parquet) or a frame, read with narwhals and pyarrow."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from likewise import _check
from likewise.data.text import brief, file_size

Path = str | os.PathLike[str]

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")  # in a CSV file


@dataclass(frozen=True)
class Table:
    """A table, its source, and the number of its first row."""

    name: str
    table: Any
    first: int = 0  # number of the first row of data
    text: bool = False  # all cells of ids and labels are text

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self.table.columns

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.table)

    def refuse(self, row: int, column: str, problem: str) -> None:
        """Raise a ``ValueError`` that names the row and the column."""
        _check.refuse(f"{self.name}: row {row + self.first}, column {column!r}", problem)

    def check_column(self, column: str) -> str:
        """Return the name of a column, or raise an error if the table does not have it."""
        if column not in self.columns:
            listed = ", ".join(map(repr, self.columns[:10])) + ", ..." * (len(self.columns) > 10)
            _check.refuse(self.name, f"there is no column {column!r}; the columns are {listed}")
        return column

    def column_at(self, column: str | int | None) -> str | None:
        """A column's name, given its name or number."""
        if column is None or isinstance(column, str):
            return None if column is None else self.check_column(column)
        return self.columns[_check.whole(self.name, "the number of a column", column, 0, len(self.columns) - 1)]

    def _known(self, column: str) -> Any:
        series = self.table[self.check_column(column)]
        missing = _missing(series)
        if missing.any():
            self.refuse(int(missing.argmax()), column, "missing value")
        return series

    def names(self, column: str) -> np.ndarray:
        """A column without missing values, as numbers or text."""
        values = self._known(column).to_numpy()
        return values.astype(str) if values.dtype.kind in "OT" else values

    def labels(self, column: str) -> np.ndarray:
        """Like ``names``, but text that is all numbers, some with a decimal point, becomes float targets."""
        values = self.names(column)
        if self.text and any("." in value for value in np.unique(values).tolist()):
            try:
                return values.astype(np.float64)
            except ValueError:
                pass
        return values

    def times(self, column: str) -> np.ndarray:
        """Times as float64 or int64, which can be compared and subtracted."""
        series = self._known(column)
        values = series.to_numpy()
        if values.dtype.kind in "mM":
            return values.astype(f"{values.dtype.kind}8[ns]").astype(np.int64)
        if values.dtype.kind not in "iuf":
            bad = _first_text(values)
            self.refuse(bad, column, f"expected a time, a number or a date, got {_quoted(values[bad])}")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            self.refuse(int((~np.isfinite(values)).argmax()), column, "expected a finite time")
        return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)

    def numbers(self, columns: Sequence[str], number: type[np.floating], limit: int) -> tuple[np.ndarray, np.ndarray]:
        """Values (rows, C), and a mask of the missing ones."""
        if self.rows * len(columns) * np.dtype(number).itemsize > limit:
            _check.refuse(self.name, f"{self.rows} x {len(columns)} numbers take more than limit={limit} bytes")
        values = np.zeros((self.rows, len(columns)), number)
        missing = np.zeros(values.shape, bool)
        for i, column in enumerate(columns):
            series = self.table[self.check_column(column)]
            missing[:, i] = gaps = _missing(series)
            if gaps.all():
                continue
            cells = series.filter(~series.is_null()).to_numpy() if series.is_null().any() else series.to_numpy()
            if cells.dtype.kind not in "iufb":
                bad = _first_text(cells)
                row = int(np.flatnonzero(~series.is_null().to_numpy())[bad])
                self.refuse(row, column, f"expected a number, got {_quoted(cells[bad])}")
            cells = cells[~np.isnan(cells)] if cells.dtype.kind == "f" else cells
            with np.errstate(over="ignore"):
                values[~gaps, i] = cells
            wrong = ~np.isfinite(values[:, i])
            if wrong.any():
                self.refuse(int(wrong.argmax()), column, f"expected a finite number in {np.dtype(number)}")
        return values, missing


def open_table(
    path: Path, text: Sequence[str | int | None], wanted: list[str] | None, limit: int, *, header: bool = True
) -> Table:
    """Read a file as a table. text: the columns to read as text; wanted: the columns to read from Parquet."""
    name, nw = os.fspath(path), narwhals_module()
    if file_size(path) > limit:
        _check.refuse(name, f"is larger than limit={limit} bytes")
    ending = os.path.splitext(name)[1].lower()
    readers: dict[str, Callable[[], Any]] = {
        ".csv": lambda: _read_csv(name, ",", text, header),
        ".tsv": lambda: _read_csv(name, "\t", text, header),
        ".parquet": lambda: _read_parquet(name, wanted, limit),
    }
    if ending not in readers:
        _check.refuse(name, f"expected a file that ends in {', '.join(readers)}")
    import pyarrow

    try:
        table = readers[ending]()
        names = table.column_names  # decoded here
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name}: not a table that can be read: {brief(error)}") from error
    if len(set(names)) != len(names):
        _check.refuse(name, "two columns have the same name")
    first = 0 if ending == ".parquet" else 1 + header
    return Table(name, nw.from_native(table, eager_only=True), first, text=ending != ".parquet")


def _read_csv(name: str, delimiter: str, text: Sequence[str | int | None], header: bool) -> Any:
    from pyarrow import ArrowInvalid, csv, string

    reading = csv.ReadOptions(autogenerate_column_names=not header)
    columns = [f"f{column}" if isinstance(column, int) and not header else column for column in text]
    if header and any(isinstance(column, int) for column in text):  # by number: read the header first
        with csv.open_csv(name, reading, csv.ParseOptions(delimiter=delimiter)) as file:
            names = file.schema.names
        columns = [names[c] if isinstance(c, int) and 0 <= c < len(names) else c for c in columns]
    parsing = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=False)
    converting = csv.ConvertOptions(
        null_values=list(MISSING),
        strings_can_be_null=True,
        column_types={column: string() for column in columns if isinstance(column, str)},
    )
    try:
        return csv.read_csv(name, reading, parsing, converting)
    except ArrowInvalid:
        reading.use_threads = False  # the error names the row only if one thread reads the file
        return csv.read_csv(name, reading, parsing, converting)


def _read_parquet(name: str, wanted: list[str] | None, limit: int) -> Any:
    from pyarrow import parquet

    with parquet.ParquetFile(name) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        if sum(group.total_byte_size for group in groups) > limit:
            _check.refuse(name, f"takes more than limit={limit} bytes unpacked")
        known = None if wanted is None else [column for column in wanted if column in file.schema_arrow.names]
        columns = len(file.schema_arrow.names if known is None else known)
        rows = file.metadata.num_rows
        if rows * columns * 8 > limit:  # a column of one value, repeated, is packed in a few bytes
            _check.refuse(name, f"{rows} rows of {columns} columns take more than limit={limit} bytes")
        table = file.read(columns=known)
    table.validate(full=True)  # text that is not UTF-8 would raise when it is used
    return table


def _missing(series: Any) -> np.ndarray:
    """A mask of the values that are null or NaN."""
    missing = series.is_null().to_numpy().astype(bool)
    if series.dtype.is_float():
        missing = missing | series.is_nan().fill_null(False).to_numpy().astype(bool)
    return missing


def _first_text(values: np.ndarray) -> int:
    """The position of the first value that is not a number."""
    for i, value in enumerate(values.tolist()):
        try:
            float(value)
        except (TypeError, ValueError):
            return i
    return 0


def _quoted(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 40 else text[:40] + "...")


def narwhals_module() -> Any:
    """Import narwhals, or say how to install it."""
    try:
        import narwhals
        import pyarrow  # noqa: F401
    except ImportError as error:
        hint = 'pip install "likewise[tables]"'
        raise ImportError(f"tables are read by narwhals and pyarrow; install them with {hint}") from error
    return narwhals
