"""SmallCNN: a convolutional network for small images."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.models._sequences import unit
from likewise.models.pixels import Pixels, check_images

MOST_LAYERS = 16


class SmallCNN(nn.Module):
    """Images to vectors: (B, channels, H, W) -> (B, out).

    A 3 x 3 convolution, group normalisation, ReLU and 2 x 2 pooling for each of ``widths``, then the mean over
    positions and a linear layer. Pooling stops when a side is down to one pixel, so any size works. Group normalisation
    treats each image separately, so no result depends on the rest of the batch.

    normalize: scale the vectors to unit length. Bytes become (pixel - 127) / 128.

    Example:
        >>> SmallCNN(1, out=16)(torch.randn(4, 1, 28, 28)).shape
        torch.Size([4, 16])
    """

    def __init__(
        self, channels: int = 3, out: int = 64, *, widths: Sequence[int] = (32, 64, 128), normalize: bool = True
    ) -> None:
        super().__init__()
        self.channels = _check.whole("SmallCNN", "channels", channels)
        self.out = _check.whole("SmallCNN", "out", out)
        if not isinstance(widths, (list, tuple)) or not 1 <= len(widths) <= MOST_LAYERS:
            _check.refuse("SmallCNN", f"widths must be a list of 1 to {MOST_LAYERS} whole numbers, got {widths!r}")
        self.widths = tuple(_check.whole("SmallCNN", f"widths[{i}]", width) for i, width in enumerate(widths))
        self.normalize = normalize
        self.pixels = Pixels()
        before = (self.channels, *self.widths[:-1])
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1) for a, b in zip(before, self.widths, strict=True)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(_groups(width), width) for width in self.widths)
        self.outward = nn.Linear(self.widths[-1], self.out)

    def forward(self, images: Tensor) -> Tensor:
        """Encode images (B, channels, H, W) to vectors (B, out)."""
        images = self.pixels(check_images("SmallCNN", images, self.channels), self.outward.weight)
        if len(images) == 0:
            return images.new_empty(0, self.out)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            images = torch.relu(norm(convolution(images)))
            if min(images.shape[2:]) > 1:
                images = nn.functional.max_pool2d(images, 2)
        vectors = self.outward(images.mean((2, 3)))
        return unit(vectors) if self.normalize else vectors


def _groups(width: int) -> int:
    """The largest of 8, 4, 2 and 1 that divides the width and leaves at least four channels per group."""
    return next(groups for groups in (8, 4, 2, 1) if groups == 1 or (width % groups == 0 and width // groups >= 4))
