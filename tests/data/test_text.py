import os

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from likewise.data.text import (
    Line,
    field_offset,
    file_size,
    parse_integer,
    parse_numbers,
    quote,
    read_lines,
    word_offset,
)


def parse(text: bytes, **options) -> list[float]:
    return parse_numbers(Line("x", 1, text), text, np.float64, **options).tolist()


def test_lines_lose_their_ends(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"a\n\r\nb \r\n\xff")
    assert [(line.number, line.text) for line in read_lines(path)] == [
        (1, b"a"),
        (2, b""),
        (3, b"b "),
        (4, b"\xff"),
    ]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="expected a file, this is not a regular file"):
        file_size(tmp_path / "pipe")


def test_columns_count_characters():
    assert str(Line("x", 1, "é,b".encode()).error(3, "b")) == "x:1:3: b"


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_are_what_python_says(numbers):
    assert parse(" ".join(map(repr, numbers)).encode()) == numbers
    if numbers:
        assert parse(",".join(map(repr, numbers)).encode(), separator=b",") == numbers


def plain_decimals(text: str) -> list[float] | None:
    """The numbers that Python reads, without the forms that are specific to Python."""
    try:
        numbers = [float(word) for word in text.split()]
    except ValueError:
        return None
    return numbers if set(text) <= set("0123456789+-.eE \t") and np.isfinite(numbers).all() else None


@given(st.text("0123456789+-.eE_ \tinfaINFA\u0661", max_size=8))
@example("1_0")
@example("infinity")
@example("\u0661")
@example("1e400")
def test_what_is_not_a_plain_decimal_is_refused(text):
    expected = plain_decimals(text)
    if expected is not None:
        assert parse(text.encode()) == expected
        return
    with pytest.raises(ValueError, match=r"^x:1:\d+: "):
        parse(text.encode())


def test_missing_becomes_nan():
    np.testing.assert_equal(parse(b"1,?, NaN ,nan", separator=b",", missing=True), [1, np.nan, np.nan, np.nan])
    with pytest.raises(ValueError, match=r"x:1:3: expected a number, got '\?\?'"):
        parse(b"1,??", separator=b",", missing=True)


def test_long_lines_are_cut_between_numbers():
    numbers = list(range(100_000))
    for blank in (" ", "\t", "   "):
        assert parse(blank.join(map(str, numbers)).encode()) == numbers
    with pytest.raises(ValueError, match=r"x:1:131073: expected a number, got '1-'"):
        parse(b"1 " * 65536 + b"1- " + b"1 " * 65536)


@pytest.mark.parametrize("text", [b"", b"-1", b"1.0", b"1_0", b" 1", "\u0661".encode(), b"1" * 10])
def test_integers_are_plain(text):
    with pytest.raises(ValueError, match="x:1:1: expected a whole number below 1000000000"):
        parse_integer(Line("x", 1, text), text, 0)


def test_offsets():
    assert [word_offset(b" a  bc d ", index) for index in range(4)] == [1, 4, 7, 9]
    assert [field_offset(b"a,,bc", b",", index) for index in range(4)] == [0, 2, 3, 5]
    assert field_offset(b"", b",", 2) == 0


@given(st.binary(max_size=100))
def test_quotes_are_short_and_print(text):
    assert quote(text).isprintable()
    assert len(quote(text[:10])) <= 10 * 4 + 2
