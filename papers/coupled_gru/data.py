"""UCI HAR, SHL, and random sequences of SHL's size, with the subjects that folds are cut by."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import likewise as lw
from likewise.data.shl import CHANNELS, CLASSES, read_shl, standardize
from papers.common import load

FOLDS = 7


def read_har_npz(folder: Path) -> tuple[lw.Dataset, lw.Dataset]:
    """Training and test part of uci_har.npz: 9 channels of 128 steps, as they come; groups are subjects."""
    data = load(folder / "uci_har.npz")
    train, test = (
        lw.Dataset(
            torch.from_numpy(data[f"X_{part}"]).float(),
            data["classes"][data[f"y_{part}"]],
            groups=data[f"subject_{part}"],
            classes=data["classes"],
        )
        for part in ("train", "test")
    )
    return train, test


def read_shl_parts(folder: Path) -> tuple[lw.Dataset, lw.Dataset]:
    """The SHL challenge's folders train and test; blocks of the recording take the place of subjects."""
    train, test = standardize(read_shl(folder / "train"), read_shl(folder / "test"))
    return replace(train, groups=train.groups * FOLDS // (train.groups.max() + 1)), test


def synthetic_shl(folder: Path, counts: tuple[int, int] = (15660, 5472)) -> tuple[lw.Dataset, lw.Dataset]:
    """Random recordings of the size of SHL: 15,660 and 5,472 of 300 steps and 36 channels, in eight classes."""
    generator = torch.Generator().manual_seed(0)
    shapes = torch.randn(len(CLASSES), 4, len(CHANNELS), generator=generator)  # of each class, over four waves
    time = torch.arange(300) / 300
    parts = []
    for count in counts:
        labels = torch.arange(count) % len(CLASSES)
        phases = 6.28 * torch.rand(count, 1, 4, generator=generator)
        speed = (1 + labels)[:, None, None] * torch.tensor([1.0, 2.0, 3.0, 5.0])
        waves = torch.sin(6.28 * speed * time[None, :, None] + phases)  # (N, T, 4)
        values = waves @ shapes[labels] / 2 + torch.randn(count, 300, len(CHANNELS), generator=generator)
        groups = np.arange(count) // len(CLASSES) % 21
        parts.append(lw.Dataset(values, np.array(CLASSES)[labels], groups=groups, classes=CLASSES))
    return parts[0], parts[1]


READERS: dict[str, Callable[[Path], tuple[lw.Dataset, lw.Dataset]]] = {
    "har": read_har_npz,
    "shl": read_shl_parts,
    "shl_synthetic": synthetic_shl,
}


def fold_mask(train: lw.Dataset, fold: int) -> np.ndarray:
    """Which items (N,) belong to the subjects of a fold: of 21 sorted subjects, three in a row."""
    subjects = np.unique(train.groups)
    size = -(-len(subjects) // FOLDS)
    return np.isin(train.groups, subjects[fold * size : (fold + 1) * size])
