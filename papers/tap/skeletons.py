"""Data for the few-shot recipe: classes of their own for training, validation and test.

Skeletons are relative to the hip, divided by the mean distance of a joint from it, and resampled to ``frames`` frames.
Omniglot's characters are images of 32 x 32: a sequence of 32 columns from left to right, each of its 32 pixels, ink
being 1. Spoken Arabic Digits are standardised by the training classes. Features of video clips are read from folders.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import likewise as lw
from likewise.recipes.common import load

TEST_CLASSES = {"utd_mhad": 10, "msr_action3d": 10, "omniglot": 60, "sad": 5}
VALIDATION_CLASSES = {"utd_mhad": 5, "msr_action3d": 4, "omniglot": 40, "sad": 2}
HIPS = {"utd_mhad": 3, "msr_action3d": 6}
# Joints of the left and of the right, to be exchanged in a mirror.
SIDES = {
    "utd_mhad": ((4, 5, 6, 7, 12, 13, 14, 15), (8, 9, 10, 11, 16, 17, 18, 19)),
    "msr_action3d": ((0, 4, 7, 9, 11, 13, 15, 17), (1, 5, 8, 10, 12, 14, 16, 18)),
}


@dataclass(frozen=True)
class Part:
    """Sequences of some classes; groups are subjects, or None where every item has its own."""

    sequences: lw.Batch
    labels: Tensor
    groups: Tensor | None

    def __len__(self) -> int:
        return len(self.sequences)

    def to(self, device: str) -> "Part":
        """The same with its sequences on a device."""
        return Part(self.sequences.to(device), self.labels, self.groups)


@dataclass(frozen=True)
class Split:
    """Parts whose classes are disjoint, and what changes training items at random; None for nothing."""

    train: Part
    val: Part
    test: Part
    augment: "SkeletonChange | None" = None

    def to(self, device: str) -> "Split":
        """The same with all sequences on a device."""
        return Split(self.train.to(device), self.val.to(device), self.test.to(device), self.augment)


def read(data: str, folder: Path, frames: int) -> Split:
    """One of the sets that README.md of the data describes, split by classes in an order that is drawn once."""
    sequences, labels, groups = READERS[data](folder, frames)
    order = np.random.default_rng(0).permutation(int(labels.max()) + 1)
    tests, vals = TEST_CLASSES[data], VALIDATION_CLASSES[data]
    choices = order[tests + vals :], order[tests : tests + vals], order[:tests]
    if data == "sad":
        train = np.concatenate([s for s, label in zip(sequences, labels, strict=True) if label in choices[0]])
        sequences = [(s - train.mean(0)) / train.std(0) for s in sequences]
    train, val, test = (_part(sequences, labels, groups, classes) for classes in choices)
    if data not in SIDES:
        return Split(train, val, test)
    return Split(with_mirror_images(train, *SIDES[data]), val, test, SkeletonChange())


def read_utd(folder: Path, frames: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """UTD-MHAD: 861 skeleton sequences of 27 actions by 8 subjects."""
    data = load(folder / "utd_mhad_skeleton.npz")
    sequences = np.split(data["frames"], data["offsets"][1:-1])
    return [skeleton(s, HIPS["utd_mhad"], frames) for s in sequences], data["labels"], data["subject"]


def read_msr(folder: Path, frames: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """MSR Action3D: skeleton sequences of 20 actions by 10 subjects, without frames that have no body."""
    data = load(folder / "msr_action3d.npz")
    kept = np.flatnonzero(data["n_zero_frames"] <= data["lengths"] / 2)
    whole = np.split(data["values"], data["lengths"].cumsum()[:-1])
    bodies = [whole[i][np.abs(whole[i]).sum(1) > 0].reshape(-1, 20, 3) for i in kept]
    return [skeleton(s, HIPS["msr_action3d"], frames) for s in bodies], data["y"][kept], data["subject"][kept]


def read_omniglot(folder: Path, frames: int) -> tuple[list[np.ndarray], np.ndarray, None]:
    """Omniglot: 242 characters, each by 20 drawers; columns of pixels from left to right."""
    data = load(folder / "omniglot_small12.npz")
    images = data["images32"].astype(np.float32)
    images = images / images.max()
    ink = images if images.mean() < 0.5 else 1 - images
    return [image.T.copy() for image in ink], data["labels"], None


def read_sad(folder: Path, frames: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Spoken Arabic Digits: of every digit, one utterance of each of the 88 speakers."""
    data = load(folder / "spoken_arabic_digits.npz")
    sequences, labels, speakers = [], [], []
    for part in ("train", "test"):
        sequences += np.split(data[f"values_{part}"], data[f"lengths_{part}"].cumsum()[:-1])[::10]
        labels.append(data[f"y_{part}"][::10])
        speakers.append(data[f"speaker_{part}"][::10])
    return sequences, np.concatenate(labels), np.concatenate(speakers)


