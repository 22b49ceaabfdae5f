"""Costs of whole pairs, stored by antidiagonal: worth it when frames have many channels."""

import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.engine.diagonals import skewed
from likewise.ops.engine.inputs import Inputs
from likewise.ops.launch.arguments import ceil_div
from likewise.ops.launch.launcher import launch

BLOCK = 32  # side of a program's tile: small, so that several share a processor


@triton.jit(do_not_specialize=["first_pair", "columns", "x_steps", "y_steps"])
def cost_kernel(x, y, cost, first_pair, columns, x_steps, y_steps, C, ALL_PAIRS: tl.constexpr, ROOT: tl.constexpr,
                BLOCK: tl.constexpr):  # fmt: skip
    """Costs (pairs, Tx, Ty), skewed, of x (items, C, Tx) and y (items, C, Ty), a BLOCK x BLOCK tile each program."""
    local = tl.program_id(0).to(tl.int64)
    pair = local + first_pair
    x += (pair // columns if ALL_PAIRS else pair) * C * x_steps
    y += (pair % columns if ALL_PAIRS else pair) * C * y_steps
    top = tl.program_id(1) * BLOCK
    start = tl.program_id(2) * BLOCK
    i = top + tl.arange(0, BLOCK)
    j = start + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), cost.dtype.element_ty)  # (j, i)
    for start_c in range(0, C, 8):
        for u in tl.static_range(8):
            c = start_c + u
            x_c = tl.load(x + c * x_steps + i, mask=(i < x_steps) & (i * 0 + c < C), other=0.0)
            y_c = tl.load(y + c * y_steps + j, mask=(j < y_steps) & (j * 0 + c < C), other=0.0)
            e = x_c[None, :] - y_c[:, None]
            total += e * e
    if ROOT:
        total = tl.sqrt(total)
    # By antidiagonals, so that neighbours in memory are written together: row d holds (d - i, i).
    d = tl.arange(0, 2 * BLOCK)[:, None]
    j_local = d - tl.arange(0, BLOCK)[None, :]
    by_diagonal = tl.gather(total, tl.minimum(tl.maximum(j_local, 0), BLOCK - 1), 0)
    inside = (j_local >= 0) & (j_local < BLOCK) & (start + j_local < y_steps) & (i < x_steps)[None, :]
    at = local * (x_steps + y_steps - 1) * x_steps + (top + start + d).to(tl.int64) * x_steps + i[None, :]
    tl.store(cost + at, by_diagonal, mask=inside)


def skewed_costs(inputs: Inputs, first: int, last: int) -> Tensor:
    """Costs (last - first, Tx, Ty) of pairs first..last-1, skewed, of x and y as they are, unscaled; both turned."""
    pairs = inputs.pairs
    x_steps, y_steps = pairs.steps
    cost = skewed(inputs.x, last - first, x_steps, y_steps)
    launch(
        cost_kernel,
        (last - first, ceil_div(x_steps, BLOCK), ceil_div(y_steps, BLOCK)),
        (inputs.x_turned, inputs.y_turned, cost),
        (first, pairs.columns, x_steps, y_steps, inputs.x.shape[2]),
        4,
        ALL_PAIRS=pairs.all_pairs,
        ROOT=pairs.root,
        BLOCK=BLOCK,
    )
    return cost
