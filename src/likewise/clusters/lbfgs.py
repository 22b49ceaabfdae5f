"""L-BFGS on several averages at once, each with its own step."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from likewise import _check
from likewise.clusters.members import Log, Members, Report, Solution

SUFFICIENT, FLATTER = 1e-4, 0.9  # shares of the first slope: the decrease that a step must give, the slope it may leave
TRIES = 20

Evaluate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # places (K, D), which (K,) -> costs (K,), gradients


@dataclass(frozen=True)
class LBFGS:
    """Quasi-Newton descent (limited-memory BFGS) on the weighted mean distance, for every differentiable distance.

    Several averages are improved at once, each with its own curvature and step. A step is taken only if it lowers the
    cost, so that the cost never rises.

    max_iter: maximum number of iterations. tol: an average has converged when its cost falls by less than this share of
    itself.
    memory: past steps that model the curvature.

    Reference: Nocedal (1980); Cuturi & Blondel (2017), arXiv:1703.01541, for soft-DTW.

    Example:
        >>> from likewise import SoftDTW, barycenter
        >>> found = barycenter(SoftDTW(gamma=0.1), [[0.0, 1.0, 2.0], [0.0, 2.0, 2.0]], solver=LBFGS(max_iter=20))
        >>> found.sequence.flatten().round(decimals=2)
        tensor([0.0000, 1.5400, 2.0000])
    """

    max_iter: int = 50
    tol: float = 1e-5
    memory: int = 10

    def __post_init__(self) -> None:
        _check.whole("LBFGS", "max_iter", self.max_iter, least=0)
        _check.whole("LBFGS", "memory", self.memory)
        _check.not_negative("LBFGS", "tol", self.tol)

    def solve(self, members: Members, z: Tensor, lengths: Tensor | None, report: Report | None = None) -> Solution:
        """Improve averages (K, L, C)."""

        def evaluate(at: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
            some = members.of(active.to(members.groups.device))
            costs, grad = some.gradient(at.view(z.shape).to(z.dtype), lengths)
            return costs, grad.flatten(1)

        place = z.double().flatten(1)  # (K, D)
        everybody = torch.ones(len(z), dtype=torch.bool, device=z.device)
        cost, grad = evaluate(place, everybody)
        log, past = Log(cost, report), _Past(self.memory)
        for _ in range(self.max_iter):
            active = log.active.to(z.device)
            if not active.any():
                break
            direction = past.direction(grad)
            slope = (direction * grad).sum(1)
            uphill = slope >= 0
            direction, slope = (
                torch.where(uphill[:, None], -grad, direction),
                torch.where(uphill, -grad.square().sum(1), slope),
            )
            first = 1 / torch.linalg.vector_norm(grad, dim=1).clamp(min=1e-300)
            step = torch.where(uphill | past.empty(grad), first.clamp(max=1.0), torch.ones_like(first))
            new, new_cost, new_grad, moved = self._search(evaluate, (place, cost, grad), direction, slope, step, active)
            past.add(new - place, new_grad - grad, moved)
            fell = cost - new_cost
            place, cost, grad = new, new_cost, new_grad
            log.add(cost, ~moved | (fell <= self.tol * cost.abs()))
        return log.solution(place.view(z.shape).to(z.dtype))

    def _search(
        self,
        evaluate: Evaluate,
        start: tuple[Tensor, Tensor, Tensor],
        direction: Tensor,
        slope: Tensor,
        step: Tensor,
        active: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Find steps that lower the cost and its slope enough: places, costs, gradients, and who moved.

        The conditions are Wolfe's; a bracket is halved, and doubled while it is open (Lewis & Overton, 2013).
        """
        place, cost, grad = start
        left, moved = active.clone(), torch.zeros_like(active)
        new, new_cost, new_grad = place.clone(), cost.clone(), grad.clone()
        low, high = torch.zeros_like(step), torch.full_like(step, torch.inf)
        for _ in range(TRIES):
            trial = place + step[:, None] * direction
            found, found_grad = evaluate(trial, left)
            falls = left & (found <= cost + SUFFICIENT * step * slope)
            flat = (found_grad * direction).sum(1) >= FLATTER * slope
            better = falls & (found < new_cost)  # a step that is still too short counts if no other is found
            new = torch.where(better[:, None], trial, new)
            new_grad = torch.where(better[:, None], found_grad, new_grad)
            new_cost = torch.where(better, found, new_cost)
            moved |= better
            left = left & ~(falls & flat)
            if not left.any():
                break
            high, low = torch.where(falls, high, step), torch.where(falls, step, low)
            # The least of the parabola through both costs and the slope, kept within reason.
            bend = 2 * (found - cost - step * slope)
            least = torch.where(bend > 0, -slope * step.square() / torch.where(bend > 0, bend, 1.0), step / 2)
            shorter = torch.where(low > 0, (low + high) / 2, torch.maximum(torch.minimum(least, high / 2), high / 10))
            step = torch.where(high.isinf(), 4 * step, shorter)
        return new, new_cost, new_grad, moved


class _Past:
    """The last steps s and changes of the gradient y, (K, D) each; zero for averages that did not move."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.steps: list[tuple[Tensor, Tensor, Tensor]] = []  # s, y, 1 / s.y

    def add(self, s: Tensor, y: Tensor, moved: Tensor) -> None:
        curvature = (s * y).sum(1)
        good = moved & (curvature > 1e-10 * y.square().sum(1))
        rho = torch.where(good, 1 / torch.where(good, curvature, 1.0), 0.0)
        self.steps = [*self.steps, (s, y, rho)][-self.memory :]

    def empty(self, grad: Tensor) -> Tensor:
        """Which averages (K,) have no curvature yet."""
        known = torch.zeros(len(grad), dtype=torch.bool, device=grad.device)
        for _, _, rho in self.steps:
            known |= rho > 0
        return ~known

    def direction(self, grad: Tensor) -> Tensor:
        """The descent direction (K, D), by the two-loop recursion of L-BFGS."""
        q, shares = grad.clone(), []
        for s, y, rho in reversed(self.steps):
            share = rho * (s * q).sum(1)
            shares.append(share)
            q = q - share[:, None] * y
        scale = torch.ones(len(grad), dtype=grad.dtype, device=grad.device)
        for _, y, rho in self.steps:  # the newest that is known
            scale = torch.where(rho > 0, 1 / (rho * y.square().sum(1)).clamp(min=1e-300), scale)
        q = q * scale[:, None]
        for (s, y, rho), share in zip(self.steps, reversed(shares), strict=True):
            q = q + (share - rho * (y * q).sum(1))[:, None] * s
        return -q
