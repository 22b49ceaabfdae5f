"""Pixels: scale the bytes of images to the numbers that a network was trained on."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from likewise import _check

MEAN, STD = 127.0, 128.0  # those of EfficientNet-Lite, also used for networks without their own
LARGEST = 16.0  # floats above this are pixels from 0 to 255, not scaled ones


class Pixels(nn.Module):
    """(pixel - mean) / std, for images of bytes (B, C, H, W); floats must be scaled already and are unchanged.

    mean, std: one number, or one for each channel, for pixels from 0 to 255.

    Encoders of images call it first. ``Metric`` passes bytes to an encoder that has one as its attribute ``pixels``,
    or whose ``backbone`` does; to other encoders it passes floats from 0 to 255.

    Example:
        >>> Pixels(127, 128)(torch.tensor([[[[127, 255]]]], dtype=torch.uint8))
        tensor([[[[0., 1.]]]])
    """

    mean_value: Tensor
    std_value: Tensor

    def __init__(self, mean: float | Sequence[float] = MEAN, std: float | Sequence[float] = STD) -> None:
        super().__init__()
        self.mean, self.std = mean, std
        means, spreads = _numbers("mean", mean), _numbers("std", std)
        if min(spreads) <= 0:
            _check.refuse("Pixels", f"std must be positive, got {std!r}")
        self.register_buffer("mean_value", torch.tensor(means)[:, None, None], persistent=False)  # (C, 1, 1)
        self.register_buffer("std_value", torch.tensor(spreads)[:, None, None], persistent=False)
        self._trusted = False

    def forward(self, images: Tensor, like: Tensor | None = None) -> Tensor:
        """Scaled bytes in the type of ``like``; floats are returned unchanged if they are plausible as scaled pixels.

        Only the first batch of floats is checked, to save time: if the scale is wrong, it is wrong in every batch.
        """
        if images.is_floating_point():
            if not self._trusted and images.numel() and not images.is_meta:
                self._trust(images)
            return images
        if images.dtype != torch.uint8:
            raise TypeError(f"Pixels: expected images of bytes (torch.uint8) or of scaled floats, got {images.dtype}")
        return self.scale(images).to(torch.float32 if like is None else like.dtype)

    def scale(self, images: Tensor) -> Tensor:
        """(pixel - mean) / std, of bytes or of floats from 0 to 255; at least float32."""
        for values in (self.mean_value, self.std_value):
            if len(values) not in (1, images.shape[1]):
                _check.refuse("Pixels", f"mean or std does not match the channels of images {tuple(images.shape)}")
        images = images if images.is_floating_point() else images.float()
        return (images - self.mean_value) / self.std_value

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"mean={self.mean}, std={self.std}"

    def _trust(self, images: Tensor) -> None:
        largest = float(images.detach().abs().max())
        if largest > LARGEST:
            _check.refuse(
                "Pixels",
                f"floats up to {largest:.0f} are not scaled pixels; pass images as bytes (torch.uint8), which are "
                "scaled here, or pass (pixel - mean) / std",
            )
        self._trusted = True


def takes_bytes(encoder: nn.Module | None) -> bool:
    """Whether an encoder, or the backbone to which it passes images, scales pixels itself.

    Example:
        >>> takes_bytes(nn.Conv2d(3, 4, 3))
        False
    """
    while encoder is not None:
        if isinstance(getattr(encoder, "pixels", None), Pixels):
            return True
        encoder = getattr(encoder, "backbone", None)
    return False


def check_images(op: str, images: object, channels: int) -> Tensor:
    """Return images (B, channels, H, W), of bytes or floats, after checking them."""
    if not isinstance(images, Tensor):
        raise TypeError(f"{op}: expected images to be a torch.Tensor, got {type(images).__name__}")
    if images.ndim != 4 or images.shape[1] != channels:
        _check.refuse(op, f"expected images of shape (B, {channels}, H, W), got {tuple(images.shape)}")
    return images


def _numbers(name: str, value: float | Sequence[float]) -> list[float]:
    """One number, or one for each channel."""
    numbers = list(value) if isinstance(value, Sequence) else [value]
    if not numbers:
        _check.refuse("Pixels", f"{name} is empty")
    return [float(_check.number("Pixels", name, number)) for number in numbers]
