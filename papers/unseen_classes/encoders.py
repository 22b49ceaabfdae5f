"""Encoders of sequences that keep the order of what happened.

A mean over time cannot tell a wave to the left from one to the right: on held-out actions of UTD-MHAD it finds 67 % of
them untrained, 74 % trained, where the frames as they are, aligned by DTW, find 95 %. Changes from frame to frame, and
the mean of each quarter of the time instead of the whole, find 94 % untrained and 97 % trained.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

import likewise as lw
from likewise.models.layers import as_map, captured, find_layers, origin_of, read_items

PACE = 5.0  # of changes, beside places: the two are then about as large
QUARTERS = 4


class Motion(nn.Module):
    """An encoder that sees each frame less the first one, and the change to the next frame beside it.

    encoder: takes a Batch of 2 ``channels`` features. The last frame's change is 0.
    """

    def __init__(self, encoder: nn.Module, channels: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.channels = channels

    @property
    def out(self) -> int:
        """How many features the encoder gives."""
        return self.encoder.out  # type: ignore[return-value]

    def forward(self, x: lw.Batch) -> object:
        """The encoded places and changes."""
        real = x.mask[..., None]
        values = x.values.masked_fill(~real, 0)  # (B, T, C)
        change = nn.functional.pad(values.diff(dim=1).masked_fill(~real[:, 1:], 0), (0, 0, 0, 1))
        return self.encoder(lw.Batch(torch.cat([values - values[:, :1], PACE * change], 2), x.lengths))


class Pooled(nn.Module):
    """The means of a backbone's layers over their positions, side by side: attended features without attention.

    The control of GDFL: the same layers, as many features, and nothing that learns to look.
    """

    def __init__(
        self,
        backbone: nn.Module,
        layers: Sequence[str],
        *,
        with_last: bool = False,
        out: int | None = None,
        example: object = None,
    ) -> None:
        super().__init__()
        self.backbone, self.layers, self.with_last = backbone, tuple(layers), with_last
        # Attended features know the layers' widths.
        self.out = out or lw.AttendedFeatures(backbone, layers, with_last=with_last, example=example).out

    def config(self) -> dict[str, object]:
        """The constructor's arguments: the example is needed once, to find the widths."""
        return {name: getattr(self, name) for name in ("backbone", "layers", "with_last", "out")}

    def forward(self, x: object) -> Tensor:
        """Means (B, out)."""
        items, lengths = read_items("Pooled", x)
        with captured("Pooled", self.backbone, self.layers) as outputs:
            last = self.backbone(items)
        maps = [
            as_map("Pooled", name, outputs[name], lengths, layer=layer, origin=origin_of(self.backbone, name, items))
            for name, layer in find_layers("Pooled", self.backbone, self.layers).items()
        ]
        means = [found.mean() for found in maps]
        return torch.cat([*means, last] if self.with_last else means, 1)


class InParts(nn.Module):
    """The means of an encoder's frames over equal parts of the time, side by side: (B, parts * C).

    encoder: gives a Batch. A frame that two parts share counts for each as far as it lies in it.
    """

    def __init__(self, encoder: nn.Module, parts: int = QUARTERS) -> None:
        super().__init__()
        self.encoder = encoder
        self.parts = parts

    @property
    def channels(self) -> int:
        """How many features a frame has."""
        return self.encoder.channels  # type: ignore[return-value]

    @property
    def out(self) -> int:
        """How many features all parts have."""
        return self.parts * self.encoder.out  # type: ignore[operator]

    def forward(self, x: lw.Batch) -> Tensor:
        """The means of each part, one part after the other."""
        frames = self.encoder(x)
        long = frames.lengths.to(frames.device)[:, None, None] / self.parts  # (B, 1, 1), frames in a part
        step = torch.arange(frames.values.shape[1], device=frames.device)  # (T,)
        part = torch.arange(self.parts, device=frames.device)[:, None]  # (parts, 1)
        begins, ends = torch.maximum(step, part * long), torch.minimum(step + 1, (part + 1) * long)
        share = (ends - begins).clamp(min=0) / long  # (B, parts, T)
        return (share.to(frames.dtype) @ frames.values.masked_fill(~frames.mask[..., None], 0)).flatten(1)
