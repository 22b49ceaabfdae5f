"""Sinkhorn's iterations, one program per pair, with the scaled kernel in registers."""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LARGEST = tl.constexpr(1e9)  # the largest scale
OUTSIDE = tl.constexpr(-1e300)
CHECK = tl.constexpr(8)  # iterations between checks of how the error falls


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
    square = t * t
    # A division takes twice as long as two Newton steps from its float32 result.
    over = square + 1.0
    inverse = (1.0 / over.to(tl.float32)).to(tl.float64)
    inverse *= 2.0 - over * inverse
    inverse *= 2.0 - over * inverse
    gain = tl.load(numbers + 1) * inverse - here * (1.0 + tl.load(numbers + 3) * tl.abs(t))
    L = LOG2E * (gain * tl.load(numbers) - square * (tl.load(numbers + 2) / width))
    return tl.where(inside, L, OUTSIDE)


@triton.jit
def hopeless(before, error, iterations, tolerance, patience):
    """Whether more iterations than this remain if the error keeps falling as it did in the last ones."""
    falling = before > error * 1.0001
    rate = tl.log2(tl.where(falling, before / tl.maximum(error, 1e-300), 2.0))
    left = iterations * tl.log2(tl.maximum(error, 1e-300) / tolerance) / rate
    return (falling == False) | (left > patience)  # noqa: E712


@triton.jit
def solve_kernel(
    cost, x_mass, y_mass, x_lengths, y_lengths, numbers, f, plan, values, errors, rows, columns, budget,
    patience, EARLY: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, CHUNK: tl.constexpr,
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
    before = error  # at the last check of how it falls
    checked = 0
    slow = False
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
                if (EARLY == 0) & (k - checked >= CHECK):
                    slow = hopeless(before, error, k - checked, tolerance, patience)
                    before = error
                    checked = k
        if (EARLY == 0) & (k - checked >= CHECK):  # where scales grow fast, each iteration is one in the log domain
            slow = hopeless(before, error, k - checked, tolerance, patience)
            before = error
            checked = k
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
