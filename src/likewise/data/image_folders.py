"""Readers of image sets in their public layouts, with the split by classes of zero-shot metric learning.

Each takes ``part``: "train", "test" (which has other classes than "train") or None for all, and the options of
``images.Options``: size, channels, crop, skip_broken, limit, workers.
"""

import os
from pathlib import Path
from typing import Unpack

import numpy as np

from likewise import _check
from likewise.data.images import ImageSet, Listing, Options, read_images
from likewise.data.matlab import MatFile
from likewise.data.text import Line, parse_integer, quote, read_lines, word_offset

Folder = str | os.PathLike[str]


def read_image_folder(folder: Folder, part: str | None = None, **options: Unpack[Options]) -> ImageSet:
    """Read images from one folder per class: folder/iris/1.jpg. The first half of the sorted names is "train".

    Hidden files are ignored; all others must be images.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("iris", "rose"):
        ...         Path(folder, name).mkdir()
        ...         Image.new("RGB", (9, 9)).save(Path(folder, name, "1.png"))
        ...     read_image_folder(folder, size=8)
        ImageSet(2 images of 3 x 8 x 8, 2 classes)
    """
    op = "read_image_folder"
    listing = list_classes(op, Path(folder), "images", empty=options.get("skip_broken", False))
    return read_images(listing.part(op, part), **options)


def read_cub(folder: Folder, part: str | None = None, **options: Unpack[Options]) -> ImageSet:
    """Caltech-UCSD Birds 200-2011: images.txt, image_class_labels.txt, classes.txt and images/; 100 training classes.

    folder: CUB_200_2011, or its parent.
    Reference: Wah et al. (2011), The Caltech-UCSD Birds-200-2011 Dataset.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, "images").mkdir()
        ...     Image.new("RGB", (9, 9)).save(Path(folder, "images", "1.jpg"))
        ...     for name, text in (("images", "1 1.jpg"), ("classes", "1 Albatross"), ("image_class_labels", "1 1")):
        ...         _ = Path(folder, f"{name}.txt").write_text(text + chr(10))
        ...     read_cub(folder, size=8)
        ImageSet(1 image of 3 x 8 x 8, 1 class)
    """
    root = _inside(Path(folder), "CUB_200_2011", "images.txt")
    names = _numbered(root / "classes.txt")
    paths = _numbered(root / "images.txt")
    codes = {code: number for number, code in enumerate(names)}
    labels: dict[int, int] = {}
    for line in read_lines(root / "image_class_labels.txt"):
        first, second = _words(line, 2)
        image, code = parse_integer(line, first, 0), parse_integer(line, second, word_offset(line.text, 1))
        if image not in paths or code not in codes:
            raise line.error(0, f"image {image} is not in images.txt, or class {code} not in classes.txt")
        labels[image] = codes[code]
    if labels.keys() != paths.keys():
        missing = min(paths.keys() - labels.keys())
        _check.refuse(f"{root / 'image_class_labels.txt'}", f"image {missing} has no class")
    files = tuple(_below(root / "images", path, f"{root / 'images.txt'}: image {i}") for i, path in paths.items())
    listing = Listing(files, tuple(labels[i] for i in paths), tuple(names.values()))
    return read_images(listing.part("read_cub", part), **options)


def read_cars(folder: Folder, part: str | None = None, **options: Unpack[Options]) -> ImageSet:
    """Stanford Cars-196: cars_annos.mat and car_ims/; 98 training classes.

    Reference: Krause et al. (2013), 3D Object Representations for Fine-Grained Categorization.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from PIL import Image
        >>> from scipy.io import savemat
        >>> rows = np.array([[("car_ims/1.jpg", 1)]], dtype=[("relative_im_path", object), ("class", object)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     names = np.array([["Audi"]], dtype=object)
        ...     savemat(Path(folder, "cars_annos.mat"), {"annotations": rows, "class_names": names})
        ...     Path(folder, "car_ims").mkdir()
        ...     Image.new("RGB", (9, 9)).save(Path(folder, "car_ims", "1.jpg"))
        ...     read_cars(folder, size=8)
        ImageSet(1 image of 3 x 8 x 8, 1 class)
    """
    path = Path(folder) / "cars_annos.mat"
    found = MatFile(path)
    names = found.texts("class_names")
    codes, paths = found.records("annotations", "class", "relative_im_path")
    labels = _codes(path, np.array(codes), len(names))
    files = tuple(_below(Path(folder), name, f"{path}: row {i}") for i, name in enumerate(paths))
    return read_images(Listing(files, labels, tuple(names)).part("read_cars", part), **options)


