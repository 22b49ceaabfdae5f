"""MATLAB files: what SciPy writes, what MATLAB writes, and what is refused."""

import struct
import zlib

import numpy as np
import pytest
from scipy.io import savemat

from likewise.data.matlab import EXPANSION, LEAST_BYTES, MatFile

KINDS = ("i1", "u1", "i2", "u2", "i4", "u4", "f4", "i8", "u8", "f8")


def element(kind, content, order="<"):
    """An element of the format; short ones lie in their tag, as MATLAB writes them."""
    if 0 < len(content) <= 4:
        return struct.pack(f"{order}I", len(content) << 16 | kind) + content.ljust(4, b"\0")
    return struct.pack(f"{order}II", kind, len(content)) + content + bytes(-len(content) % 8)


def array(kind, shape, *content, name=b"", flags=0, order="<"):
    head = element(6, struct.pack(f"{order}II", kind | flags, 0), order)
    head += element(5, struct.pack(f"{order}{len(shape)}i", *shape), order) + element(1, name, order)
    return element(14, head + b"".join(content), order)


def text(letters, order="<"):
    coding = "utf-16-le" if order == "<" else "utf-16-be"
    return array(4, (1, len(letters)), element(4, letters.encode(coding), order), order=order)


def write(path, *variables, order="<"):
    end = b"\0\1IM" if order == "<" else b"\1\0MI"
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + end + b"".join(variables))
    return path


def packed(variable):
    content = zlib.compress(variable)
    return struct.pack("<II", 15, len(content)) + content  # not padded


def records(order="<"):
    fields = element(5, struct.pack(f"{order}i", 8), order) + element(1, b"path\0\0\0\0box\0\0\0\0\0class\0\0\0", order)
    rows = []
    for path, code in (("a/1.jpg", 2), ("ü.jpg", 7)):
        box = array(6, (1, 2), element(9, struct.pack(f"{order}dd", 0.5, 1.5), order), order=order)
        rows += [text(path, order), box, array(6, (1, 1), element(2, bytes([code]), order), order=order)]
    return array(2, (1, 2), fields, *rows, name=b"rows", order=order)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_scipy_writes(kind, compressed, tmp_path):
    values = np.array([[3, 1, 2], [0, 9, 100]], kind)
    savemat(tmp_path / "a.mat", {"other": [[1.0]], "x": values}, do_compression=compressed)
    found = MatFile(tmp_path / "a.mat").numbers("x")
    np.testing.assert_array_equal(found, values.ravel("F"))
    assert found.dtype.isnative


@pytest.mark.parametrize("order", ["<", ">"])
def test_what_matlab_writes_in_either_byte_order(order, tmp_path):
    cells = array(1, (3, 1), text("oak", order), text("", order), text("élan", order), name=b"names", order=order)
    # MATLAB keeps whole doubles in the smallest type that holds them.
    codes = array(6, (1, 3), element(4, struct.pack(f"{order}3H", 1, 300, 2), order), name=b"codes", order=order)
    file = MatFile(write(tmp_path / "a.mat", cells, codes, records(order), order=order))
    assert file.texts("names") == ["oak", "", "élan"]
    assert file.numbers("codes").tolist() == [1, 300, 2]
    assert file.records("rows", "class", "path") == ([2, 7], ["a/1.jpg", "ü.jpg"])


def test_compressed_records(tmp_path):
    file = MatFile(write(tmp_path / "a.mat", packed(records())))
    assert file.records("rows", "class", "path") == ([2, 7], ["a/1.jpg", "ü.jpg"])


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ([array(6, (1, 1), element(9, bytes(8)), name=b"y")], "there is no array x"),
        ([array(6, (1, 2), element(9, bytes(8)), name=b"x")], "2 numbers in 8 bytes of type 9"),
        ([array(6, (1, 1), element(9, bytes(8)), name=b"x", flags=0x800)], "expected real numbers"),
        ([array(5, (1, 1), element(9, bytes(8)), name=b"x")], "expected real numbers, got an array of class 5"),
        ([array(6, (-1, 1), name=b"x")], r"an array of shape \(-1, 1\)"),
        ([array(6, (1 << 30, 1 << 30), name=b"x")], r"1073741824\) in 40 bytes"),
        ([array(6, (1, 1), name=b"x")], "ends where an array was expected"),
        ([struct.pack("<II", 14, 1 << 31)], "an array of 2147483648 bytes is longer than what is left"),
        ([struct.pack("<II", 5 << 16 | 14, 0)], "an array of 5 bytes is longer"),
        ([struct.pack("<II", 15, 4) + b"junk"], "damaged: Error -3"),
        ([packed(records())[:-9]], "is longer than what is left"),
        (
            [packed(array(6, (1, 1), element(2, bytes(LEAST_BYTES)), name=b"x"))],
            f"more than {EXPANSION} times its size",
        ),
    ],
)
def test_damaged_files_are_refused_by_name(variables, message, tmp_path):
    path = write(tmp_path / "a.mat", *variables)
    with pytest.raises(ValueError, match=rf"a.mat: .*{message}"):
        MatFile(path).numbers("x")


def test_wrong_kinds_are_refused(tmp_path):
    cells = array(1, (1, 1), array(6, (1, 1), element(2, b"\1")), name=b"cells")
    lines = array(1, (1, 1), array(4, (2, 2), element(4, bytes(8))), name=b"lines")
    broken = array(1, (1, 1), array(4, (1, 2), element(16, b"\xff\xfe")), name=b"broken")
    file = MatFile(write(tmp_path / "a.mat", cells, lines, broken, records()))
    for attempt, message in (
        (lambda: file.texts("rows"), "rows is not a cell array"),
        (lambda: file.texts("cells"), "expected one line of text, got an array of class 6"),
        (lambda: file.texts("lines"), r"one line of text, got an array of class 4 and shape \(2, 2\)"),
        (lambda: file.texts("broken"), "a text is not utf-8"),
        (lambda: file.records("cells", "class", "path"), "cells is not a struct"),
        (lambda: file.records("rows", "class", "name"), "rows lacks class or name"),
        (lambda: file.records("rows", "box", "path"), "box of record 0 is 2 numbers instead of one"),
    ):
        with pytest.raises(ValueError, match=rf"a.mat: .*{message}"):
            attempt()
    (tmp_path / "b.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(512))
    with pytest.raises(ValueError, match=r"b.mat: not a MATLAB file of version 5 to 7"):
        MatFile(tmp_path / "b.mat")
