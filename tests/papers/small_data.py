"""Files as the real ones are, of a few short sequences."""

import io

import numpy as np
from PIL import Image


def write_digits(folder, classes=3, train=12, test=6):
    """spoken_arabic_digits.npz."""
    random, arrays = np.random.default_rng(0), {}
    for part, count in (("train", train), ("test", test)):
        lengths = random.integers(5, 9, count)
        labels = np.arange(count) % classes
        values = random.standard_normal((lengths.sum(), 13)) + 3 * np.repeat(labels, lengths)[:, None]
        arrays |= {f"values_{part}": values.astype(np.float32), f"lengths_{part}": lengths, f"y_{part}": labels}
        arrays |= {f"speaker_{part}": np.arange(count) // classes}
    np.savez(folder / "spoken_arabic_digits.npz", **arrays)


def write_har(folder, train=63, test=12):
    """uci_har.npz, of 21 subjects."""
    random, arrays = np.random.default_rng(0), {"classes": np.array(["walk", "sit", "lie"])}
    for part, count in (("train", train), ("test", test)):
        labels = np.arange(count) % 3
        values = 0.3 * random.standard_normal((count, 8, 9)) + labels[:, None, None]
        arrays |= {f"X_{part}": values.astype(np.float32), f"y_{part}": labels}
        arrays[f"subject_{part}"] = 1 + np.arange(count) // 3 % 21
    np.savez(folder / "uci_har.npz", **arrays)


def write_skeletons(folder, classes=8, subjects=3):
    """utd_mhad_skeleton.npz: every subject does every action twice."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), 2 * subjects)
    lengths = random.integers(7, 12, len(labels))
    poses = random.standard_normal((classes, 1, 20, 3))
    frames = [poses[k] + 0.3 * random.standard_normal((n, 20, 3)) for k, n in zip(labels, lengths, strict=True)]
    np.savez(
        folder / "utd_mhad_skeleton.npz",
        frames=np.concatenate(frames).astype(np.float32),
        offsets=np.concatenate([[0], lengths.cumsum()]),
        labels=labels,
        subject=np.tile(np.repeat(np.arange(1, subjects + 1), 2), classes),
    )


def write_flowers(folder):
    """flowers102_webp96.npz: four images of each of eight classes, on either side."""
    labels = np.repeat([0, 3, 7, 9, 20, 22, 30, 50, 51, 60, 61, 70, 80, 90, 100, 101], 4)
    contents = []
    for label in labels:
        buffer = io.BytesIO()
        Image.new("RGB", (96, 96), (int(label), 255 - int(label), 7)).save(buffer, "WEBP")
        contents.append(np.frombuffer(buffer.getvalue(), np.uint8))
    offsets = np.cumsum([0, *map(len, contents)])
    np.savez(folder / "flowers102_webp96.npz", images=np.concatenate(contents), offsets=offsets, labels=labels)
