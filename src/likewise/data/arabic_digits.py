"""The text files of Spoken Arabic Digits (UCI)."""

import os
from array import array
from collections.abc import Sequence

import numpy as np
import torch

from likewise.data.bounds import padding_limit
from likewise.data.dataset import Dataset
from likewise.data.padding import pad_stacked
from likewise.data.text import Line, file_size, numpy_type, parse_numbers, read_lines, word_offset

_COEFFICIENTS = 13
_DIGITS = 10
_REPETITIONS = 10


def read_arabic_digits(
    path: str | os.PathLike[str],
    *,
    speakers: Sequence[int] = range(66),
    dtype: torch.dtype = torch.float32,
) -> Dataset:
    r"""Read Train_Arabic_Digit.txt or, with speakers=range(66, 88), Test_Arabic_Digit.txt.

    A line holds the 13 coefficients (MFCC) of a step; blank lines separate the utterances. The files name neither digit
    nor speaker; both follow from the order: the digits from 0 to 9, and for each digit the speakers, men before women,
    each ten times in a row. A file must have 100 utterances of each speaker. The groups are the numbers in speakers.
    No speaker is in both files, so the numbers of the test file continue those of the training file.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "Train_Arabic_Digit.txt")
        ...     _ = path.write_text(("0.5 " * 13 + "\n\n") * 200)
        ...     data = read_arabic_digits(path, speakers=range(2))
        >>> data, data.labels[20].item(), data.groups[30].item()
        (Dataset(200 sequences, 1 step, 13 channels, 10 classes), '1', 1)
    """
    number = numpy_type("read_arabic_digits", dtype)
    rows, lengths, steps = bytearray(), array("q"), 0
    line = Line(os.fspath(path), 1, b"")
    for line in read_lines(path):
        row = parse_numbers(line, line.text, number)
        if len(row) not in (0, _COEFFICIENTS):
            offset = word_offset(line.text, _COEFFICIENTS)
            raise line.error(offset, f"expected {_COEFFICIENTS} numbers or a blank line, got {len(row)} numbers")
        if len(row):
            rows += row.tobytes()
            steps += 1
        elif steps:
            lengths.append(steps)
            steps = 0
    if steps:
        lengths.append(steps)
    each = len(speakers) * _REPETITIONS
    if len(lengths) != _DIGITS * each or not lengths:
        raise line.error(
            len(line.text),
            f"the file ends after {len(lengths)} utterances, but {len(speakers)} speakers make {_DIGITS * each}; "
            "pass speakers=range(66) for the training file, speakers=range(66, 88) for the test file",
        )
    stacked = np.frombuffer(rows, number).reshape(-1, _COEFFICIENTS)
    sequences = pad_stacked(os.fspath(path), stacked, np.array(lengths), padding_limit(file_size(path)))
    groups = np.tile(np.repeat(np.array(speakers), _REPETITIONS), _DIGITS)
    return Dataset(sequences, np.repeat(np.arange(_DIGITS), each), groups=groups, classes=range(_DIGITS))
