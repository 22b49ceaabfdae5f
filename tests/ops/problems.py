"""Random alignment problems shared by the tests of ops."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from likewise.ops.rules import Rules

WINDOWS = [{}, {"band": 1}, {"band": 0.3}, {"itakura": 1.7}]
ENDS = [{}, {"open_begin": True}, {"open_end": True}, {"subsequence": True}]
GROUNDS = ["sqeuclidean", "euclidean", "cosine"]


@dataclass
class Problem:
    """Pairs of padded sequences and the rules of their alignment."""

    x: Tensor
    y: Tensor
    x_lengths: Tensor
    y_lengths: Tensor
    ground: str
    rules: Rules

    @property
    def lengths(self) -> tuple[Tensor, Tensor]:
        return self.x_lengths, self.y_lengths

    def frames(self, b: int, j: int | None = None) -> tuple[Tensor, Tensor]:
        """x[b] and y[b] (or y[j]) without padding, in float64."""
        j = b if j is None else j
        return self.x[b, : self.x_lengths[b]].double(), self.y[j, : self.y_lengths[j]].double()

    def cost(self, b: int, j: int | None = None) -> Tensor:
        """Cost (n, m) of x[b] with y[b] (or y[j]), in float64."""
        return exact_cost(self.ground, *self.frames(b, j))

    def costs(self) -> Tensor:
        """Costs (B, Tx, Ty) of all pairs, padded with NaN, in the problem's dtype."""
        padded = self.x.new_full((len(self.x), self.x.shape[1], self.y.shape[1]), torch.nan)
        for b, (n, m) in enumerate(zip(*self.lengths, strict=True)):
            padded[b, :n, :m] = self.cost(b)
        return padded


def exact_cost(ground: str, x: Tensor, y: Tensor) -> Tensor:
    """A plain version of the ground cost: x (n, C), y (m, C) -> (n, m)."""
    if ground == "cosine":
        return 1 - torch.nn.functional.cosine_similarity(x[:, None], y[None], dim=-1)
    squared = (x[:, None] - y[None]).square().sum(-1)
    return squared.sqrt() if ground == "euclidean" else squared


def random_problem(seed: int, *, batch: int = 11, longest: int = 24, dtype: torch.dtype = torch.float64) -> Problem:
    """Cycles through windows, ends, grounds and channels; every third has full lengths, padding holds NaN."""
    rng = np.random.default_rng(seed)
    n, m = (int(k) for k in rng.integers(1, longest + 1, 2))
    channels = [1, 2, 3, 9][seed % 4]
    x = torch.from_numpy(rng.standard_normal((batch, n, channels))).to(dtype)
    y = torch.from_numpy(rng.standard_normal((batch, m, channels))).to(dtype)
    x_lengths = torch.from_numpy(rng.integers(1, n + 1, batch))
    y_lengths = torch.from_numpy(rng.integers(1, m + 1, batch))
    if seed % 3 == 0:
        x_lengths[:], y_lengths[:] = n, m
    x[torch.arange(n) >= x_lengths[:, None]] = torch.nan
    y[torch.arange(m) >= y_lengths[:, None]] = torch.nan
    rules = Rules.of("test", **WINDOWS[seed % 4], **ENDS[seed // 4 % 4])
    return Problem(x, y, x_lengths, y_lengths, GROUNDS[seed % 3], rules)
