import torch

from likewise.regularizers import (
    EnergyConfusion,
)
from tests.regularizers.problems import LABELS, layers


def test_energy_confusion_against_loops():
    x = layers()[0]
    pairs = [(i, j) for i in range(8) for j in range(8) if LABELS[i] != LABELS[j]]
    expected = sum((x[i] - x[j]).square().sum() for i, j in pairs) / len(pairs)
    torch.testing.assert_close(EnergyConfusion()(x, LABELS), expected)
