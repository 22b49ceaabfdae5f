"""Read arrays, texts and records from MATLAB files, without SciPy, whose reader may crash on malformed ones.

Level 5 of the format, which MATLAB 5 to 7 write, compressed or not; not the HDF5 of version 7.3. Only numbers, texts,
cells of texts, and structs of numbers and texts: nothing is nested further.
Reference: MAT-File Format, The MathWorks.
"""

import math
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from likewise import _check
from likewise.data.bounds import EXPANSION
from likewise.data.text import file_size

MOST_BYTES = 64 << 20  # of a file, and of what is unpacked from it
LEAST_BYTES = 1 << 20  # may be unpacked from a file of any size
HEADER = 128
INT8, INT32, UINT32, MATRIX, COMPRESSED = 1, 5, 6, 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
CELL, STRUCT, CHARACTERS = 1, 2, 4  # classes of arrays
NUMERIC = range(6, 16)
COMPLEX = 0x800


@dataclass(frozen=True)
class _Array:
    """An array whose content has not been read: its class, its shape, its name, and the bytes behind these."""

    kind: int
    complex: bool
    shape: tuple[int, ...]
    name: str
    content: memoryview

    @property
    def count(self) -> int:
        return math.prod(self.shape)


class MatFile:
    """The variables of a MATLAB file. Whatever is wrong with it is a ValueError that names it.

    Example:
        >>> import tempfile
        >>> from scipy.io import savemat
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "a.mat")
        ...     savemat(path, {"codes": [[3, 1]], "names": np.array([["oak", "elm"]], dtype=object)})
        ...     file = MatFile(path)
        >>> file.numbers("codes"), file.texts("names")
        (array([3, 1]), ['oak', 'elm'])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        size = file_size(path)
        if size > MOST_BYTES:
            self._refuse(f"is larger than {MOST_BYTES} bytes")
        with open(path, "rb") as file:
            data = memoryview(file.read())
        end = bytes(data[HEADER - 2 : HEADER])
        if len(data) < HEADER or end not in (b"IM", b"MI"):
            self._refuse("not a MATLAB file of version 5 to 7, or a damaged one")
        self._order = "<" if end == b"IM" else ">"
        self._left = min(MOST_BYTES, max(LEAST_BYTES, EXPANSION * size))  # bytes that may still be unpacked
        self._arrays = {array.name: array for array in self._variables(data)}

    def numbers(self, name: str) -> np.ndarray:
        """A numeric array, flat, column by column."""
        return self._numbers(self._named(name))

    def texts(self, name: str) -> list[str]:
        """The texts of a cell array."""
        array = self._named(name)
        if array.kind != CELL:
            self._refuse(f"{name} is not a cell array")
        at, found = 0, []
        for _ in range(array.count):
            element, at = self._matrix(array.content, at)
            found.append(self._text(element))
        return found

    def records(self, name: str, number: str, text: str) -> tuple[list[int | float], list[str]]:
        """Two fields of a struct array: a single number and a text of each record. Other fields are skipped."""
        array = self._named(name)
        if array.kind != STRUCT:
            self._refuse(f"{name} is not a struct")
        fields, at = self._fields(array)
        if not {number, text} <= set(fields):
            self._refuse(f"{name} lacks {number} or {text}")
        if len(set(fields)) < len(fields):
            self._refuse(f"{name} names a field twice")
        numbers: list[int | float] = []
        texts: list[str] = []
        for _ in range(array.count):
            for field in fields:
                if field not in (number, text):
                    _, _, at = self._element(array.content, at)
                    continue
                element, at = self._matrix(array.content, at)
                if field == text:
                    texts.append(self._text(element))
                    continue
                values = self._numbers(element)
                if len(values) != 1:
                    self._refuse(f"{number} of record {len(numbers)} is {len(values)} numbers instead of one")
                numbers.append(values[0].item())
        return numbers, texts

    def _named(self, name: str) -> _Array:
        if name not in self._arrays:
            self._refuse(f"there is no array {name}")
        return self._arrays[name]

    def _variables(self, data: memoryview) -> Iterator[_Array]:
        at = HEADER
        while at < len(data):
            kind, content, at = self._element(data, at)
            if kind == COMPRESSED:
                kind, content, _ = self._element(self._unpacked(content), 0)
            if kind == MATRIX and len(content):
                yield self._array(content)

    def _unpacked(self, content: memoryview) -> memoryview:
        stream = zlib.decompressobj()
        try:
            found = stream.decompress(content, self._left + 1)
        except zlib.error as error:
            raise ValueError(f"{self.path}: damaged: {error}") from error
        if len(found) > self._left:
            self._refuse(f"is unpacked to more than {EXPANSION} times its size, or to more than {MOST_BYTES} bytes")
        if not stream.eof:
            self._refuse("ends within a compressed array")
        self._left -= len(found)
        return memoryview(found)

    def _element(self, data: memoryview, at: int) -> tuple[int, memoryview, int]:
        """The type and the content of the element at a place, and the place of the next one."""
        if len(data) - at < 8:
            self._refuse("ends where an array was expected")
        kind, size = struct.unpack_from(f"{self._order}II", data, at)
        start, following = at + 8, at + 8 + size + (0 if kind == COMPRESSED else -size % 8)
        if kind >> 16:  # up to four bytes lie in the tag
            kind, size, start, following = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        if size > len(data) - start or (following == at + 8 and size > 4):
            self._refuse(f"an array of {size} bytes is longer than what is left")
        return kind, data[start : start + size], following

    def _expect(self, wanted: int, data: memoryview, at: int) -> tuple[memoryview, int]:
        kind, content, at = self._element(data, at)
        if kind != wanted:
            self._refuse(f"damaged: expected an element of type {wanted}, got {kind}")
        return content, at

    def _matrix(self, data: memoryview, at: int) -> tuple[_Array, int]:
        content, at = self._expect(MATRIX, data, at)
        return self._array(content), at

    def _array(self, content: memoryview) -> _Array:
        flags, at = self._expect(UINT32, content, 0)
        shape, at = self._expect(INT32, content, at)
        name, at = self._expect(INT8, content, at)
        if len(flags) != 8 or len(shape) < 8 or len(shape) % 4:
            self._refuse("damaged: an array without class or shape")
        bits = struct.unpack_from(f"{self._order}I", flags)[0]
        sizes = struct.unpack(f"{self._order}{len(shape) // 4}i", shape)
        # Every entry takes room, so that no shape is larger than its content.
        if min(sizes) < 0 or math.prod(sizes) > len(content):
            self._refuse(f"damaged: an array of shape {sizes[:4]} in {len(content)} bytes")
        return _Array(bits & 0xFF, bool(bits & COMPLEX), sizes, str(name, "latin-1"), content[at:])

    def _fields(self, array: _Array) -> tuple[list[str], int]:
        """Names of a struct's fields, and where its records begin."""
        width, at = self._expect(INT32, array.content, 0)
        names, at = self._expect(INT8, array.content, at)
        size = struct.unpack(f"{self._order}i", width)[0] if len(width) == 4 else 0
        if size < 1 or len(names) % size:
            self._refuse("damaged: a struct without names of fields")
        listed = [bytes(names[i : i + size]) for i in range(0, len(names), size)]
        return [name.split(b"\0")[0].decode("latin-1") for name in listed], at

    def _numbers(self, array: _Array) -> np.ndarray:
        if array.kind not in NUMERIC or array.complex:
            self._refuse(f"expected real numbers, got an array of class {array.kind}")
        kind, content, _ = self._element(array.content, 0)
        if kind not in NUMBERS or len(content) != array.count * np.dtype(NUMBERS[kind]).itemsize:
            self._refuse(f"damaged: {array.count} numbers in {len(content)} bytes of type {kind}")
        return np.frombuffer(content, self._order + NUMBERS[kind]).astype(NUMBERS[kind])

    def _text(self, array: _Array) -> str:
        if array.kind != CHARACTERS or (array.count and array.count != max(array.shape)):
            self._refuse(f"expected one line of text, got an array of class {array.kind} and shape {array.shape[:4]}")
        if not array.count:
            return ""
        kind, content, _ = self._element(array.content, 0)
        if kind not in TEXTS:
            self._refuse(f"damaged: a text of type {kind}")
        coding = TEXTS[kind]
        if coding in ("utf-16", "utf-32"):
            coding += "-le" if self._order == "<" else "-be"
        try:
            return str(content, coding)
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path}: damaged: a text is not {coding}") from error

    def _refuse(self, problem: str) -> NoReturn:
        _check.refuse(self.path, problem)
