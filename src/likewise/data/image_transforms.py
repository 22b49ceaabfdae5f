"""Crops of whole batches of images, on their device."""

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from likewise import _check


def random_crops(
    images: Tensor,
    size: int,
    *,
    area: tuple[float, float] = (0.2, 1.0),
    ratio: float = 4 / 3,
    flip: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Crop each image at random and scale the crops to (B, C, size, size); with ``flip``, half of them are mirrored.

    area: the smallest and largest share of the image's area; the share is uniform between them. ratio: width to
    height is between 1 / ratio and ratio, uniform in its logarithm. Interpolation is bilinear, so images should
    not be much larger than ``size``. Like torchvision's RandomResizedCrop, but sides that do not fit are clipped
    to the image instead of being drawn again.

    generator: on the images' device; the global one by default.

    Example:
        >>> random_crops(torch.ones(2, 3, 16, 12), 8).shape
        torch.Size([2, 3, 8, 8])
    """
    _check_images("random_crops", images)
    count, _, height, width = images.shape

    def uniform(low: float, high: float) -> Tensor:
        drawn = torch.rand(count, generator=generator, device=images.device, dtype=torch.float32)
        return low + (high - low) * drawn

    pixels = height * width * uniform(*area)
    stretch = (math.log(ratio) * uniform(-1, 1)).exp()
    wide = ((pixels * stretch).sqrt() / width).clamp(max=1)  # share of the whole width
    high = ((pixels / stretch).sqrt() / height).clamp(max=1)
    x, y = (1 - wide) * uniform(-1, 1), (1 - high) * uniform(-1, 1)
    mirrored = wide * torch.where(uniform(0, 1) < 0.5, -1.0, 1.0) if flip else wide
    return _sampled(images, size, mirrored, high, x, y)


def center_crops(images: Tensor, size: int, *, share: float = 1.0) -> Tensor:
    """Crop the centre of each image, a square with ``share`` of its shorter side, scaled to (B, C, size, size).

    Example:
        >>> center_crops(torch.arange(16.0).reshape(1, 1, 4, 4), 2, share=0.5)
        tensor([[[[ 5.,  6.],
                  [ 9., 10.]]]])
    """
    _check_images("center_crops", images)
    count, _, height, width = images.shape
    side = share * min(height, width)
    if share == 1 and height == width == size:
        return images
    ones, zeros = images.new_ones(count), images.new_zeros(count)
    return _sampled(images, size, ones * (side / width), ones * (side / height), zeros, zeros)


def _sampled(images: Tensor, size: int, wide: Tensor, high: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Crop boxes with these half sides and centres, where the image is [-1, 1] in each direction."""
    shape = (*images.shape[:2], size, size)
    if 0 in images.shape:
        return images.new_empty(shape)
    zero = torch.zeros_like(wide)
    boxes = torch.stack([wide, zero, x, zero, high, y], 1).reshape(-1, 2, 3).to(images.dtype)
    grid = affine_grid(boxes, list(shape), align_corners=False)
    return grid_sample(images, grid, padding_mode="border", align_corners=False)


def _check_images(op: str, images: object) -> None:
    if _check.is_tensor(op, "images", images).ndim != 4:
        _check.refuse(op, f"expected images of shape (B, C, H, W), got {tuple(images.shape)}")  # type: ignore[attr-defined]
