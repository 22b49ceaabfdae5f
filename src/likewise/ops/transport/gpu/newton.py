"""Newton steps on the semi-dual, one program per pair, with the plan in registers: for kernels so sharp that Sinkhorn's
iterations are slow. ``reference.converge`` is the readable version.

The direction comes from conjugate gradients, which need two products with the plan each, like one of Sinkhorn's
iterations. Between Newton steps come some of these, in the scaled domain. The log domain is needed once for each point
that is tried.
"""

import triton
import triton.language as tl

from likewise.ops.transport.gpu.sinkhorn import LARGEST, LOG2E, OUTSIDE, log_kernel_rows

STAGE = tl.constexpr(4.0)  # the kernel sharpens by this factor from stage to stage
FIRST_SPREAD = tl.constexpr(64.0)  # of the log-kernel in the first stage, in nats: float32 has 87
CLOSE = tl.constexpr(0.02)  # the marginal error at which a stage ends
SINKHORN = tl.constexpr(10)  # iterations between Newton steps
STALE = tl.constexpr(4)
FINE, COARSE = tl.constexpr(0.1), tl.constexpr(0.3)  # residual of the conjugate gradients, near the end and before


@triton.jit
def extent(cost, numbers, n, m, columns, CHUNK: tl.constexpr, BM: tl.constexpr):
    """The spread of L and its largest size, to base 2."""
    j = tl.arange(0, BM)[None, :]
    most = tl.full((BM,), OUTSIDE, dtype=tl.float64)
    least = tl.full((BM,), -OUTSIDE, dtype=tl.float64)
    for start in range(0, n, CHUNK):
        L = log_kernel_rows(cost, numbers, start, n, m, columns, CHUNK, BM)
        inside = ((start + tl.arange(0, CHUNK)) < n)[:, None] & (j < m)
        most = tl.maximum(most, tl.max(L, 0))
        least = tl.minimum(least, tl.min(tl.where(inside, L, -OUTSIDE), 0))
    highest, lowest = tl.max(most, 0), tl.min(least, 0)
    return highest - lowest, tl.maximum(tl.abs(highest), tl.abs(lowest))


@triton.jit
def balance_rows(cost, numbers, x_mass, f, plan, g, share, n, m, columns, CHUNK: tl.constexpr, BM: tl.constexpr):
    """f and the plan 2^(share L + f + g), so that its rows have their masses; return the sum of masses times f."""
    kind: tl.constexpr = plan.dtype.element_ty
    j = tl.arange(0, BM)[None, :]
    total = tl.zeros((CHUNK,), tl.float64)
    for start in range(0, n, CHUNK):
        row = start + tl.arange(0, CHUNK)
        z = log_kernel_rows(cost, numbers, start, n, m, columns, CHUNK, BM) * share + g[None, :]
        mass = tl.load(x_mass + row, mask=row < n, other=1.0)
        high = tl.max(z, 1)
        e = tl.exp2(tl.maximum(z - high[:, None], -1e30).to(kind))
        scale = mass.to(kind) / tl.sum(e, 1)
        potential = tl.log2(scale).to(tl.float64) - high
        tl.store(f + row, potential, mask=row < n)
        inside = (row < n)[:, None] & (j < m)
        tl.store(plan + row[:, None] * columns + j, e * scale[:, None], mask=inside)
        total += tl.where(row < n, mass * potential, 0.0)
    return tl.sum(total, 0)


@triton.jit
def balanced_columns(cost, numbers, f, log_b, share, n, m, columns, CHUNK: tl.constexpr, BM: tl.constexpr):
    """The g that gives the columns of 2^(share L + f + g) their masses."""
    top = tl.full((BM,), OUTSIDE, dtype=tl.float64)
    total = tl.zeros((BM,), dtype=tl.float64)
    for start in range(0, n, CHUNK):
        row = start + tl.arange(0, CHUNK)
        L = log_kernel_rows(cost, numbers, start, n, m, columns, CHUNK, BM)
        z = L * share + tl.load(f + row, mask=row < n, other=0.0)[:, None]
        z = tl.where((row < n)[:, None], z, OUTSIDE)
        higher = tl.maximum(top, tl.max(z, 0))
        total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(z - higher[None, :]), 0)
        top = higher
    return tl.where(tl.arange(0, BM) < m, log_b - top - tl.log2(total), 0.0)


