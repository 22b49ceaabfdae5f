"""Images in memory: files are decoded to one size with Pillow (extra ``images``) and kept as bytes."""

import io
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise.data.dataset import Dataset, names_of
from likewise.data.text import brief

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "PPM", "TIFF")  # for others, Pillow may start programs
CONVERTED = ("1", "L", "P", "RGB", "YCbCr", "CMYK")  # modes of up to 8 bits per channel, without transparency
TRANSPARENT = ("LA", "La", "PA", "RGBA", "RGBa")
WHITE = (255, 255, 255, 255)
SIZE, CHANNELS, LIMIT, WORKERS = 256, 3, 16 << 30, 8
# Bytes that decoding one picture may take, and for how much each of its pixels counts: what the decoder keeps, the
# picture, and its conversion. JPEGs may keep coefficients of all pixels, but are decoded to a smaller size.
MOST_DECODED = 480 << 20
PIXEL = {"JPEG": 8, "WEBP": 24}
DECODED_PIXEL = 12
STRIP = 1 << 20  # pixels that are drawn on white at once


class Options(TypedDict, total=False):
    """Options of all image readers.

    size: images in memory are size x size; 256 by default.
    channels: 3 for colour, the default, or 1 for grey.
    crop: scale the shorter side to ``size`` and crop the centre, the default; False resizes without keeping the ratio.
    skip_broken: leave out files that cannot be read and list them in ``skipped``; by default they raise an error.
    limit: the largest size of all images in memory, in bytes. workers: the number of decoding threads.
    """

    size: int
    channels: int
    crop: bool
    skip_broken: bool
    limit: int
    workers: int


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet(Dataset):
    """Images with their labels: a Dataset whose items are images.

    items: (N, C, H, W) uint8. likewise's image encoders scale them by their own mean and deviation; to other encoders,
        ``fit`` and ``Metric`` give floats from 0 to 255.
    labels, classes, groups: as in Dataset. ids: the files, where they are known.
    skipped: "file: reason" for each file that was left out.

    Example:
        >>> ImageSet(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), ["rose", "iris"])
        ImageSet(2 images of 3 x 8 x 8, 2 classes)
    """

    skipped: tuple[str, ...] = ()

    def _read_items(self, items: Any) -> Tensor:
        if not isinstance(items, Tensor) or items.dtype != torch.uint8 or items.ndim != 4:
            got = f"{items.dtype} {tuple(items.shape)}" if isinstance(items, Tensor) else type(items).__name__
            raise TypeError(f"ImageSet: expected items to be uint8 of shape (N, C, H, W), got {got}")
        return items

    def __repr__(self) -> str:
        size = " x ".join(str(side) for side in self.items.shape[1:])
        left_out = f", {len(self.skipped)} files left out" if self.skipped else ""
        return f"ImageSet({len(self)} image{'s' * (len(self) != 1)} of {size}{self._label_text()}{left_out})"


@dataclass(frozen=True)
class Listing:
    """Files and their labels, as indices into classes; nothing is opened yet.

    Example:
        >>> listing = Listing((Path("a.jpg"), Path("b.jpg"), Path("c.jpg")), (0, 1, 2), ("x", "y", "z"))
        >>> listing.part("example", "test")
        Listing(files=(PosixPath('b.jpg'), PosixPath('c.jpg')), labels=(0, 1), classes=('y', 'z'))
    """

    files: tuple[Path, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]

    def part(self, op: str, part: str | None) -> "Listing":
        """All, with None; "train", the first half of the classes, rounded down; "test", the others."""
        half = len(self.classes) // 2
        chosen = {None: range(len(self.classes)), "train": range(half), "test": range(half, len(self.classes))}
        if part not in chosen:
            _check.refuse(op, f'expected part to be "train", "test" or None, got {part!r}')
        first = chosen[part].start
        kept = [i for i, label in enumerate(self.labels) if label in chosen[part]]
        return Listing(
            tuple(self.files[i] for i in kept),
            tuple(self.labels[i] - first for i in kept),
            tuple(self.classes[i] for i in chosen[part]),
        )


