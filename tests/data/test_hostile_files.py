"""For any bytes, a reader raises nothing but ValueError, does not hang, and takes memory in proportion to the file."""

import io
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from likewise.data import bounds, npz
from likewise.data.arabic_digits import read_arabic_digits
from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.data.har import read_har
from likewise.data.npz import read_npz, write_npz
from likewise.data.tables import read_table
from likewise.data.ts import read_ts, write_ts

DATASET = Dataset(
    Batch(torch.arange(24.0).reshape(2, 4, 3), [4, 2]),
    ["walk", "run"],
    groups=[3, 4],
    classes=("walk", "run"),
)


def bytes_of(write: Callable[[Path], None], folder: Path) -> bytes:
    write(folder / "seed")
    return (folder / "seed").read_bytes()


@pytest.fixture(scope="session")
def seeds(tmp_path_factory) -> dict[str, bytes]:
    """A small valid file for each reader."""
    folder = tmp_path_factory.mktemp("seeds")
    plain = Dataset(DATASET.items, DATASET.labels, classes=DATASET.classes)
    return {
        "ts": bytes_of(lambda path: write_ts(plain, path), folder),
        "targets": b"# a\n@targetLabel true\n@missing true\n@data\n1,?,3:4\nNaN,5,?:6\n",
        "npz": bytes_of(lambda path: write_npz(DATASET, path), folder),
        "deflated": bytes_of(lambda path: write_npz(DATASET, path, compress=True), folder),
        "digits": (b"\n" + b" ".join([b"0.5"] * 13) + b"\n") * 100,
        "signal": b"  1.0e+00  2.0e+00\n -3.0e-01  4.0e+00\n",
        "codes": b"1\n2\n",
        "activities": b"1 WALKING\n2 LAYING\n",
    }


def read_har_with(name: str, path: Path) -> Dataset:
    """Read a HAR folder in which the named file has the bytes of path."""
    folder = path.parent / "har"
    signals = folder / "train" / "Inertial Signals"
    signals.mkdir(parents=True, exist_ok=True)
    for signal in ("body_acc", "body_gyro", "total_acc"):
        for axis in "xyz":
            (signals / f"{signal}_{axis}_train.txt").write_text("1 2\n3 4\n")
    (folder / "train" / "y_train.txt").write_text("1\n2\n")
    (folder / "train" / "subject_train.txt").write_text("1\n2\n")
    (folder / "activity_labels.txt").write_text("1 WALKING\n2 LAYING\n")
    (folder / name).write_bytes(path.read_bytes())
    return read_har(folder, "train")


READERS: dict[str, Callable[[Path], object]] = {
    "ts": read_ts,
    "targets": partial(read_ts, missing="interpolate"),
    "npz": read_npz,
    "deflated": read_npz,
    "digits": partial(read_arabic_digits, speakers=range(1)),
    "signal": partial(read_har_with, "train/Inertial Signals/body_acc_x_train.txt"),
    "codes": partial(read_har_with, "train/y_train.txt"),
    "activities": partial(read_har_with, "activity_labels.txt"),
}


@st.composite
def mutations(draw, seed: bytes) -> bytes:
    """The seed with flipped bits, parts removed, copied or inserted, and perhaps truncated."""
    content = bytearray(seed)
    where = st.integers(0, len(seed))
    tokens = st.sampled_from([b":", b",", b"\n", b"?", b"1e999", b"@data", b"\xff", b"\0", b"9" * 30, b"PK\1\2", b"-"])
    for _ in range(draw(st.integers(1, 4))):
        start, stop, at = draw(where), draw(where), draw(where)
        match draw(st.sampled_from(["flip", "cut", "copy", "put", "end"])):
            case "flip" if start < len(content):
                content[start] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del content[start : min(stop, start + 20)]
            case "copy":
                content[at:at] = content[start:stop]
            case "put":
                content[at:at] = draw(st.binary(max_size=4) | tokens)
            case "end":
                del content[start:]
    return bytes(content)


def read_or_refuse(path: Path, content: bytes, reader: Callable[[Path], object]) -> None:
    path.write_bytes(content)
    refusal = None
    try:
        reader(path)
    except ValueError as error:
        refusal = error
    if refusal is not None:
        assert type(refusal) is ValueError
        assert str(refusal).startswith(str(path.parent))
        assert len(str(refusal)) < len(str(path)) + 400


