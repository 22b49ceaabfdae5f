import numpy as np
import pytest
import torch

from likewise import DTW
from likewise.data.dataset import Dataset
from likewise.data.files import Files, FileSet, open_image_folder, open_sequence_folder
from likewise.data.image_folders import read_image_folder
from likewise.data.split import HeldOutClasses
from likewise.evaluation.evaluate import evaluate
from tests.data.damage import refusals_that_name


@pytest.fixture
def folder(tmp_path):
    for name, count in {"a": 3, "b": 2, "c": 2, "d": 2}.items():
        (tmp_path / name).mkdir()
        for i in range(count):
            np.save(tmp_path / name / f"{i}.npy", np.full((2 + i, 3), ord(name) + i / 10, np.float32))
    return tmp_path


def test_sequences_are_read_when_they_are_needed(folder):
    data = open_sequence_folder(folder)
    assert repr(data) == "FileSet(9 files, 4 classes)"
    assert data.labels.tolist() == list("aaabbccdd")
    item, label = data[1]
    assert (item.shape, item.dtype, label) == ((3, 3), torch.float32, "a")
    assert item[0, 0] == pytest.approx(97.1)
    (folder / "a" / "1.npy").unlink()
    assert data[0][1] == "a"
    with pytest.raises(FileNotFoundError):
        data[1]


def test_it_is_a_dataset(folder):
    data = open_sequence_folder(folder)
    assert data[[0, 4]].ids == (str(folder / "a" / "0.npy"), str(folder / "b" / "1.npy"))
    assert data.of_classes(["b"])[1][0].shape == (3, 3)
    train, held_out = data.split(HeldOutClasses(0.5))
    assert not set(train.labels) & set(held_out.labels)
    assert [open_sequence_folder(folder, part).classes for part in ("train", "test")] == [("a", "b"), ("c", "d")]
    loaded = Dataset([item for item, _ in data], data.labels)
    assert evaluate(DTW(), data).as_dict() == evaluate(DTW(), loaded).as_dict()
    assert torch.equal(DTW().matrix(data), DTW().matrix(loaded))


def test_npz_files(folder):
    np.savez(folder / "a" / "3.npz", values=np.arange(4.0), other=np.zeros(3))
    np.savez_compressed(folder / "a" / "4.npz", x=np.ones((5, 3)))
    data = open_sequence_folder(folder)
    assert data[3][0].tolist() == [[0], [1], [2], [3]]
    assert data[4][0].shape == (5, 3)
    np.savez(folder / "a" / "4.npz", x=np.ones((5, 3)), y=np.ones((5, 3)))
    with pytest.raises(ValueError, match=r"4.npz: expected one array, or one called values, got 2"):
        data[4]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3, 4)), r"expected floats of shape \(T, C\) or \(T,\), got float64 of shape \(2, 3, 4\)"),
        (np.zeros((0, 3)), r"got float64 of shape \(0, 3\)"),
        (np.zeros((2, 3), np.int64), "expected floats"),
        (np.array([["a"]]), "expected floats"),
        (np.array([[0.0, np.nan]]), "step 0, channel 1 is nan, not a finite number"),
        (np.array([{}], object), "not a pickle"),
    ],
)
def test_files_that_are_not_sequences(folder, array, message):
    np.save(folder / "a" / "0.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match=rf"0\.npy: .*{message}"):
        open_sequence_folder(folder)[0]


def test_damaged_and_hostile_files(folder):
    path = folder / "a" / "0.npy"
    whole = path.read_bytes()
    data = open_sequence_folder(folder, limit=1 << 16)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with refusals_that_name("0.npy"):
            data[0]
    path.write_bytes(whole.replace(b"(2, 3)", b"(9999999, 999)"[:6]))
    with pytest.raises(ValueError, match=r"0\.npy"):
        data[0]
    path.write_bytes(whole[:-4])
    with pytest.raises(ValueError, match="bytes cannot hold float32"):
        data[0]
    np.save(path, np.zeros((100_000, 3)))
    with pytest.raises(ValueError, match="takes more than 65536 bytes"):
        data[0]


def test_images_are_decoded_when_they_are_needed(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    for name in ("iris", "rose"):
        (tmp_path / name).mkdir()
        for i in range(2):
            Image.new("RGB", (9, 7), (10 * i, 0, len(name))).save(tmp_path / name / f"{i}.png")
    lazy, loaded = open_image_folder(tmp_path, size=4), read_image_folder(tmp_path, size=4)
    assert torch.equal(torch.stack([item for item, _ in lazy]), loaded.items)
    assert (lazy.ids, lazy.classes) == (loaded.ids, loaded.classes)
    assert open_image_folder(tmp_path, "test", size=4, channels=1)[0][0].shape == (1, 4, 4)
    (tmp_path / "rose" / "0.png").write_bytes(b"no image")
    assert lazy[0][1] == "iris"
    with pytest.raises(ValueError, match=r"0.png: not an image that can be read"):
        lazy[2]
    with pytest.raises(ValueError, match="channels must be 3"):
        open_image_folder(tmp_path, channels=2)


def test_a_file_set_holds_files():
    with pytest.raises(TypeError, match="expected items to be Files, got Tensor"):
        FileSet(torch.zeros(2, 3, 1))
    assert len(Files((), len)) == 0
