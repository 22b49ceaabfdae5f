"""The encoder of single images from which place recognition starts, and its training with a triplet loss."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

import likewise as lw
from likewise.losses.pairs import Pairs
from likewise.losses.triplet import Triplets
from papers.common import accelerator
from papers.decdtw.data_places import Places

MARGIN = 0.1  # the paper's
NEGATIVES = 10  # for each anchor and positive, the nearest ones of the batch; the paper's number
FRAMES = 64  # places in a step
AT_ONCE = 512  # images encoded at once when nothing is learned


class PlaceEncoder(nn.Module):
    """Grey images (B, 1, H, W) to vectors (B, out) of unit length.

    Each of ``widths`` is a 3 x 3 convolution that halves the image, group normalisation and ReLU. Unlike in
    ``lw.models.SmallCNN`` the last map is read position by position, not averaged: where things are in the image tells
    one place of a track from another.
    """

    def __init__(self, height: int, width: int, out: int = 64, *, widths: Sequence[int] = (16, 32, 64)) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for before, after in zip((1, *widths[:-1]), widths, strict=True):
            blocks += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GroupNorm(4, after), nn.ReLU()]
        self.blocks = nn.Sequential(*blocks, nn.Flatten())
        for _ in widths:
            height, width = -(-height // 2), -(-width // 2)
        self.outward = nn.Linear(height * width * widths[-1], out)

    def forward(self, images: Tensor) -> Tensor:
        """Encode images."""
        return nn.functional.normalize(self.outward(self.blocks(images)), dim=1)


def mirrored(images: Tensor, generator: torch.Generator) -> Tensor:
    """The images of a batch, in half of the cases all mirrored, as if from another track."""
    return images.flip(3) if torch.rand((), generator=generator) < 0.5 else images


@torch.no_grad()
def encode(encoder: nn.Module, images: Tensor) -> Tensor:
    """Vectors (N, out) of many images."""
    return torch.cat([encoder(part) for part in images.split(AT_ONCE)])


def nearest_negatives(pairs: Pairs, margin: float) -> Triplets:
    """Each anchor's one positive with its ten nearest negatives."""
    distances = pairs.distances.masked_fill(~pairs.negatives, torch.inf)
    count = min(NEGATIVES, distances.shape[1] - 1)
    negative = distances.topk(count, dim=1, largest=False).values[:, None]  # (N, 1, Q)
    positive = pairs.farthest_positive()[:, None, None]
    return Triplets(positive, negative, torch.ones_like(negative, dtype=torch.bool))


def triplet_loss(encoder: nn.Module, places: Places, index: Tensor, generator: torch.Generator) -> Tensor:
    """Triplet loss of the places of an index, whose images may be mirrored.

    An anchor is a winter frame, its positive the summer frame of the same place, and the other way round; other
    places of the index are negatives.
    """
    loss = lw.losses.Triplet(MARGIN, mining=nearest_negatives)
    index = index.to(places.summer.device)
    images = mirrored(torch.cat([places.winter[index], places.summer[index]]), generator)
    winter, summer = encoder(images).split(len(index))
    D = torch.cdist(winter, summer)  # unit vectors: no two of different seasons are equal
    return loss(D, index, index) + loss(D.T, index, index)


def best_encoder(encoder: nn.Module, train: Places, val: Places, *, epochs: int, lr: float, seed: int) -> float:
    """Train on single images, and keep the epoch with the best recall on the validation frames, which is returned."""
    history = lw.fit(
        lw.Metric(encoder, lw.Euclidean()),
        torch.zeros(len(train.summer), 1, 1),  # the step looks the images up
        step=lambda step: triplet_loss(encoder, train, step.index, step.generator),
        val=lw.training.Validation(lambda _: recall(encoder, val), before=True),
        epochs=epochs,
        batch_size=FRAMES,
        lr=lr,
        optimizer=lw.training.Optimization(
            weight_decay=0.0, schedule=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
        ),
        average=0,
        seed=seed,
        verbose=False,
        accelerator=accelerator(next(encoder.parameters()).device),
    )
    return history.best["score"]


def recall(encoder: nn.Module, places: Places) -> float:
    """Share of winter frames whose nearest summer frame is at most two frames off."""
    nearest = torch.cdist(encode(encoder, places.winter), encode(encoder, places.summer)).argmin(1)
    off = (nearest - torch.arange(len(nearest), device=nearest.device)).abs()
    return float((off <= 2).float().mean())
