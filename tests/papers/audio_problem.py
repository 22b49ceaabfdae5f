"""Small files as audio/{train,val,test}.npz are: performances that are their score, slower at first."""

import numpy as np

SCORE, PERFORMANCE, STEP = 24, 28, 0.05
WIDTHS = {"cqt": 48, "chroma": 12, "mel": 128}


def stored(values):
    """Bytes, differenced along time modulo 256."""
    return np.diff(values, axis=0, prepend=np.zeros((1, values.shape[1]), np.uint8))


def write_split(folder, split, pieces=2, slices=3, seed=0):
    """Write {split}.npz and {split}_mel.npz; returns the bytes of the features, and the truth."""
    random = np.random.default_rng(seed)
    frames = SCORE + 16
    # Frame t of a performance is frame warp(t) of its score, from 0.3 frames a frame to 1.2.
    warp = np.minimum(np.cumsum(np.linspace(0.7, 1.2, frames + 8)), frames - 1)
    arrays, plain, mel = {}, {}, {}
    for feature, width in WIDTHS.items():
        score = np.concatenate([smooth(random, frames, width) for _ in range(pieces)])
        performance = np.concatenate(
            [
                np.stack([np.interp(warp, np.arange(frames), score[k * frames : (k + 1) * frames, c]) for c in range(width)], 1)
                for k in range(pieces)
            ]
        )  # fmt: skip
        plain[f"score_{feature}"], plain[f"perf_{feature}"] = (
            np.rint(score).astype(np.uint8),
            np.rint(performance).astype(np.uint8),
        )
        target = mel if feature == "mel" else arrays
        target |= {name: stored(plain[name]) for name in (f"score_{feature}", f"perf_{feature}")}
        arrays[f"step_{feature}"] = 0.5
    at = np.arange(frames + 8.0)
    truth = np.stack([warp, at], 1)[::3] * STEP  # change points: score, performance
    truth = truth[np.concatenate([[True], np.diff(truth[:, 0]) > 1e-9])]
    inside = np.searchsorted(truth[:, 0], SCORE * STEP)
    np.savez(
        folder / f"{split}.npz",
        **arrays,
        slices=np.array([[k % pieces, 0, 0, 0, inside - 1 - k] for k in range(slices)], np.int32),
        score_len=SCORE,
        perf_len=PERFORMANCE,
        dt=STEP,
        names=np.array([f"00{k}_x" for k in range(pieces)]),
        score_names=np.array([f"score{k}" for k in range(pieces)]),
        perf_score=np.arange(pieces, dtype=np.int32),
        gt=np.concatenate([truth] * pieces).astype(np.float32),
        gt_off=(np.arange(pieces + 1) * len(truth)).astype(np.int32),
        perf_off=(np.arange(pieces + 1) * (frames + 8)).astype(np.int32),
        score_off=(np.arange(pieces + 1) * frames).astype(np.int32),
        perf_melref=np.full(pieces, 3.0, np.float32),
        score_melref=np.full(pieces, 5.0, np.float32),
    )
    np.savez(folder / f"{split}_mel.npz", **mel)
    return plain, truth


def smooth(random, frames, width):
    """Features (frames, width) from 0 to 255 that change slowly enough to be interpolated."""
    coarse = random.uniform(0, 255, (frames // 4 + 2, width))
    return np.stack([np.interp(np.arange(frames) / 4, np.arange(len(coarse)), coarse[:, c]) for c in range(width)], 1)
