"""A backbone that does not learn: its maps of whole images are computed once, and only what follows it is trained.

With --encoder frozen, attended features and their control are compared on a CPU: an epoch takes seconds. The layers are
those that GDFL attends to in EfficientNet-Lite0; there are no random crops.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import likewise as lw
from likewise.models.layers import captured

CROP, AT_ONCE = 112, 64
LAYERS = {"blocks.10": (112, 7, 7), "blocks.15": (320, 4, 4), "head": (1280, 4, 4)}  # shapes at this size


def with_maps(data: lw.Dataset, kept: Path | None = None) -> lw.Dataset:
    """The images as sequences of one step (N, 1, C), whose channels are all numbers of the layers' maps.

    kept: a file that keeps them; it is read if it is there.
    """
    if kept is not None and kept.is_file():
        maps = torch.from_numpy(np.load(kept, allow_pickle=False))
    else:
        maps = maps_of(data.items)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.save(kept, maps.numpy())
    return lw.Dataset(maps, data.labels, ids=data.ids, classes=data.classes)


@torch.no_grad()
def maps_of(images: Tensor) -> Tensor:
    """The layers' maps (N, 1, C) of the images' centres."""
    backbone = lw.EfficientNetLite(0)
    encoder = lw.models.RandomCrop(backbone, CROP).eval()
    found = []
    for part in images.split(AT_ONCE):
        with captured("frozen", backbone, LAYERS) as outputs:
            encoder(part)
        found.append(torch.cat([outputs[name].flatten(1) for name in LAYERS], 1))
    return torch.cat(found)[:, None]


class KeptMaps(nn.Module):
    """The backbone's end: gives the last map's mean, and shows the maps as outputs of its layers."""

    out = 1280

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Identity() for _ in LAYERS)

    def forward(self, x: lw.Batch) -> Tensor:
        """The last map's mean (B, 1280)."""
        shapes = LAYERS.values()
        parts = x.values[:, 0].split([torch.Size(shape).numel() for shape in shapes], 1)
        found = [layer(part.unflatten(1, shape)) for layer, part, shape in zip(self.maps, parts, shapes, strict=True)]
        return found[-1].mean((2, 3))
