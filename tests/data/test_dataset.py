import dataclasses

import numpy as np
import pytest
import torch

from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.data.npz import read_npz

ZEROS = Batch(torch.zeros(2, 3, 1))
LABELS = torch.tensor([0, 1])


def test_parts():
    data = Dataset(ZEROS, LABELS, ("walk", "run"), torch.tensor([7, 7]))
    assert len(data) == 2
    assert data.classes[data.labels[1]] == "run"  # type: ignore[index]
    assert (Dataset(ZEROS).labels, Dataset(ZEROS).classes, Dataset(ZEROS).groups) == (None, (), None)


@pytest.mark.parametrize(
    "parts",
    [
        {"labels": LABELS},
        {"labels": LABELS.double() - 0.5},
        {"classes": ("walk",)},
        {"groups": torch.tensor([-3, 9])},
        {"sequences": Batch(torch.empty(0, 3, 1)), "labels": LABELS[:0], "classes": ("walk",)},
    ],
    ids=["labels without classes", "targets", "classes without labels", "groups", "empty"],
)
def test_parts_that_agree(parts):
    assert dataclasses.asdict(Dataset(**{"sequences": ZEROS, **parts})).keys() >= parts.keys()


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"sequences": torch.zeros(2, 3, 1)}, TypeError, "Dataset: expected sequences to be a Batch, got Tensor"),
        (
            {"labels": LABELS.int()},
            TypeError,
            "Dataset: expected labels of type torch.int64 or torch.float64, got torch.int32",
        ),
        ({"labels": [0, 1]}, TypeError, "expected labels of type torch.int64 or torch.float64, got list"),
        ({"groups": LABELS.double()}, TypeError, "expected groups of type torch.int64, got torch.float64"),
        ({"labels": LABELS[:1]}, ValueError, r"Dataset: expected labels of shape \(2,\), got \(1,\)"),
        ({"labels": LABELS[None]}, ValueError, r"expected labels of shape \(2,\), got \(1, 2\)"),
        ({"groups": torch.zeros(3).long()}, ValueError, r"expected groups of shape \(2,\), got \(3,\)"),
        ({"classes": ("walk", "walk")}, ValueError, "Dataset: two classes have the same name"),
        (
            {"labels": LABELS, "classes": ("walk",)},
            ValueError,
            r"labels\[1\] is 1, but there are 1 classes, counted from 0",
        ),
        ({"labels": -LABELS, "classes": ("a", "b")}, ValueError, r"labels\[1\] is -1, but there are 2 classes"),
        ({"labels": -LABELS}, ValueError, r"labels\[1\] is -1, labels count from 0"),
        ({"labels": LABELS.double().log()}, ValueError, r"labels\[0\] is -inf, targets must be finite"),
        (
            {"labels": LABELS.double(), "classes": ("walk", "run")},
            ValueError,
            "Dataset: classes need int64 labels; these are float64 targets",
        ),
    ],
)
def test_parts_that_disagree_are_refused(parts, error, message):
    with pytest.raises(error, match=message):
        Dataset(**{"sequences": ZEROS, **parts})


def test_a_dataset_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Dataset(ZEROS).labels = LABELS  # type: ignore[misc]


def test_a_reader_names_the_file(tmp_path):
    path = tmp_path / "gait.npz"
    np.savez(path, X=np.zeros((2, 3, 1)), y=np.array([0, 2]), classes=np.array(["walk", "run"]))
    with pytest.raises(ValueError) as caught:
        read_npz(path)
    assert str(caught.value) == f"{path}: labels[1] is 2, but there are 2 classes, counted from 0"
