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
