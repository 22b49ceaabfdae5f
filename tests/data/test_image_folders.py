"""Folders of images: a folder for each class, and the layouts of public data sets."""

import os

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from likewise.data import image_folders
from tests.data.test_images import folders, save


def test_a_folder_of_classes_is_read_and_split_by_class(tmp_path):
    folders(tmp_path)
    (tmp_path / "class0" / ".hidden").write_text("no image")
    every = image_folders.read_image_folder(tmp_path, size=4)
    train, test = (image_folders.read_image_folder(tmp_path, part, size=4) for part in ("train", "test"))
    assert every.items.shape == (8, 3, 4, 4)
    assert every.items.dtype == torch.uint8
    assert every.codes.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [int(image[0, 0, 0]) for image in every.items] == [0, 1, 10, 11, 20, 21, 30, 31]
    assert (train.classes, test.classes) == (("class0", "class1"), ("class2", "class3"))
    assert test.labels.tolist() == ["class2", "class2", "class3", "class3"]
    assert torch.equal(torch.cat([train.items, test.items]), every.items)
    assert every.ids[0].endswith(os.path.join("class0", "0.png"))


def cub(root):
    lines = [(1, "001.A/x.png", 1), (2, "001.A/y.png", 1), (3, "002.B/z.png", 2), (4, "002.B/w.png", 2)]
    for _, path, label in lines:
        save(root / "images" / path, value=label)
    (root / "images.txt").write_text("".join(f"{i} {path}\n" for i, path, _ in lines))
    (root / "image_class_labels.txt").write_text("".join(f"{i} {label}\n" for i, _, label in lines))
    (root / "classes.txt").write_text("1 001.A\n2 002.B\n")


def test_cub(tmp_path):
    cub(tmp_path / "CUB_200_2011")
    train = image_folders.read_cub(tmp_path, "train", size=2)
    test = image_folders.read_cub(tmp_path / "CUB_200_2011", "test", size=2)
    assert (train.classes, test.classes) == (("001.A",), ("002.B",))
    assert [int(image[0, 0, 0]) for image in test.items] == [2, 2]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("images.txt", "1 ../secret.png\n2 a\n3 b\n4 c\n", "image 1: '../secret.png' points outside of the folder"),
        ("images.txt", "1 /secret.png\n2 a\n3 b\n4 c\n", "points outside of the folder"),
        ("images.txt", "1 a\n1 b\n", "images.txt:2:1: 1 is listed twice"),
        ("image_class_labels.txt", "1 1\n2 7\n", "image_class_labels.txt:2:1: .*class 7 not in classes.txt"),
        ("image_class_labels.txt", "1 1\n2 1\n", "image 3 has no class"),
        ("image_class_labels.txt", "1\n", "image_class_labels.txt:1:1: expected 2 words"),
        ("classes.txt", "one A\n", "classes.txt:1:1: expected a whole number"),
    ],
)
def test_bad_lists_of_cub_are_refused(tmp_path, name, text, message):
    cub(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        image_folders.read_cub(tmp_path, size=2)


def test_cars(tmp_path):
    kind = [("relative_im_path", object), ("bbox_x1", object), ("class", object), ("test", object)]
    rows = np.array([[(f"car_ims/{i:06d}.jpg", 1, 1 + i // 2, 0) for i in range(4)]], dtype=kind)
    names = np.array([["Audi", "BMW"]], dtype=object)
    savemat(tmp_path / "cars_annos.mat", {"annotations": rows, "class_names": names})
    for i in range(4):
        save(tmp_path / "car_ims" / f"{i:06d}.jpg")
    test = image_folders.read_cars(tmp_path, "test", size=2)
    assert test.classes == ("BMW",)
    assert [os.path.basename(file) for file in test.ids] == ["000002.jpg", "000003.jpg"]
    (tmp_path / "cars_annos.mat").write_bytes(b"MATLAB 5.0" + bytes(200))
    with pytest.raises(ValueError, match=r"cars_annos.mat: "):
        image_folders.read_cars(tmp_path)


def test_flowers(tmp_path):
    savemat(tmp_path / "imagelabels.mat", {"labels": np.array([[77, 1, 1, 77]], np.uint8)})
    for i in range(1, 5):
        save(tmp_path / "jpg" / f"image_{i:05d}.jpg")
    test = image_folders.read_flowers(tmp_path, "test", size=2)
    assert test.labels.tolist() == ["77", "77"]
    assert len(image_folders.read_flowers(tmp_path, "train", size=2)) == 2
    savemat(tmp_path / "imagelabels.mat", {"labels": np.array([[103]], np.uint8)})
    with pytest.raises(ValueError, match="row 0 has class 103; expected 1 to 102"):
        image_folders.read_flowers(tmp_path)
    savemat(tmp_path / "imagelabels.mat", {"others": np.array([[103]], np.uint8)})
    with pytest.raises(ValueError, match="there is no array labels"):
        image_folders.read_flowers(tmp_path)


def test_online_products(tmp_path):
    root = tmp_path / "Stanford_Online_Products"
    head = "image_id class_id super_class_id path\n"
    for name, first in (("train", 1), ("test", 3)):
        rows = [(i, first + i % 2, f"bicycle_final/{first + i % 2}_{i}.JPG") for i in range(4)]
        (root / "bicycle_final").mkdir(parents=True, exist_ok=True)
        for _, _, path in rows:
            Image.new("RGB", (4, 4)).save(root / path, "JPEG")
        (root / f"Ebay_{name}.txt").write_text(head + "".join(f"{i} {k} 1 {path}\n" for i, k, path in rows))
    train, test = (image_folders.read_online_products(tmp_path, part, size=2) for part in ("train", "test"))
    assert (train.classes, test.classes) == (("1", "2"), ("3", "4"))
    assert test.labels.tolist() == ["3", "4", "3", "4"]
    assert len(image_folders.read_online_products(tmp_path, size=2).classes) == 4


def test_folders_that_are_not_there_or_empty_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no such folder"):
        image_folders.read_image_folder(tmp_path / "none")
    with pytest.raises(ValueError, match="has no folders; each class must be a folder of images"):
        image_folders.read_image_folder(tmp_path)
    (tmp_path / "iris").mkdir()
    with pytest.raises(ValueError, match=r"the class .*iris has no images"):
        image_folders.read_image_folder(tmp_path)
    with pytest.raises(ValueError, match=r"found no images.txt here or in CUB_200_2011"):
        image_folders.read_cub(tmp_path)
