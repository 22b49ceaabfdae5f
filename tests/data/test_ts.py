import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.data.ts import read_ts, write_ts

HEADER = "@problemName gait\n@univariate false\n@dimensions 2\n@classLabel true walk run\n@data\n"
ROW = "1,2,3:4,5,6:walk\n"


@pytest.fixture
def read(tmp_path):
    """Read text, written to train.ts, with the folder left out of messages."""

    def read_text(text: str | bytes, **options) -> Dataset:
        path = tmp_path / "train.ts"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        try:
            return read_ts(path, **options)
        except ValueError as error:
            raise ValueError(str(error).replace(f"{tmp_path}/", "")) from error

    return read_text


def refused(read, text: str | bytes, **options) -> str:
    with pytest.raises(ValueError) as caught:
        read(text, **options)
    assert type(caught.value) is ValueError
    return str(caught.value)


def test_multivariate_of_unequal_length(read):
    data = read(HEADER + "1,2,3:4,5,6:run\n-1e1,.5: +7. ,8E-1: walk \n")
    assert data.items == Batch.from_list([[[1, 4], [2, 5], [3, 6]], [[-10, 7], [0.5, 0.8]]])
    assert data.items.dtype == torch.float32
    assert data.labels is not None
    assert data.labels.tolist() == ["run", "walk"]
    assert data.codes.tolist() == [1, 0]
    assert data.classes == ("walk", "run")
    assert data.groups is None


def test_targets(read):
    data = read("@TARGETLABEL True\n@data\n1,2:0.1\n3,4:-2e3")
    assert data.labels is not None
    assert data.labels.tolist() == [0.1, -2000.0]
    assert data.labels.dtype == np.float64
    assert data.classes == ()


@pytest.mark.parametrize("declaration", ["@classLabel false", "@targetLabel false", "@univariate false"])
def test_without_labels(read, declaration):
    data = read(f"{declaration}\n@data\n1,2:3,4\n")
    assert data.labels is None
    assert data.classes == ()
    assert data.items.channels == 2


def test_comments_blank_lines_and_line_ends(read):
    header = b"# \xff\r\n\r\n% so there\r\n  @Dimension\t2\r\n@problemName a\r\n@problemName b b\r\n@DATA \r\n"
    data = read(header + b"# first\r\n1:2\r\n\r\n3:4\r\n")
    assert data.items == Batch(torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]]))


def test_class_names_keep_case_and_script(read):
    data = read("@classLabel true Überlauf überlauf \u0661\n@data\n1:\u0661\n2:Überlauf\n")
    assert data.classes == ("Überlauf", "überlauf", "\u0661")
    assert data.labels is not None
    assert data.codes.tolist() == [2, 0]


def test_dtype(read):
    assert read(HEADER + ROW, dtype=torch.float64).items.dtype == torch.float64
    with pytest.raises(TypeError, match=r"dtype to be torch\.float32 or torch\.float64, got torch\.float16"):
        read(HEADER + ROW, dtype=torch.float16)


