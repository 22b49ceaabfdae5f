"""Regularised transport on a GPU: one program per pair runs Sinkhorn's iterations with its kernel in registers.

As on the CPU, an iteration is two products of K = 2^(L + f + g); when scales grow large, they are moved into the
potentials, and K is recomputed in float64 from the cost. Pairs for which that would take too long are finished by
Newton steps, all at once in PyTorch, as are pairs of more than 16,384 cells.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise import _check
from likewise.ops.ground import euclidean, sqeuclidean, zero_padding
from likewise.ops.launch.launcher import launch
from likewise.ops.transport import Settings, exact, masses, reference, warn_unless_met
from likewise.ops.transport import gradient as gradient

MOST_CELLS = 128 * 128  # the most cells of a pair in registers
CELLS_AT_ONCE = 1 << 26  # cells of pairs that are solved together: a cell takes about ten bytes
NEWTON_CELLS = 1 << 24  # the same for Newton steps: a cell takes about a hundred bytes
LOG2E = tl.constexpr(1.4426950408889634)
LARGEST = tl.constexpr(1e9)  # the largest scale
OUTSIDE = tl.constexpr(-1e300)


@triton.jit
def log_kernel_rows(cost, numbers, start, n, m, columns, CHUNK: tl.constexpr, BM: tl.constexpr):
    """Rows start.. of L, to base 2."""
    i = start + tl.arange(0, CHUNK)[:, None]
    j = tl.arange(0, BM)[None, :]
    inside = (i < n) & (j < m)
    here = tl.load(cost + i * columns + j, mask=inside, other=0.0)
    rows, across = n.to(tl.float64), m.to(tl.float64)
    t = (i + 1).to(tl.float64) / rows - (j + 1).to(tl.float64) / across
    width = 1.0 / (rows * rows) + 1.0 / (across * across)
    gain = tl.load(numbers + 1) / (t * t + 1.0) - here * (1.0 + tl.load(numbers + 3) * tl.abs(t))
    L = LOG2E * (gain * tl.load(numbers) - t * t / width * tl.load(numbers + 2))
    return tl.where(inside, L, OUTSIDE)


@triton.jit
def solve_kernel(
    cost, x_mass, y_mass, x_lengths, y_lengths, numbers, f, plan, values, errors, rows, columns, budget,
    EARLY: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0).to(tl.int64)
    cost += pair * rows * columns
    plan += pair * rows * columns
    f += pair * rows
    n = tl.load(x_lengths + pair).to(tl.int32)
    m = tl.load(y_lengths + pair).to(tl.int32)
    tolerance = tl.load(numbers + 4)
    i = tl.arange(0, BN)
    j = tl.arange(0, BM)
    chunk = tl.arange(0, CHUNK)
    b = tl.load(y_mass + pair * columns + j, mask=j < m, other=0.0)
    log_b = tl.log2(tl.where(j < m, b, 1.0))
    a = tl.load(x_mass + pair * rows + i, mask=i < n, other=0.0)
    tile = i[:, None] * columns + j[None, :]
    inside = (i < n)[:, None] & (j < m)[None, :]
    kind: tl.constexpr = plan.dtype.element_ty
    narrow_a = a.to(kind)
    narrow_b = b.to(kind)
    K = tl.zeros((BN, BM), dtype=kind)
    u = tl.full((BN,), 1.0, dtype=kind)
    v = tl.full((BM,), 1.0, dtype=kind)
    k = 0
    error = tl.sum(b) * 1e30
    before = error
    going = budget > 0
    while going:
        # One iteration in the log domain, from f: the columns, then the rows, whose plan is K.
        top = tl.full((BM,), OUTSIDE, dtype=tl.float64)
        total = tl.zeros((BM,), dtype=tl.float64)
        for start in range(0, n, CHUNK):
            L = log_kernel_rows(cost, numbers, start, n, m, columns, CHUNK, BM)
            z = L + tl.load(f + start + chunk, mask=start + chunk < n, other=0.0)[:, None]
            higher = tl.maximum(top, tl.max(z, 0))
            total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(z - higher[None, :]), 0)
            top = higher
        g = tl.where(j < m, log_b - top - tl.log2(total), 0.0)
        tl.debug_barrier()
        for start in range(0, n, CHUNK):
            z = log_kernel_rows(cost, numbers, start, n, m, columns, CHUNK, BM) + g[None, :]
            row = start + chunk
            mass = tl.load(x_mass + pair * rows + row, mask=row < n, other=1.0)
            high = tl.max(z, 1)
            e = tl.exp2(z - high[:, None])
            sums = tl.sum(e, 1)
            tl.store(f + row, tl.log2(mass) - high - tl.log2(sums), mask=row < n)
            cells = row[:, None] * columns + j[None, :]
            here = (row < n)[:, None] & (j < m)[None, :]
            tl.store(plan + cells, (e * (mass / sums)[:, None]).to(kind), mask=here)
        tl.debug_barrier()
        K = tl.load(plan + tile, mask=inside, other=0.0)
        u = tl.full((BN,), 1.0, dtype=kind)
        v = tl.full((BM,), 1.0, dtype=kind)
        sums_j = tl.sum(K, 0)
        k += 1
        error = tl.sum(tl.abs(sums_j * v - narrow_b), 0).to(tl.float64)
        scaled = True
        slow = False
        while scaled & (slow == False) & (k < budget) & (error > tolerance):  # noqa: E712
            next_v = tl.where(j < m, narrow_b / tl.where(sums_j > 0, sums_j, 1e-30), 1.0)
            scaled = (tl.max(next_v, 0) < LARGEST) & (tl.min(next_v, 0) > 1.0 / LARGEST)
            if scaled:
                v = next_v
                sums_i = tl.sum(K * v[None, :], 1)
                u = tl.where(i < n, narrow_a / tl.where(i < n, sums_i, 1.0), 1.0)
                sums_j = tl.sum(K * u[:, None], 0)
                error = tl.sum(tl.abs(sums_j * v - narrow_b), 0).to(tl.float64)
                k += 1
                if (EARLY == 0) & (k % 16 == 0):
                    # The remaining iterations if the error keeps falling as in the last 16.
                    falling = before > error * 1.0001
                    rate = tl.log2(tl.where(falling, before / tl.maximum(error, 1e-300), 2.0))
                    left = 16.0 * tl.log2(tl.maximum(error, 1e-300) / tolerance) / rate
                    slow = (falling == False) | (left > budget)  # noqa: E712
                    before = error
        going = (slow == False) & (k < budget) & (error > tolerance)  # noqa: E712
        if going:
            grown = tl.log2(u.to(tl.float64)) + tl.load(f + i, mask=i < n, other=0.0)
            tl.store(f + i, grown, mask=i < n)
            tl.debug_barrier()
    tl.store(plan + tile, K * u[:, None] * v[None, :], mask=inside)
    tl.store(errors + pair, error)
    tl.debug_barrier()
    value = tl.zeros((CHUNK,), dtype=tl.float64)
    for start in range(0, n, CHUNK):
        row = start + chunk
        cells = row[:, None] * columns + j[None, :]
        here = (row < n)[:, None] & (j < m)[None, :]
        T = tl.load(plan + cells, mask=here, other=0.0).to(tl.float64)
        value += tl.sum(T * tl.load(cost + cells, mask=here, other=0.0), 1)
    tl.store(values + pair, tl.sum(value, 0))


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
        if len(late):
            given = cost[late], n[late], m[late], a[late], b[late]
            values[late], rest, errors[late] = _finish(*given, settings)
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
    tolerance = -1.0 if early else settings.tolerance
    scales = 1 / settings.reg, settings.inverse_difference, 0.5 / settings.delta**2, settings.time_weight, tolerance
    numbers = torch.tensor(scales, dtype=torch.float64, device=cost.device)
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
    warps = max(1, min(16, high * wide // 2048 * (2 if dtype == torch.float64 else 1)))
    chunk = max(1, min(high, 1024 // wide))
    launch(solve_kernel, (count,), tensors, (rows, columns, budget), warps, EARLY=early, BN=high, BM=wide, CHUNK=chunk)
    return values, plans, errors


def _finish(
    cost: Tensor, n: Tensor, m: Tensor, a: Tensor, b: Tensor, settings: Settings
) -> tuple[Tensor, Tensor, Tensor]:
    """Finish pairs with the Newton steps of the reference, in chunks."""
    at_once = max(1, NEWTON_CELLS // (cost.shape[1] * cost.shape[2]))
    found = []
    for first in range(0, len(cost), at_once):
        part = slice(first, first + at_once)
        found.append(reference.solve(cost[part], n[part], m[part], a[part], b[part], settings))
    values, plans, errors = (torch.cat(parts) for parts in zip(*found, strict=True))
    return values, plans, errors
