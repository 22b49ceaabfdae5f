"""Members: the items of one or several averages, and how far they are from their centres."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from likewise.data.batch import Batch
from likewise.distances.alignment import Alignment
from likewise.distances.distance import Distance
from likewise.distances.soft_dtw import SoftDTW, SoftDTWDivergence
from likewise.ops.ground import is_fused

PAIRED_NUMBERS = 1 << 24  # numbers at once: frames and, for distances without a fused cost, cost matrices


@dataclass(frozen=True)
class Members:
    """Items (N, T, C) of K averages. Item i belongs to average groups[i] and weighs weights[i].

    lengths: (N,), or None if every step is real. groups: (N,) int64. weights: (N,) float64; those of a group sum to 1.
    The objective of an average z is the weighted mean of distance(z, item) over its items.
    """

    distance: Distance
    values: Tensor
    lengths: Tensor | None
    groups: Tensor
    weights: Tensor
    count: int

    def __len__(self) -> int:
        return len(self.values)

    def of(self, kept: Tensor) -> "Members":
        """The members of some averages, kept (K,) bool, numbered as before."""
        return self if bool(kept.all()) else self.take(kept[self.groups].nonzero()[:, 0])

    def take(self, index: Tensor) -> "Members":
        """Some members, with their weights unchanged."""
        lengths = None if self.lengths is None else self.lengths[index.cpu()]
        device = self.values.device
        return replace(
            self,
            values=self.values[index.to(device)],
            lengths=lengths,
            groups=self.groups[index],
            weights=self.weights[index],
        )

    def sample(self, share: float, least: int, generator: torch.Generator) -> Tensor:
        """Random members (n,): a share of those of each average, but at least so many if there are."""
        groups = self.groups.cpu()
        order = torch.randperm(len(groups), generator=generator)
        order = order[torch.argsort(groups[order], stable=True)]  # group by group, in random order
        sizes = groups.bincount(minlength=self.count)
        place = torch.arange(len(order)) - (sizes.cumsum(0) - sizes)[groups[order]]  # within its group
        kept = torch.minimum(sizes, (sizes * share).long().clamp(min=least))
        return order[place < kept[groups[order]]]

    def distances(self, z: Tensor, lengths: Tensor | None) -> Tensor:
        """The distance of each member from its average: z (K, L, C) -> (N,)."""
        with torch.no_grad():
            found = [self._paired(z, lengths, part) for part in self.parts(z)]
        return torch.cat(found) if found else z.new_empty(0)

    def costs(self, distances: Tensor) -> Tensor:
        """The objective of each average, (K,) float64, from the distances (N,) of its members."""
        return self.total(distances.double() * self.weights.to(distances.device))

    def total(self, each: Tensor) -> Tensor:
        """Sums over the members of each average: (N, ...) -> (K, ...)."""
        return sum_groups(each, self.groups, self.count)

    def gradient(self, z: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """The objective (K,) and its gradient (K, L, C), both float64."""
        if isinstance(self.distance, SoftDTWDivergence):
            return self._divergence_gradient(z, lengths)
        costs = torch.zeros(self.count, dtype=torch.float64, device=z.device)
        grad = torch.zeros(z.shape, dtype=torch.float64, device=z.device)
        for part in self.parts(z):
            with torch.enable_grad():
                at = take(z.detach(), self.groups[part]).requires_grad_()  # (n, L, C)
                found = self._pairs(at, lengths, part)
                weights = self.weights[part].to(z.device, found.dtype)
                (each,) = torch.autograd.grad((found * weights).sum(), at)
            costs += sum_groups(found.detach().double() * weights.double(), self.groups[part], self.count)
            grad += sum_groups(each.double(), self.groups[part], self.count)
        return costs, grad

    def _divergence_gradient(self, z: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """As ``gradient``: d(z, x) = s(z, x) - (s(z, z) + s(x, x)) / 2, with s(z, z) once for each average."""
        soft = self.soft
        costs, grad = replace(self, distance=soft).gradient(z, lengths)
        with torch.enable_grad():
            at = z.detach().requires_grad_()
            own = soft.paired(at, at, lengths, lengths)
            (each,) = torch.autograd.grad(own.sum(), at)
        present = self.total(torch.ones_like(self.weights)).to(z.device) > 0
        costs = costs - torch.where(present, own.detach().double(), 0) / 2 - self.own_costs.to(z.device) / 2
        return costs, grad - present[:, None, None] * each.double() / 2

    @property
    def soft(self) -> SoftDTW:
        """The soft-DTW of a divergence."""
        settings = self.distance.config()  # type: ignore[attr-defined]
        return SoftDTW(**settings)

    @property
    def own_costs(self) -> Tensor:
        """(K,), the weighted means of soft-DTW of each member with itself; computed once."""
        found = self.__dict__.get("_own")
        if found is None:
            with torch.no_grad():
                own = self.soft.paired(self.values, self.values, self.lengths, self.lengths)
            found = self.costs(own)
            object.__setattr__(self, "_own", found)
        return found

    def _paired(self, z: Tensor, lengths: Tensor | None, part: slice) -> Tensor:
        return self._pairs(take(z, self.groups[part]), lengths, part)

    def _pairs(self, at: Tensor, lengths: Tensor | None, part: slice) -> Tensor:
        """Distances of members from centres that were already chosen for each."""
        z_lengths = None if lengths is None else lengths[self.groups[part].cpu()]
        x_lengths = None if self.lengths is None else self.lengths[part]
        return self.distance.paired(at, self.values[part], z_lengths, x_lengths)

    def align(self, z: Tensor, lengths: Tensor | None, part: slice) -> Alignment:
        """The alignments of some members with their averages: x is the average."""
        groups = self.groups[part]
        z_lengths = None if lengths is None else lengths[groups.cpu()]
        x_lengths = None if self.lengths is None else self.lengths[part]
        return self.distance.align(Batch(z[groups.to(z.device)], z_lengths), Batch(self.values[part], x_lengths))

    def parts(self, z: Tensor) -> list[slice]:
        """Ranges of members that fit in memory with their centres."""
        (length, channels), steps = z.shape[1:], self.values.shape[1]
        each = (length + steps) * channels
        if not is_fused(getattr(self.distance, "ground", _no_ground)):  # a cost matrix each
            each = max(each, length * steps)
        size = max(1, PAIRED_NUMBERS // max(1, each))
        return [slice(first, first + size) for first in range(0, len(self), size)]


def sum_groups(each: Tensor, groups: Tensor, count: int) -> Tensor:
    """Sums (count, ...) of each (N, ...) by group; on the CPU by NumPy, since PyTorch would wake its threads."""
    if not each.is_cpu:
        whole = torch.zeros(count, *each.shape[1:], dtype=each.dtype, device=each.device)
        return whole.index_add_(0, groups.to(each.device), each)
    values = each.detach().numpy()
    if count == 1:
        return torch.from_numpy(np.asarray(values.sum(0, keepdims=True)))
    whole = np.zeros((count, *values.shape[1:]), values.dtype)
    np.add.at(whole, groups.cpu().numpy(), values)
    return torch.from_numpy(whole)


def take(x: Tensor, index: Tensor) -> Tensor:
    """x[index]; on the CPU by NumPy, since PyTorch would wake its threads."""
    return torch.from_numpy(x.detach().numpy()[index.cpu().numpy()]) if x.is_cpu else x[index.to(x.device)]


def _no_ground(x: Tensor, y: Tensor) -> Tensor:
    raise NotImplementedError


Report = Callable[[int, Tensor], None]  # called with the number of iterations and the costs (K,)


@dataclass(frozen=True)
class Solution:
    """The result of a solver: averages (K, L, C), their costs after each iteration, and which ones converged."""

    values: Tensor
    history: Tensor  # (I + 1, K) float64; the first row is the start
    iterations: Tensor  # (K,)
    converged: Tensor  # (K,) bool


class Log:
    """The costs of several averages, iteration by iteration."""

    def __init__(self, costs: Tensor, report: Report | None) -> None:
        self.rows = [costs.cpu()]
        self.iterations = torch.zeros(len(costs), dtype=torch.int64)
        self.converged = torch.zeros(len(costs), dtype=torch.bool)
        self.report = report

    @property
    def active(self) -> Tensor:
        """The averages that have not converged, (K,) bool."""
        return ~self.converged

    def add(self, costs: Tensor, converged: Tensor) -> None:
        """Record an iteration: the costs (K,) after it, and which averages it leaves as they are."""
        self.iterations += self.active
        self.rows.append(costs.cpu())
        self.converged |= converged.cpu()
        if self.report is not None:
            self.report(len(self.rows) - 1, self.rows[-1])

    def solution(self, values: Tensor) -> Solution:
        """The record, with the averages."""
        return Solution(values, torch.stack(self.rows), self.iterations, self.converged)
