import numpy as np
import pytest
import torch

from likewise import _labels
from likewise.data.batch import Batch
from likewise.data.dataset import Dataset

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([3, 1], [3, 1]),
        (torch.tensor([3, 1], dtype=torch.uint8), [3, 1]),
        (torch.tensor([0.5, 1.0], dtype=torch.bfloat16), [0.5, 1.0]),
        (torch.tensor([True, False]), [True, False]),
        (["a", "b"], ["a", "b"]),
        (("a", 3, 3.0, 0.5), ["a", "3", "3", "0.5"]),
        (np.array(["a", 3.0], object), ["a", "3"]),
        (np.array([1, 2], object), [1, 2]),
        ([np.str_("a"), np.int64(3)], ["a", "3"]),
        (range(3), [0, 1, 2]),
        ([], []),
    ],
)
def test_numbers_and_names_are_read(labels, expected):
    assert _labels.read_labels("op", "labels", labels).tolist() == expected


def test_series_of_tables_are_read():
    pd = pytest.importorskip("pandas")
    for series in (pd.Series(["a", "b"]), pd.Series(["a", "b"], dtype="category"), pd.Series(["a", "b"], dtype=object)):
        assert _labels.read_labels("op", "labels", series).tolist() == ["a", "b"]
    assert _labels.read_labels("op", "labels", pd.Series([3, 1])).tolist() == [3, 1]
    pl = pytest.importorskip("polars")
    assert _labels.read_labels("op", "labels", pl.Series(["a", "b"])).tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (None, TypeError, "expected labels to be numbers or names, got None"),
        ("abc", ValueError, r"expected labels of shape \(2,\), got \(\)"),
        ([1, 2, 3], ValueError, r"expected labels of shape \(2,\), got \(3,\)"),
        ([1.0, float("nan")], ValueError, r"labels\[1\] is NaN"),
        (["a", float("nan")], ValueError, r"labels\[1\] is missing \(nan\)"),
        (["a", None], ValueError, r"labels\[1\] is missing \(None\)"),
        ([1, [2]], TypeError, "expected labels to be numbers or names"),
        ([b"a", b"b"], TypeError, "expected labels to be numbers or names, got"),
        ([object(), object()], TypeError, "expected labels to be numbers or names, got object at 0"),
        (np.array(["2024-01-01", "2024-01-02"], "datetime64[D]"), TypeError, "got datetime64"),
        (["a", "\0"], ValueError, r"labels\[1\] is '\\x00', but NumPy's strings cannot hold a NUL"),
    ],
)
def test_other_things_are_refused(labels, error, message):
    with pytest.raises(error, match=message):
        _labels.read_labels("op", "labels", labels, 2)


def test_a_class_is_its_name_wherever_one_side_is_text():
    def together(*parts):
        classes, codes = _labels.number_labels(*(_labels.read_labels("op", "labels", part) for part in parts))
        return classes.tolist(), [part.tolist() for part in codes]

    assert together([3, 10], [10.0, 3.0]) == ([3, 10], [[0, 1], [1, 0]])
    assert together([3, 10], ["10", "3"]) == (["3", "10"], [[0, 1], [1, 0]])
    assert together([3.0, 0.5], ["3", "x"]) == (["0.5", "3", "x"], [[1, 0], [1, 2]])
    assert together(["10", "9", "nan"]) == (["10", "9", "nan"], [[0, 1, 2]])
    assert together([], ["a"]) == (["a"], [[], [0]])
    assert together(["3", "3.0"]) == (["3", "3.0"], [[0, 1]])  # text is what it says


def test_large_whole_numbers_keep_their_digits():
    huge = np.array([2**62, 2**62 + 1])
    assert _labels.class_names(huge).tolist() == [str(2**62), str(2**62 + 1)]
    assert _labels.number_labels(huge)[1][0].tolist() == [0, 1]


