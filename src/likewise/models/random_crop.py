"""RandomCrop: random crops in training and centre crops in eval mode, before an image encoder."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.data.image_transforms import center_crops, random_crops
from likewise.models.pixels import MEAN, STD, Pixels


class RandomCrop(nn.Module):
    """An encoder that sees a random crop of each image, perhaps mirrored, in training, and its centre in eval mode.

    Pixels, bytes or floats from 0 to 255, become (pixel - mean) / std. Crops are made for the whole batch at once, on
    its device; ``fit`` seeds them.

    encoder: any module that takes images (B, C, size, size).
    size: side of the crops in pixels; by default the encoder's ``image_size``, which timm backbones have.
    area, ratio, flip: as in ``random_crops``.
    share: side of the centre crop, as a share of the image's shorter side.
    mean, std: one number, or one for each channel, for pixels from 0 to 255. By default those of the encoder's
        ``Pixels``; 127 and 128 if it has none.

    ``out`` is that of the encoder. BN-Inception's Caffe weights expect the channels as blue, green, red: pass
    images.flip(1), with mean=(104, 117, 128) and std=1.

    Example:
        >>> from likewise.models.small_cnn import SmallCNN
        >>> encoder = RandomCrop(SmallCNN(3, out=16), 24)
        >>> encoder(torch.randint(256, (2, 3, 32, 40), dtype=torch.uint8)).shape
        torch.Size([2, 16])
    """

    def __init__(
        self,
        encoder: nn.Module,
        size: int | None = None,
        *,
        area: tuple[float, float] = (0.2, 1.0),
        ratio: float = 4 / 3,
        flip: bool = True,
        share: float = 1.0,
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        op = "RandomCrop"
        if not isinstance(encoder, nn.Module):
            raise TypeError(f"{op}: expected encoder to be a module, got {type(encoder).__name__}")
        self.encoder = encoder
        if size is None:
            size = next((min(part.image_size) for part in encoder.modules() if hasattr(part, "image_size")), None)  # type: ignore[call-overload]
        if size is None:
            _check.refuse(op, f"cannot infer the image size of a {type(encoder).__name__}; pass size=")
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
        own = next((part for part in encoder.modules() if isinstance(part, Pixels)), None)
        default = (MEAN, STD) if own is None else (own.mean, own.std)
        self.pixels = Pixels(default[0] if mean is None else mean, default[1] if std is None else std)

    @property
    def out(self) -> int | None:
        """The number of the encoder's features, if it has the attribute."""
        return next(
            (getattr(self.encoder, name) for name in ("out", "head_hidden_size", "num_features")
             if hasattr(self.encoder, name)), None
        )  # fmt: skip

    @property
    def crop_size(self) -> tuple[int, int]:
        """(size, size), the size of the crops that the encoder sees."""
        return self.size, self.size

    def forward(self, images: Tensor) -> object:
        """Crop, normalise and encode images (B, C, H, W), bytes or floats."""
        if not isinstance(images, Tensor) or images.ndim != 4:
            got = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
            _check.refuse("RandomCrop", f"expected images of shape (B, C, H, W), got {got}")
        dtype = images.dtype
        if not images.is_floating_point():
            dtype = next((p.dtype for p in self.parameters() if p.is_floating_point()), torch.float32)
            images = images.to(torch.promote_types(dtype, torch.float32))  # a pixel is not exact in half precision
        if self.training:
            seen = random_crops(images, self.size, area=self.area, ratio=self.ratio, flip=self.flip)
        else:
            seen = center_crops(images, self.size, share=self.share)
        return self.encoder(self.pixels.scale(seen).to(dtype))

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"size={self.size}, area={self.area}, flip={self.flip}, share={self.share}"