@triton.jit
def direction(K, a, b, sums, near, most):
    """d with (diag(sums) - K' diag(1/a) K) d = b - sums, up to a constant; and the gain of a small step per its size.

    By conjugate gradients, scaled by the diagonal.
    """
    K *= tl.where(a > 0, 1.0 / tl.sqrt(tl.where(a > 0, a, 1.0)), 0.0)[:, None]
    inverse = tl.where(b > 0, 1.0 / tl.where(b > 0, sums, 1.0), 0.0)
    residual = tl.where(b > 0, b - sums, 0.0)
    residual -= b * tl.sum(residual, 0)  # constants are in the kernel of the system
    first = residual
    d = residual * 0.0
    p = residual * inverse
    size = tl.sum(residual * p, 0)
    goal = size * tl.where(near, FINE * FINE, COARSE * COARSE).to(size.dtype)
    k = 0
    while (k < most) & (size > goal):
        Sp = sums * p - tl.sum(K * tl.sum(K * p[None, :], 1)[:, None], 0)
        bend = tl.sum(p * Sp, 0)
        step = tl.where(bend > 0, size / tl.where(bend > 0, bend, 1.0), 0.0)
        d += step * p
        residual -= step * Sp
        scaled = residual * inverse
        following = tl.sum(residual * scaled, 0)
        p = scaled + (following / size) * p
        size = following
        k = tl.where(bend > 0, k + 1, most)
    return d, tl.sum(d * first, 0)


