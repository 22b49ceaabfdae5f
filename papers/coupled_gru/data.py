"""The data of ``recipes.coupled_gru``: UCI HAR, SHL, and random sequences of SHL's size."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

import likewise as lw
from likewise.data.shl import CHANNELS, CLASSES, read_shl, standardize
from likewise.recipes.common import known, load

FOLDS = 7


def left_out(train: lw.Dataset, fold: int) -> Tensor:
    """Which items (N,) belong to the subjects of a fold: of 21 sorted subjects, three in a row."""
    assert train.groups is not None
    subjects = train.groups.unique()
    size = -(-len(subjects) // FOLDS)
    return torch.isin(train.groups, subjects[fold * size : (fold + 1) * size])


def read_har(folder: Path, items: int | None) -> tuple[lw.Dataset, lw.Dataset]:
    """UCI HAR as it comes: nothing is standardised."""
    data = load(folder / "uci_har.npz")
    train, test = (
        lw.Dataset(
            lw.Batch(torch.from_numpy(data[f"X_{part}"]).float()),
            torch.from_numpy(data[f"y_{part}"]).long(),
            tuple(map(str, data["classes"])),
            torch.from_numpy(data[f"subject_{part}"]).long(),
        )
        for part in ("train", "test")
    )
    return train, test


def read_shl_parts(folder: Path, items: int | None) -> tuple[lw.Dataset, lw.Dataset]:
    """The SHL challenge's folders train and test; blocks of the recording take the place of subjects."""
    train, test = standardize(read_shl(folder / "train"), read_shl(folder / "test"))
    assert train.groups is not None
    blocks = train.groups * FOLDS // (int(train.groups.max()) + 1)
    return replace(train, groups=blocks), test


def synthetic(folder: Path, items: int | None) -> tuple[lw.Dataset, lw.Dataset]:
    """Random recordings of the size of SHL: 15,660 and 5,472 of 300 steps and 36 channels, in eight classes."""
    generator = torch.Generator().manual_seed(0)
    shapes = torch.randn(len(CLASSES), 4, len(CHANNELS), generator=generator)  # of each class, over four waves
    parts = []
    for count in (15660, 5472) if items is None else (items, max(len(CLASSES), items // 3)):
        labels = torch.arange(count) % len(CLASSES)
        time_ = torch.arange(300) / 300
        phases = 6.28 * torch.rand(count, 1, 4, generator=generator)
        speed = (1 + labels)[:, None, None] * torch.tensor([1.0, 2.0, 3.0, 5.0])
        waves = torch.sin(6.28 * speed * time_[None, :, None] + phases)  # (N, T, 4)
        values = waves @ shapes[labels] / 2 + torch.randn(count, 300, len(CHANNELS), generator=generator)
        parts.append(lw.Dataset(lw.Batch(values), labels, CLASSES, torch.arange(count) // len(CLASSES) % 21))
    return parts[0], parts[1]


READERS = {"har": read_har, "shl": read_shl_parts, "shl_synthetic": synthetic}


def thinned(part: lw.Dataset, items: int | None) -> lw.Dataset:
    """Every n-th item, so that about ``items`` are left."""
    step = 1 if items is None else max(1, len(part) // items)
    assert part.groups is not None
    return lw.Dataset(part.sequences[::step], known(part.labels)[::step], part.classes, part.groups[::step])
