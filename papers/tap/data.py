"""Spoken Arabic Digits, MSR Action3D and UTD-MHAD, from their .npz files."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import likewise as lw
from papers.common import load

LONGEST = 128  # frames of an action; of longer ones, every second, third, ... frame is kept
HIP = 6  # the joint of MSR Action3D that the others are relative to


@dataclass(frozen=True)
class Raw:
    """Sequences as a file has them, (T, C) or (T, J, 3), with their labels (N,) and who spoke or moved (N,)."""

    sequences: list[np.ndarray]
    labels: np.ndarray
    groups: np.ndarray

    def __getitem__(self, index: np.ndarray) -> "Raw":
        """Some of the sequences, by their numbers."""
        return Raw([self.sequences[i] for i in index], self.labels[index], self.groups[index])

    def dataset(self, change: Callable[[np.ndarray], np.ndarray]) -> lw.Dataset:
        """A Dataset of the changed sequences."""
        return lw.Dataset([change(sequence) for sequence in self.sequences], self.labels, groups=self.groups)


def load_digits(folder: Path, part: str) -> Raw:
    """Spoken Arabic Digits: 6,600 utterances to train, 2,200 to test, 13 channels."""
    data = load(folder / "spoken_arabic_digits.npz")
    sequences = np.split(data[f"values_{part}"].astype(np.float32), data[f"lengths_{part}"].cumsum()[:-1])
    return Raw(sequences, data[f"y_{part}"], data[f"speaker_{part}"])


def load_actions(folder: Path) -> tuple[Raw, np.ndarray]:
    """MSR Action3D: 20 actions by 10 subjects, (T, 20, 3) without frames that have no body; and which ones train."""
    data = load(folder / "msr_action3d.npz")
    kept = np.flatnonzero(data["n_zero_frames"] <= data["lengths"] / 2)
    whole = np.split(data["values"].astype(np.float32), data["lengths"].cumsum()[:-1])
    bodies = [whole[i][np.abs(whole[i]).sum(1) > 0].reshape(-1, 20, 3) for i in kept]
    return Raw(bodies, data["y"][kept], data["subject"][kept]), data["is_train"][kept].astype(bool)


def load_utd(folder: Path) -> Raw:
    """UTD-MHAD: 861 skeleton sequences (T, 20, 3) of 27 actions by 8 subjects."""
    data = load(folder / "utd_mhad_skeleton.npz")
    return Raw(np.split(data["frames"], data["offsets"][1:-1]), data["labels"], data["subject"])


def read_digits(folder: Path) -> tuple[lw.Dataset, lw.Dataset]:
    """Spoken Arabic Digits, standardised by the training set."""
    train, test = load_digits(folder, "train"), load_digits(folder, "test")
    frames = np.concatenate(train.sequences)
    mean, deviation = frames.mean(0), frames.std(0)
    a, b = (part.dataset(lambda sequence: (sequence - mean) / deviation) for part in (train, test))
    return a, b


def read_actions(folder: Path) -> tuple[lw.Dataset, lw.Dataset]:
    """MSR Action3D: joints relative to the hip, in units of their deviation; odd subjects train."""
    every, trains = load_actions(folder)

    def relative(joints: np.ndarray) -> np.ndarray:
        joints = joints[:: -(-len(joints) // LONGEST)]
        return (joints - joints[:, HIP : HIP + 1]).reshape(len(joints), -1)

    parts = every[np.flatnonzero(trains)], every[np.flatnonzero(~trains)]
    deviation = np.concatenate([relative(joints) for joints in parts[0].sequences]).std()
    train, test = (part.dataset(lambda joints: relative(joints) / deviation) for part in parts)
    return train, test


READERS = {"sad": read_digits, "msr_action3d": read_actions}


def held_out(train: lw.Dataset, fold: int | None = None) -> tuple[lw.Dataset, lw.Dataset]:
    """Training data in two: one speaker or subject, or every fourth for None, is kept for scores; the others train."""
    number = np.unique(train.groups, return_inverse=True)[1]
    kept = number % 4 == 3 if fold is None else number == fold
    return train[~kept], train[kept]
