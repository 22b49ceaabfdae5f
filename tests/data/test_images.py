"""Image readers: sizes, modes, broken files, and the split by classes."""

import contextlib
import io
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from likewise.data import image_folders, images
from likewise.data.images import ImageSet, Listing, decode, read_images


def save(path, mode="RGB", size=(10, 8), value=100):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixel = {"RGB": (value, 0, 0), "RGBA": (value, 0, 0, 0), "LA": (value, 0), "CMYK": (0, 0, 0, 0)}.get(mode, value)
    Image.new(mode, size, pixel).save(path)
    return path


def folders(root, count=4, each=2):
    for k in range(count):
        for i in range(each):
            save(root / f"class{k}" / f"{i}.png", value=10 * k + i)
    return root


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


def test_the_middle_is_kept_or_all_is_squeezed_in(tmp_path):
    pixels = np.zeros((4, 8, 3), np.uint8)
    pixels[:, 2:6] = 200
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert (decode(tmp_path / "a.png", size=4) == 200).all()
    squeezed = decode(tmp_path / "a.png", size=8, crop=False)[0]
    assert squeezed[:, 0].eq(0).all()
    assert squeezed[:, 3].eq(200).all()


def test_photographs_are_turned_upright(tmp_path):
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:, 4:] = 200  # dark on the left, when the sensor's top was at the top
    exif = Image.Exif()
    exif[0x0112] = 6  # after the rotation, the left is at the top
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    found = decode(tmp_path / "a.png", size=8)
    assert (found[:, :4] == 0).all()
    assert (found[:, 4:] == 200).all()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("L", (100, 100, 100)), ("1", (255, 255, 255)), ("RGBA", (255, 255, 255)), ("LA", (255, 255, 255)), ("P", None)],
)
def test_images_of_another_mode_are_converted(tmp_path, mode, expected):
    found = decode(save(tmp_path / "a.png", mode), size=3)
    assert found.shape == (3, 3, 3)
    if expected:
        assert tuple(found[:, 1, 1].tolist()) == expected
    assert decode(tmp_path / "a.png", size=3, channels=1).shape == (1, 3, 3)
    assert (decode(save(tmp_path / "a.jpg", "CMYK"), size=3) > 250).all()


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_modes_of_more_bits_are_refused_by_name(tmp_path, mode):
    path = save(tmp_path / "deep.tiff", mode)
    with pytest.raises(ValueError, match=rf"deep.tiff: .*its mode {mode} is not one of .*save it with 8 bits"):
        decode(path)


def test_a_broken_file_is_named_and_left_out_only_if_asked(tmp_path):
    folders(tmp_path)
    whole = (tmp_path / "class1" / "0.png").read_bytes()
    (tmp_path / "class1" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "class2" / "notes.txt").write_text("not an image")
    (tmp_path / "class3" / "folder").mkdir()
    (tmp_path / "class3" / "empty.jpg").touch()
    with pytest.raises(ValueError, match=r"cut.png: not an image that can be read"):
        image_folders.read_image_folder(tmp_path, size=4)
    found = image_folders.read_image_folder(tmp_path, size=4, skip_broken=True)
    assert len(found) == 8
    assert [os.path.basename(text.split(": ")[0]) for text in found.skipped] == [
        "cut.png", "notes.txt", "empty.jpg", "folder"
    ]  # fmt: skip
    assert repr(found) == "ImageSet(8 images of 3 x 4 x 4, 4 classes, 4 files left out)"


def test_too_many_pixels_and_too_many_bytes_are_refused(tmp_path, monkeypatch):
    path = save(tmp_path / "large.png", size=(20, 20))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 399)
    with pytest.raises(ValueError, match=r"large.png: .*399"):
        decode(path)
    with pytest.raises(ValueError, match="1 images of 9 x 9 take 243 bytes, more than limit=100; lower size"):
        read_images(Listing((path,), (0,), ("a",)), size=9, limit=100)


