"""The UCI HAR folder: human activity recognition with a smartphone."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from likewise import _check
from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.data.text import Line, numpy_type, parse_integer, parse_numbers, quote, read_lines, word_offset

_CHANNELS = tuple(f"{signal}_{axis}" for signal in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")


def read_har(folder: str | os.PathLike[str], split: str, *, dtype: torch.dtype = torch.float32) -> Dataset:
    r"""Read the inertial signals of the "UCI HAR Dataset" folder: 9 channels of 128 steps.

    split is "train" or "test". The channels are body_acc_x, y, z, body_gyro_x, y, z, total_acc_x, y, z. The
    classes are those of activity_labels.txt, in its order; the groups are the subjects.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     signals = Path(folder, "test", "Inertial Signals")
        ...     signals.mkdir(parents=True)
        ...     for channel in _CHANNELS:
        ...         _ = (signals / f"{channel}_test.txt").write_text("  1.0e-01 -2.0e-01  3.0e-01\n")
        ...     _ = Path(folder, "test", "y_test.txt").write_text("2\n")
        ...     _ = Path(folder, "test", "subject_test.txt").write_text("24\n")
        ...     _ = Path(folder, "activity_labels.txt").write_text("1 WALKING\n2 SITTING\n")
        ...     data = read_har(folder, "test")
        >>> data, data.labels, data.groups
        (Dataset(1 sequence, 3 steps, 9 channels, 2 classes), array(['SITTING'], dtype='<U7'), array([24]))
    """
    number = numpy_type("read_har", dtype)
    if split not in ("train", "test"):
        _check.refuse("read_har", f"expected split to be 'train' or 'test', got {split!r}")
    part = Path(folder, split)
    activities = _read_activities(Path(folder, "activity_labels.txt"))
    labels = _read_labels(part / f"y_{split}.txt", activities)
    rows = len(labels)
    subjects = [_read_code(line) for line in _read_rows(part / f"subject_{split}.txt", rows)]
    files = [part / "Inertial Signals" / f"{channel}_{split}.txt" for channel in _CHANNELS]
    first = _read_signal(files[0], rows, 0, number)
    values = np.empty((*first.shape, len(files)), number)  # (N, T, C)
    values[:, :, 0] = first
    for channel, file in enumerate(files[1:], 1):
        values[:, :, channel] = _read_signal(file, rows, first.shape[1], number)
    return Dataset(
        Batch(torch.from_numpy(values)),
        np.array(labels, dtype=str),
        groups=np.array(subjects, np.int64),
        classes=tuple(activities.values()),
    )


def _read_rows(path: Path, count: int) -> Iterator[Line]:
    """Yield the lines of a file that has one for each label."""
    line = Line(os.fspath(path), 1, b"")
    for line in read_lines(path):
        if line.number > count:
            raise line.error(0, f"expected the file to end here: there are {count} labels")
        yield line
    if line.number < count:
        raise line.error(len(line.text), f"the file ends after {line.number} rows; there are {count} labels")


def _read_activities(path: Path) -> dict[int, str]:
    """The name of each code, in the order of the file."""
    activities: dict[int, str] = {}
    names: set[str] = set()
    for line in read_lines(path):
        words = line.text.split()
        if len(words) != 2:
            raise line.error(0, f"expected a code and a name, got {quote(line.text)}")
        code = parse_integer(line, words[0], word_offset(line.text, 0))
        name = words[1].decode("utf-8", "surrogateescape")  # surrogates do not print
        if not name.isprintable():
            raise line.error(word_offset(line.text, 1), f"{quote(words[1])} cannot name a class")
        if code in activities or name in names:
            raise line.error(0, "this code or name is listed twice")
        activities[code] = name
        names.add(name)
    return activities


def _read_labels(path: Path, activities: dict[int, str]) -> list[str]:
    """The name of each row's code."""
    labels = []
    for line in read_lines(path):
        code = _read_code(line)
        if code not in activities:
            raise line.error(word_offset(line.text, 0), f"label {code} is not in activity_labels.txt")
        labels.append(activities[code])
    return labels


def _read_code(line: Line) -> int:
    return parse_integer(line, line.text.strip(), word_offset(line.text, 0))


def _read_signal(path: Path, rows: int, steps: int, number: type[np.floating]) -> np.ndarray:
    """Read one channel, (N, T); steps is 0 if T is not known yet."""
    values = bytearray()
    for line in _read_rows(path, rows):
        row = parse_numbers(line, line.text, number)
        steps = steps or len(row)
        if len(row) != steps or steps == 0:
            raise line.error(word_offset(line.text, steps), f"expected {steps or 'some'} numbers, got {len(row)}")
        values += row.tobytes()
    return np.frombuffer(values, number).reshape(rows, steps)
