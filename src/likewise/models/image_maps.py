"""The layouts of image features: channels first, channels last, or tokens."""

from dataclasses import dataclass
from math import isqrt

from torch import Tensor, nn

# PyTorch's own layers return maps with channels first, in any network.
CHANNELS_FIRST_2D = (nn.Conv2d, nn.BatchNorm2d, nn.InstanceNorm2d, nn.GroupNorm, nn.MaxPool2d, nn.AvgPool2d,
                     nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)  # fmt: skip


@dataclass(frozen=True)
class Origin:
    """Where an output comes from: a layer inside a network, and the size (H, W) of the image that the network saw."""

    network: nn.Module
    name: str  # name of the layer; "" for the network itself
    image: tuple[int, int]

    @property
    def layer(self) -> nn.Module:
        """The layer."""
        return self.network.get_submodule(self.name)

    def declared(self, attribute: str) -> object:
        """An attribute of the layer or, without one, of the nearest module around it; None if no module has it."""
        path = self.name.split(".") if self.name else []
        for length in range(len(path), -1, -1):
            part = self.network.get_submodule(".".join(path[:length]))
            if getattr(part, attribute, None) is not None:
                return getattr(part, attribute)
        return None


def seen_size(encoder: nn.Module, images: Tensor) -> tuple[int, int]:
    """The size (H, W) of images (B, C, H, W), or of their crops, as the network inside an encoder sees them."""
    crops = (part.crop_size for part in encoder.modules() if hasattr(part, "crop_size"))
    return next(crops, (images.shape[2], images.shape[3]))  # type: ignore[return-value]


def channels_first(output: Tensor, origin: Origin | None) -> Tensor:
    """A map (B, C, H, W) from a layer's output (B, C, H, W) or (B, H, W, C).

    The two sides with the image's proportions are those of the map. If both pairs have them, or neither, the network's
    attribute ``output_fmt`` ("NHWC", as in timm) decides; without one, channels come first.

    Example:
        >>> import torch
        >>> channels_first(torch.zeros(2, 7, 7, 96), Origin(nn.Identity(), "", (224, 224))).shape
        torch.Size([2, 96, 7, 7])
    """
    if origin is None or isinstance(origin.layer, CHANNELS_FIRST_2D) or type(origin.layer).__name__.endswith("2d"):
        return output
    _, a, b, c = output.shape
    first, last = _fits(b, c, origin.image), _fits(a, b, origin.image)
    if (last and not first) or (last == first and origin.declared("output_fmt") == "NHWC"):
        return output.movedim(3, 1)
    return output


def tokens_to_map(tokens: Tensor, origin: Origin) -> tuple[Tensor, tuple[int, ...]]:
    """Tokens (B, T, C) without those for the whole image, and the size of their grid: (H, W), or (T,) if there is none.

    The network's attribute ``num_prefix_tokens`` (as in timm) counts the class token and similar ones. Without it, if
    there is one token too many for a grid, the first is taken for a class token.

    Example:
        >>> import torch
        >>> tokens, grid = tokens_to_map(torch.zeros(2, 197, 192), Origin(nn.Identity(), "", (224, 224)))
        >>> tokens.shape, grid
        (torch.Size([2, 196, 192]), (14, 14))
    """
    declared = origin.declared("num_prefix_tokens")
    for before in (declared, 0) if isinstance(declared, int) else (0, 1):
        grid = _grid(tokens.shape[1] - before, origin.image)
        if grid is not None:
            return tokens[:, before:], grid
    return tokens, (tokens.shape[1],)


def _fits(height: int, width: int, image: tuple[int, int]) -> bool:
    """Whether a map has the proportions of an image, up to rounding by one cell."""
    return abs(height * image[1] - width * image[0]) < max(image)


def _grid(count: int, image: tuple[int, int]) -> tuple[int, int] | None:
    """Height and width of a map of this many positions, with the proportions of the image."""
    if count < 1:
        return None
    guess = isqrt(max(1, count * image[0] // image[1]))
    near = (height for height in range(max(1, guess - 2), guess + 3) if count % height == 0)
    return next(((height, count // height) for height in near if _fits(height, count // height, image)), None)
