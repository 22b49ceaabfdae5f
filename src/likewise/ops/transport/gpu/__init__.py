"""Regularised transport on a GPU: one program per pair runs Sinkhorn's iterations with its kernel in registers.

As on the CPU, an iteration is two products of K = 2^(L + f + g); when scales grow large, they are moved into the
potentials, and K is recomputed in float64 from the cost. Pairs for which that would take too long are finished by
Newton steps, of float32 input in registers too (newton.py), otherwise all at once in PyTorch, as are pairs of more than
16,384 cells.
"""

from typing import Any

import torch
import triton
from torch import Tensor

from likewise import _check
from likewise.ops.ground import euclidean, sqeuclidean, zero_padding
from likewise.ops.launch.launcher import launch
from likewise.ops.transport import Settings, exact, masses, reference, warn_unless_met
from likewise.ops.transport import gradient as gradient
from likewise.ops.transport.gpu.newton import newton_kernel
from likewise.ops.transport.gpu.sinkhorn import solve_kernel

MOST_CELLS = 128 * 128  # the most cells of a pair in registers
CELLS_AT_ONCE = 1 << 26  # cells of pairs that are solved together: a cell takes about ten bytes
NEWTON_CELLS = 1 << 24  # the same for Newton steps in PyTorch: a cell takes about a hundred bytes
NEWTON_STEPS = 200  # points that Newton steps may try in registers
GRADIENTS = 300  # conjugate gradients of a step


