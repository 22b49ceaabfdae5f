"""Skeletons for few-shot classification: training, validation and test have classes of their own.

Joints are relative to the hip, divided by their mean distance from it, and resampled to ``frames`` frames.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import likewise as lw
from papers.tap.data import load_actions, load_utd

TEST_CLASSES = {"utd_mhad": 10, "msr_action3d": 10}
VALIDATION_CLASSES = {"utd_mhad": 5, "msr_action3d": 4}
HIPS = {"utd_mhad": 3, "msr_action3d": 6}
# Joints of the left and of the right, to be exchanged in a mirror.
SIDES = {
    "utd_mhad": ((4, 5, 6, 7, 12, 13, 14, 15), (8, 9, 10, 11, 16, 17, 18, 19)),
    "msr_action3d": ((0, 4, 7, 9, 11, 13, 15, 17), (1, 5, 8, 10, 12, 14, 16, 18)),
}
READERS = {"utd_mhad": load_utd, "msr_action3d": lambda folder: load_actions(folder)[0]}


@dataclass(frozen=True)
class Split:
    """Parts whose classes are disjoint; groups are subjects."""

    train: lw.Dataset
    val: lw.Dataset
    test: lw.Dataset


def read(data: str, folder: Path, frames: int, split: int = 0) -> Split:
    """The classes in an order that ``split`` draws: first those of the test, then of validation, the rest trains."""
    every = READERS[data](folder)
    train, val, test = (
        every[part].dataset(lambda joints: skeleton(joints, HIPS[data], frames))
        for part in parts(every.labels, data, split)
    )
    return Split(with_mirror_images(train, *SIDES[data]), val, test)


def read_all(data: str, folder: Path, frames: int) -> lw.Dataset:
    """All skeletons, of all classes."""
    return READERS[data](folder).dataset(lambda joints: skeleton(joints, HIPS[data], frames))


def parts(labels: np.ndarray, data: str, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The items that train, validate and test: those of the classes in an order that ``split`` draws."""
    order = np.random.default_rng(split).permutation(int(labels.max()) + 1)
    tests, vals = TEST_CLASSES[data], VALIDATION_CLASSES[data]
    train, val, test = (
        np.flatnonzero(np.isin(labels, chosen))
        for chosen in (order[tests + vals :], order[tests : tests + vals], order[:tests])
    )
    return train, val, test


def skeleton(joints: np.ndarray, hip: int, frames: int) -> np.ndarray:
    """Joints (T, J, 3) as a sequence (frames, 3 J), relative to the hip and in units of their mean distance to it."""
    joints = joints.astype(np.float32)
    joints = joints - joints[:, hip : hip + 1]
    joints = joints / np.linalg.norm(joints, axis=2).mean()
    place = np.linspace(0, len(joints) - 1, frames)
    before = np.floor(place).astype(int)
    after, share = np.minimum(before + 1, len(joints) - 1), (place - before)[:, None, None]
    return ((1 - share) * joints[before] + share * joints[after]).reshape(frames, -1).astype(np.float32)


def with_mirror_images(data: lw.Dataset, left: tuple[int, ...], right: tuple[int, ...]) -> lw.Dataset:
    """The data and their mirror images, left and right exchanged, which are classes of their own."""
    exchange = torch.arange(data.items.channels // 3)
    exchange[[*left, *right]] = torch.tensor([*right, *left])
    joints = data.items.values.unflatten(2, (-1, 3))[:, :, exchange] * torch.tensor([-1.0, 1.0, 1.0])
    mirrored = lw.Batch(joints.flatten(2), data.items.lengths)
    return lw.Dataset(
        lw.Batch.cat([data.items, mirrored]),
        [*data.labels, *(f"{name} mirrored" for name in data.labels)],
        groups=np.tile(data.groups, 2),
    )


@dataclass(frozen=True)
class Changed:
    """The result of ``SkeletonChange`` for ``fit``, without an alignment."""

    batch: lw.Batch
    plans: None = None


class SkeletonChange:
    """Skeletons turned about the vertical axis, stretched, with joints moved, and in another tempo; see ``fit``.

    Angles are uniform within ``turn`` radians either way; each axis is scaled by 1 +- stretch; joints are offset by
    noise for the whole sequence; up to ``cut`` of either end is left out, and the rest is run through unevenly.
    """

    def __init__(self, turn: float = 0.35, stretch: float = 0.1, noise: float = 0.03, cut: float = 0.15) -> None:
        self.turn, self.stretch, self.noise, self.cut = turn, stretch, noise, cut

    def __call__(self, batch: lw.Batch, generator: torch.Generator) -> Changed:
        """The changed batch, of the same lengths."""
        count, steps, channels = batch.values.shape

        def uniform(*shape: int) -> Tensor:
            return (2 * torch.rand(*shape, generator=generator) - 1).to(batch.device)

        angle = self.turn * uniform(count)
        cos, sin, zero, one = angle.cos(), angle.sin(), torch.zeros_like(angle), torch.ones_like(angle)
        turn = torch.stack([cos, zero, sin, zero, one, zero, -sin, zero, cos], 1).reshape(count, 1, 3, 3)
        joints = batch.values.unflatten(2, (-1, 3)) @ turn.mT * (1 + self.stretch * uniform(count, 1, 1, 3))
        offsets = torch.randn(count, 1, channels, generator=generator).to(batch.device)
        values = joints.flatten(2) + self.noise * offsets
        # Frame t of the result comes from place last * (start + span (t / last)^power), between two frames.
        last = (batch.lengths - 1).to(batch.device)[:, None]
        power = torch.exp(0.4 * torch.randn(count, 1, generator=generator)).to(batch.device)
        start = self.cut * uniform(count, 1).abs()
        span = 1 - self.cut * uniform(count, 1).abs() - start
        share = (torch.arange(steps, device=batch.device) / last.clamp(min=1)).clamp(max=1)
        place = last * (start + span * share**power)
        before = place.floor().long()
        after, rest = torch.minimum(before + 1, last), (place - before)[..., None]
        rows = torch.arange(count, device=batch.device)[:, None]
        changed = (1 - rest) * values[rows, before] + rest * values[rows, after]
        return Changed(lw.Batch(changed.to(batch.dtype), batch.lengths))


class TurnedSkeletons(nn.Module):
    """An encoder that, while training, sees skeletons turned, stretched and in another tempo; see SkeletonChange."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: lw.Batch) -> object:
        """The encoded skeletons."""
        if self.training:
            generator = torch.Generator().manual_seed(int(torch.randint(1 << 62, ())))
            x = SkeletonChange()(x, generator).batch
        return self.encoder(x)
