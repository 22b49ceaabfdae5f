"""Exact optimal transport: the plan that minimises <T, D> over its marginals, which are uniform."""

import importlib
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise.ops.dispatch import operator

__all__ = ["exact_plan"]

MOST_COPIES = 4  # copies of the longer sequence's steps; above this, a linear programme is faster than an assignment


def exact_plan(cost: Tensor, x_lengths: Tensor | None = None, y_lengths: Tensor | None = None) -> Tensor:
    """Optimal plan (B, Tx, Ty) of given costs (B, Tx, Ty), each row 1/Tx and each column 1/Ty; zero in the padding.

    It has no derivative: it is a vertex of a polytope, and does not change with small changes of the cost. It is
    computed in float64 on the CPU, pair by pair: as an assignment if the lengths are equal or share a large factor,
    otherwise by POT's network simplex if POT is installed, or by SciPy's linear programme (HiGHS).

    Example:
        >>> exact_plan(torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]))
        tensor([[[0.5000, 0.0000],
                 [0.0000, 0.5000]]])
    """
    _check.costs("transport", cost, x_lengths, y_lengths)
    return _transport_exact(cost.detach(), x_lengths, y_lengths)


def plans(cost: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
    """Plans of costs on any device; computed on the CPU."""
    rows = torch.full((len(cost),), cost.shape[1]) if x_lengths is None else x_lengths.cpu()
    columns = torch.full((len(cost),), cost.shape[2]) if y_lengths is None else y_lengths.cpu()
    _check.lengths_range("transport", "x_lengths", rows, cost.shape[1])
    _check.lengths_range("transport", "y_lengths", columns, cost.shape[2])
    costs = cost.double().cpu().numpy()
    found = np.zeros(costs.shape)
    for b, (n, m) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        real = costs[b, :n, :m]
        if not np.isfinite(real).all():
            i, j = np.argwhere(~np.isfinite(real))[0]
            _check.refuse("transport", f"cost[{b}] holds {real[i, j]} at ({i}, {j})")
        found[b, :n, :m] = solve(real)
    return torch.from_numpy(found).to(cost)


def solve(cost: np.ndarray) -> np.ndarray:
    """Optimal plan (N, M) of one cost."""
    n, m = cost.shape
    copies = math.lcm(n, m)
    if copies <= MOST_COPIES * max(n, m):
        return assignment(cost, copies)
    try:
        transport: Any = importlib.import_module("ot")  # POT is faster but not required
    except ImportError:
        return linear_programme(cost)
    return np.asarray(transport.emd([], [], np.ascontiguousarray(cost), numItermax=10_000_000))


def assignment(cost: np.ndarray, copies: int) -> np.ndarray:
    """The plan as an assignment of points: each step is copies / steps points of equal mass, which are not split."""
    from scipy.optimize import linear_sum_assignment

    n, m = cost.shape
    many = cost.repeat(copies // n, axis=0).repeat(copies // m, axis=1)  # (copies, copies)
    plan = np.zeros(cost.shape)
    i, j = linear_sum_assignment(many)
    np.add.at(plan, (i // (copies // n), j // (copies // m)), 1 / copies)
    return plan


def linear_programme(cost: np.ndarray) -> np.ndarray:
    """The plan as a linear programme of N M variables and N + M equations."""
    from scipy.optimize import linprog
    from scipy.sparse import eye, kron, vstack

    n, m = cost.shape
    sums = vstack([kron(eye(n), np.ones((1, m))), kron(np.ones((1, n)), eye(m))])
    masses = np.concatenate([np.full(n, 1 / n), np.full(m, 1 / m)])
    found = linprog(cost.ravel(), A_eq=sums.tocsr()[:-1], b_eq=masses[:-1], method="highs")
    if not found.success:
        _check.refuse("transport", f"SciPy found no exact plan: {found.message}")
    return found.x.reshape(n, m).clip(min=0)


_transport_exact = operator(
    "transport_exact(Tensor cost, Tensor? x_lengths, Tensor? y_lengths) -> Tensor",
    cpu=plans,
    triton="transport.exact_plans",
    fake=lambda cost, *_: torch.empty_like(cost),
)
