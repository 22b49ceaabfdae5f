from pathlib import Path

import numpy as np
import pytest
import torch

from likewise.data.arabic_digits import read_arabic_digits
from likewise.data.batch import Batch
from likewise.data.npz import read_npz

ROW = " ".join("0.5" for _ in range(13))


def write_blocks(path: Path, items) -> Path:
    """Write the public layout: the file begins with a blank line, and some lines contain blanks."""
    with path.open("w") as file:
        for item in items:
            file.write("   \n" + "".join(" ".join(map(repr, row)) + "\n" for row in item))
    return path


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "Train_Arabic_Digit.txt"


def test_labels_and_speakers_follow_the_order(path):
    items = [[[float(block)] * 13] * (1 + block % 3) for block in range(200)]
    data = read_arabic_digits(write_blocks(path, items), speakers=range(66, 68))
    assert data.items == Batch.from_list(items)
    assert data.labels is not None
    assert data.groups is not None
    assert data.codes.tolist() == [block // 20 for block in range(200)]
    assert data.groups.tolist() == [66 + block % 20 // 10 for block in range(200)]
    assert data.classes == tuple("0123456789")
    assert data.items.dtype == torch.float32


def test_blank_lines_in_a_row_are_one(path):
    path.write_text("\r\n \t\r\n" + f"{ROW}\r\n\r\n\r\n" * 100)
    data = read_arabic_digits(path, speakers=range(1), dtype=torch.float64)
    assert data.items == Batch(torch.full((100, 1, 13), 0.5, dtype=torch.float64))


MALFORMED = {
    "text": (f"\n{ROW}\n0.5 abc\n", "3:5: expected a number, got 'abc'"),
    "comma": (ROW.replace(" ", ","), "1:1: expected a number, got '0.5,0.5,"),
    "too few": (f"{ROW}\n 1 2 3 \n", "2:8: expected 13 numbers or a blank line, got 3 numbers"),
    "too many": (f"{ROW} 1\n", "1:53: expected 13 numbers or a blank line, got 14 numbers"),
    "infinity": (f"{ROW[:-3]}-inf\n", "1:49: expected a finite number, got '-inf'"),
    "empty": ("", "1:1: the file is empty"),
    "blank": ("\n \n", "2:2: the file ends after 0 utterances, but 1 speakers make 100"),
    "binary": ("\x89PNG\0", r"1:1: expected a number, got '\x89PNG\x00'"),
    "truncated": (
        f"{ROW}\n\n" * 99,
        "198:1: the file ends after 99 utterances, but 1 speakers make 100; pass speakers=",
    ),
    "another file": (f"{ROW}\n\n" * 200, "400:1: the file ends after 200 utterances, but 1 speakers make 100"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed(path, case):
    text, message = MALFORMED[case]
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as caught:
        read_arabic_digits(path, speakers=range(1))
    assert str(caught.value).startswith(f"{path}:{message}")


def test_no_speakers(path):
    path.write_text("\n")
    with pytest.raises(ValueError, match="ends after 0 utterances, but 0 speakers make 0"):
        read_arabic_digits(path, speakers=())


def test_real_test_file(path, shared_data):
    real = read_npz(shared_data / "spoken_arabic_digits.npz", split="test")
    write_blocks(path, (item.double().tolist() for item in real.items))
    data = read_arabic_digits(path, speakers=range(66, 88))
    assert data.items == real.items
    assert np.array_equal(data.labels, real.labels)
    assert np.array_equal(data.groups, real.groups)
