"""Pairs: the problem for the GPU kernels."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from likewise import _check
from likewise.ops.rules import Rules

LARGEST = 1e29  # results in units of the scale: UNREACHABLE is 1e30, so a path through what it marks would cost more


@dataclass(frozen=True)
class Pairs:
    """What to align: x and y (items, steps, channels), paired or all pairs, or given costs (pairs, Tx, Ty) as x."""

    op: str
    x: Tensor
    y: Tensor | None
    x_lengths: Tensor | None
    y_lengths: Tensor | None
    rules: Rules
    soft: bool
    scale: float  # of the costs: 1, or 1 / (gamma ln 2)
    root: bool = False
    all_pairs: bool = False
    symmetric: bool = False  # x is y, and each pair stands for two cells of the matrix

    @property
    def columns(self) -> int:
        """Items of y."""
        return (self.x if self.y is None else self.y).shape[0]  # len of a tensor takes five times as long

    @property
    def count(self) -> int:
        """Number of values."""
        return self.x.shape[0] * self.columns if self.all_pairs else self.x.shape[0]

    @property
    def alignments(self) -> int:
        """Number of alignments to compute; about half of the values if symmetric."""
        return (self.columns + 1) // 2 * (self.columns + 1) if self.symmetric else self.count

    @property
    def steps(self) -> tuple[int, int]:
        """Tx and Ty, padding included."""
        return self.x.shape[1], self.x.shape[2] if self.y is None else self.y.shape[1]

    def items(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Indices into x and into y of pairs first..last-1."""
        pair = torch.arange(first, last, device=self.x.device)
        return (pair // self.columns, pair % self.columns) if self.all_pairs else (pair, pair)

    def lengths(self) -> tuple[Tensor, Tensor]:
        """Lengths of x and y, checked, on the device."""
        found = []
        for name, lengths, count, steps in (
            ("x_lengths", self.x_lengths, len(self.x), self.steps[0]),
            ("y_lengths", self.y_lengths, self.columns, self.steps[1]),
        ):
            if lengths is None:
                found.append(torch.full((count,), steps, dtype=torch.int64, device=self.x.device))
            else:
                _check.lengths_range(self.op, name, lengths, steps)
                found.append(lengths.to(self.x.device))
        return found[0], found[1]

    def require_finite(self, outcome: Tensor | None = None) -> float:
        """The largest number of x and y, or of ``outcome``, a kernel's result. Waits for the GPU.

        Raises an error if one is not finite, or if the kernels cannot tell the result from what cannot be reached.
        """
        if self.x.is_cuda and torch.cuda.is_current_stream_capturing():
            return 0.0
        tensors = [t for t in ((self.x, self.y) if outcome is None else (outcome,)) if t is not None and t.numel()]
        norms = [float(torch.linalg.vector_norm(t, torch.inf)) for t in tensors]
        largest = max(norms, default=0.0) if all(map(math.isfinite, norms)) else math.inf
        if math.isfinite(largest) and (outcome is None or largest * self.scale < LARGEST):
            return largest
        self._find_nonfinite()
        if not math.isfinite(largest) and outcome is not None:
            _check.refuse(self.op, f"the value of a pair is not finite: the costs overflow {self.x.dtype}")
        if outcome is not None:
            most = LARGEST / self.scale
            _check.refuse(self.op, f"the value of a pair is beyond {most:.3g}, the most on a GPU: scale x and y down")
        return largest

    def _find_nonfinite(self) -> None:
        if self.y is not None:
            _check.finite(self.op, "x", self.x, self.x_lengths)
            _check.finite(self.op, "y", self.y, self.y_lengths)
            return
        x_lengths, y_lengths = self.lengths()
        for item, cost in enumerate(self.x):
            wrong = (~cost[: x_lengths[item], : y_lengths[item]].isfinite()).nonzero()
            if len(wrong):
                i, j = wrong[0].tolist()
                _check.refuse(self.op, f"cost[{item}] holds {cost[i, j].item()} at ({i}, {j})")