@triton.jit
def newton_kernel(
    late, cost, x_mass, y_mass, x_lengths, y_lengths, numbers, f, plan, values, errors, unmet, rows, columns, steps,
    most, BN: tl.constexpr, BM: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Solve the pairs listed in `late`, with at most `steps` points tried, and `most` conjugate gradients for each.

    `unmet` gets 1 for each pair whose masses are not met, otherwise 0.
    """
    pair = tl.load(late + tl.program_id(0))
    cost += pair * rows * columns
    plan += pair * rows * columns
    x_mass += pair * rows
    f += pair * rows
    n = tl.load(x_lengths + pair).to(tl.int32)
    m = tl.load(y_lengths + pair).to(tl.int32)
    tolerance = tl.load(numbers + 4)
    i = tl.arange(0, BN)
    j = tl.arange(0, BM)
    tile = i[:, None] * columns + j[None, :]
    inside = (i < n)[:, None] & (j < m)[None, :]
    kind: tl.constexpr = plan.dtype.element_ty
    whole_a = tl.load(x_mass + i, mask=i < n, other=0.0)
    whole_b = tl.load(y_mass + pair * columns + j, mask=j < m, other=0.0)
    log_b = tl.log2(tl.where(j < m, whole_b, 1.0))
    a = whole_a.to(kind)
    b = whole_b.to(kind)
    spread, size = extent(cost, numbers, n, m, columns, CHUNK, BM)
    rounding = 2.0 * 2.220446049250313e-16 * size / LOG2E
    SLACK: tl.constexpr = 1e-12 if kind == tl.float64 else 1e-6  # rounding of the objective
    share = tl.minimum(FIRST_SPREAD * LOG2E / tl.maximum(spread, 1e-300), 1.0)
    sharper = share + 0.0  # a value of its own, or the compiler takes both for one that never changes
    g = tl.zeros((BM,), tl.float64)  # of the best point
    d = g
    gain = spread * 0.0  # of a small step along d, per its size
    t = gain + 1.0  # share of d in the point that is tried
    safe = t
    objective = gain
    error = gain + 1e300
    least = error  # of the last stage
    stale = 0  # steps in which it has not halved: rounding may keep it from falling further
    sure = True  # the point is taken without comparing objectives
    left = steps
    going = True
    while going:
        trial = g + t * d
        tl.debug_barrier()
        found = balance_rows(cost, numbers, x_mass, f, plan, trial, share, n, m, columns, CHUNK, BM)
        found += tl.sum(tl.where(j < m, whole_b * trial, 0.0), 0)
        tl.debug_barrier()
        taken = sure | (t <= safe * 1.0001) | (found >= objective + 1e-4 * t * gain - SLACK)
        left -= 1
        if taken == False:  # noqa: E712
            t = tl.maximum(0.25 * t, safe)
        elif sharper > share:
            g = trial * (sharper / share)
            d = g * 0.0
            share = sharper
            sure = True
        else:
            g = trial
            K = tl.load(plan + tile, mask=inside, other=0.0)
            sums = tl.sum(K, 0)
            if tl.min(tl.where(j < m, sums - 1e-9 * b, 1.0), 0) <= 0:  # a column has lost its mass
                g = balanced_columns(cost, numbers, f, log_b, share, n, m, columns, CHUNK, BM)
                d = g * 0.0
                sure = True
            else:
                # Sinkhorn's iterations, which do not change K.
                u = tl.full((BN,), 1.0, dtype=kind)
                v = tl.full((BM,), 1.0, dtype=kind)
                k = 0
                scaled = True
                while scaled & (k < SINKHORN):
                    next_v = tl.where(j < m, b / tl.where(j < m, sums, 1.0), 1.0)
                    scaled = (tl.max(next_v, 0) < LARGEST) & (tl.min(next_v, 0) > 1.0 / LARGEST)
                    if scaled:
                        v = next_v
                        reached = tl.sum(K * v[None, :], 1)
                        u = tl.where(i < n, a / tl.where(i < n, reached, 1.0), 1.0)
                        sums = tl.sum(K * u[:, None], 0)
                    k += 1
                K = K * u[:, None] * v[None, :]
                moved = tl.log2(v.to(tl.float64))
                g += moved
                objective = found + tl.sum(whole_b * moved, 0) + tl.sum(whole_a * tl.log2(u.to(tl.float64)), 0)
                sums = tl.sum(K, 0)
                error = tl.sum(tl.abs(sums - b), 0).to(tl.float64)
                stale = tl.where((share < 1.0) | (error < 0.5 * least), 0, stale + 1)
                least = tl.where(share < 1.0, least, tl.minimum(least, error))
                going = (share < 1.0) | (error > tolerance + rounding)
                if going == False:  # noqa: E712
                    tl.debug_barrier()
                    tl.store(plan + tile, K, mask=inside)
                else:
                    step, slope = direction(K, a, b, sums, error <= CLOSE, most)
                    step = tl.where(j < m, step, 0.0).to(tl.float64)
                    reach = tl.max(tl.where(j < m, step, -1e300), 0) - tl.min(tl.where(j < m, step, 1e300), 0)
                    d = LOG2E * step
                    gain = LOG2E * slope.to(tl.float64)
                    safe = tl.where(reach > 1e-6, tl.log2(1.0 + reach) / (LOG2E * tl.maximum(reach, 1e-6)), 1.0)
                    t = safe * 0.0 + 1.0
                    sure = reach <= 0.5
                    sharper = tl.where(error <= CLOSE, tl.minimum(STAGE * share, 1.0), share)
        going = going & (left > 0) & (stale < STALE)
    met = (share >= 1.0) & (error <= tolerance + rounding)
    tl.store(unmet + tl.program_id(0), tl.where(met, 0, 1))
    tl.debug_barrier()
    if met:
        tl.store(errors + pair, error)
        value = tl.zeros((CHUNK,), dtype=tl.float64)
        for start in range(0, n, CHUNK):
            row = start + tl.arange(0, CHUNK)
            cells = row[:, None] * columns + j[None, :]
            here = (row < n)[:, None] & (j < m)[None, :]
            T = tl.load(plan + cells, mask=here, other=0.0).to(tl.float64)
            value += tl.sum(T * tl.load(cost + cells, mask=here, other=0.0), 1)
        tl.store(values + pair, tl.sum(value, 0))