@pytest.mark.parametrize("kind", READERS)
def test_seeds_are_valid(kind, seeds, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(seeds[kind])
    READERS[kind](path)


@pytest.mark.parametrize("kind", READERS)
@given(data=st.data())
@settings(max_examples=200, deadline=10_000)
def test_mutated_files(kind, data, seeds, tmp_path_factory):
    content = data.draw(mutations(seeds[kind]))
    read_or_refuse(tmp_path_factory.getbasetemp() / "mutated", content, READERS[kind])


@pytest.mark.parametrize("kind", READERS)
@given(content=st.binary(max_size=200))
@example(content=b"\n")
@example(content=b"@data")
@example(content=b"PK\5\6" + bytes(18))
@settings(max_examples=100, deadline=10_000)
def test_any_bytes(kind, content, tmp_path_factory):
    read_or_refuse(tmp_path_factory.getbasetemp() / "arbitrary", content, READERS[kind])


@given(descr=st.text(max_size=20), shape=st.text("0123456789,() -", max_size=20), version=st.integers(0, 4))
@settings(max_examples=100, deadline=10_000)
def test_any_array_header(descr, shape, version, tmp_path_factory):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode("utf-8", "replace")
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("X.npy", b"\x93NUMPY" + bytes([version, 0]) + length + text)
    read_or_refuse(tmp_path_factory.getbasetemp() / "header.npz", file.getvalue(), read_npz)


def peak_of_refusal(path: Path, reader: Callable[[Path], object]) -> int:
    """Peak memory while the file was read and refused."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as caught:
            reader(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert type(caught.value) is ValueError
    assert len(str(caught.value)) < len(str(path)) + 400
    return peak


SIZE = 10_000_000
TS = b"@classLabel true a b\n@data\n"
LINES = {
    "letters": b"x" * SIZE,
    "zeros": bytes(SIZE),
    "key": b"@" * SIZE,
    "comment": b"#" * SIZE,
    "classes": b"@classLabel true" + b" ab" * (SIZE // 3),
    "row of letters": TS + b"x" * SIZE,
    "row of zeros": TS + bytes(SIZE),
    "row of commas": TS + b"," * SIZE,
    "row of colons": TS + b":" * SIZE,
    "row of two-byte dimensions": TS + b"11:" * (SIZE // 3) + b"a",
    "row of blanks": TS + b"1" + b" " * SIZE + b"1:a",
    "one number": TS + b"1" * SIZE + b":a",
    "label": TS + b"1:" + b"x" * SIZE,
}


@pytest.mark.parametrize("case", LINES)
def test_long_lines_take_a_few_times_their_size(case, tmp_path):
    path = tmp_path / "long.ts"
    path.write_bytes(LINES[case])
    assert peak_of_refusal(path, read_ts) < 6 * SIZE


@pytest.mark.parametrize("case", ["letters", "zeros", "one number"])
def test_long_lines_of_other_text_readers(case, tmp_path):
    path = tmp_path / "long.txt"
    path.write_bytes(LINES[case].removeprefix(TS))
    assert peak_of_refusal(path, read_arabic_digits) < 6 * SIZE


def test_many_numbers_take_a_few_times_their_text(tmp_path):
    path = tmp_path / "long.ts"
    path.write_bytes(TS + b"1," * 500_000 + b"1:c\n")
    assert peak_of_refusal(path, read_ts) < 10_000_000
    path.write_bytes(TS + b"1," * 500_000 + b"1:a\n1,x:b\n")
    assert peak_of_refusal(path, read_ts) < 20_000_000


def test_padding_is_refused_before_it_is_made(tmp_path):
    path = tmp_path / "padding.ts"
    path.write_bytes(TS + b"1:a\n" * 20_000 + b"1," * 100_000 + b"1:b\n")
    assert peak_of_refusal(path, read_ts) < 10_000_000
    path.write_bytes((b"1 " * 13 + b"\n\n") * 99 + (b"1 " * 13 + b"\n") * 30_000)
    reader = partial(read_arabic_digits, speakers=range(1), dtype=torch.float64)
    assert peak_of_refusal(path, reader) < 30_000_000


def test_zip_bombs_are_refused_before_they_are_unpacked(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, X=np.zeros((1, SIZE, 1)))
    assert path.stat().st_size < SIZE // 50
    assert peak_of_refusal(path, partial(read_npz, limit=SIZE)) < 1_000_000

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        file = io.BytesIO()
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**6, 1)})
        archive.writestr("X.npy", file.getvalue() + bytes(SIZE))
    assert peak_of_refusal(path, read_npz) < 1_000_000

    write_npz(DATASET, path)
    content = path.read_bytes()
    start = content.index(b"PK\1\2")
    claim = (3 << 30).to_bytes(4, "little")
    path.write_bytes(content[: start + 24] + claim + content[start + 28 :])
    assert peak_of_refusal(path, read_npz) < 1_000_000


def test_a_long_zip_directory_is_refused(tmp_path):
    path = tmp_path / "directory.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for index in range(25_000):
            archive.writestr(str(index), b"")
    assert peak_of_refusal(path, read_npz) < 1_000_000


def test_what_is_unpacked_is_bounded_by_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "LEAST", 1 << 20)
    monkeypatch.setattr(npz, "LEAST", 1 << 20)
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, X=np.zeros((1, 1_000_000, 1)))
    size = path.stat().st_size
    assert peak_of_refusal(path, read_npz) < 1_000_000
    with pytest.raises(ValueError, match=rf"8000128 bytes unpacked, \d+ times the file's {size}; raise expansion=64"):
        read_npz(path)
    assert len(read_npz(path, expansion=2000)) == 1
    with pytest.raises(ValueError, match="raise expansion=10"):
        npz.read_npy(path, expansion=10)
    assert npz.read_npy(path, expansion=2000).shape == (1, 1_000_000, 1)
    np.savez_compressed(path, values=np.ones((2000, 1)), lengths=[1000] + [1] * 1000)  # padded to 1001 x 1000
    assert peak_of_refusal(path, read_npz) < 1_000_000
    assert len(read_npz(path, expansion=1e6)) == 1001


def test_the_limit_is_a_share_of_the_memory(monkeypatch):
    monkeypatch.setattr(bounds.os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.get)
    assert bounds.unpacked_limit(None) == 2_048_000
    assert bounds.unpacked_limit(1 << 40) == 1 << 40


def test_rows_of_parquet_are_bounded(tmp_path):
    parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    path = tmp_path / "repeated.parquet"
    columns = {"id": pyarrow.array(np.zeros(1_000_000, np.int8)), "x": pyarrow.array(np.zeros(1_000_000))}
    parquet.write_table(pyarrow.table(columns), path)
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match="1000000 rows of 2 columns take more than limit=10000000 bytes"):
        read_table(path, id="id", limit=10_000_000)
