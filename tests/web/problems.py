"""Small collections for the tests of the service and of the page."""

import io

import numpy as np
import torch

import likewise as lw
from likewise.web.collection import Collection


def waves(count=40, seed=0, channels=2, longest=30):
    """Three classes of noisy waves of unequal length."""
    generator = torch.Generator().manual_seed(seed)
    items, labels = [], []
    for i in range(count):
        steps = longest - int(torch.randint(0, 10, (1,), generator=generator))
        t = torch.linspace(0, 1, steps)
        phase = float(torch.rand(1, generator=generator))
        wave = [(6.3 * (t * (1 + i % 3) + phase + 0.2 * c)).sin() for c in range(channels)]
        items.append(torch.stack(wave, 1) + 0.1 * torch.randn(steps, channels, generator=generator))
        labels.append(("slow", "middle", "quick")[i % 3])
    return lw.Dataset(items, labels)


def learned(channels=2):
    torch.manual_seed(0)
    return lw.Metric(lw.FrameMLP(channels, hidden=8, out=4, standardize=False), lw.SoftDTW(gamma=0.1))


def vectors(channels=2):
    torch.manual_seed(0)
    return lw.Metric(lw.GRUEncoder(channels, hidden=8), lw.Euclidean())


def collection(**options):
    metrics = {"dtw": lw.DTW(), "soft-dtw": lw.SoftDTW(gamma=0.1), "learned": learned(), "vectors": vectors()}
    return Collection(waves(**options), metrics, name="waves")


def images(count=24, size=16):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 90, (count, 3, size, size), generator=generator, dtype=torch.uint8)
    for i in range(count):
        pixels[i, i % 3] += 150
    return lw.ImageSet(pixels, [("red", "green", "blue")[i % 3] for i in range(count)])


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array))
    return buffer.getvalue()
