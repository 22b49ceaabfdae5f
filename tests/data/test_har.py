from pathlib import Path

import numpy as np
import pytest
import torch

from likewise.data.har import read_har
from likewise.data.npz import read_npz

CHANNELS = [f"{signal}_{axis}" for signal in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"]


def write_folder(folder: Path, split: str, values: np.ndarray, labels, subjects, classes) -> None:
    """Write the public layout: values (N, T, 9), 0-based labels."""
    signals = folder / split / "Inertial Signals"
    signals.mkdir(parents=True)
    for index, channel in enumerate(CHANNELS):
        rows = (" ".join(f"{value: .7e}" for value in row) for row in values[:, :, index].tolist())
        (signals / f"{channel}_{split}.txt").write_text("".join(f" {row}\n" for row in rows))
    (folder / split / f"y_{split}.txt").write_text("".join(f"{label + 1}\n" for label in labels))
    (folder / split / f"subject_{split}.txt").write_text("".join(f"{subject}\n" for subject in subjects))
    lines = (f"{code} {name}\n" for code, name in enumerate(classes, 1))
    (folder / "activity_labels.txt").write_text("".join(lines))


@pytest.fixture
def folder(tmp_path) -> Path:
    write_folder(tmp_path, "train", np.arange(54.0).reshape(3, 2, 9), [1, 0, 1], [30, 1, 30], ["WALKING", "LAYING"])
    return tmp_path


def test_folder(folder):
    data = read_har(folder, "train")
    assert torch.equal(data.items.values, torch.arange(54.0).reshape(3, 2, 9))
    assert data.items.lengths.tolist() == [2, 2, 2]
    assert data.labels is not None
    assert data.labels.tolist() == ["LAYING", "WALKING", "LAYING"]
    assert data.classes == ("WALKING", "LAYING")
    assert data.groups is not None
    assert data.groups.tolist() == [30, 1, 30]
    assert read_har(str(folder), "train", dtype=torch.float64).items.dtype == torch.float64


def test_labels_follow_the_order_of_the_activities(folder):
    (folder / "activity_labels.txt").write_text("2 LAYING\r\n1 WALKING\r\n")
    data = read_har(folder, "train")
    assert data.classes == ("LAYING", "WALKING")
    assert data.codes.tolist() == [0, 1, 0]


SIGNAL = "train/Inertial Signals/body_gyro_y_train.txt"
FIRST = "train/Inertial Signals/body_acc_x_train.txt"
MALFORMED = {
    "text": (SIGNAL, "1 2\n3 x4\n5 6\n", "2:3: expected a number, got 'x4'"),
    "infinity": (SIGNAL, "1 2\n3\tinf\n5 6\n", "2:3: expected a finite number, got 'inf'"),
    "NaN": (SIGNAL, "1 2\n3 NaN\n5 6\n", "2:3: expected a number, got 'NaN'"),
    "too large": (SIGNAL, "1 2\n3 1e39\n5 6\n", "2:3: '1e39' is too large for float32"),
    "comma": (SIGNAL, "1,2\n", "1:1: expected a number, got '1,2'"),
    "binary": (SIGNAL, "\0\1\2\n", r"1:1: expected a number, got '\x00\x01\x02'"),
    "short row": (SIGNAL, "1 2\n 3\n5 6\n", "2:3: expected 2 numbers, got 1"),
    "long row": (SIGNAL, "1 2\n3  4  5\n5 6\n", "2:7: expected 2 numbers, got 3"),
    "blank row": (FIRST, "\n1 2\n3 4\n", "1:1: expected some numbers, got 0"),
    "too few rows": (SIGNAL, "1 2\n3 4", "2:4: the file ends after 2 rows; there are 3 labels"),
    "too many rows": (SIGNAL, "1 2\n" * 4, "4:1: expected the file to end here: there are 3 labels"),
    "empty": (SIGNAL, "", "1:1: the file is empty"),
    "unknown label": ("train/y_train.txt", "1\n 7\n2\n", "2:2: label 7 is not in activity_labels.txt"),
    "label is text": (
        "train/y_train.txt",
        "1\nsitting\n",
        "2:1: expected a whole number below 1000000000, got 'sitting'",
    ),
    "two labels": ("train/y_train.txt", "1 2\n", "1:1: expected a whole number below 1000000000, got '1 2'"),
    "no subject": (
        "train/subject_train.txt",
        "1\n\n3\n",
        "2:1: expected a whole number below 1000000000, got ''",
    ),
    "too few subjects": (
        "train/subject_train.txt",
        "1\n2\n",
        "2:2: the file ends after 2 rows; there are 3 labels",
    ),
    "absurd subject": (
        "train/subject_train.txt",
        "9" * 5000,
        "1:1: expected a whole number below 1000000000, got '999",
    ),
    "no name": ("activity_labels.txt", "1 WALKING\n2\n", "2:1: expected a code and a name, got '2'"),
    "code is text": (
        "activity_labels.txt",
        "A WALKING\n",
        "1:1: expected a whole number below 1000000000, got 'A'",
    ),
    "name twice": ("activity_labels.txt", "1 A\n2 A\n", "2:1: this code or name is listed twice"),
    "code twice": ("activity_labels.txt", "1 A\n1 B\n", "2:1: this code or name is listed twice"),
    "odd name": ("activity_labels.txt", "1 A\n2 \1\n", r"2:3: '\x01' cannot name a class"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed(folder, case):
    file, text, message = MALFORMED[case]
    (folder / file).write_text(text)
    with pytest.raises(ValueError) as caught:
        read_har(folder, "train")
    assert str(caught.value).startswith(f"{folder}/{file}:{message}")


def test_wrong_arguments(folder):
    with pytest.raises(ValueError, match=r"read_har: expected split to be 'train' or 'test', got '\.\./train'"):
        read_har(folder, "../train")
    with pytest.raises(FileNotFoundError):
        read_har(folder, "test")
    with pytest.raises(TypeError, match="read_har: expected dtype"):
        read_har(folder, "train", dtype=torch.int64)


def test_real_slice(tmp_path, shared_data):
    real = read_npz(shared_data / "uci_har.npz", split="test")
    part = real[::100]
    values = part.items.values
    write_folder(tmp_path, "test", values.double().numpy(), part.codes.tolist(), part.groups.tolist(), real.classes)
    data = read_har(tmp_path, "test")
    # The public files have eight digits, which name a float32 to within one unit in the last place.
    torch.testing.assert_close(data.items.values, values, rtol=1e-6, atol=0)
    assert np.array_equal(data.labels, part.labels)
    assert np.array_equal(data.groups, part.groups)
    assert data.classes == real.classes
