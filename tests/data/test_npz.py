import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise.data.batch import Batch
from likewise.data.dataset import Dataset
from likewise.data.images import ImageSet
from likewise.data.npz import read_npz, write_npz

VALUES = np.arange(10, dtype=np.float32).reshape(5, 2)


def save(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def npy(array: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


def archive(path: Path, **members: bytes) -> Path:
    """A zip of members that need not be arrays."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def refused(path: Path, **options) -> str:
    with pytest.raises(ValueError) as caught:
        read_npz(path, **options)
    assert type(caught.value) is ValueError
    return str(caught.value).replace(f"{path.parent}/", "")


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "gait.npz"


def test_images(path):
    images = torch.arange(2 * 3 * 4 * 5, dtype=torch.uint8).reshape(2, 3, 4, 5)
    write_npz(ImageSet(images, ["iris", "rose"], ids=("a/1.jpg", "b/1.jpg")), path)
    data = read_npz(path)
    assert isinstance(data, ImageSet)
    assert data.items.equal(images)
    assert data.items.dtype == torch.uint8
    assert (data.classes, data.ids) == (("iris", "rose"), ("a/1.jpg", "b/1.jpg"))
    save(path, images_val=images.numpy(), y_val=["iris", "rose"])
    assert read_npz(path, split="val").items.equal(images)
    assert "it has the splits 'val'" in refused(path)


def test_stacked(path):
    classes = np.array(["walk", "run", "überlauf"])
    save(path, values=VALUES, lengths=np.int16([3, 2]), y=np.uint8([2, 0]), classes=classes, groups=[7, -1])
    data = read_npz(path)
    assert data.items == Batch.from_list([VALUES[:3], VALUES[3:]])
    assert data.items.dtype == torch.float32
    assert data.labels is not None
    assert data.labels.tolist() == ["überlauf", "walk"]
    assert data.codes.tolist() == [2, 0]
    assert data.classes == ("walk", "run", "überlauf")
    assert data.groups is not None
    assert data.groups.tolist() == [7, -1]
    assert data.groups.dtype == np.int64


def test_values_and_lengths_are_enough(path):
    data = read_npz(save(path, values=VALUES.astype(np.float64), lengths=[5]))
    assert data.items.dtype == torch.float64
    assert (data.labels, data.classes, data.groups) == (None, (), None)


def test_dense_with_targets(path):
    data = read_npz(save(path, X=VALUES.reshape(1, 5, 2), y=np.float16([0.5])))
    assert data.items == Batch(torch.from_numpy(VALUES.reshape(1, 5, 2)))
    assert data.labels is not None
    assert data.labels.dtype == np.float64


@pytest.mark.parametrize("name", ["groups", "subject", "speaker"])
def test_split(path, name):
    save(
        path,
        **{
            "X_train": np.zeros((1, 2, 3)),
            "X_test": np.ones((2, 4, 3)),
            "y_test": [0, 1],
            f"{name}_test": [5, 6],
        },
        classes=["a", "b"],
    )
    data = read_npz(path, split="test")
    assert data.items == Batch(torch.ones(2, 4, 3, dtype=torch.float64))
    assert data.labels is not None
    assert data.labels.tolist() == ["a", "b"]
    assert data.classes == ("a", "b")
    assert data.groups is not None
    assert data.groups.tolist() == [5, 6]


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f8", ">f8"])
def test_layouts(path, version, order, dtype):
    values = np.array(VALUES, dtype=dtype, order=order)
    archive(path, values=npy(values, version), lengths=npy(np.array([3, 2], ">i4"), version))
    data = read_npz(path)
    assert data.items == Batch.from_list([VALUES[:3], VALUES[3:]]).to(data.items.dtype)
    assert data.items.dtype.itemsize == values.itemsize


def test_other_members_are_not_read(path):
    archive(path, values=npy(VALUES), lengths=npy(np.array([5])), pickle=b"not even an array")
    assert len(read_npz(path)) == 1


WRONG = {
    "images of floats": (
        {"images": np.zeros((1, 3, 2, 2), np.float32)},
        "gait.npz: images.npy: expected uint8, 4-dimensional, got float32 of shape (1, 3, 2, 2)",
    ),
    "images of bools": (
        {"images": np.zeros((1, 3, 2, 2), bool)},
        "gait.npz: images.npy: expected uint8, 4-dimensional, got bool of shape (1, 3, 2, 2)",
    ),
    "one image": (
        {"images": np.zeros((3, 2, 2), np.uint8)},
        "gait.npz: images.npy: expected uint8, 4-dimensional, got uint8 of shape (3, 2, 2)",
    ),
    "images and X": (
        {"images": np.zeros((1, 3, 2, 2), np.uint8), "X": np.zeros((1, 2, 2), np.float32)},
        "gait.npz: expected values and lengths, X, or images, got X and images",
    ),
    "too few labels of images": (
        {"images": np.zeros((2, 3, 2, 2), np.uint8), "y": ["iris"]},
        "gait.npz: expected labels of shape (2,), got (1,)",
    ),
    "no lengths": ({"values": VALUES}, "gait.npz: expected values and lengths, X, or images, got values"),
    "nothing": ({"y": [0]}, "gait.npz: expected values and lengths, X, or images, got neither"),
    "both": ({"values": VALUES, "lengths": [5], "X": VALUES[None]}, "got values and lengths and X"),
    "dense with lengths": ({"X": VALUES[None], "lengths": [5]}, "got lengths and X"),
    "two groups": ({"X": VALUES[None], "subject": [1], "groups": [1]}, "expected one of groups and subject"),
    "zero length": (
        {"values": VALUES, "lengths": [5, 0]},
        "lengths[1] is 0; expected 1 to 5, the rows of values",
    ),
    "negative length": ({"values": VALUES, "lengths": [6, -1]}, "lengths[0] is 6"),
    "wrong sum": ({"values": VALUES, "lengths": [2, 2]}, "lengths sum to 4, but values has shape (5, 2)"),
    "sum that wraps": (
        {"values": VALUES, "lengths": np.array([2**62] * 4 + [5])},
        "lengths[0] is 4611686018427387904",
    ),
    "no channels": ({"values": np.zeros((5, 0)), "lengths": [5]}, "but values has shape (5, 0)"),
    "no steps": (
        {"X": np.zeros((2, 0, 3))},
        "expected X with at least one step and one channel, got (2, 0, 3)",
    ),
    "too few labels": ({"X": VALUES[None], "y": [0, 0]}, "expected labels of shape (1,), got (2,)"),
    "too many groups": ({"X": VALUES[None], "groups": [0, 0]}, "expected groups of shape (1,), got (2,)"),
    "label beyond classes": (
        {"X": VALUES[None], "y": [2], "classes": ["a", "b"]},
        "labels[0] is 2, but there are 2",
    ),
    "negative label": ({"X": VALUES[None], "y": [-1]}, "labels[0] is -1, labels count from 0"),
    "targets with classes": (
        {"X": VALUES[None], "y": [0.5], "classes": ["a"]},
        "labels[0] is '0.5', which is not among the 1 classes",
    ),
    "target not finite": ({"X": VALUES[None], "y": [np.inf]}, "labels[0] is inf; targets must be finite"),
    "class twice": ({"X": VALUES[None], "classes": ["a", "a"]}, "two classes have the same name"),
    "huge label": (
        {"X": VALUES[None], "y": np.uint64([2**63])},
        "y.npy: 9223372036854775808 does not fit int64",
    ),
    "integers": (
        {"X": np.zeros((1, 2, 3), int)},
        "X.npy: expected floats, 3-dimensional, got int64 of shape (1, 2, 3)",
    ),
    "two dimensions": ({"X": VALUES}, "X.npy: expected floats, 3-dimensional, got float32 of shape (5, 2)"),
    "float lengths": ({"values": VALUES, "lengths": [5.0]}, "lengths.npy: expected integers, 1-dimensional"),
    "label is a number": (
        {"X": VALUES[None], "y": 3},
        "y.npy: expected integers or floats or strings, 1-dimensional, got int64 of shape ()",
    ),
    "bytes": (
        {"X": VALUES[None], "classes": [b"a"]},
        "classes.npy: byte 10: expected a plain type and a shape",
    ),
    "objects": (
        {"X": np.array([[[None]]])},
        "X.npy: byte 10: expected a plain type and a shape, not a pickle, got \"{'descr': '|O'",
    ),
    "fields": ({"X": np.zeros((1, 1, 1), "f4,f4")}, "X.npy: byte 10: expected a plain type and a shape"),
    "dates": ({"X": np.zeros((1, 1, 1), "M8[s]")}, "X.npy: byte 10: expected a plain type and a shape"),
    "complex": ({"X": np.zeros((1, 1, 1), complex)}, "X.npy: byte 10: expected a plain type and a shape"),
    "impossible shape": (
        {"values": np.zeros((0, 1 << 40)), "lengths": np.zeros(0, int)},
        "values.npy: impossible shape (0, 1099511627776)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arrays(path, case):
    arrays, message = WRONG[case]
    assert message in refused(save(path, **arrays))


def test_split_is_named(path):
    save(path, values_train=VALUES, lengths_train=[5], X_test=VALUES[None])
    mend = "; it has the splits 'test', 'train': choose one with split="
    assert refused(path) == f"gait.npz: expected values and lengths, X, or images, got neither{mend}"
    assert (
        refused(path, split="val")
        == f"gait.npz: expected values_val and lengths_val, X_val, or images_val, got neither{mend}"
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite(path, value):
    values = VALUES.copy()
    values[4, 1] = value
    message = f"gait.npz: item 1, step 1, channel 1 is {value}, not a finite number"
    assert refused(save(path, values=values, lengths=[3, 2])) == message
    assert refused(save(path, X=values[None])) == message.replace("item 1, step 1", "item 0, step 4")


def header(descr: str, shape: str, version: bytes = b"\1\0", pad: int = 0) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode() + b" " * pad + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2 if version == b"\1\0" else 4, "little") + text


MEMBERS = {
    "not an array": (b"hello world", "X.npy: byte 0: expected an .npy header, got 'hello wo'"),
    "empty": (b"", "X.npy: byte 0: expected an .npy header, got ''"),
    "version": (header("'<f4'", "(1, 1, 1)", b"\4\0") + bytes(4), "X.npy: byte 0: expected an .npy header"),
    "header cut": (
        header("'<f4'", "(1, 1, 1)")[:30],
        "X.npy: byte 8: the header ends at byte 73, beyond the first 30",
    ),
    "long header": (
        header("'<f4'", "(1, 1, 1)", pad=60000) + bytes(4),
        "X.npy: byte 8: the header ends at byte 60073",
    ),
    "huge header": (b"\x93NUMPY\2\0\xff\xff\xff\xff", "X.npy: byte 8: the header ends at byte 4294967307"),
    "too short": (
        header("'<f4'", "(1, 2, 1)") + bytes(4),
        "X.npy: 4 bytes cannot hold float32 of shape (1, 2, 1)",
    ),
    "too long": (
        header("'<f4'", "(1, 2, 1)") + bytes(9),
        "X.npy: 9 bytes cannot hold float32 of shape (1, 2, 1)",
    ),
    "claims a million million": (
        header("'<f4'", "(1000000, 1000000, 1)"),
        "X.npy: 0 bytes cannot hold float32",
    ),
    "product that wraps": (
        header("'<f4'", "(4294967296, 4294967296, 1)"),
        "X.npy: 0 bytes cannot hold float32",
    ),
    "long double": (
        header("'<f16'", "(1, 1, 1)") + bytes(16),
        "X.npy: byte 10: expected a plain type and a shape",
    ),
    "negative": (header("'<f4'", "(-1, 1, 1)"), "X.npy: byte 10: expected a plain type and a shape"),
    "nested": (header("'<f4'", "(" * 3000), "X.npy: byte 10: expected a plain type and a shape"),
    "code": (header("__import__('os')", "(1, 1, 1)"), "X.npy: byte 10: expected a plain type and a shape"),
}


@pytest.mark.parametrize("case", MEMBERS)
def test_wrong_members(path, case):
    content, message = MEMBERS[case]
    assert message in refused(archive(path, X=content))


@pytest.mark.parametrize("codes", [[0x110000], [0xD800], [0xFFFFFFFF]])
def test_classes_are_unicode(path, codes):
    content = header("'<U1'", "(1,)") + np.array(codes, np.uint32).tobytes()
    archive(path, X=npy(VALUES[None]), classes=content)
    assert "classes.npy: a name has a character that is not Unicode" in refused(path)


def test_same_name_twice(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("X.npy", npy(VALUES[None]))
        with pytest.warns(UserWarning, match="Duplicate name"):
            file.writestr("X.npy", npy(VALUES[None]))
    assert refused(path) == "gait.npz: two members have the same name"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression(path, method):
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("X.npy", npy(VALUES[None]))
    assert f"X.npy: is compressed by method {method}; expected stored or deflated" in refused(path)


def test_limit(path):
    save(path, X=np.zeros((1, 1000, 1)))
    assert len(read_npz(path, limit=8128)) == 1
    assert (
        refused(path, limit=8127) == "gait.npz: takes 8128 bytes unpacked, more than limit=8127; raise limit to read it"
    )


def test_padding_counts(path):
    save(path, values=np.zeros((2000, 1)), lengths=[1000] + [1] * 1000)
    assert len(read_npz(path)) == 1001
    assert refused(path, limit=1 << 20) == (
        "gait.npz: 1001 sequences padded to the longest, item 0 with 1000 steps, take 8008000 bytes, "
        "more than the limit of 1048576; split the set or shorten that sequence"
    )


def test_truncated_or_damaged(path):
    content = save(path, X=np.zeros((1, 1000, 1))).read_bytes()
    path.write_bytes(content[:-1])
    assert refused(path).startswith("gait.npz: not an .npz file, or a damaged one: ")
    path.write_bytes(content[:4000] + b"\1" + content[4001:])
    assert refused(path) == "gait.npz: X.npy: damaged near byte 128: Bad CRC-32 for file 'X.npy'"
    path.write_bytes(content[:27] + b"\1" + content[28:])  # a name of 261 bytes, which zipfile quotes
    assert len(refused(path)) < 300
    directory = content.index(b"PK\1\2")
    claims = struct.pack("<LL", 1 << 31, 1 << 31)
    path.write_bytes(content[: directory + 20] + claims + content[directory + 28 :])
    assert "X.npy: claims 2147483648 bytes, packed in 2147483648, which a file of" in refused(path)


def test_encrypted(path):
    content = bytearray(save(path, X=VALUES[None]).read_bytes())
    content[content.index(b"PK\3\4") + 6] |= 1
    content[content.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(content)
    message = refused(path)
    assert message.startswith("gait.npz: X.npy: damaged near byte 0: ")
    assert "encrypted" in message


def test_not_a_file(path):
    path.write_bytes(b"")
    assert refused(path) == "gait.npz:1:1: the file is empty"
    path.write_bytes(npy(VALUES))
    assert refused(path).startswith("gait.npz: not an .npz file, or a damaged one")
    with pytest.raises(ValueError, match="expected a file, this is a folder"):
        read_npz(path.parent)
    with pytest.raises(FileNotFoundError):
        read_npz(path.parent / "absent.npz")


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)


@st.composite
def datasets(draw) -> Dataset:
    width, dtype = draw(st.sampled_from([(16, torch.float16), (32, torch.float32), (64, torch.float64)]))
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=width)
    channels = draw(st.integers(1, 5))
    step = st.lists(numbers, min_size=channels, max_size=channels)
    items = draw(st.lists(st.lists(step, min_size=1, max_size=6), max_size=5))
    if items:
        sequences = Batch.from_list([torch.tensor(item, dtype=dtype) for item in items])
    else:
        sequences = Batch(torch.empty(0, 0, channels, dtype=dtype))

    def vector(elements, dtype) -> torch.Tensor:
        return torch.tensor(draw(st.lists(elements, min_size=len(items), max_size=len(items))), dtype=dtype)

    classes, labels, groups = None, None, None
    kind = draw(st.sampled_from(["none", "classes", "labels", "targets"]))
    if kind == "classes":
        classes = tuple(draw(st.lists(names, min_size=1, max_size=4, unique=True)))
        labels = np.array(classes)[vector(st.integers(0, len(classes) - 1), torch.int64).numpy()]
    elif kind == "labels":
        labels = vector(st.integers(0, 2**63 - 1), torch.int64)
    elif kind == "targets":
        labels = vector(st.floats(allow_nan=False, allow_infinity=False), torch.float64)
    if draw(st.booleans()):
        groups = vector(st.integers(-(2**63), 2**63 - 1), torch.int64)
    return Dataset(sequences, labels, None, groups, classes)


def bits(tensor: torch.Tensor | None) -> object:
    """Something that differs for 0.0 and -0.0."""
    return None if tensor is None else (tensor.dtype, tensor.shape, np.asarray(tensor).tobytes())


@given(dataset=datasets(), compress=st.booleans())
@settings(deadline=None)
def test_write_then_read_is_the_identity(dataset, compress, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "identity.npz"
    write_npz(dataset, path, compress=compress)
    again = read_npz(path)
    assert again.items.dtype == dataset.items.dtype
    assert again.items.channels == dataset.items.channels
    assert [bits(item) for item in again.items] == [bits(item) for item in dataset.items]
    assert np.array_equal(again.labels, dataset.labels)
    if dataset.codes is None:
        assert bits(again.labels) == bits(dataset.labels)
    assert bits(again.groups) == bits(dataset.groups)
    assert again.classes == dataset.classes


def test_write_keeps_the_name_and_drops_the_padding(tmp_path):
    values = torch.tensor([[[1.0], [2.0]], [[3.0], [torch.nan]]], requires_grad=True)
    write_npz(Dataset(Batch(values, [2, 1])), tmp_path / "gait")
    assert [path.name for path in tmp_path.iterdir()] == ["gait"]
    with np.load(tmp_path / "gait") as file:
        assert file["values"].tolist() == [[1], [2], [3]]


ZEROS = Batch(torch.zeros(2, 3, 1))
UNWRITABLE = {
    "surrogate": (
        Dataset(ZEROS, classes=("\ud800",)),
        ValueError,
        "write_npz: class '\\\\ud800' has a character",
    ),
    "infinity": (
        Dataset(Batch(torch.full((1, 1, 1), torch.inf))),
        ValueError,
        "write_npz: item 0, step 0, channel 0",
    ),
    "bfloat16": (Dataset(ZEROS.to(torch.bfloat16)), TypeError, r"write_npz: NumPy has no torch\.bfloat16"),
}


@pytest.mark.parametrize("case", UNWRITABLE)
def test_unwritable(path, case):
    dataset, error, message = UNWRITABLE[case]
    with pytest.raises(error, match=message):
        write_npz(dataset, path)
    assert not path.exists()


@pytest.mark.parametrize("split", ["train", "test"])
def test_real_files(split, shared_data):
    har = read_npz(shared_data / "uci_har.npz", split=split)
    with np.load(shared_data / "uci_har.npz") as file:
        assert np.array_equal(har.items.values, file[f"X_{split}"])
        assert np.array_equal(har.codes, file[f"y_{split}"])
        assert np.array_equal(har.groups, file[f"subject_{split}"])
        assert har.classes == tuple(file["classes"])
    digits = read_npz(shared_data / "spoken_arabic_digits.npz", split=split)
    with np.load(shared_data / "spoken_arabic_digits.npz") as file:
        assert np.array_equal(digits.items.values[digits.items.mask], file[f"values_{split}"])
        assert np.array_equal(digits.items.lengths, file[f"lengths_{split}"])
        assert np.array_equal(digits.codes, file[f"y_{split}"])
        assert np.array_equal(digits.groups, file[f"speaker_{split}"])
