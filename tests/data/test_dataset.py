import dataclasses

import numpy as np
import pytest
import torch

from likewise.data.batch import Batch
from likewise.data.dataset import MOST_LABEL_BYTES, Dataset, names_of
from likewise.data.npz import read_npz
from likewise.data.split import HeldOutClasses

ZEROS = Batch(torch.zeros(2, 3, 1))


def test_labels_are_names():
    data = Dataset(ZEROS, ["walk", "run"], groups=[7, 7], classes=("walk", "run", "sit"))
    assert data.labels.tolist() == ["walk", "run"]
    assert data.classes == ("walk", "run", "sit")
    assert data.codes.dtype == torch.int64
    assert data.codes.tolist() == [0, 1]
    assert data.ids == ("0", "1")
    assert data.groups.tolist() == [7, 7]
    assert len(data) == 2
    bare = Dataset(ZEROS)
    assert (bare.labels, bare.codes, bare.groups, bare.classes) == (None, None, None, ())


@pytest.mark.parametrize(
    "labels",
    [[10, 9], np.array([10, 9], np.uint8), torch.tensor([10, 9]), ["10", "9"], np.array([10, "9"], object), (10, "9")],
    ids=["list", "uint8", "tensor", "text", "objects", "mixed"],
)
def test_a_number_names_its_class(labels):
    data = Dataset(ZEROS, labels)
    assert data.labels.tolist() == ["10", "9"]
    assert data.classes == ("9", "10")  # by number, as all are numbers
    assert data.codes.tolist() == [1, 0]


def test_floats_are_targets_unless_classes_are_given():
    targets = Dataset(ZEROS, torch.tensor([1.0, 2.0]))
    assert targets.labels.dtype == np.float64
    assert (targets.codes, targets.classes) == (None, ())
    assert Dataset(ZEROS, [1.0, 2.0], classes=[1, 2]).labels.tolist() == ["1", "2"]


def test_everything_that_makes_a_batch_is_taken():
    assert Dataset([[1.0, 2.0], [3.0]]).items.lengths.tolist() == [2, 1]
    assert Dataset(np.zeros((4, 3, 2))).items.channels == 2
    with pytest.raises(ValueError, match="Dataset: expected items of shape"):
        Dataset(torch.zeros(4, 3))


def test_what_was_passed_is_not_shared():
    labels, groups = np.array(["a", "b"]), np.array([1, 2])
    data = Dataset(ZEROS, labels, groups=groups)
    labels[0], groups[0] = "b", 9
    assert data.labels.tolist() == ["a", "b"]
    assert data.groups.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"items": 3}, TypeError, "Dataset: expected items to be a Batch, a tensor"),
        ({"labels": [0]}, ValueError, r"Dataset: expected labels of shape \(2,\), got \(1,\)"),
        ({"labels": [[0, 1]]}, ValueError, r"expected labels of shape \(2,\), got \(1, 2\)"),
        ({"labels": [1j, 2j]}, TypeError, "expected labels to be numbers or names, got complex128"),
        ({"labels": [b"a", b"b"]}, TypeError, "expected labels to be numbers or names, got"),
        ({"labels": ["a", None]}, ValueError, r"labels\[1\] is missing \(None\)"),
        ({"labels": [0.0, float("nan")]}, ValueError, r"labels\[1\] is NaN"),
        ({"labels": [0.0, float("inf")]}, ValueError, r"labels\[1\] is inf; targets must be finite"),
        ({"labels": ["a", "b\0"]}, ValueError, r"labels\[1\] is 'b\\x00', but NumPy's strings cannot hold"),
        ({"labels": [{}, []]}, TypeError, "expected labels to be numbers or names"),
        ({"groups": [0, 0, 0]}, ValueError, r"expected groups of shape \(2,\), got \(3,\)"),
        ({"ids": ("a",)}, ValueError, "expected 2 ids, one for each item, got 1"),
        ({"ids": ["a"]}, ValueError, r"expected ids of shape \(2,\)"),
        ({"classes": ("walk", "walk")}, ValueError, "Dataset: two classes have the same name"),
        ({"classes": ("3", 3.0)}, ValueError, "Dataset: two classes have the same name"),
        ({"classes": "walk"}, TypeError, "expected classes to be several names, got the text 'walk'"),
        (
            {"labels": [0, 1], "classes": ("a", "b")},
            ValueError,
            r"labels\[0\] is '0'.*numpy.array\(classes\)\[labels\]",
        ),
        ({"labels": ["a", "c"], "classes": ("a", "b")}, ValueError, r"labels\[1\] is 'c', which is not among the 2"),
    ],
)
def test_parts_that_disagree_are_refused(parts, error, message):
    with pytest.raises(error, match=message):
        Dataset(**{"items": ZEROS, **parts})


def test_a_dataset_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Dataset(ZEROS).labels = [0, 1]  # type: ignore[misc]