def plan(
    x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None, x_mass: Tensor | None,
    y_mass: Tensor | None, root: bool, *numbers: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Values (B,), plans (B, Tx, Ty) and marginal errors (B,)."""
    _require_finite(x, y, x_lengths, y_lengths)
    n, m, a, b = masses(x, y, x_lengths, y_lengths, x_mass, y_mass)
    settings = Settings.from_plain(*numbers)
    rows, columns = a.shape[1], b.shape[1]
    at_once = max(1, CELLS_AT_ONCE // (rows * columns))
    found = []
    for first in range(0, len(x), at_once):
        part = slice(first, first + at_once)
        cost = _costs(x[part], None if y is None else y[part], n[part], m[part], root)
        found.append(_solve(cost, n[part], m[part], a[part], b[part], settings, x.dtype))
    if not found:
        return x.new_empty(0), x.new_empty(0, rows, columns), x.new_empty(0)
    values, plans, errors = (torch.cat(parts) for parts in zip(*found, strict=True))
    warn_unless_met(errors, settings)
    return values, plans, errors


def value(x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None, *numbers: Any) -> Tensor:
    """Values (B,), in chunks: only the plans of one chunk are in memory."""
    at_once = max(1, CELLS_AT_ONCE // (x.shape[1] * y.shape[1]))
    found = []
    for first in range(0, len(x), at_once):
        part = slice(first, first + at_once)
        lengths = (None if lengths is None else lengths[part] for lengths in (x_lengths, y_lengths))
        found.append(plan(x[part], y[part], *lengths, None, None, *numbers)[0])
    return torch.cat(found) if found else x.new_empty(0)


def matrix(
    x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None, symmetric: bool, *numbers: Any
) -> Tensor:
    """Values (N, M); each pair of a symmetric matrix is computed once."""
    values = x.new_zeros(len(x), len(y))
    at_once = max(1, CELLS_AT_ONCE // (x.shape[1] * y.shape[1]))
    for first in range(0, values.numel(), at_once):
        pairs = torch.arange(first, min(first + at_once, values.numel()), device=x.device)
        i, j = pairs // len(y), pairs % len(y)
        if symmetric:
            i, j = i[i <= j], j[i <= j]
        lengths = (None if k is None else k.to(x.device)[index] for k, index in ((x_lengths, i), (y_lengths, j)))
        values[i, j] = plan(x[i], y[j], *lengths, None, None, *numbers)[0]
    return values.triu() + values.triu(1).T if symmetric else values


def exact_plans(cost: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
    """Exact plans, which the CPU computes."""
    return exact.plans(cost, x_lengths, y_lengths)


def _require_finite(x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> None:
    if y is not None:
        _check.finite("transport", "x", x, x_lengths)
        _check.finite("transport", "y", y, y_lengths)
        return
    n, m = (k.to(x.device) if k is not None else None for k in (x_lengths, y_lengths))
    inside = torch.ones_like(x, dtype=torch.bool)
    if n is not None:
        inside &= reference.real(n, x.shape[1])[:, :, None]
    if m is not None:
        inside &= reference.real(m, x.shape[2])[:, None]
    wrong = inside & ~x.isfinite()
    if wrong.any():
        item, i, j = wrong.nonzero()[0].tolist()
        _check.refuse("transport", f"cost[{item}] holds {x[item, i, j].item()} at ({i}, {j})")


def _costs(x: Tensor, y: Tensor | None, n: Tensor, m: Tensor, root: bool) -> Tensor:
    """Costs (B, Tx, Ty), float64: a sharp kernel would amplify the rounding of the cost."""
    if y is None:
        inside = reference.real(n, x.shape[1])[:, :, None] & reference.real(m, x.shape[2])[:, None]
        return torch.where(inside, x.double(), 0)
    ground = euclidean if root else sqeuclidean
    return ground(zero_padding(x, n).double(), zero_padding(y, m).double())


def _solve(
    cost: Tensor, n: Tensor, m: Tensor, a: Tensor, b: Tensor, settings: Settings, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    count, rows, columns = cost.shape
    total = a.sum(1)
    a, b = a / total[:, None], b / total[:, None]
    high, wide = triton.next_power_of_2(rows), triton.next_power_of_2(columns)
    if high * wide > MOST_CELLS:
        values, plans, errors = _finish(cost, n, m, a, b, settings)
    else:
        values, plans, errors = _sweep(cost, n, m, a, b, settings, dtype, high, wide)
        late = (errors > settings.tolerance).nonzero()[:, 0] if settings.n_iter is None else errors[:0].long()
        # Conjugate gradients cannot meet the tolerance of float64, but that of float32 where rounding stops float32.
        narrow = dtype == torch.float32
        if len(late) and narrow:
            late = _newton(late, cost, n, m, a, b, settings, values, plans, errors)
        if len(late):
            given = cost[late], n[late], m[late], a[late], b[late]
            values[late], rest, errors[late] = _finish(*given, settings, in_registers=narrow)
            plans[late] = rest.to(plans.dtype)
    plans = plans.to(dtype) * total.to(dtype)[:, None, None]
    return (values * total).to(dtype), plans, (errors * total).to(dtype)


def _sweep(
    cost: Tensor, n: Tensor, m: Tensor, a: Tensor, b: Tensor, settings: Settings, dtype: torch.dtype, high: int,
    wide: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    count, rows, columns = cost.shape
    early = settings.n_iter is not None
    budget = settings.n_iter if early else 20 * (columns + 50)
    # Newton steps in registers take the time of some hundred iterations.
    patience = 2 * (columns + 50) if dtype == torch.float32 else budget
    tolerance = -1.0 if early else settings.tolerance
    numbers = _numbers(settings, tolerance, cost)
    plans = torch.zeros_like(cost, dtype=dtype)
    values, errors = cost.new_empty(count), cost.new_empty(count)
    tensors = (
        cost.contiguous(),
        a,
        b,
        n.contiguous(),
        m.contiguous(),
        numbers,
        torch.zeros_like(a),
        plans,
        values,
        errors,
    )
    launch(solve_kernel, (count,), tensors, (rows, columns, budget, patience), _warps(dtype, high, wide), EARLY=early,
           **_tile(high, wide))  # fmt: skip
    return values, plans, errors


def _newton(
    late: Tensor, cost: Tensor, n: Tensor, m: Tensor, a: Tensor, b: Tensor, settings: Settings, values: Tensor,
    plans: Tensor, errors: Tensor,
) -> Tensor:  # fmt: skip
    """Overwrite the results of these pairs by those of Newton steps; return those whose masses are still not met."""
    count, rows, columns = cost.shape
    high, wide = triton.next_power_of_2(rows), triton.next_power_of_2(columns)
    unmet = torch.empty(len(late), dtype=torch.int32, device=cost.device)
    tensors = (
        late,
        cost.contiguous(),
        a,
        b,
        n.contiguous(),
        m.contiguous(),
        _numbers(settings, settings.tolerance or 0.0, cost),
        torch.empty_like(a),
        plans,
        values,
        errors,
        unmet,
    )
    steps = min(settings.max_iter, NEWTON_STEPS)
    launch(newton_kernel, (len(late),), tensors, (rows, columns, steps, GRADIENTS), _warps(plans.dtype, high, wide),
           **_tile(high, wide))  # fmt: skip
    return late[unmet > 0]


def _numbers(settings: Settings, tolerance: float, like: Tensor) -> Tensor:
    """The settings as the kernels read them."""
    scales = 1 / settings.reg, settings.inverse_difference, 0.5 / settings.delta**2, settings.time_weight, tolerance
    return torch.tensor(scales, dtype=torch.float64, device=like.device)


def _warps(dtype: torch.dtype, high: int, wide: int) -> int:
    return max(1, min(16, high * wide // 4096 * (4 if dtype == torch.float64 else 1)))


def _tile(high: int, wide: int) -> dict[str, int]:
    """The size of a pair in registers, and the rows of it that are computed at once in the log domain."""
    return {"BN": high, "BM": wide, "CHUNK": max(1, min(high, 1024 // wide))}


def _finish(
    cost: Tensor, n: Tensor, m: Tensor, a: Tensor, b: Tensor, settings: Settings, in_registers: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Finish pairs with Newton steps in float64: in registers, or with those of the reference, in chunks."""
    if in_registers:
        values, plans, errors = cost.new_empty(len(cost)), torch.zeros_like(cost), cost.new_empty(len(cost))
        every = torch.arange(len(cost), device=cost.device)
        late = _newton(every, cost, n, m, a, b, settings, values, plans, errors)
        if len(late):
            given = cost[late], n[late], m[late], a[late], b[late]
            values[late], plans[late], errors[late] = _finish(*given, settings)
        return values, plans, errors
    at_once = max(1, NEWTON_CELLS // (cost.shape[1] * cost.shape[2]))
    found = []
    for first in range(0, len(cost), at_once):
        part = slice(first, first + at_once)
        found.append(reference.solve(cost[part], n[part], m[part], a[part], b[part], settings))
    values, plans, errors = (torch.cat(parts) for parts in zip(*found, strict=True))
    return values, plans, errors