# The file's contents, and the beginning of the message after the file's name.
MALFORMED = {
    "empty": ("", "1:1: the file is empty"),
    "no header": ("1,2,3:walk\n", "1:1: expected the header"),
    "no header but data": ("@data\n1,2\n", "1:1: @data comes without a header before it"),
    "no @data": ("@univariate true\n# end\n", "2:6: the file ends without @data"),
    "no series": (HEADER + "\n# end", "7:6: the file ends without a series after @data"),
    "row before @data": ("@univariate true\n 1,2\n", "2:2: expected the header"),
    "unknown key": ("@univariate true\n@relation x\n", "2:1: unknown key '@relation'; known are"),
    "key without name": ("@ data\n", "1:1: unknown key '@'"),
    "flag": ("@missing maybe\n", "1:10: expected true or false, got 'maybe'"),
    "no flag": ("@equalLength\n", "1:13: expected true or false, got ''"),
    "two flags": ("@univariate true false\n", "1:13: expected true or false, got 'true false'"),
    "zero dimensions": ("@dimensions 0\n", "1:13: expected at least 1, got 0"),
    "negative length": ("@seriesLength -1\n", "1:15: expected a whole number below 1000000000, got '-1'"),
    "absurd dimensions": (
        "@dimensions " + "9" * 5000,
        "1:13: expected a whole number below 1000000000, got '999",
    ),
    "timestamps": ("@univariate true\n@timeStamps TRUE\n@data\n", "2:1: timestamps are not supported"),
    "declared twice": (
        "@missing true\n@Missing true\n",
        "2:1: '@Missing' is declared twice, first on line 1",
    ),
    "two kinds of labels": (
        "@classLabel true a\n@targetLabel true\n",
        "2:1: @classLabel and @targetLabel are both true",
    ),
    "no classes": ("@classLabel true\n", "1:17: expected the classes after true"),
    "classes after false": ("@classLabel false a\n", "1:19: expected no class after false"),
    "class with comma": ("@classLabel true a b,c\n", "1:20: 'b,c' cannot name a class"),
    "class twice": ("@classLabel true a é a\n", "1:22: class 'a' is named twice"),
    "class not UTF-8": (b"@classLabel true a \xff\n", "1:20: '\ufffd' cannot name a class"),
    "class with NUL": (b"@classLabel true a \0b\n", r"1:20: '\x00b' cannot name a class"),
    "text after @data": ("@univariate true\n@data now\n", "2:7: expected nothing after @data, got 'now'"),
    "univariate with dimensions": ("@univariate true\n@dimensions 2\n", "2:1: 2 dimensions, but 1 on line 1"),
    "no label": (
        HEADER + ROW + "1,2,3:4,5,6\n",
        "7:12: the row ends without a label; expected ':' and a class",
    ),
    "no label, univariate": ("@classLabel true a\n@data\n1,2 \n", "3:4: the row ends without a label"),
    "empty label": (HEADER + "1,2:3,4:\n", "6:9: the row ends without a label"),
    "unknown label": (
        HEADER + ROW + "1,2,3:4,5,6: fly\n",
        "7:14: label 'fly' is not among the classes on line 4",
    ),
    "target is text": ("@targetLabel true\n@data\n1,2: x\n", "3:6: expected a number, got 'x'"),
    "target is missing": ("@targetLabel true\n@data\n1,2:?\n", "3:5: expected a number, got '?'"),
    "target is too large": ("@targetLabel true\n@data\n1,2:1e309\n", "3:5: '1e309' is too large for float64"),
    "ragged dimensions": (
        HEADER + ROW + "1,2,3:4,5:run\n",
        "7:7: dimension 2 has 2 steps, but dimension 1 has 3",
    ),
    "too few dimensions": (HEADER + "1,2,3:run\n", "6:6: 1 dimensions, but 2 on line 3"),
    "too many dimensions": (HEADER + "1:2:3:run\n", "6:5: 3 dimensions, but 2 on line 3"),
    "other dimensions": ("@missing false\n@data\n1:2\n1:2:3\n", "4:5: 3 dimensions, but 2 on line 3"),
    "not univariate": ("@univariate true\n@data\n1,2:3,4\n", "3:5: 2 dimensions, but 1 on line 1"),
    "other length": ("@seriesLength 3\n@data\n1,2,3\n1,2\n", "4:4: 2 steps, but 3 on line 1"),
    "longer": ("@seriesLength 1\n@data\n1,2,3\n", "3:3: 3 steps, but 1 on line 1"),
    "unequal length": ("@equalLength true\n@data\n1,2\n1,2,3\n", "4:5: 3 steps, but 2 on line 3"),
    "absurd row": ("@missing true\n@data\n" + "1:" * 70000, "3:1: 70001 dimensions; at most 65536 are supported"),
    "long header line": ("@problemName " + "a" * (1 << 20), "1:1: this header line has 1048589 bytes"),
    "text": (HEADER + ROW + "1,2,3:4,abc,6:run\n", "7:9: expected a number, got 'abc'"),
    "nothing": (HEADER + "1,,3:4,5,6:run\n", "6:3: expected a number, got nothing"),
    "nothing at the end": (HEADER + "1,2:4,:run\n", "6:7: expected a number, got nothing"),
    "two points": (HEADER + "1,2:4,5.6.7:run\n", "6:7: expected a number, got '5.6.7'"),
    "two numbers": (HEADER + "1,2:4,5 6:run\n", "6:7: expected a number, got '5 6'"),
    "underscore": (HEADER + "1,1_000:4,5:run\n", "6:3: expected a number, got '1_000'"),
    "other digits": (HEADER + "1,\u0661:4,5:run\n", "6:3: expected a number, got '\u0661'"),
    "hexadecimal": (HEADER + "1,0x10:4,5:run\n", "6:3: expected a number, got '0x10'"),
    "infinity": (HEADER + "1,-Inf:4,5:run\n", "6:3: expected a finite number, got '-Inf'"),
    "too large": (HEADER + "1,2: -1e300,5:run\n", "6:6: '-1e300' is too large for float32"),
    "missing": (
        HEADER + "1,2:?,5:run\n",
        "6:5: missing value; fill it with missing=0.0 or missing='interpolate'",
    ),
    "NaN": (HEADER + "1,2:3,naN:run\n", "6:7: missing value"),
    "almost NaN": (HEADER + "1,2:3,nana:run\n", "6:7: expected a number, got 'nana'"),
    "undeclared timestamps": (HEADER + "(0,1),(1,2):(0,1),(1,2):run\n", "6:1: expected a number, got '(0'"),
    "binary row": (HEADER.encode() + b"\x89PNG\r\n", "6:1: expected a number, got '\ufffdPNG'"),
    "binary file": (
        bytes(range(256)),
        r"1:1: expected the header, in lines such as '@univariate true', got '\x00",
    ),
    "UTF-16": ("@univariate true".encode("utf-16"), "1:1: expected the header"),
    "truncated in a row": (HEADER + ROW + ROW[:9], "7:10: the row ends without a label"),
    "truncated in the header": (HEADER[:47], "3:12: expected a whole number below 1000000000, got ''"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed(read, case):
    text, message = MALFORMED[case]
    assert refused(read, text).startswith(f"train.ts:{message}")


def test_place_beyond_the_first_piece(read):
    numbers = ["1.5"] * 50_000
    for token, problem in (
        ("1e99", "'1e99' is too large"),
        ("1.5.", "expected a number, got '1.5.'"),
        ("?", "miss"),
    ):
        numbers[40_000] = token
        assert f"train.ts:3:{4 * 40_000 + 1}: {problem}" in refused(
            read, f"@missing true\n@data\n{','.join(numbers)}\n"
        )


def test_quotes_are_short(read):
    assert len(refused(read, HEADER + "x" * 10_000)) < 100


def test_missing_is_filled(read):
    data = read(HEADER + "?,2,NaN:4,?,nan:run\n", missing=-1)
    assert data.items[0].tolist() == [[-1, 4], [2, -1], [-1, -1]]


def test_missing_is_interpolated(read):
    data = read("@missing true\n@data\n?,?,1,?,?,4,?\n7,8,9,?,?,?,1e38\n", missing="interpolate")
    assert data.items[0].T.tolist() == [[1, 1, 1, 2, 3, 4, 4]]
    assert data.items[1].T.tolist()[0][:3] == [7, 8, 9]


def test_interpolation_does_not_overflow(read):
    data = read("@missing true\n@data\n-1.5e308,?,1.5e308\n", missing="interpolate", dtype=torch.float64)
    assert data.items[0].T.tolist() == [[-1.5e308, 0, 1.5e308]]


def test_dimension_without_values_is_not_interpolated(read):
    message = refused(read, HEADER + "1,2:?,?:run\n", missing="interpolate")
    assert message == "train.ts:6:5: dimension 2 has no value to interpolate from"


@pytest.mark.parametrize("missing", [True, "mean", [0.0]])
def test_wrong_type_of_missing(read, missing):
    with pytest.raises(TypeError, match="read_ts: expected missing to be a number, 'interpolate' or None"):
        read(HEADER + ROW, missing=missing)


@pytest.mark.parametrize("missing", [float("nan"), float("inf"), 1e300])
def test_missing_must_be_finite(read, missing):
    assert "missing must be finite in float32" in refused(read, HEADER + ROW, missing=missing)


def test_folder_and_absent_file(tmp_path):
    with pytest.raises(ValueError, match="expected a file, this is a folder"):
        read_ts(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_ts(tmp_path / "absent.ts")


names = st.text(min_size=1, max_size=5).filter(lambda name: name.isprintable() and not set(name) & set(" ,:"))


@st.composite
def datasets(draw) -> Dataset:
    width, dtype = draw(st.sampled_from([(32, torch.float32), (64, torch.float64)]))
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=width)
    channels = draw(st.integers(1, 5))
    step = st.lists(numbers, min_size=channels, max_size=channels)
    items = draw(st.lists(st.lists(step, min_size=1, max_size=6), min_size=1, max_size=5))
    sequences = Batch.from_list([torch.tensor(item, dtype=dtype) for item in items])
    kind = draw(st.sampled_from(["none", "classes", "targets"]))
    if kind == "classes":
        classes = tuple(draw(st.lists(names, min_size=1, max_size=4, unique=True)))
        labels = [draw(st.sampled_from(classes)) for _ in items]
        return Dataset(sequences, labels, classes=classes)
    if kind == "targets":
        targets = [draw(st.floats(allow_nan=False, allow_infinity=False)) for _ in items]
        return Dataset(sequences, torch.tensor(targets, dtype=torch.float64))
    return Dataset(sequences)


def bits(tensor: torch.Tensor | None) -> object:
    """Something that differs for 0.0 and -0.0."""
    return None if tensor is None else (tensor.dtype, tensor.shape, np.asarray(tensor).tobytes())


@given(dataset=datasets())
@settings(deadline=None)
def test_write_then_read_is_the_identity(dataset, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "identity.ts"
    write_ts(dataset, path)
    again = read_ts(path, dtype=dataset.items.dtype)
    assert [bits(item) for item in again.items] == [bits(item.clone()) for item in dataset.items]
    assert np.array_equal(again.labels, dataset.labels)
    if dataset.codes is None:
        assert bits(again.labels) == bits(dataset.labels)
    assert again.classes == dataset.classes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_numbers_survive(tmp_path, dtype):
    info = torch.finfo(dtype)
    numbers = torch.tensor([0.0, -0.0, info.max, info.min, info.tiny, info.smallest_normal / 4, info.eps], dtype=dtype)
    write_ts(Dataset(Batch(numbers[None, :, None])), tmp_path / "extreme.ts")
    assert bits(read_ts(tmp_path / "extreme.ts", dtype=dtype).items.values) == bits(numbers[None, :, None])


def test_name(tmp_path):
    data = Dataset(Batch(torch.zeros(1, 2, 1)))
    write_ts(data, tmp_path / "gait.ts")
    assert (tmp_path / "gait.ts").read_text().startswith("@problemName gait\n")
    write_ts(data, tmp_path / "gait.ts", name="my walk")
    assert (tmp_path / "gait.ts").read_text().startswith("@problemName my walk\n")
    with pytest.raises(ValueError, match="write_ts: the name 'a\\\\nb' is empty or not printable"):
        write_ts(data, tmp_path / "gait.ts", name="a\nb")


ZEROS = Batch(torch.zeros(2, 3, 1))
UNWRITABLE = {
    "groups": (Dataset(ZEROS, groups=[0, 1]), "no groups"),
    "blank in a class": (
        Dataset(ZEROS, ["a", "b c"]),
        "class 'b c' is empty, is not printable or has a blank",
    ),
    "comma in a class": (Dataset(ZEROS, ["a", "b,c"]), "class 'b,c'"),
    "colon in a class": (Dataset(ZEROS, ["a", "b:c"]), "class 'b:c'"),
    "no-break space in a class": (Dataset(ZEROS, ["a", "b\xa0c"]), "class 'b\\\\xa0c'"),
    "empty class": (Dataset(ZEROS, ["a", ""]), "class '' is empty"),
    "no labels": (Dataset(ZEROS, classes=("a",)), "no classes without labels"),
    "NaN": (Dataset(Batch(torch.tensor([[[0.0], [torch.nan]]]))), "item 0, step 1, channel 0 is nan"),
    "nothing": (Dataset(Batch(torch.zeros(0, 3, 1))), "at least one sequence"),
}


@pytest.mark.parametrize("case", UNWRITABLE)
def test_unwritable(tmp_path, case):
    dataset, message = UNWRITABLE[case]
    with pytest.raises(ValueError, match=f"write_ts: .*{message}"):
        write_ts(dataset, tmp_path / "gait.ts")
    assert not (tmp_path / "gait.ts").exists()


def test_unwritable_types(tmp_path):
    with pytest.raises(TypeError, match=r"expected float32 or float64 sequences, got torch\.bfloat16"):
        write_ts(Dataset(ZEROS.to(torch.bfloat16)), tmp_path / "gait.ts")


def test_padding_is_neither_written_nor_checked(tmp_path):
    values = torch.tensor([[[1.0], [2.0]], [[3.0], [torch.nan]]], requires_grad=True)
    write_ts(Dataset(Batch(values, [2, 1])), tmp_path / "gait.ts")
    assert read_ts(tmp_path / "gait.ts").items == Batch.from_list([[1.0, 2.0], [3.0]])


def shipped() -> list[Path]:
    """The files in aeon's wheel, without importing it."""
    spec = importlib.util.find_spec("aeon")
    if spec is None or spec.origin is None:
        return []
    return sorted(Path(spec.origin).parent.glob("datasets/data/*/*.ts"))


@pytest.mark.skipif(not shipped(), reason="aeon is not installed")
@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.stem)
def test_agrees_with_aeon(path):
    if path.stem == "UnitTestTimeStamps_TRAIN":
        with pytest.raises(ValueError, match=r"UnitTestTimeStamps_TRAIN\.ts:5:1: timestamps are not supported"):
            read_ts(path)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from aeon.datasets import load_from_ts_file

        series, labels = load_from_ts_file(str(path))
    data = read_ts(path, dtype=torch.float64)
    assert data.labels is not None
    assert len(data) == len(series)
    for ours, theirs in zip(data.items, series, strict=True):
        np.testing.assert_array_equal(ours.numpy().T, theirs)
    if data.classes:  # aeon reads class names in lower case
        assert [label.lower() for label in data.labels] == labels.tolist()
    else:
        assert data.labels.tolist() == labels.tolist()
    single = read_ts(path).items
    assert torch.equal(single.values, data.items.values.float())


def test_aeon_reads_what_we_write(tmp_path):
    data = Dataset(Batch(torch.rand(3, 4, 2)), ["walk", "run", "walk"])
    write_ts(data, tmp_path / "gait.ts")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        datasets = pytest.importorskip("aeon.datasets", reason="aeon is not installed")
        series, labels = datasets.load_from_ts_file(str(tmp_path / "gait.ts"))
    np.testing.assert_array_equal(series.astype(np.float32), data.items.to_aeon())
    assert labels.tolist() == ["walk", "run", "walk"]
