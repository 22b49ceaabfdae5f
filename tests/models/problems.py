"""Problems shared by the tests of this folder."""

import pytest
import torch
from torch import nn

import likewise as lw
from likewise import Batch
from likewise.models.attention import Additive, MultiDimensional, Multiplicative
from likewise.models.frame_mlp import FrameMLP
from likewise.models.gru_encoder import GRUEncoder
from likewise.models.jitter import Jitter
from likewise.models.tcn import TCN

ENCODERS = {
    "FrameMLP": lambda: FrameMLP(3, hidden=8),
    "FrameMLP plain": lambda: FrameMLP(3, hidden=8, out=5, normalize=False),
    "FrameMLP deep": lambda: FrameMLP(3, hidden=8, out=5, depth=3, batch_norm=True).eval(),
    "FrameMLP linear": lambda: FrameMLP(3, out=5, depth=0, normalize=False),
    "FrameMLP that drops": lambda: FrameMLP(3, hidden=8, dropout=0.5).eval(),
    "Jitter": lambda: Jitter(FrameMLP(3, hidden=8), offset=1, scale=1, noise=1).eval(),
    "GRU": lambda: GRUEncoder(3, 4, layers=2),
    "GRU both ways": lambda: GRUEncoder(3, 4, bidirectional=True, normalize=True),
    "GRU steps": lambda: GRUEncoder(3, 4, bidirectional=True, steps=True, normalize=True),
    "TCN": lambda: TCN(3, 6, layers=3, out=4),
    "TCN causal": lambda: TCN(3, 6, layers=3, kernel=4, causal=True, normalize=True),
    "TCN mean": lambda: TCN(3, 6, layers=2, steps=False, normalize=True),
}


def made(name):
    torch.manual_seed(0)
    return ENCODERS[name]().double()


def sequences(lengths=(5, 1, 9, 2), fill=0.0):
    generator = torch.Generator().manual_seed(1)
    items = [torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in lengths]
    batch = Batch.from_list(items)
    return Batch(batch.values.masked_fill(~batch.mask[..., None], fill), batch.lengths)


ATTENTIONS = [
    Additive(),
    Additive(hidden=3),
    Multiplicative(),
    Multiplicative(hidden=3),
    MultiDimensional(),
    MultiDimensional(over_features=True),
]


def name(attention):
    flags = [key for key in ("hidden", "over_features") if getattr(attention, key, False)]
    return "-".join([type(attention).__name__, *flags])


each_attention = pytest.mark.parametrize("attention", ATTENTIONS, ids=name)


def by_loops(attention, positions, u):
    """Weights (P, C) and summary (C,) of one item's positions (P, C), from the paper's formulas."""
    scores = []
    for q in positions:
        projected = attention.inward @ q
        wanted = u if attention.across is None else attention.across @ u
        if isinstance(attention, Additive):
            score = attention.outward @ torch.tanh(projected + wanted)
        else:
            score = (projected * wanted).sum()[None]
        scores.append(score.expand(len(q)))
    scores = torch.stack(scores)  # (P, C)
    weights = torch.softmax(scores, 1 if getattr(attention, "over_features", False) else 0)
    return weights, (weights * positions).sum(0)


class Residual(nn.Module):
    """A backbone without attributes, which returns a map."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.block = nn.Conv2d(4, 6, 3, stride=2)
        self.spare = nn.Linear(2, 2)

    def forward(self, x):
        return self.block(self.stem(x))


SEQUENCES = [
    (lw.GRUEncoder(2, 5), ["gru"]),
    (lw.GRUEncoder(2, 5, bidirectional=True, steps=True), ["gru"]),
    (lw.TCN(2, 5, layers=2), ["inward", "convolutions.0", "outward"]),
    (lw.TCN(2, 5, layers=2, steps=False), ["convolutions.1"]),
    (lw.FrameMLP(2, 6, 5), ["layers.0", "layers.3"]),
]
