"""Data for the recipe of unseen classes: some classes to learn from, others to be scored on.

Flowers-102: classes 0 to 50 train, 51 to 101 test, 96 px. Omniglot: the first half of the characters trains. Skeletons
of UTD-MHAD: the first 13 actions train, the other 14 test. The former are gestures of the arms, while the latter have
the whole body walk, jog, sit and squat; of utd_mixed, every other action trains. Spoken Arabic Digits: digits 0 to 4 by
the speakers of the training set, digits 5 to 9 by those of the test set. Image sets in their public layouts: see
``data.image_folders``.

Someone who repeats an action or a word does it nearly alike, and any encoder, an untrained one too, finds that: items
of people have groups, their subjects or speakers, and are to be found by items of others.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import likewise as lw
from likewise.data.image_folders import read_cars, read_cub, read_image_folder, read_online_products
from likewise.data.images import decode
from likewise.recipes.common import load
from likewise.recipes.few_shot_data import read_utd

FLOWERS_TRAIN, FLOWERS_SIZE, UTD_TRAIN, SAD_TRAIN, FRAMES = 51, 96, 13, 5, 32
SKELETONS = {"utd_mhad", "utd_mixed"}
SEQUENCES = {*SKELETONS, "sad"}
LAYOUTS: dict[str, Callable] = {
    "folder": read_image_folder,
    "cub": read_cub,
    "cars": read_cars,
    "sop": read_online_products,
}


@dataclass(frozen=True)
class Part:
    """Images (N, C, H, W), as bytes, or sequences, with labels (N,) from 0; groups (N,) say who each is of."""

    items: lw.Batch | Tensor
    labels: Tensor
    groups: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return int(self.labels.max()) + 1

    @property
    def channels(self) -> int:
        """Of an image, or of a frame."""
        return self.items.shape[1] if isinstance(self.items, Tensor) else self.items.channels

    def to(self, device: str) -> "Part":
        """The same with its items on a device."""
        return Part(self.items.to(device), self.labels, self.groups)

    def of_classes(self, chosen: Tensor) -> "Part":
        """The items of some classes, which are numbered anew."""
        kept = torch.isin(self.labels, chosen).nonzero()[:, 0]
        groups = None if self.groups is None else self.groups[kept]
        return Part(self.items[kept], self.labels[kept].unique(return_inverse=True)[1], groups)


def read(data: str, source: Path, *, size: int, items: int | None, skip_broken: bool = False) -> tuple[Part, Part]:
    """Training and test part; with ``items``, about so many of each, of classes with two items or more."""
    kind, _, path = data.partition(":")
    try:
        if kind in LAYOUTS:
            return _layout(kind, path, size, items, skip_broken)
        return READERS[data](source, items)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from error


def held_out(train: Part, share: float = 0.5) -> list[tuple[Part, Part]]:
    """Training classes in two, again and again: to learn from, and to score on, a share of them, spread evenly.

    Of a half, the other half follows: every class is scored once. Of less, there is one pair.
    """
    if not 0 < share <= 0.5:
        raise SystemExit(f"error: --held-out is a share of the training classes, 0.5 at most, not {share:g}")
    count = train.classes
    kept = int(count * share)
    if kept < 2:
        raise SystemExit(f"error: {count} training classes are too few to hold some out")
    scored = (torch.arange(kept) * count) // kept + (count // kept - 1)
    rest = torch.tensor([k for k in range(count) if k not in set(scored.tolist())])
    first, second = train.of_classes(rest), train.of_classes(scored)
    return [(first, second)] if share < 0.5 else [(first, second), (second, first)]


def read_flowers_npz(source: Path, items: int | None) -> tuple[Part, Part]:
    """Flowers-102 at 96 px, from WebP bytes."""
    data = load(source / "flowers102_webp96.npz")
    labels = data["labels"].astype(np.int64)

    def image(i: int) -> Tensor:
        content = data["images"][data["offsets"][i] : data["offsets"][i + 1]].tobytes()
        return decode(content, f"flowers102_webp96.npz, image {i}", size=FLOWERS_SIZE)

    with ThreadPoolExecutor() as pool:
        train, test = (
            _part(torch.stack(list(pool.map(image, kept))), labels[kept]) for kept in _two(labels, FLOWERS_TRAIN, items)
        )
    return train, test


def read_omniglot(source: Path, items: int | None) -> tuple[Part, Part]:
    """Omniglot at 32 px, one channel; half of the characters train."""
    data = load(source / "omniglot_small12.npz")
    labels, images = data["labels"].astype(np.int64), data["images32"]
    images = torch.from_numpy(images * (255 // max(1, int(images.max()))))[:, None]
    train, test = _two(labels, (int(labels.max()) + 1) // 2, items)
    return _part(images[train], labels[train]), _part(images[test], labels[test])


def read_skeletons(source: Path, items: int | None, *, mixed: bool = False) -> tuple[Part, Part]:
    """UTD-MHAD: joints relative to the hip, 32 frames; mixed: every other action trains."""
    sequences, labels, subjects = read_utd(source, FRAMES)
    values, labels = torch.from_numpy(np.stack(sequences)), labels.astype(np.int64)
    if mixed:
        labels = labels // 2 + UTD_TRAIN * (labels % 2 == 0)  # odd ones first
    train, test = (
        _part(lw.Batch(values[kept]), labels[kept], subjects[kept]) for kept in _two(labels, UTD_TRAIN, items)
    )
    return train, test


def read_digits(source: Path, items: int | None) -> tuple[Part, Part]:
    """Spoken Arabic Digits, standardised by the training digits."""
    data = load(source / "spoken_arabic_digits.npz")
    found = []
    for part, side in (("train", 0), ("test", 1)):
        labels = data[f"y_{part}"].astype(np.int64)
        sequences = np.split(data[f"values_{part}"].astype(np.float32), data[f"lengths_{part}"].cumsum()[:-1])
        kept = _two(labels, SAD_TRAIN, items)[side]
        found.append(([sequences[i] for i in kept], labels[kept], data[f"speaker_{part}"][kept]))
    frames = np.concatenate(found[0][0])
    mean, deviation = frames.mean(0), frames.std(0)
    train, test = (
        _part(lw.Batch.from_list([(s - mean) / deviation for s in sequences]), labels, speakers)
        for sequences, labels, speakers in found
    )
    return train, test


READERS: dict[str, Callable[[Path, int | None], tuple[Part, Part]]] = {
    "flowers102": read_flowers_npz,
    "omniglot": read_omniglot,
    "utd_mhad": read_skeletons,
    "utd_mixed": partial(read_skeletons, mixed=True),
    "sad": read_digits,
}


def _layout(kind: str, path: str, size: int, items: int | None, skip_broken: bool) -> tuple[Part, Part]:
    if not path:
        raise SystemExit(f"error: give the folder, as {kind}:PATH")
    parts = []
    for part in ("train", "test"):
        found = LAYOUTS[kind](path, part, size=size, skip_broken=skip_broken)
        found = found.without_single() if skip_broken else found.check_pairs(path)
        kept = _thinned(np.arange(len(found)), found.labels.numpy(), items)
        parts.append(_part(found.images[torch.from_numpy(kept)], found.labels.numpy()[kept]))
    return parts[0], parts[1]


def _two(labels: np.ndarray, classes: int, items: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Which items train, those of the first classes, and which test."""
    train, test = (_thinned(np.flatnonzero(inside), labels, items) for inside in (labels < classes, labels >= classes))
    return train, test


def _thinned(index: np.ndarray, labels: np.ndarray, items: int | None) -> np.ndarray:
    """Every n-th item, so that about ``items`` are left, of classes that have two or more of these."""
    index = index[:: 1 if items is None else max(1, len(index) // items)]
    names, count = np.unique(labels[index], return_counts=True)
    kept = index[np.isin(labels[index], names[count >= 2])]
    if len(kept) == 0:
        raise SystemExit("error: no class has two items; raise --items")
    return kept


def _part(items: lw.Batch | Tensor, labels: np.ndarray, groups: np.ndarray | None = None) -> Part:
    """A part whose labels count from 0."""
    numbers = torch.from_numpy(np.unique(labels, return_inverse=True)[1].astype(np.int64))
    return Part(items, numbers, None if groups is None else torch.from_numpy(groups.astype(np.int64)))
