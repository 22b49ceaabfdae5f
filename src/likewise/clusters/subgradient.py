"""Stochastic subgradient descent: many small steps, each along the alignment of a few members."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from likewise import _check
from likewise.clusters.members import Log, Members, Report, Solution

LEAST = 10  # members that every round sees, if there are as many


@dataclass(frozen=True)
class Subgradient:
    """Stochastic subgradient descent over the members in random order; the best averages are kept.

    The first round sees all members, later ones a random ``share`` of each average's (at least 10), as in KASBA. After
    each round the cost of all members is computed. If it rose, the averages go back to the best and steps are halved.

    max_iter: maximum number of rounds. step: of the mean gradient of ``batch`` members, multiplied by exp(-decay) after
        each round.
    batch: members of each average that move it at once; 1 is the method of Schultz and Jain.
    tol: an average has converged when its cost falls by less than this share of itself, or rises twice in a row.
    seed: of the order.

    Reference: Schultz & Jain (2018), arXiv:1701.06393; Holder & Bagnall (2024), arXiv:2411.17838 (KASBA).

    Example:
        >>> from likewise import DTW, barycenter
        >>> found = barycenter(DTW(), [[0.0, 1.0, 1.0], [0.0, 0.0, 2.0]], solver=Subgradient(batch=1))
        >>> bool((found.history[1:] <= found.history[:-1]).all())
        True
    """

    max_iter: int = 30
    step: float = 0.1
    decay: float = 0.1
    share: float = 0.5
    batch: int = 8
    tol: float = 1e-5
    seed: int = 0

    def __post_init__(self) -> None:
        name = "Subgradient"
        _check.whole(name, "max_iter", self.max_iter, least=0)
        _check.whole(name, "batch", self.batch)
        _check.positive(name, "step", self.step)
        _check.not_negative(name, "decay", self.decay)
        _check.not_negative(name, "tol", self.tol)
        if not 0 < _check.number(name, "share", self.share) <= 1:
            _check.refuse(name, f"share must be above 0 and at most 1, got {self.share}")

    def solve(self, members: Members, z: Tensor, lengths: Tensor | None, report: Report | None = None) -> Solution:
        """Improve averages (K, L, C)."""
        generator = torch.Generator().manual_seed(self.seed)
        best, costs = z.clone(), members.costs(members.distances(z, lengths))
        log, rises = Log(costs, report), torch.zeros(len(z), dtype=torch.int64, device=z.device)
        rate = torch.full((len(z),), self.step, dtype=torch.float64, device=z.device)
        for k in range(self.max_iter):
            active = log.active.to(z.device)
            if not active.any():
                break
            some = members.of(log.active.to(members.groups.device))
            trial = self._round(some, best, lengths, rate * math.exp(-self.decay * k), generator, whole=k == 0)
            new = torch.where(active, some.costs(some.distances(trial, lengths)), costs)
            better = active & (new < costs)
            done = better & (costs - new <= self.tol * costs.abs())
            rises = torch.where(better, 0, rises + 1)
            rate = torch.where(better, rate, rate / 2)
            best = torch.where(better[:, None, None], trial, best)
            costs = torch.where(better, new, costs)
            log.add(costs, done | (active & (rises >= 2)))
        return log.solution(best)

    def _round(
        self,
        members: Members,
        z: Tensor,
        lengths: Tensor | None,
        rate: Tensor,
        generator: torch.Generator,
        *,
        whole: bool,
    ) -> Tensor:
        """Averages after one pass over the members, or over a share of those of each average."""
        order = torch.randperm(len(members), generator=generator)
        groups = members.groups.cpu()[order]
        order = order[torch.argsort(groups, stable=True)]  # group by group, in random order
        sizes = groups.bincount(minlength=members.count)
        begins = sizes.cumsum(0) - sizes
        place = torch.arange(len(order)) - begins[members.groups.cpu()[order]]  # within its group
        kept = sizes if whole else torch.minimum(sizes, (sizes * self.share).long().clamp(min=LEAST))
        z = z.double()
        like = members.values.dtype
        for turn in range(-(-int(kept.max()) // self.batch)):
            chosen = (place >= turn * self.batch) & (place < (turn + 1) * self.batch)
            few = members.take(order[chosen & (place < kept[members.groups.cpu()[order]])].to(members.groups.device))
            # The gradient is that of the weighted sum: divided by the weights at hand, it is that of a weighted mean.
            _, grad = few.gradient(z.to(like), lengths)
            weight = few.total(few.weights).to(z.device).clamp(min=1e-300)
            present = few.total(torch.ones_like(few.weights)).to(z.device) > 0
            pull = torch.where(present, rate / weight, 0.0)
            z = z - pull[:, None, None] * grad
        return z.to(like)