def read_flowers(folder: Folder, part: str | None = None, **options: Unpack[Options]) -> ImageSet:
    """Oxford Flowers-102: imagelabels.mat and jpg/image_00001.jpg, ...; classes 1 to 51 are for training.

    Reference: Nilsback & Zisserman (2008), Automated Flower Classification over a Large Number of Classes.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> from scipy.io import savemat
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     savemat(Path(folder, "imagelabels.mat"), {"labels": [[1]]})
        ...     Path(folder, "jpg").mkdir()
        ...     Image.new("RGB", (9, 9)).save(Path(folder, "jpg", "image_00001.jpg"))
        ...     read_flowers(folder, "train", size=8)
        ImageSet(1 image of 3 x 8 x 8, 51 classes)
    """
    path = Path(folder) / "imagelabels.mat"
    count = 102
    labels = _codes(path, MatFile(path).numbers("labels"), count)
    files = tuple(Path(folder) / "jpg" / f"image_{i:05d}.jpg" for i in range(1, len(labels) + 1))
    listing = Listing(files, labels, tuple(str(code) for code in range(1, count + 1)))
    return read_images(listing.part("read_flowers", part), **options)


def read_online_products(folder: Folder, part: str | None = None, **options: Unpack[Options]) -> ImageSet:
    """Stanford Online Products: Ebay_train.txt, Ebay_test.txt and the images that they name.

    folder: Stanford_Online_Products, or its parent. All 120,053 images of 256 x 256 take 24 GB.
    Reference: Song et al. (2016), Deep Metric Learning via Lifted Structured Feature Embedding, arXiv:1511.06452.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Image.new("RGB", (9, 9)).save(Path(folder, "1.jpg"))
        ...     for name in ("train", "test"):
        ...         _ = Path(folder, f"Ebay_{name}.txt").write_text("1 1 1 1.jpg" + chr(10))
        ...     read_online_products(folder, "train", size=8)
        ImageSet(1 image of 3 x 8 x 8, 1 class)
    """
    op = "read_online_products"
    if part not in ("train", "test", None):
        _check.refuse(op, f'expected part to be "train", "test" or None, got {part!r}')
    root = _inside(Path(folder), "Stanford_Online_Products", "Ebay_train.txt")
    files: list[Path] = []
    labels: list[int] = []
    numbers: dict[int, int] = {}
    for name in ("train", "test") if part is None else (part,):
        path = root / f"Ebay_{name}.txt"
        for line in read_lines(path):
            if line.number == 1 and line.text.startswith(b"image_id"):
                continue
            _, code, _, image = _words(line, 4)
            label = parse_integer(line, code, word_offset(line.text, 1))
            labels.append(numbers.setdefault(label, len(numbers)))
            files.append(_below(root, _text(line, image), f"{path}:{line.number}"))
    listing = Listing(tuple(files), tuple(labels), tuple(str(code) for code in numbers))
    return read_images(listing, **options)


def list_classes(op: str, root: Path, kind: str, *, empty: bool = False) -> Listing:
    """The files in one folder per class, sorted by name. kind: of files, for errors; empty: allow empty folders."""
    classes = [path for path in _entries(root) if path.is_dir()]
    if not classes:
        _check.refuse(op, f"{root} has no folders; each class must be a folder of {kind}")
    files: list[Path] = []
    labels: list[int] = []
    for label, path in enumerate(classes):
        inside = _entries(path)
        if not inside and not empty:
            _check.refuse(op, f"the class {path} has no {kind}")
        files += inside
        labels += [label] * len(inside)
    return Listing(tuple(files), tuple(labels), tuple(path.name for path in classes))


def _entries(folder: Path) -> list[Path]:
    """The entries of a folder, sorted by name, without hidden files."""
    if not folder.is_dir():
        _check.refuse(str(folder), "there is no such folder")
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _inside(folder: Path, name: str, sign: str) -> Path:
    """The folder that contains the file ``sign``: this one, or its subfolder ``name``."""
    for root in (folder, folder / name):
        if (root / sign).is_file():
            return root
    _check.refuse(str(folder), f"found no {sign} here or in {name}")


def _numbered(path: Path) -> dict[int, str]:
    """Lines "number text" as a mapping."""
    found: dict[int, str] = {}
    for line in read_lines(path):
        number, text = _words(line, 2)
        code = parse_integer(line, number, 0)
        if code in found:
            raise line.error(0, f"{code} is listed twice")
        found[code] = _text(line, text)
    return found


def _words(line: Line, count: int) -> list[bytes]:
    words = line.text.split(None, count - 1)
    if len(words) != count:
        raise line.error(0, f"expected {count} words, got {quote(line.text)}")
    return words


def _text(line: Line, word: bytes) -> str:
    try:
        return word.strip().decode("utf-8")
    except UnicodeDecodeError:
        raise line.error(0, f"expected UTF-8, got {quote(word)}") from None


def _below(root: Path, name: str, where: str) -> Path:
    """A file inside a folder; a name that points outside of it raises an error."""
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or "\0" in name:
        _check.refuse(where, f"{name!r} points outside of the folder")
    return root / name


def _codes(path: Path, codes: np.ndarray, classes: int) -> tuple[int, ...]:
    """Convert codes that count from 1 to labels that count from 0."""
    with np.errstate(invalid="ignore"):  # of a number that is not finite
        numbers = codes.astype(np.int64)
    if (numbers != codes).any():
        _check.refuse(str(path), "classes are not whole numbers")
    wrong = (numbers < 1) | (numbers > classes)
    if wrong.any():
        item = int(wrong.argmax())
        _check.refuse(str(path), f"row {item} has class {numbers[item]}; expected 1 to {classes}")
    return tuple((numbers - 1).tolist())
