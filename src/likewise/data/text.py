"""Parse lines and numbers of text files; errors give the file, line and column.

Files are read as bytes, line by line. Malformed content only ever raises ValueError, and memory stays within a small
multiple of the file's size.
"""

import math
import os
import stat
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

_NUMERIC = b"0123456789+-.eE \t"
_MISSING = b"?nNaA"
# A list of tokens takes about twenty times their bytes, so a long line is split piece by piece.
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file and its position; text excludes the line break.

    Example:
        >>> raise Line("train.ts", 14, b"1.0,abc").error(4, "expected a number, got 'abc'")
        Traceback (most recent call last):
        ValueError: train.ts:14:5: expected a number, got 'abc'
    """

    file: str
    number: int
    text: bytes

    def error(self, offset: int, problem: str) -> ValueError:
        """Return an error for the byte at offset, counted from 0; the message counts characters, from 1."""
        column = len(self.text[:offset].decode("utf-8", "replace")) + 1
        return ValueError(f"{self.file}:{self.number}:{column}: {problem}")


def file_size(path: str | os.PathLike[str]) -> int:
    """Size of a file in bytes; raise an error for an empty file, a folder, a pipe or a device."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise ValueError(f"{os.fspath(path)}: expected a file, this is {kind}")
    if status.st_size == 0:
        raise ValueError(f"{os.fspath(path)}:1:1: the file is empty")
    return status.st_size


def read_lines(path: str | os.PathLike[str]) -> Iterator[Line]:
    """Yield the lines of a file that is not empty."""
    file_size(path)
    name = os.fspath(path)
    with open(path, "rb") as file:
        for number, text in enumerate(file, 1):
            text = text.rstrip(b"\r\n")  # free the line, which may be as long as the file
            yield Line(name, number, text)


def quote(text: bytes) -> str:
    r"""Put at most 40 bytes of text between quotes, escaped where they do not print.

    Example:
        >>> print(quote(b"\0" + b"ab" * 1000))
        '\x00abababababababababababababababababababa...'
    """
    return repr((text[:40] + b"..." * (len(text) > 40)).decode("utf-8", "replace"))


def brief(error: Exception) -> str:
    """Return the first 200 characters of an error's message, which may quote much of the file.

    Example:
        >>> brief(ValueError("no such thing")), len(brief(ValueError("a" * 1000)))
        ('no such thing', 200)
    """
    text = str(error)
    return text if len(text) <= 200 else f"{text[:197]}..."


def word_offset(text: bytes, index: int) -> int:
    """Offset of a word among words between blanks; the end of text if it has too few.

    Example:
        >>> word_offset(b"@classLabel  true a", 1)
        13
    """
    words = text.split(None, index)
    return len(text) - len(words[index]) if index < len(words) else len(text)


def field_offset(text: bytes, separator: bytes, index: int) -> int:
    """Offset of a field among fields between separators; the end of text if it has too few.

    Example:
        >>> field_offset(b"1.5,2,3", b",", 1)
        4
    """
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == separator[0])
    return 0 if index == 0 else int(ends[index - 1]) + 1 if index <= len(ends) else len(text)


def parse_numbers(
    line: Line,
    text: bytes,
    dtype: type[np.floating],
    *,
    start: int = 0,
    separator: bytes | None = None,
    missing: bool = False,
) -> np.ndarray:
    """Parse text, which begins at offset start in line, as finite numbers, (K,).

    Numbers are ASCII decimals between separators, or between blanks if separator is None. If missing is True,
    '?' and 'NaN' in any case become NaN; otherwise they raise an error like other text.

    Example:
        >>> parse_numbers(Line("x.txt", 1, b"1 2.5"), b"1 2.5", np.float32)
        array([1. , 2.5], dtype=float32)
    """
    # float() also accepts '1_000', 'infinity' and digits of other scripts; this check excludes them.
    odd = text.translate(None, _NUMERIC + (separator or b"") + _MISSING * missing)
    if odd:
        raise _token_error(line, text, start, text.find(odd[:1]), separator, dtype)
    read = _number_or_missing if missing and b"?" in text else float
    parts = []
    for offset, piece in _pieces(text, separator):
        numbers = array("d")
        try:
            numbers.extend(map(read, piece.split(separator)))
        except ValueError:
            at = offset + _token_offset(piece, len(numbers), separator)
            raise _token_error(line, text, start, at, separator, dtype) from None
        with np.errstate(over="ignore"):
            part = np.array(numbers).astype(dtype)
        overflow = np.isinf(part)
        if overflow.any():
            at = offset + _token_offset(piece, int(overflow.argmax()), separator)
            raise _token_error(line, text, start, at, separator, dtype)
        parts.append(part)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def parse_integer(line: Line, text: bytes, offset: int) -> int:
    """Parse text, at offset in line, as a whole number from 0 to 999999999.

    Example:
        >>> parse_integer(Line("y_train.txt", 1, b"5"), b"5", 0)
        5
    """
    if not text.isdigit() or len(text) > 9:  # bytes.isdigit accepts ASCII digits only
        raise line.error(offset, f"expected a whole number below 1000000000, got {quote(text)}")
    return int(text)


def numpy_type(op: str, dtype: torch.dtype) -> type[np.floating]:
    """The NumPy type for a type that a text reader can return."""
    if dtype == torch.float32:
        return np.float32
    if dtype == torch.float64:
        return np.float64
    raise TypeError(f"{op}: expected dtype to be torch.float32 or torch.float64, got {dtype}")


def _number_or_missing(token: bytes) -> float:
    return math.nan if token.strip() == b"?" else float(token)


def _pieces(text: bytes, separator: bytes | None) -> Iterator[tuple[int, bytes]]:
    """Cut text at separators into pieces of about _PIECE bytes, each with its offset."""
    start = 0
    if separator is None:
        text, separator = text.replace(b"\t", b" "), b" "
    while (stop := text.find(separator, start + _PIECE)) >= 0:
        yield start, text[start:stop]
        start = stop + 1
    yield start, text[start:]


def _token_offset(piece: bytes, index: int, separator: bytes | None) -> int:
    return len(piece) - len(piece.split(separator, index)[index])


def _token_error(
    line: Line, text: bytes, start: int, at: int, separator: bytes | None, dtype: type[np.floating]
) -> ValueError:
    """Return an error about the token of text that contains the offset at."""
    blanks = (b" ", b"\t") if separator is None else (separator,)
    begin = max(text.rfind(blank, 0, at) for blank in blanks) + 1
    # No number needs as many digits as this, and text without a separator may be as long as the file.
    end = min([begin + 1000, *(end for end in (text.find(blank, at) for blank in blanks) if end >= 0)])
    token = text[begin:end]
    begin += len(token) - len(token.lstrip())
    token = token.strip()
    problem = f"expected a number, got {quote(token) if token else 'nothing'}"
    try:
        number = float(token)
    except ValueError:
        pass
    else:
        if token.lower().lstrip(b"+-") in (b"inf", b"infinity"):
            problem = f"expected a finite number, got {quote(token)}"
        elif abs(number) > float(np.finfo(dtype).max):
            problem = f"{quote(token)} is too large for {dtype.__name__}"
    return line.error(start + begin, problem)
