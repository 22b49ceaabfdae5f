"""The orthonormal factors of many small matrices in Triton, as in ops/dtw/polar.h: each lane holds one.

By one-sided Jacobi rotations: columns are turned, two at a time, until all are orthogonal. Where singular values are
zero, the factor is completed by what is orthogonal to the rest.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.launch.arguments import ceil_div
from likewise.ops.launch.launcher import launch

LANES = 128  # matrices of a program
ROUND = tl.constexpr(2.3e-16)
SWEEPS = tl.constexpr(16)  # about 6 are needed


@triton.jit
def dot_columns(a, b, j, k, TALL: tl.constexpr):
    """Column j of a with column k of b."""
    total = a[j * TALL] * b[k * TALL]
    for i in tl.static_range(1, TALL):
        total += a[j * TALL + i] * b[k * TALL + i]
    return total


@triton.jit
def turn_columns(a, j, k, cosine, sine, TALL: tl.constexpr, WIDE: tl.constexpr):
    """The columns of a, with j and k turned."""
    turned = ()
    for column in tl.static_range(WIDE):
        for i in tl.static_range(TALL):
            if column == j:
                turned = turned + (cosine * a[j * TALL + i] - sine * a[k * TALL + i],)
            elif column == k:
                turned = turned + (sine * a[j * TALL + i] + cosine * a[k * TALL + i],)
            else:
                turned = turned + (a[column * TALL + i],)
    return turned


@triton.jit
def complete(left, missing, k, TALL: tl.constexpr, WIDE: tl.constexpr):
    """Column k, where it is missing, becomes the unit vector farthest from the others, made orthogonal to them."""
    least = missing.to(tl.float64) * 0.0 + 9.0
    best = missing.to(tl.int32) * 0
    for i in tl.static_range(TALL):
        inside = least * 0.0
        for other in tl.static_range(WIDE):
            inside += left[other * TALL + i] * left[other * TALL + i]
        closer = inside < least - 1e-9
        best = tl.where(closer, i, best)
        least = tl.where(closer, inside, least)
    unit = ()
    for i in tl.static_range(TALL):
        unit = unit + (tl.where(best == i, 1.0, 0.0).to(tl.float64),)
    for _ in tl.static_range(2):
        for other in tl.static_range(WIDE):
            part = tl.where(missing, dot_columns(unit, left, 0, other, TALL), 0.0)  # column k is zero itself
            reduced = ()
            for i in tl.static_range(TALL):
                reduced = reduced + (unit[i] - part * left[other * TALL + i],)
            unit = reduced
    size = tl.sqrt(dot_columns(unit, unit, 0, 0, TALL))
    completed = ()
    for column in tl.static_range(WIDE):
        for i in tl.static_range(TALL):
            if column == k:
                completed = completed + (tl.where(missing, unit[i] / size, left[column * TALL + i]),)
            else:
                completed = completed + (left[column * TALL + i],)
    return completed


@triton.jit(do_not_specialize=["count"])
def polar_kernel(matrices, factors, count, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TALL: tl.constexpr,
                 WIDE: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """Factors (count, ROWS, COLUMNS) of matrices of that shape; TALL is the larger of ROWS and COLUMNS."""
    place = tl.program_id(0) * LANES + tl.arange(0, LANES)
    real = place < count
    at = place.to(tl.int64) * (ROWS * COLUMNS)
    BY_COLUMN: tl.constexpr = COLUMNS if ROWS >= COLUMNS else 1  # from an element to the next of its long column
    TO_NEXT: tl.constexpr = 1 if ROWS >= COLUMNS else COLUMNS
    left = ()
    right = ()
    largest = tl.zeros((LANES,), tl.float64)
    for k in tl.static_range(WIDE):
        for i in tl.static_range(TALL):
            left = left + (tl.load(matrices + at + (i * BY_COLUMN + k * TO_NEXT), mask=real, other=0.0),)
            largest = tl.maximum(largest, tl.abs(left[k * TALL + i]))
        for i in tl.static_range(WIDE):
            right = right + (tl.full((LANES,), 1.0 if i == k else 0.0, tl.float64),)
    scale = tl.where(largest > 0, largest, 1.0)  # squares neither overflow nor vanish
    scaled = ()
    for k in tl.static_range(WIDE * TALL):
        scaled = scaled + (left[k] / scale,)
    left = scaled
    near = ROUND * TALL  # sums are not rounded better
    for _ in range(SWEEPS):
        for j in tl.static_range(WIDE):
            for k in tl.static_range(j + 1, WIDE):
                of_j = dot_columns(left, left, j, j, TALL)
                of_k = dot_columns(left, left, k, k, TALL)
                both = dot_columns(left, left, j, k, TALL)
                needed = both * both > near * near * of_j * of_k
                zeta = (of_k - of_j) / tl.where(needed, 2.0 * both, 1.0)
                longer = tl.abs(zeta) + tl.sqrt(1.0 + zeta * zeta)
                tangent = tl.where(needed, tl.where(zeta >= 0, 1.0, -1.0) / longer, 0.0)
                cosine = 1.0 / tl.sqrt(1.0 + tangent * tangent)
                left = turn_columns(left, j, k, cosine, cosine * tangent, TALL, WIDE)
                right = turn_columns(right, j, k, cosine, cosine * tangent, WIDE, WIDE)
    sizes = ()
    longest = tl.zeros((LANES,), tl.float64)
    for k in tl.static_range(WIDE):
        sizes = sizes + (tl.sqrt(dot_columns(left, left, k, k, TALL)),)
        longest = tl.maximum(longest, sizes[k])
    zero = longest * near
    units = ()
    for k in tl.static_range(WIDE):
        found = sizes[k] > zero
        for i in tl.static_range(TALL):
            units = units + (tl.where(found, left[k * TALL + i] / tl.where(found, sizes[k], 1.0), 0.0),)
    left = units
    for k in tl.static_range(WIDE):
        left = complete(left, ~(sizes[k] > zero), k, TALL, WIDE)
    for i in tl.static_range(TALL):
        for j in tl.static_range(WIDE):
            total = tl.zeros((LANES,), tl.float64)
            for k in tl.static_range(WIDE):
                total += left[k * TALL + i] * right[k * WIDE + j]
            tl.store(factors + at + (i * BY_COLUMN + j * TO_NEXT), total, mask=real)


def orthonormal(matrices: Tensor) -> Tensor:
    """U V' (B, R, C) of the singular vectors of small float64 matrices."""
    count, rows, columns = matrices.shape
    factors = torch.empty_like(matrices)
    if count:
        launch(
            polar_kernel,
            (ceil_div(count, LANES),),
            (matrices.contiguous(), factors),
            (count,),
            LANES // 32,
            ROWS=rows,
            COLUMNS=columns,
            TALL=max(rows, columns),
            WIDE=min(rows, columns),
            LANES=LANES,
        )
    return factors