def numbered() -> Dataset:
    return Dataset(torch.arange(6.0).reshape(6, 1, 1), ["b", "a", "b", "c", "a", "b"], groups=[0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize(
    "index",
    [slice(1, 5, 2), [1, 3], np.array([1, -3]), torch.tensor([1, 3]), torch.arange(6) % 4 == 1],
    ids=["slice", "list", "array", "tensor", "mask"],
)
def test_parts_keep_the_classes(index):
    data = numbered()
    part = data[index]
    chosen = [1, 3] if not isinstance(index, torch.Tensor) or index.dtype != torch.bool else [1, 5]
    assert part.items.values.flatten().tolist() == [float(i) for i in chosen]
    assert part.ids == tuple(map(str, chosen))
    assert part.classes == ("a", "b", "c")
    assert part.labels.tolist() == [data.labels[i] for i in chosen]
    assert part.codes.tolist() == [int(data.codes[i]) for i in chosen]
    assert part.groups.tolist() == [int(data.groups[i]) for i in chosen]


def test_one_item_is_a_pair():
    item, label = numbered()[-1]
    assert (item.tolist(), label) == ([[5.0]], "b")
    assert [label for _, label in numbered()] == ["b", "a", "b", "c", "a", "b"]
    assert Dataset(ZEROS)[0][1] is None
    assert type(Dataset(ZEROS, [0.5, 1.0])[1][1]) is float


@pytest.mark.parametrize("index", [6, -7, [0, 6], torch.ones(5, dtype=torch.bool)])
def test_places_that_are_not_there(index):
    with pytest.raises(IndexError, match="Dataset: "):
        numbered()[index]


@pytest.mark.parametrize("index", ["a", 1.5, [[0]], (0, 1.5)])
def test_no_index(index):
    with pytest.raises(TypeError, match="expected an integer, a slice"):
        numbered()[index]


def test_empty_parts():
    assert len(numbered()[[]]) == 0
    assert numbered()[:0].classes == ("a", "b", "c")
    assert Dataset(ZEROS, [0.5, 0.25])[[]].labels is not None


def test_of_classes_and_without_single():
    data = numbered()
    assert data.of_classes(["c", "a"]).labels.tolist() == ["a", "c", "a"]
    assert data.of_classes(["c", "a"]).classes == ("c", "a")
    assert data.without_single().classes == ("a", "b")
    with pytest.raises(ValueError, match="there is no class 'd'"):
        data.of_classes(["d"])
    with pytest.raises(ValueError, match=r"class 'c' has one item: .*without_single"):
        data.check_pairs()
    with pytest.raises(ValueError, match="needs class labels, and these items have none"):
        Dataset(ZEROS).without_single()


def test_split_draws_from_every_class():
    data = Dataset(torch.zeros(110, 1, 1), ["a"] * 60 + ["b"] * 40 + ["c"] * 9 + ["d"])
    train, held_out = data.split(0.2)
    assert len(held_out) == 22
    assert set(train.ids) | set(held_out.ids) == set(data.ids)
    assert [int((held_out.labels == name).sum()) for name in "abcd"] == [12, 8, 2, 0]  # d keeps its only item
    assert train.classes == held_out.classes == data.classes
    assert data.split(0.2)[1].ids == held_out.ids
    assert data.split(0.2, 1)[1].ids != held_out.ids
    assert sorted(held_out.ids, key=int) == list(held_out.ids)


def test_split_by_groups_parts_the_groups():
    data = Dataset(torch.zeros(40, 1, 1), [0, 1] * 20, groups=np.arange(40) // 4)
    train, held_out = data.split(0.3, groups=data.groups)
    assert len(set(held_out.groups)) == 3
    assert not set(train.groups) & set(held_out.groups)
    with pytest.raises(ValueError, match="all items belong to one group"):
        data.split(0.3, groups=["a"] * 40)


def test_split_without_classes():
    assert [len(part) for part in Dataset(torch.zeros(10, 1, 1)).split(0.3)] == [7, 3]
    assert [len(part) for part in Dataset(torch.zeros(10, 1, 1), np.arange(10.0)).split(0.3)] == [7, 3]


def test_split_by_classes():
    data = Dataset(torch.zeros(20, 1, 1), list("abcdefghij") * 2)
    train, held_out = data.split(HeldOutClasses(0.3, seed=5))
    assert len(held_out.classes) == 3
    assert set(train.classes) | set(held_out.classes) == set("abcdefghij")
    assert set(held_out.labels) == set(held_out.classes)
    assert not set(train.labels) & set(held_out.labels)
    assert data.split(HeldOutClasses(0.3, seed=6))[1].classes != held_out.classes


@pytest.mark.parametrize("share", [0, 1, -0.5, 1.5])
def test_no_share(share):
    with pytest.raises(ValueError, match="share must be between 0 and 1"):
        numbered().split(share)
    with pytest.raises(ValueError, match="share must be between 0 and 1"):
        HeldOutClasses(share)


def test_a_reader_names_the_file(tmp_path):
    path = tmp_path / "gait.npz"
    np.savez(path, X=np.zeros((2, 3, 1)), y=np.array([0, 2]), classes=np.array(["walk", "run"]))
    with pytest.raises(ValueError) as caught:
        read_npz(path)
    assert str(caught.value) == f"{path}: labels[1] is 2, but there are 2 classes, counted from 0"


def test_names_that_would_not_fit_in_memory():
    with pytest.raises(ValueError, match="of up to 100000 characters take more than"):
        names_of(["a" * 100_000], np.zeros(MOST_LABEL_BYTES // 400_000 + 1))
