"""Items as the page draws them: series thinned to a few points, and pictures as PNG tiles."""

import io
import itertools

import numpy as np
import torch
from torch import Tensor

from likewise.models.metric import take
from likewise.web.collection import Collection

THUMBNAIL = 48  # points of a small series
LONGEST_DRAWN = 4096  # steps of a series that is sent whole
CHANNELS_DRAWN = 16


def thumbnail(item: Tensor, points: int = THUMBNAIL) -> list[list[float]]:
    """A series (T, C) as (C', points): of each stretch the value farthest from the mean, so that peaks stay."""
    values = item[:, :3].detach().double().numpy()
    if len(values) > points:
        edges = np.linspace(0, len(values), points + 1).astype(int)
        far = np.abs(values - values.mean(0))
        values = np.stack(
            [
                [values[a + far[a:b, c].argmax(), c] for c in range(values.shape[1])]
                for a, b in itertools.pairwise(edges)
            ]
        )
    return [_rounded(channel) for channel in values.T]


def series(item: Tensor, most: int = LONGEST_DRAWN) -> tuple[list[list[float]], int]:
    """A series (T, C) as (C', T'), and how many steps one point stands for."""
    values = item[:, :CHANNELS_DRAWN].detach().double().numpy()
    step = -(-len(values) // most)
    return [_rounded(channel) for channel in values[::step].T], step


def _rounded(values: np.ndarray) -> list[float]:
    """Five digits: enough to draw."""
    return [float(f"{value:.5g}") for value in values.tolist()]


def tiles(collection: Collection, places: list[int], size: int) -> bytes:
    """Pictures side by side in one PNG, each size x size."""
    from PIL import Image

    images = take(collection.items, torch.tensor(places))  # type: ignore[arg-type]
    assert isinstance(images, Tensor)
    strip = Image.new("RGB", (size * len(places), size))
    for i, pixels in enumerate(images):
        strip.paste(as_picture(pixels).resize((size, size)), (i * size, 0))
    return png(strip)


def as_picture(pixels: Tensor):
    """An image (C, H, W) as a picture of Pillow."""
    from PIL import Image

    array = pixels.clamp(0, 255).to(torch.uint8).cpu().numpy()
    return Image.fromarray(array[0]).convert("RGB") if len(array) == 1 else Image.fromarray(array.transpose(1, 2, 0))


def png(picture) -> bytes:
    """A picture's bytes."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def as_series(item: Tensor) -> Tensor:
    """An item as a series (T, C): a vector is drawn as one channel."""
    return item[:, None] if item.ndim == 1 else item
