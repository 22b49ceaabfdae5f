"""The .ts text format of the UEA and UCR archives."""

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from likewise import _check
from likewise._output import writing
from likewise.data.bounds import padding_limit
from likewise.data.dataset import Dataset, names_of
from likewise.data.padding import pad_stacked
from likewise.data.text import (
    Line,
    field_offset,
    file_size,
    numpy_type,
    parse_integer,
    parse_numbers,
    quote,
    read_lines,
    word_offset,
)

# Both are far beyond any real file. Without them, a hostile file would take many times its size in memory.
_LONGEST_HEADER_LINE = 1 << 20
_MOST_DIMENSIONS = 1 << 16


def read_ts(
    path: str | os.PathLike[str],
    *,
    missing: float | Literal["interpolate"] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Dataset:
    r"""Read a .ts file, multivariate or not, of equal or unequal length, with classes, targets or neither.

    missing: how to treat '?' and 'NaN'. None raises an error, a number replaces them, and "interpolate" interpolates
    linearly within the dimension and repeats the nearest value at either end.

    The header is verified: dimensions, series length and, where they are true, univariate and equal length. Timestamps
    are not supported. Malformed lines raise an error with file, line and column. So does padding that takes more than
    64 times the file's size and more than 256 MiB.

    Example:
        >>> import tempfile
        >>> rows = "@univariate true\n@classLabel true walk run\n@data\n1,2,3:walk\n4,5:run\n"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "gait.ts")
        ...     _ = path.write_text(rows)
        ...     data = read_ts(path)
        >>> data, data.labels.tolist(), data.classes
        (Dataset(2 sequences, 2..3 steps, 1 channel, 2 classes), ['walk', 'run'], ('walk', 'run'))
    """
    number = numpy_type("read_ts", dtype)
    _check_missing(missing, number)
    lines = read_lines(path)
    header = _read_header(os.fspath(path), lines)
    rows, lengths, labels = bytearray(), array("q"), array("d" if header.targets else "q")
    line = header.end
    for line in lines:
        if _is_comment(line):
            continue
        body, label = _split_label(line, header)
        values = _fill(line, body, _read_series(line, body, header, number), missing)  # (C, T)
        rows += values.T.tobytes()
        lengths.append(values.shape[1])
        if label is not None:
            labels.append(label)
    if not lengths:
        raise line.error(len(line.text), "the file ends without a series after @data")
    stacked = np.frombuffer(rows, number).reshape(-1, header.facts["dimensions"][0])
    sequences = pad_stacked(os.fspath(path), stacked, np.array(lengths), padding_limit(file_size(path)))
    if header.targets:
        return Dataset(sequences, np.array(labels))
    classes = tuple(name.decode() for name in header.classes)
    return Dataset(sequences, names_of(classes, labels), classes=classes) if classes else Dataset(sequences)


def write_ts(dataset: Dataset, path: str | os.PathLike[str], *, name: str | None = None) -> None:
    """Write a .ts file that read_ts reads back exactly, given the same dtype.

    name is the @problemName; by default the file's name without its suffix. The format cannot hold groups, classes
    without labels, class names with blanks, commas or colons, or numbers that are not finite: these raise an error. Ids
    are not saved.

    Example:
        >>> import tempfile
        >>> data = Dataset(torch.zeros(1, 3, 2), ["run"], classes=("walk", "run"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_ts(data, Path(folder, "gait.ts"))
        ...     Path(folder, "gait.ts").read_text().splitlines()[-2:]
        ['@data', '0.0,0.0,0.0:0.0,0.0,0.0:run']
    """
    name = Path(path).stem if name is None else name
    if not name or not name.isprintable():
        _check.refuse("write_ts", f"the name {name!r} is empty or not printable; pass another with name=")
    _check_writable(dataset)
    lengths = dataset.items.lengths
    equal = bool((lengths == lengths[0]).all())
    header = [
        f"@problemName {name}",
        "@timeStamps false",
        "@missing false",
        f"@univariate {dataset.items.channels == 1}".lower(),
        f"@dimensions {dataset.items.channels}",
        f"@equalLength {equal}".lower(),
    ]
    if equal:
        header.append(f"@seriesLength {int(lengths[0])}")
    endings = [""] * len(dataset)
    if dataset.labels is None:
        header.append("@classLabel false")
    elif dataset.codes is None:
        header.append("@targetLabel true")
        endings = [f":{target!r}" for target in dataset.labels.tolist()]
    else:
        header.append("@classLabel true " + " ".join(dataset.classes))
        endings = [f":{label}" for label in dataset.labels.tolist()]
    with writing(path) as part, open(part, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in [*header, "@data"])
        for series, ending in zip(dataset.items, endings, strict=True):
            # The digits of a float64 also identify a float32; fewer digits would be rounded twice when read back.
            dimensions = series.detach().cpu().double().T.tolist()
            file.write(":".join(",".join(map(repr, values)) for values in dimensions) + ending + "\n")


@dataclass
class _Header:
    """The declarations of the header.

    Each is a number and the line that declares it; the first series fills in what the header leaves out.
    """

    end: Line
    declared: dict[bytes, int] = field(default_factory=dict)  # key: line
    facts: dict[str, tuple[int, int]] = field(default_factory=dict)  # "dimensions" or "steps": (number, line)
    equal_length: bool = False
    classes: dict[bytes, int] = field(default_factory=dict)
    targets: bool = False


def _is_comment(line: Line) -> bool:
    """Whether the line is blank or a comment; some public files use '%' as well as '#'."""
    return line.text.lstrip()[:1] in (b"", b"#", b"%")


def _read_header(file: str, lines: Iterator[Line]) -> _Header:
    """Read the header, up to the line @data."""
    header = _Header(Line(file, 1, b""))
    for line in lines:
        header.end = line
        if _is_comment(line):
            continue
        start = word_offset(line.text, 0)
        if line.text[start : start + 1] != b"@":
            got = quote(line.text[start:])
            raise line.error(start, f"expected the header, in lines such as '@univariate true', got {got}")
        if len(line.text) > _LONGEST_HEADER_LINE:
            size = len(line.text)
            raise line.error(start, f"this header line has {size} bytes; at most {_LONGEST_HEADER_LINE} are supported")
        words = line.text.split()
        if words[0].lower() != b"@data":
            _declare(header, line, words)
            continue
        if len(words) > 1:
            offset = word_offset(line.text, 1)
            raise line.error(offset, f"expected nothing after @data, got {quote(words[1])}")
        if not header.declared:
            raise line.error(start, "@data comes without a header before it")
        return header
    raise header.end.error(len(header.end.text), "the file ends without @data")


def _declare(header: _Header, line: Line, words: list[bytes]) -> None:
    """Parse one line of the header."""
    start = word_offset(line.text, 0)
    key = words[0].lower()
    if key == b"@dimension":
        key = b"@dimensions"
    # The name is not used, and some files that were cut from others have two.
    if key in header.declared and key != b"@problemname":
        raise line.error(start, f"{quote(words[0])} is declared twice, first on line {header.declared[key]}")
    header.declared[key] = line.number
    match key:
        case b"@problemname":
            pass
        case b"@timestamps":
            if _flag(line, words):
                raise line.error(start, "timestamps are not supported; resample to a regular grid first")
        case b"@missing":
            _flag(line, words)
        case b"@univariate":
            if _flag(line, words):
                _agree(header, line, "dimensions", 1)
        case b"@dimensions":
            _agree(header, line, "dimensions", _count(line, words))
        case b"@equallength":
            header.equal_length = _flag(line, words)
        case b"@serieslength":
            _agree(header, line, "steps", _count(line, words))
        case b"@classlabel":
            header.classes = _class_names(line, words)
        case b"@targetlabel":
            header.targets = _flag(line, words)
        case _:
            raise line.error(
                start,
                f"unknown key {quote(words[0])}; known are @problemName, @timeStamps, @missing, @univariate, "
                "@dimensions, @equalLength, @seriesLength, @classLabel, @targetLabel and @data",
            )
    if header.targets and header.classes:
        raise line.error(start, "@classLabel and @targetLabel are both true; a series has one label")


def _agree(header: _Header, line: Line, name: str, found: int, text: bytes = b"", separator: bytes = b",") -> None:
    """Compare a number with what was declared or seen before; text is where its separators were counted."""
    expected, where = header.facts.setdefault(name, (found, line.number))
    if found != expected:
        offset = field_offset(text, separator, expected)
        raise line.error(offset, f"{found} {name}, but {expected} on line {where}")


def _flag(line: Line, words: list[bytes]) -> bool:
    if len(words) != 2 or words[1].lower() not in (b"true", b"false"):
        got = quote(b" ".join(words[1:]))
        raise line.error(word_offset(line.text, 1), f"expected true or false, got {got}")
    return words[1].lower() == b"true"


def _count(line: Line, words: list[bytes]) -> int:
    offset = word_offset(line.text, 1)
    number = parse_integer(line, b" ".join(words[1:]), offset)
    if number == 0:
        raise line.error(offset, "expected at least 1, got 0")
    return number


def _class_names(line: Line, words: list[bytes]) -> dict[bytes, int]:
    """The index of each class; empty if there are no classes."""
    declared, names = _flag(line, words[:2]), words[2:]
    if declared != bool(names):
        problem = "expected the classes after true" if declared else "expected no class after false"
        raise line.error(word_offset(line.text, 2), problem)
    classes = {}
    for index, name in enumerate(names):
        if not _is_class_name(name.decode("utf-8", "surrogateescape")):  # surrogates do not print
            raise line.error(word_offset(line.text, index + 2), f"{quote(name)} cannot name a class")
        if classes.setdefault(name, index) != index:
            raise line.error(word_offset(line.text, index + 2), f"class {quote(name)} is named twice")
    return classes


def _is_class_name(name: str) -> bool:
    return name != "" and name.isprintable() and not set(name) & set(" ,:")


def _split_label(line: Line, header: _Header) -> tuple[bytes, float | None]:
    """Cut a row into its dimensions and its label: an index, a target, or None without a declared label."""
    if not header.targets and not header.classes:
        return line.text, None
    cut = line.text.rfind(b":")
    body, label = line.text[: max(cut, 0)], line.text[cut + 1 :].strip()
    if cut < 0:
        # Report malformed text as such, rather than as a missing label.
        parse_numbers(line, line.text, np.float64, separator=b",", missing=True)
    if cut < 0 or not label or b"," in label:
        what = "a target" if header.targets else "a class"
        raise line.error(len(line.text.rstrip()), f"the row ends without a label; expected ':' and {what}")
    if header.targets:
        return body, float(parse_numbers(line, line.text[cut + 1 :], np.float64, start=cut + 1, separator=b",")[0])
    if label not in header.classes:
        offset = line.text.index(label, cut + 1)
        where = header.declared[b"@classlabel"]
        raise line.error(offset, f"label {quote(label)} is not among the classes on line {where}")
    return body, header.classes[label]


def _read_series(line: Line, body: bytes, header: _Header, number: type[np.floating]) -> np.ndarray:
    """Numbers of one row, (C, T), NaN where they are missing."""
    count = body.count(b":") + 1
    _agree(header, line, "dimensions", count, body, b":")
    if count > _MOST_DIMENSIONS:
        raise line.error(0, f"{count} dimensions; at most {_MOST_DIMENSIONS} are supported")
    dimensions = body.split(b":")
    steps = dimensions[0].count(b",") + 1
    for index, dimension in enumerate(dimensions):
        if dimension.count(b",") + 1 != steps:
            raise line.error(
                field_offset(body, b":", index),
                f"dimension {index + 1} has {dimension.count(b',') + 1} steps, but dimension 1 has {steps}",
            )
    if header.equal_length or "steps" in header.facts:
        _agree(header, line, "steps", steps, dimensions[0])
    numbers = parse_numbers(line, body.replace(b":", b","), number, separator=b",", missing=True)
    return numbers.reshape(count, steps)


def _fill(line: Line, body: bytes, values: np.ndarray, missing: float | str | None) -> np.ndarray:
    """Replace the NaN in values (C, T), as ``missing`` says."""
    gaps = np.isnan(values)
    if not gaps.any():
        return values
    if missing is None:
        offset = field_offset(body.replace(b":", b","), b",", int(gaps.argmax()))
        raise line.error(offset, "missing value; fill it with missing=0.0 or missing='interpolate'")
    if missing != "interpolate":
        values[gaps] = missing
        return values
    for index, (row, gap) in enumerate(zip(values, gaps, strict=True)):
        if gap.all():
            raise line.error(field_offset(body, b":", index), f"dimension {index + 1} has no value to interpolate from")
        known = np.flatnonzero(~gap)
        # Halved, so that the difference of two huge numbers does not overflow.
        row[gap] = 2 * np.interp(np.flatnonzero(gap), known, row[known].astype(np.float64) / 2)
    return values


def _check_missing(missing: object, number: type[np.floating]) -> None:
    if missing is None or missing == "interpolate":
        return
    if isinstance(missing, bool) or not isinstance(missing, (int, float)):
        raise TypeError(f"read_ts: expected missing to be a number, 'interpolate' or None, got {missing!r}")
    if not abs(missing) <= float(np.finfo(number).max):
        _check.refuse("read_ts", f"missing must be finite in {number.__name__}, got {missing}")


def _check_writable(dataset: Dataset) -> None:
    """Raise an error if the format cannot hold the data."""
    if len(dataset) == 0:
        _check.refuse("write_ts", "expected at least one sequence")
    if dataset.items.dtype not in (torch.float32, torch.float64):
        got = dataset.items.dtype
        raise TypeError(f"write_ts: expected float32 or float64 sequences, got {got}; convert them with .to")
    if dataset.groups is not None:
        _check.refuse("write_ts", "the format has no groups; leave them out, or use write_npz")
    if dataset.labels is None and dataset.classes:
        _check.refuse("write_ts", "the format has no classes without labels; use write_npz")
    for name in dataset.classes:
        if not _is_class_name(name):
            _check.refuse("write_ts", f"class {name!r} is empty, is not printable or has a blank, comma or colon")
    for item, series in enumerate(dataset.items):
        if not series.isfinite().all():
            step, channel = (~series.isfinite()).nonzero()[0].tolist()
            value = series[step, channel].item()
            _check.refuse("write_ts", f"item {item}, step {step}, channel {channel} is {value}, not a finite number")
