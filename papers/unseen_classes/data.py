"""Data of which some classes train and others are scored on.

Flowers-102: classes 0 to 50 train, 51 to 101 test, 96 px. Skeletons of UTD-MHAD: the first 13 actions train, the other
14 test. The former are gestures of the arms, while the latter have the whole body walk, jog, sit and squat; of
utd_mixed, every other action trains. Spoken Arabic Digits: digits 0 to 4 by the speakers of the training set, digits 5
to 9 by those of the test set. Image sets in their public layouts: folder:PATH, cub:PATH, cars:PATH, sop:PATH.

A person repeats an action or a word nearly alike, so that any encoder, even an untrained one, finds the repetitions:
items of people have groups, their subjects or speakers, and are searched among items of other people.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import likewise as lw
from likewise.data.image_folders import read_cars, read_cub, read_image_folder, read_online_products
from likewise.data.images import decode
from papers.common import load
from papers.tap.data import load_digits, load_utd
from papers.tap.data_few_shot import HIPS, skeleton

FLOWERS_TRAIN, FLOWERS_SIZE, UTD_TRAIN, SAD_TRAIN, FRAMES = 51, 96, 13, 5, 32
SKELETONS = ("utd_mhad", "utd_mixed")
SEQUENCES = (*SKELETONS, "sad")
LAYOUTS: dict[str, Callable[..., lw.ImageSet]] = {
    "folder": read_image_folder,
    "cub": read_cub,
    "cars": read_cars,
    "sop": read_online_products,
}


def read(data: str, folder: Path, *, size: int = 256) -> tuple[lw.Dataset, lw.Dataset]:
    """Training and test part, of disjoint classes. size: the side of images that are read from a layout."""
    kind, _, path = data.partition(":")
    if kind in LAYOUTS:
        if not path:
            raise SystemExit(f"error: give the folder, as {kind}:PATH")
        return LAYOUTS[kind](path, "train", size=size), LAYOUTS[kind](path, "test", size=size)
    if kind not in READERS:
        raise SystemExit(f"error: --data is {kind!r}; expected one of {', '.join([*READERS, *LAYOUTS])}")
    return READERS[kind](folder)


def read_flowers(folder: Path) -> tuple[lw.Dataset, lw.Dataset]:
    """Flowers-102 at 96 px, from WebP bytes."""
    data = load(folder / "flowers102_webp96.npz")

    def image(i: int) -> Tensor:
        content = data["images"][data["offsets"][i] : data["offsets"][i + 1]].tobytes()
        return decode(content, f"flowers102_webp96.npz, image {i}", size=FLOWERS_SIZE)

    with ThreadPoolExecutor() as pool:
        train, test = (
            lw.ImageSet(torch.stack(list(pool.map(image, np.flatnonzero(own)))), data["labels"][own])
            for own in (data["labels"] < FLOWERS_TRAIN, data["labels"] >= FLOWERS_TRAIN)
        )
    return train, test


def read_skeletons(folder: Path, *, mixed: bool = False) -> tuple[lw.Dataset, lw.Dataset]:
    """UTD-MHAD: joints relative to the hip, 32 frames; mixed: every other action trains."""
    every = load_utd(folder)
    values = np.stack([skeleton(joints, HIPS["utd_mhad"], FRAMES) for joints in every.sequences])
    trains = every.labels % 2 == 1 if mixed else every.labels < UTD_TRAIN
    train, test = (
        lw.Dataset(torch.from_numpy(values[own]), every.labels[own], groups=every.groups[own])
        for own in (trains, ~trains)
    )
    return train, test


def read_digits(folder: Path) -> tuple[lw.Dataset, lw.Dataset]:
    """Spoken Arabic Digits, standardised by the training digits."""
    train, test = load_digits(folder, "train"), load_digits(folder, "test")
    train = train[np.flatnonzero(train.labels < SAD_TRAIN)]
    test = test[np.flatnonzero(test.labels >= SAD_TRAIN)]
    frames = np.concatenate(train.sequences)
    mean, deviation = frames.mean(0), frames.std(0)
    a, b = (
        lw.Dataset([(s - mean) / deviation for s in part.sequences], part.labels, groups=part.groups)
        for part in (train, test)
    )
    return a, b


READERS: dict[str, Callable[[Path], tuple[lw.Dataset, lw.Dataset]]] = {
    "flowers102": read_flowers,
    "utd_mhad": read_skeletons,
    "utd_mixed": lambda folder: read_skeletons(folder, mixed=True),
    "sad": read_digits,
}


def folds(train: lw.Dataset) -> list[tuple[lw.Dataset, lw.Dataset]]:
    """Training classes in two halves, spread evenly: each trains once, while the other one is scored."""
    count = len(train.classes)
    kept = count // 2
    if kept < 2:
        raise SystemExit(f"error: {count} training classes are too few to hold half of them out")
    scored = {(k * count) // kept + (count // kept - 1) for k in range(kept)}
    first, second = (
        train.of_classes([name for k, name in enumerate(train.classes) if (k in scored) == held])
        for held in (False, True)
    )
    return [(first, second), (second, first)]


def thinned(data: lw.Dataset, items: int | None) -> lw.Dataset:
    """Every n-th item, so that about ``items`` are left, of classes that have two or more of these."""
    return data if items is None else data[:: max(1, len(data) // items)].without_single()
