"""Problems shared by the tests of this folder."""

import torch

from likewise.regularizers import (
    GaussianMixture,
    Laplace,
    MomentGenerating,
    Polynomial,
)

LABELS = torch.tensor([0, 1, 1, 2, 0, 2, 1, 3])


def layers(count=8, channels=(5, 3, 4), seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(count, c, generator=generator, dtype=dtype) for c in channels]


def bandwidth(x):
    n = len(x)
    return sum((a - b).square().sum().item() for a in x for b in x) / (n * n - n)


def gaussian(count):
    def kernel(x, i, j):
        widths = {1: [1], 3: [0.5, 1, 2]}[count]
        apart = (x[i] - x[j]).square().sum()
        return sum(torch.exp(-apart / (w * bandwidth(x))) for w in widths) / count

    return kernel


def laplace(x, i, j):
    n = len(x)
    width = sum((a - b).abs().sum() for a in x for b in x) / (n * n - n)
    return torch.exp(-(x[i] - x[j]).abs().sum() / width)


def unit(x):
    return x / x.norm()


def polynomial(x, i, j):
    return (unit(x[i]) @ unit(x[j]) + 1) ** 5


def moment(x, i, j):
    return torch.exp(unit(x[i]) @ unit(x[j]))


KERNELS = [
    (GaussianMixture(1), gaussian(1)),
    (GaussianMixture(3), gaussian(3)),
    (Laplace(), laplace),
    (Polynomial(5), polynomial),
    (MomentGenerating(), moment),
]
