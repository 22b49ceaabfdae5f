"""Pairs of image sequences from one railway track, in summer and in winter, from which place recognition is learned.

The file nordland_sw_64x32.npz holds ``summer`` and ``winter``, (N, 32, 64, 3) bytes, frame by frame at the same places,
and which frames are ``dark`` (tunnels) or ``still`` (stations). Those are dropped; what is left is the track, and a
place is a number of a frame on it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from papers.common import load

FILE = "nordland_sw_64x32.npz"
SPLITS = ("train", "val", "test")
# The split of each twelfth of the track: test and validation have a place in either half of it.
BLOCKS = ("train", "train", "val", "train", "train", "test") * 2
REFERENCE, QUERY = 25, 10  # frames
SPEEDS = (1.0, 2.4)  # frames of the track for each frame of a query, on average over the query


@dataclass(frozen=True)
class Places:
    """Frames of one split of the track, and P pairs of sequences from them.

    summer, winter: (N, 1, H, W), the same places, each image with mean 0 and deviation 1.
    references: (P, 25), frames of summer, one after the other. queries: (P, 10), frames of winter, increasing.
    pace: how many frames of the reference a frame of a query lasts: the mean of the training queries, in every split.
    """

    summer: Tensor
    winter: Tensor
    references: Tensor
    queries: Tensor
    pace: float

    def __len__(self) -> int:
        return len(self.references)

    @property
    def truth(self) -> Tensor:
        """(P, 10): where the frames of each query are in its reference, counted in frames from its first one."""
        return (self.queries - self.references[:, :1]).float()

    def to(self, device: str) -> "Places":
        """All of it on a device."""
        return replace(self, **{name: value.to(device) for name, value in vars(self).items() if name != "pace"})

    def thinned(self, items: int | None) -> "Places":
        """Every n-th pair, so that about ``items`` are left; all frames stay."""
        step = 1 if items is None else max(1, len(self) // items)
        return replace(self, references=self.references[::step], queries=self.queries[::step])


def read_places(folder: Path, *, stride: int = 2, queries: int = 5, seed: int = 0) -> dict[str, Places]:
    """The splits of the track: a reference begins at every ``stride``-th frame, and has so many random queries."""
    arrays = load(folder / FILE)
    for name in ("summer", "winter", "dark", "still"):
        if name not in arrays:
            raise ValueError(f"{folder / FILE}: expected an array {name}")
    kept = ~(arrays["dark"].astype(bool) | arrays["still"].astype(bool))
    seasons = [standardized(arrays[season][kept]) for season in ("summer", "winter")]
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for split in SPLITS:
        stretches = list(stretches_of(split, len(seasons[0])))
        frames = torch.cat([torch.arange(first, stop) for first, stop in stretches])
        pairs = draw_pairs([stop - first for first, stop in stretches], stride, queries, generator)
        found[split] = Places(seasons[0][frames], seasons[1][frames], *pairs, pace=0.0)
    pace = float(found["train"].truth.diff(dim=1).mean())
    return {split: replace(places, pace=pace) for split, places in found.items()}


def standardized(images: np.ndarray) -> Tensor:
    """Grey images (N, 1, H, W) with mean 0 and deviation 1 each, from bytes (N, H, W, 3)."""
    if images.ndim != 4 or images.shape[3] != 3 or len(images) == 0:
        raise ValueError(f"expected images of shape (N, H, W, 3), got {images.shape}")
    grey = torch.from_numpy(images.mean(3, dtype=np.float32))[:, None]
    mean, deviation = grey.mean((2, 3), keepdim=True), grey.std((2, 3), keepdim=True)
    return (grey - mean) / deviation.clamp(min=1)


def stretches_of(split: str, frames: int) -> Iterator[tuple[int, int]]:
    """First frame and the one after the last of each stretch of a split.

    A stretch is a twelfth of the track. Where its neighbour before it belongs to another split, the first 25 frames
    belong to no split, so that no place is in two of them.
    """
    length = frames // len(BLOCKS)
    if length < 2 * REFERENCE:
        needed = 2 * REFERENCE * len(BLOCKS)
        raise ValueError(f"a track of {frames} frames is too short to split; expected {needed} or more")
    for block, owner in enumerate(BLOCKS):
        if owner == split:
            apart = block > 0 and BLOCKS[block - 1] != owner
            yield block * length + REFERENCE * apart, (block + 1) * length


def draw_pairs(lengths: list[int], stride: int, queries: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """References (P, 25) and queries (P, 10) from stretches of so many frames, which lie one after the other."""
    references, found, before = [], [], 0
    for length in lengths:
        for first in range(before, before + length - REFERENCE + 1, stride):
            for _ in range(queries):
                references.append(torch.arange(first, first + REFERENCE))
                found.append(first + draw_query(generator))
        before += length
    return torch.stack(references), torch.stack(found)


def draw_query(generator: torch.Generator) -> Tensor:
    """Frames (10,) of a query in its reference, at a speed that varies.

    The logarithm of the speed wanders: its neighbours correlate by 0.7, and its deviation is 0.5. Every frame is at
    least one further than the last; queries that would leave the reference are drawn again.
    """
    while True:
        mean = SPEEDS[0] + (SPEEDS[1] - SPEEDS[0]) * torch.rand((), generator=generator)
        noise = torch.randn(QUERY - 1, generator=generator)
        wander = [noise[0]]
        for value in noise[1:]:
            wander.append(0.7 * wander[-1] + 0.51**0.5 * value)
        speed = (0.5 * torch.stack(wander)).exp()
        steps = (mean * speed / speed.mean()).round().clamp(min=1).long()
        room = REFERENCE - 1 - int(steps.sum())
        if room >= 0:
            begin = int(torch.randint(room + 1, (), generator=generator))
            return begin + torch.cat([torch.zeros(1, dtype=torch.int64), steps.cumsum(0)])
