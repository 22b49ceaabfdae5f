"""RandomCrop: random crops in training, centre crops afterwards, before an image encoder."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.data.image_transforms import center_crops, random_crops


class RandomCrop(nn.Module):
    """An encoder that sees a random crop of each image, perhaps mirrored, in training, and the centre in eval mode.

    Pixels become (pixel - mean) / std. Crops are made for the whole batch at once, on its device; ``fit`` seeds them.

    encoder: any module that takes images (B, C, size, size).
    size: side of the crops in pixels. area, ratio, flip: as in ``random_crops``.
    share: side of the centre crop, as a share of the image's shorter side.
    mean, std: one number, or one for each channel; 127 and 128 are EfficientNet-Lite's, for pixels from 0 to 255.

    ``out`` is the encoder's. BN-Inception's Caffe weights expect the channels as blue, green, red: pass images.flip(1),
    with mean=(104, 117, 128) and std=1.

    Example:
        >>> from likewise.models.small_cnn import SmallCNN
        >>> encoder = RandomCrop(SmallCNN(3, out=16), 24)
        >>> encoder(torch.randint(256, (2, 3, 32, 40), dtype=torch.uint8)).shape
        torch.Size([2, 16])
    """

    mean_value: Tensor
    std_value: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        size: int,
        *,
        area: tuple[float, float] = (0.2, 1.0),
        ratio: float = 4 / 3,
        flip: bool = True,
        share: float = 1.0,
        mean: float | Sequence[float] = 127.0,
        std: float | Sequence[float] = 128.0,
    ) -> None:
        super().__init__()
        op = "RandomCrop"
        if not isinstance(encoder, nn.Module):
            raise TypeError(f"{op}: expected encoder to be a module, got {type(encoder).__name__}")
        self.encoder = encoder
        self.size = _check.whole(op, "size", size)
        low, high = (_check.positive(op, "area", value) for value in area)
        if not low <= high <= 1:
            _check.refuse(op, f"area must be two shares, the smaller one first, got {area!r}")
        self.area = (low, high)
        self.ratio = _check.positive(op, "ratio", ratio)
        if self.ratio < 1:
            _check.refuse(op, f"ratio must be 1 or more, got {ratio}")
        self.flip = flip
        self.share = _check.positive(op, "share", share)
        if self.share > 1:
            _check.refuse(op, f"share must be at most 1, got {share}")
        self.mean, self.std = mean, std
        means, spreads = _numbers(op, "mean", mean), _numbers(op, "std", std)
        if min(spreads) <= 0:
            _check.refuse(op, f"std must be positive, got {std!r}")
        self.register_buffer("mean_value", torch.tensor(means)[:, None, None], persistent=False)  # (C, 1, 1)
        self.register_buffer("std_value", torch.tensor(spreads)[:, None, None], persistent=False)

    @property
    def out(self) -> int | None:
        """The number of the encoder's features, if it has the attribute."""
        return next(
            (getattr(self.encoder, name) for name in ("out", "num_features") if hasattr(self.encoder, name)), None
        )

    def forward(self, images: Tensor) -> object:
        """Crop, normalise and encode images (B, C, H, W), bytes or floats."""
        if not isinstance(images, Tensor) or images.ndim != 4:
            got = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
            _check.refuse("RandomCrop", f"expected images of shape (B, C, H, W), got {got}")
        if len(self.mean_value) not in (1, images.shape[1]) or len(self.std_value) not in (1, images.shape[1]):
            _check.refuse("RandomCrop", f"mean or std does not match the channels of images {tuple(images.shape)}")
        if not images.is_floating_point():
            images = images.float()
        if self.training:
            seen = random_crops(images, self.size, area=self.area, ratio=self.ratio, flip=self.flip)
        else:
            seen = center_crops(images, self.size, share=self.share)
        return self.encoder((seen - self.mean_value) / self.std_value)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"size={self.size}, area={self.area}, flip={self.flip}, share={self.share}"


def _numbers(op: str, name: str, value: float | Sequence[float]) -> list[float]:
    """One number, or one for each channel."""
    numbers = list(value) if isinstance(value, Sequence) else [value]
    if not numbers:
        _check.refuse(op, f"{name} is empty")
    return [float(_check.number(op, name, number)) for number in numbers]