def test_codes_of_a_tensor_are_the_tensor():
    labels = torch.tensor([7, 3])
    assert _labels.read_codes("loss", CPU, ("labels", labels, 2))[0].data_ptr() == labels.data_ptr()
    assert _labels.read_codes("loss", CPU, ("labels", [], 0))[0].dtype == torch.int64
    rows, columns = _labels.read_codes("loss", CPU, ("rows", torch.tensor([7, 3]), 2), ("columns", ["3", "7"], 2))
    assert (rows.tolist(), columns.tolist()) == ([1, 0], [0, 1])
    for wrong in (torch.tensor([0.5, 1.0]), torch.tensor([True, False]), [0.5, 1.0]):
        with pytest.raises(TypeError, match="expected labels to be whole numbers or names, got torch"):
            _labels.read_codes("loss", CPU, ("labels", wrong, 2))


class MapStyle(torch.utils.data.Dataset):
    labels = ("a", "b")

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return torch.zeros(3, 1), self.labels[i]


def test_labelled_takes_what_has_items_and_labels():
    x, data, lazy = torch.zeros(2, 3, 1), Dataset(torch.zeros(2, 3, 1), ["a", "b"]), MapStyle()
    assert _labels.labelled("op", "data", (x, ["a", "b"])) == (x, ["a", "b"])
    assert _labels.labelled("op", "data", data)[0] is data.items
    assert _labels.labelled("op", "data", (data, [0, 1]))[0] is data.items
    assert _labels.labelled("op", "data", lazy) == (lazy, lazy.labels)
    assert _labels.labelled("op", "data", x, need_labels=False) == (x, None)
    pair = [torch.zeros(3), torch.zeros(2)]  # two sequences: a list is not a pair if labels are not needed
    assert _labels.labelled("op", "data", pair, need_labels=False) == (pair, None)
    assert _labels.labelled("op", "data", Dataset(x), need_labels=False)[1] is None
    with pytest.raises(ValueError, match="op: data has no labels"):
        _labels.labelled("op", "data", Dataset(x))
    for wrong in (x, {"items": x, "labels": [0, 1]}, None, (x,), (x, x, x)):
        with pytest.raises(TypeError, match=r"op: expected data to be a Dataset or a pair \(items, labels\), got"):
            _labels.labelled("op", "data", wrong)


@pytest.mark.parametrize("labels", [["a", "b"], [1, 2], np.array(["a", "b"]), torch.tensor([0, 1])])
@pytest.mark.parametrize(
    "items",
    [
        torch.zeros(2, 3, 1),
        np.zeros((2, 3, 1)),
        torch.zeros(2, 4),
        Batch(torch.zeros(2, 3, 1)),
        [torch.zeros(3), torch.zeros(2)],
        [[[1.0]], [[2.0], [3.0]]],
        MapStyle(),
    ],
    ids=lambda items: type(items).__name__,
)
def test_items_of_a_pair(items, labels):
    assert _labels.items_of((items, labels)) is items


def test_a_tuple_of_sequences_is_not_a_pair():
    one, two = torch.zeros(2, 1), torch.zeros(2)
    tuples = [(one, one), (one, two), (two, two), ([1.0, 2.0], [3.0, 4.0]), ([[1.0], [2.0]], [3, 4])]
    for sequences in [*tuples, ([[1.0, 2.0]], [[3.0, 4.0]]), (one, two, two), (torch.zeros(2, 3, 1), [0, 1, 2])]:
        assert _labels.items_of(sequences) is sequences


def test_map_style_datasets_are_recognised():
    assert _labels.is_map_style(MapStyle())
    for other in (Dataset(torch.zeros(2, 3, 1)), Batch(torch.zeros(2, 3, 1)), torch.zeros(2, 3, 1), [1, 2], None):
        assert not _labels.is_map_style(other)
    part = _labels.rows_of(MapStyle(), slice(1, None))
    assert (len(part), part[0][1], _labels.is_map_style(part)) == (1, "b", True)


def test_the_same_items():
    x = torch.zeros(4, 3, 1)
    assert _labels.same_items(x, x)
    assert _labels.same_items(Batch(x), x)
    assert _labels.same_items(x, x.detach())
    assert not _labels.same_items(x, x.clone())
    assert not _labels.same_items(x[:2], x[2:])
    assert not _labels.same_items(x, x[:2])
    assert not _labels.same_items([1], [1])