READERS: dict[str, Callable] = {
    "utd_mhad": read_utd,
    "msr_action3d": read_msr,
    "omniglot": read_omniglot,
    "sad": read_sad,
}


def read_features(folder: Path, splits: Path, frames: int) -> Split:
    """Per-frame features of video clips: DIR/Class/clip.npy or DIR/clip.npy, each (T, C), and lists of clips.

    splits has trainlist*.txt, vallist*.txt and testlist*.txt, as the few-shot-action-recognition lists are: a line is
    Class/clip, with or without an ending such as .avi; what follows a blank is left out.
    """
    classes: dict[str, int] = {}
    parts = []
    for name in ("train", "val", "test"):
        lists = sorted(splits.glob(f"{name}list*.txt"))
        if len(lists) != 1:
            raise SystemExit(f"error: {splits}: expected one file {name}list*.txt, found {len(lists)}")
        sequences, labels = [], []
        for number, line in enumerate(lists[0].read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            label, _, clip = line.split()[0].rpartition("/")
            if not label:
                raise SystemExit(f"error: {lists[0]}, line {number}: expected Class/clip, got {line!r}")
            sequences.append(_clip(folder, label, clip, frames, f"{lists[0]}, line {number}"))
            labels.append(classes.setdefault(label, len(classes)))
        parts.append(Part(lw.Batch.from_list(sequences), torch.tensor(labels), None))
    shared = [set(part.labels.tolist()) for part in parts]
    if shared[0] & shared[1] or shared[0] & shared[2] or shared[1] & shared[2]:
        raise SystemExit(f"error: {splits}: a class is in two of the lists")
    return Split(*parts)


def _clip(folder: Path, label: str, clip: str, frames: int, where: str) -> np.ndarray:
    stems = clip, clip.rpartition(".")[0] or clip
    for path in (parent / f"{stem}.npy" for parent in (folder / label, folder) for stem in stems):
        if path.is_file():
            values = np.load(path, allow_pickle=False)
            if values.ndim != 2 or 0 in values.shape or values.dtype.kind != "f":
                raise SystemExit(f"error: {path}: expected numbers of shape (T, C), got {values.dtype} {values.shape}")
            chosen = np.linspace(0, len(values) - 1, min(frames, len(values))).astype(int)  # as the paper picks frames
            return values[chosen].astype(np.float32)
    raise SystemExit(f"error: {where}: no features {label}/{clip}.npy in {folder}")


def skeleton(joints: np.ndarray, hip: int, frames: int) -> np.ndarray:
    """Joints (T, J, 3) as a sequence (frames, 3 J), relative to the hip and in units of their mean distance to it."""
    joints = joints.astype(np.float32)
    joints = joints - joints[:, hip : hip + 1]
    joints = joints / np.linalg.norm(joints, axis=2).mean()
    place = np.linspace(0, len(joints) - 1, frames)
    before = np.floor(place).astype(int)
    after, share = np.minimum(before + 1, len(joints) - 1), (place - before)[:, None, None]
    return ((1 - share) * joints[before] + share * joints[after]).reshape(frames, -1).astype(np.float32)


def with_mirror_images(part: Part, left: tuple[int, ...], right: tuple[int, ...]) -> Part:
    """The part and its mirror images, which are classes of their own: what the right hand did, the left hand does."""
    exchange = torch.arange(part.sequences.channels // 3)
    exchange[[*left, *right]] = torch.tensor([*right, *left])
    joints = part.sequences.values.unflatten(2, (-1, 3))[:, :, exchange] * torch.tensor([-1.0, 1.0, 1.0])
    mirrored = lw.Batch(joints.flatten(2), part.sequences.lengths)
    labels = torch.cat([part.labels, part.labels + int(part.labels.max()) + 1])
    groups = None if part.groups is None else part.groups.repeat(2)
    return Part(lw.Batch.cat([part.sequences, mirrored]), labels, groups)


@dataclass(frozen=True)
class Changed:
    """What ``SkeletonChange`` gives to ``fit``; it knows of no alignment."""

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


def _part(sequences: list[np.ndarray], labels: np.ndarray, groups: np.ndarray | None, classes: np.ndarray) -> Part:
    kept = np.flatnonzero(np.isin(labels, classes))
    return Part(
        lw.Batch.from_list([np.ascontiguousarray(sequences[i], dtype=np.float32) for i in kept]),
        torch.from_numpy(labels[kept].astype(np.int64)),
        None if groups is None else torch.from_numpy(groups[kept].astype(np.int64)),
    )