@pytest.mark.parametrize(
    ("kind", "size", "mode", "refused"),
    [
        ("PNG", (6480, 6400), "1", False),
        ("PNG", (6560, 6500), "1", True),
        ("JPEG", (7500, 8000), "L", False),  # decoded to an eighth
        ("JPEG", (8000, 8000), "L", True),
        ("WEBP", (4560, 4560), "RGB", False),
        ("WEBP", (4600, 4600), "RGB", True),
    ],
)
def test_pictures_that_may_take_too_much_memory_are_refused(kind, size, mode, refused):
    image = Image.new(mode, (1, 1))
    image.format, image._size = kind, tuple(side // 8 for side in size) if kind == "JPEG" else size
    if not refused:
        images._check_memory(image, size)
        return
    with pytest.raises(ValueError, match=rf"{size[0]} x {size[1]} pixels may take .* MB to decode, more than 480"):
        images._check_memory(image, size)


def test_decoding_is_refused_before_anything_is_decoded(tmp_path, monkeypatch):
    path = save(tmp_path / "large.png", size=(20, 20))
    monkeypatch.setattr(images, "MOST_DECODED", 20 * 20 * images.DECODED_PIXEL)
    assert decode(path, size=8).shape == (3, 8, 8)
    monkeypatch.setattr(images, "MOST_DECODED", 20 * 20 * images.DECODED_PIXEL - 1)
    with pytest.raises(ValueError, match=r"large.png: not an image that can be read: 20 x 20 pixels may take"):
        decode(path, size=8)


def test_a_transparent_picture_takes_little_memory(tmp_path):
    Image.new("LA", (5000, 5000), (9, 9)).save(tmp_path / "large.png")
    script = """
import resource, sys
from likewise.data.images import decode
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
decode(open(sys.argv[1], "rb").read(), size=8)  # of one pixel
before = peak()
print(decode(open(sys.argv[2], "rb").read(), size=8).unique().tolist(), (peak() - before) / 5000**2)
"""
    Image.new("LA", (1, 1)).save(tmp_path / "small.png")
    command = [sys.executable, "-c", script, tmp_path / "small.png", tmp_path / "large.png"]
    pixels, bytes_of_each = subprocess.check_output(command, text=True).rsplit(maxsplit=1)
    assert pixels == "[246]"  # nearly transparent, on white
    assert float(bytes_of_each) < images.DECODED_PIXEL


def test_strips_are_drawn_like_the_whole(monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (37, 11, 4), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    whole = decode(content.getvalue(), size=9)
    monkeypatch.setattr(images, "STRIP", 40)
    assert torch.equal(decode(content.getvalue(), size=9), whole)


def test_random_bytes_raise_nothing_but_value_errors(tmp_path):
    random = np.random.default_rng(0)
    whole = save(tmp_path / "a.png").read_bytes()
    for _ in range(60):
        bad = bytearray(whole)
        for _ in range(3):
            bad[random.integers(len(bad))] = random.integers(256)
        with contextlib.suppress(ValueError):
            decode(bytes(bad), "bad.png", size=4)


def test_missing_pillow_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"likewise\[images\]"):
        images.decode(b"")


def test_a_class_with_one_image():
    one = ImageSet(torch.zeros(3, 1, 2, 2, dtype=torch.uint8), ["a", "b", "a"], classes=("a", "b", "c"))
    with pytest.raises(ValueError, match=r"class 'b' has one item, and 1 more .*without_single"):
        one.check_pairs()
    left = one.without_single()
    assert left.classes == ("a",)
    assert left.labels.tolist() == ["a", "a"]
    assert left.check_pairs() is left


def test_image_sets_whose_parts_do_not_agree_are_refused():
    bytes_, labels = torch.zeros(2, 3, 4, 4, dtype=torch.uint8), ["a", "b"]
    with pytest.raises(TypeError, match=r"expected items to be uint8"):
        ImageSet(bytes_.float(), labels)
    with pytest.raises(ValueError, match=r"expected labels of shape \(2,\), got \(1,\)"):
        ImageSet(bytes_, labels[:1])
    with pytest.raises(ValueError, match=r"labels\[1\] is 'b', which is not among the 1 classes"):
        ImageSet(bytes_, labels, classes=("a",))
    with pytest.raises(ValueError, match="there is no class '5'"):
        ImageSet(bytes_, labels).of_classes([5])
    with pytest.raises(ValueError, match='expected part to be "train", "test" or None'):
        Listing((), (), ()).part("read_cub", "val")


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
