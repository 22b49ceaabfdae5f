"""Slices of scores and performances with their true alignment, from which audio-to-score alignment is learned.

Each file {train,val,test}.npz holds the features of whole recordings, as bytes, and where the slices begin;
{train,val,test}_mel.npz, which papers/decdtw/mel.py builds, adds mel spectrograms.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from likewise.training import AlignedPairs
from papers.common import load

SPLITS = ("train", "val", "test")
BUILD_MEL = "build it with python -m papers.decdtw.mel"
# The offset and the divisor of the features; the numbers of the paper's code.
SCALES = {"cqt": (-0.138, 1.0), "chroma": (-12.368, 45.0), "mel": (-20.0, 268.0)}
WIDTHS = {"cqt": 48, "chroma": 12, "mel": 128}


@dataclass(frozen=True)
class Slices:
    """N slices. Times are in seconds from the slice's beginning; padding repeats the last change point.

    pairs: x is the score (N, Ts, C), y the performance (N, Tp, C); points are the change points, times of the score,
        and truth is where the performance has them, (N, K) each, of which lengths (N,) are real.
    pieces: (N,), the number of each slice's score among those of the file.
    """

    pairs: AlignedPairs
    pieces: Tensor

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: slice | Tensor) -> "Slices":
        """Some of the slices, by a slice or positions."""
        return Slices(self.pairs[index], self.pieces[index])

    def thinned(self, items: int | None) -> "Slices":
        """Every n-th slice, so that about ``items`` are left; all of them for None."""
        return self if items is None else self[:: max(1, len(self) // items)]

    def on(self, device: str) -> AlignedPairs:
        """The pairs, on a device."""
        return self.pairs.encoded(self.pairs.x.to(device), self.pairs.y.to(device))


def read_slices(folder: Path, split: str, feature: str, *, mel_folder: Path | None = None) -> Slices:
    """The slices of a split with one feature: cqt (48 channels), chroma (12) or mel (128), scaled."""
    path = folder / f"{split}.npz"
    arrays = load(path)
    if feature == "mel":
        arrays |= load((mel_folder or folder) / f"{split}_mel.npz", BUILD_MEL)
    names = ("slices", "score_len", "perf_len", "dt", "gt", "gt_off", "perf_off", "score_off", "perf_score")
    for name in (*names, f"step_{feature}", f"perf_{feature}", f"score_{feature}"):
        if name not in arrays:
            raise ValueError(f"{path}: expected an array {name}")
    try:
        return _cut(arrays, feature)
    except (IndexError, ValueError, TypeError) as error:
        raise ValueError(f"{path}: its slices do not fit its features: {error}") from error


def held_out(slices: Slices, every: int = 3) -> tuple[Slices, Slices]:
    """The slices in two parts that share no score: the second has every third score."""
    apart = torch.isin(slices.pieces, slices.pieces.unique()[1::every])
    return slices[(~apart).nonzero()[:, 0]], slices[apart.nonzero()[:, 0]]


def _cut(arrays: dict[str, np.ndarray], feature: str) -> Slices:
    score_steps, performance_steps = int(arrays["score_len"]), int(arrays["perf_len"])
    step = float(arrays["dt"])
    performances, scores = (_levels(arrays, kind, feature) for kind in ("perf", "score"))
    found: dict[str, list[np.ndarray]] = {"score": [], "performance": [], "changes": [], "truth": []}
    for k, from_score, from_performance, first, last in arrays["slices"].tolist():
        piece = int(arrays["perf_score"][k])
        begin = int(arrays["score_off"][piece]) + from_score
        found["score"].append(_frames(scores, begin, score_steps))
        begin = int(arrays["perf_off"][k]) + from_performance
        found["performance"].append(_frames(performances, begin, performance_steps))
        points = arrays["gt"][int(arrays["gt_off"][k]) + first : int(arrays["gt_off"][k]) + last].astype(np.float64)
        if len(points) < 2 or not (np.diff(points[:, 0]) > 0).all():
            raise ValueError("change points must increase, and there must be two")
        found["changes"].append(points[:, 0] - from_score * step)
        found["truth"].append(points[:, 1] - from_performance * step)
    lengths = torch.tensor([len(points) for points in found["truth"]])
    most = int(lengths.max())
    padded = {
        name: torch.from_numpy(np.stack([np.pad(p, (0, most - len(p)), mode="edge") for p in found[name]])).float()
        for name in ("changes", "truth")
    }
    pairs = AlignedPairs(
        torch.from_numpy(np.stack(found["score"])),
        torch.from_numpy(np.stack(found["performance"])),
        padded["truth"],
        points=padded["changes"],
        x_times=torch.arange(score_steps) * step,
        y_times=torch.arange(performance_steps) * step,
        lengths=lengths,
    )
    return Slices(pairs, torch.from_numpy(arrays["perf_score"][arrays["slices"][:, 0]].astype(np.int64)))


def _frames(levels: np.ndarray, begin: int, steps: int) -> np.ndarray:
    if begin < 0 or begin + steps > len(levels):
        raise IndexError(f"frames {begin} to {begin + steps} of {len(levels)}")
    return levels[begin : begin + steps]


def _levels(arrays: dict[str, np.ndarray], kind: str, feature: str) -> np.ndarray:
    """Scaled features (frames, C) of all recordings: decibels, of the CQT by their norm."""
    stored = arrays[f"{kind}_{feature}"]
    if stored.dtype != np.uint8 or stored.ndim != 2 or stored.shape[1] != WIDTHS[feature]:
        raise TypeError(f"{kind}_{feature} is {stored.dtype} of shape {stored.shape}")
    values = np.cumsum(stored, axis=0, dtype=np.uint8).astype(np.float32) * -float(arrays[f"step_{feature}"])
    if feature == "cqt":
        values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-6)
    if feature == "mel":
        counts = np.diff(arrays[f"{kind}_off"])
        values += np.repeat(arrays[f"{kind}_melref"].astype(np.float32), counts)[:, None]
    mean, scale = SCALES[feature]
    return ((values - mean) / scale).astype(np.float32)