def read_images(listing: Listing, **options: Unpack[Options]) -> ImageSet:
    """Decode the files of a listing. A file that is not an image raises an error, or is left out with skip_broken.

    Formats that are not in FORMATS are not opened, nor images with more pixels than Pillow's MAX_IMAGE_PIXELS or whose
    decoding may take more than 480 MB: 42 million pixels, 21 million in WebP, some 60 million in JPEG. Grey, palette
    and CMYK images are converted, transparent ones are drawn on white, and 16-bit and float ones raise an error.
    Photographs are turned upright, as their EXIF orientation says.
    """
    op = "read_images"
    _pillow()
    size = _check.whole(op, "size", options.get("size", SIZE))
    channels = check_channels(op, options.get("channels", CHANNELS))
    limit, crop = options.get("limit", LIMIT), options.get("crop", True)
    count = len(listing.files)
    needed = count * channels * size * size
    if needed > limit:
        _check.refuse(op, f"{count} images of {size} x {size} take {needed} bytes, more than limit={limit}; lower size")
    images = torch.empty(count, channels, size, size, dtype=torch.uint8)

    def decode_to(i: int) -> str | None:
        try:
            images[i] = decode(listing.files[i], size=size, channels=channels, crop=crop)
        except ValueError as error:
            if not options.get("skip_broken", False):
                raise
            return str(error)
        return None

    with ThreadPoolExecutor(_check.whole(op, "workers", options.get("workers", WORKERS))) as pool:
        problems = list(pool.map(decode_to, range(count)))
    kept = [i for i, problem in enumerate(problems) if problem is None]
    return ImageSet(
        images if len(kept) == count else images[kept],
        names_of(listing.classes, [listing.labels[i] for i in kept]),
        ids=tuple(os.fspath(listing.files[i]) for i in kept),
        classes=listing.classes,
        skipped=tuple(problem for problem in problems if problem is not None),
    )


def decode(
    file: Path | bytes, name: str | None = None, *, size: int = SIZE, channels: int = CHANNELS, crop: bool = True
) -> Tensor:
    """Decode an image (channels, size, size) uint8 from a file or from bytes; ``name`` is used in errors.

    Example:
        >>> from PIL import Image
        >>> buffer = io.BytesIO()
        >>> Image.new("L", (6, 4), 7).save(buffer, "PNG")
        >>> decode(buffer.getvalue(), "grey.png", size=2).unique()
        tensor([7], dtype=torch.uint8)
    """
    Image = _pillow()
    from PIL import ImageOps

    named = name or ("image" if isinstance(file, bytes) else os.fspath(file))
    if isinstance(file, Path) and not file.is_file():  # a pipe would block forever
        _check.refuse(named, "expected an image, but this is not a file" if file.exists() else "there is no such file")
    try:
        with Image.open(io.BytesIO(file) if isinstance(file, bytes) else file, formats=FORMATS) as image:
            most = Image.MAX_IMAGE_PIXELS
            if most is not None and image.width * image.height > most:
                raise ValueError(f"{image.width} x {image.height} are more than Pillow's {most} pixels")
            if image.mode not in CONVERTED + TRANSPARENT:
                raise ValueError(
                    f"its mode {image.mode} is not one of {', '.join(CONVERTED + TRANSPARENT)}; save it with 8 bits"
                )
            whole = image.size
            image.draft(None, (size, size))  # JPEG can decode directly to a smaller size
            _check_memory(image, whole)
            ImageOps.exif_transpose(image, in_place=True)  # as the EXIF orientation says
            pixels = _resized(Image, _flat(Image, image, channels), size, crop)
    except Exception as error:  # Pillow may raise anything for malformed bytes
        text = brief(error) if isinstance(error, ValueError) else f"{type(error).__name__}, {brief(error)}"
        raise ValueError(f"{named}: not an image that can be read: {text}") from error
    array = np.array(pixels, dtype=np.uint8).reshape(size, size, channels)
    return torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))


def _check_memory(image: Any, whole: tuple[int, int]) -> None:
    """Raise an error for an image that takes too much memory. whole: its size in the file, before ``draft``."""
    taken = PIXEL.get(image.format, 0) * whole[0] * whole[1]
    if image.format != "WEBP":
        taken += DECODED_PIXEL * image.width * image.height
    if taken > MOST_DECODED:
        size = f"{whole[0]} x {whole[1]} pixels"
        raise ValueError(f"{size} may take {taken >> 20} MB to decode, more than {MOST_DECODED >> 20}; scale it down")


def _flat(Image: Any, image: Any, channels: int) -> Any:
    """The image without transparency, in the target mode."""
    mode = "RGB" if channels == 3 else "L"
    if image.mode not in TRANSPARENT and "transparency" not in image.info:
        return image if image.mode == mode else image.convert(mode)
    flat = Image.new(mode, image.size)
    rows = max(1, STRIP // image.width)  # at once: whole copies with four channels would take several times the memory
    for top in range(0, image.height, rows):
        box = (0, top, image.width, min(top + rows, image.height))
        part = image.crop(box).convert("RGBA")
        flat.paste(Image.alpha_composite(Image.new("RGBA", part.size, WHITE), part).convert(mode), box)
    return flat


def _resized(Image: Any, image: Any, size: int, crop: bool) -> Any:
    box = (0.0, 0.0, float(image.width), float(image.height))
    if crop:
        side = min(image.width, image.height)
        left, top = (image.width - side) / 2, (image.height - side) / 2
        box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.BILINEAR, box=box)


def check_channels(op: str, channels: object) -> int:
    """Return ``channels`` if it is 3 or 1."""
    if channels not in (1, 3):
        _check.refuse(op, f"channels must be 3 (colour) or 1 (grey), got {channels!r}")
    return int(channels)  # type: ignore[call-overload]


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError('images are decoded by Pillow; install it with pip install "likewise[images]"') from error
    return Image
