"""Soft-DTW on a GPU: the kernels in ops/gpu give values and the shares of each cell's predecessors; here these are
walked back for the expected alignment E, from which the gradients of the sequences are summed.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.gpu import Pairs, values
from likewise.ops.gpu.common import launch
from likewise.ops.gpu.costs import skewed_costs
from likewise.ops.gpu.diagonals import (
    FEW_CHANNELS,
    STEPS,
    Record,
    pair_lengths,
    report,
    row_blocks,
    run_diagonals,
    skewed,
    take_number,
    wait_for,
)
from likewise.ops.rules import Rules

CELLS_AT_ONCE = 1 << 28  # cells whose shares and expectations are kept at once, twelve bytes each


def value(x: Tensor, y: Tensor | None, x_lengths: Any, y_lengths: Any, gamma: float, root: bool, *rules: Any) -> Tensor:
    """Values of pairs, (B,)."""
    return values(_pairs(x, y, x_lengths, y_lengths, gamma, root, *rules))


def matrix(x: Tensor, y: Tensor, x_lengths: Any, y_lengths: Any, symmetric: bool, *rules: Any) -> Tensor:
    """Values of all pairs, (N, M)."""
    return values(_pairs(x, y, x_lengths, y_lengths, *rules, all_pairs=True)).reshape(len(x), len(y))


def value_with_grad(
    x: Tensor, y: Tensor, x_lengths: Any, y_lengths: Any, gamma: float, root: bool, *rules: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Values of pairs and their gradients, each pair by itself."""
    pairs = _pairs(x, y, x_lengths, y_lengths, gamma, root, *rules)
    found, x_grad, y_grad = [], torch.empty_like(x), torch.empty_like(y)
    for first, last in _chunks(pairs, 1):
        kept, expected, cost = _expected(pairs, first, last)
        _gradients(pairs, expected, cost, first, last, x_grad[first:last], y_grad[first:last])
        pairs.require_finite(kept.outcome)
        found.append(kept.values)
    return _joined(found, x), x_grad, y_grad


def matrix_gradient(
    weights: Tensor, x: Tensor, y: Tensor, x_lengths: Any, y_lengths: Any, gamma: float, root: bool, *rules: Any
) -> tuple[Tensor, Tensor]:
    """Sum of weights (N, M) * d value over all pairs."""
    pairs = _pairs(x, y, x_lengths, y_lengths, gamma, root, *rules, all_pairs=True)
    x_grad, y_grad = torch.zeros_like(x), torch.zeros_like(y)
    for first, last in _chunks(pairs, len(y)):  # whole rows
        kept, expected, cost = _expected(pairs, first, last)
        each_x = x.new_empty(last - first, *x.shape[1:])
        each_y = y.new_empty(last - first, *y.shape[1:])
        _gradients(pairs, expected, cost, first, last, each_x, each_y)
        pairs.require_finite(kept.outcome)
        rows = slice(first // len(y), last // len(y))
        scale = weights[rows].reshape(-1, 1, 1)
        x_grad[rows] = (each_x * scale).unflatten(0, (-1, len(y))).sum(1)
        y_grad += (each_y * scale).unflatten(0, (-1, len(y))).sum(0)
    return x_grad, y_grad


def plan(cost: Tensor, x_lengths: Any, y_lengths: Any, gamma: float, *rules: Any) -> tuple[Tensor, Tensor]:
    """Values and expected alignments of given costs."""
    pairs = _pairs(cost, None, x_lengths, y_lengths, gamma, False, *rules)
    found, plans = [], torch.empty_like(cost)
    for first, last in _chunks(pairs, 1):
        kept, expected, _ = _expected(pairs, first, last)
        pairs.require_finite(kept.outcome)
        plans[first:last] = expected
        found.append(kept.values)
    return _joined(found, cost), plans


def hessian(cost: Tensor, tangent: Tensor, x_lengths: Any, y_lengths: Any, gamma: float, *rules: Any) -> Tensor:
    """Derivative of the plan in the direction of the tangent: Mensch & Blondel (2018), arXiv:1802.03676.

    Forwards, R' = tangent + sum_k share_k R'_k and share_k' = -share_k (R'_k - sum_l share_l R'_l) / gamma;
    backwards, E' gathers share' E + share E'.
    """
    pairs = _pairs(cost, None, x_lengths, y_lengths, gamma, False, *rules)
    product = torch.empty_like(cost)
    for first, last in _chunks(pairs, 1):
        kept, expected, _ = _expected(pairs, first, last)
        r, mean = _walk_forward(pairs, kept, tangent[first:last], first, last)
        up_change = -kept.up * (_shifted(r, 1, 0) - mean) / gamma
        left_change = -kept.left * (_shifted(r, 0, 1) - mean) / gamma
        source = (
            _shifted(up_change * expected, -1, 0)
            + _shifted(left_change * expected, 0, -1)
            - _shifted((up_change + left_change) * expected, -1, -1)
        )
        if pairs.rules.open_end:  # how the value enters the last row changes too
            here, ends = torch.arange(last - first, device=cost.device), pairs.lengths()[0][first:last] - 1
            last_row, seeds = r[here, ends], _seeds(kept)  # (pairs, Ty)
            source[here, ends] -= seeds * (last_row - (seeds * last_row).sum(1, keepdim=True)) / gamma
        product[first:last] = _walk_back(pairs, kept, first, last, source)
    return product


def _pairs(
    x: Tensor, y: Tensor | None, x_lengths: Any, y_lengths: Any, gamma: float, root: bool, *rules: Any,
    all_pairs: bool = False,
) -> Pairs:  # fmt: skip
    scale, given = 1 / (gamma * math.log(2)), Rules.from_plain(*rules)
    return Pairs("soft_dtw", x, y, x_lengths, y_lengths, given, soft=True, scale=scale, root=root, all_pairs=all_pairs)


def _chunks(pairs: Pairs, group: int) -> list[tuple[int, int]]:
    x_steps, y_steps = pairs.steps
    chunk = max(1, CELLS_AT_ONCE // max(1, x_steps * y_steps * group)) * max(1, group)
    return [(first, min(first + chunk, pairs.count)) for first in range(0, pairs.count, chunk)]


def _joined(found: list[Tensor], like: Tensor) -> Tensor:
    """Values of all chunks."""
    return found[0] if len(found) == 1 else torch.cat([like.new_empty(0), *found])


def _expected(pairs: Pairs, first: int, last: int) -> tuple[Record, Tensor, Tensor | None]:
    """What the kernel kept of pairs first..last-1, their expected alignments, skewed, and their costs if computed."""
    cost = None
    if pairs.y is not None and (pairs.root or pairs.x.shape[2] > FEW_CHANNELS):
        cost = skewed_costs(pairs, first, last)
    kept = run_diagonals(pairs, first, last, record=True, cost=cost)
    return kept, _walk_back(pairs, kept, first, last), cost


def _seeds(kept: Record) -> Tensor:
    """Open at the end: how d value enters the last row of each pair, (pairs, Ty)."""
    return torch.softmax(-kept.last_row * math.log(2), 1).to(kept.up.dtype)


def _shifted(x: Tensor, down: int, right: int) -> Tensor:
    """x (pairs, Tx, Ty) moved down and right by one step, up and left if negative, with zeros coming in."""
    moved = torch.zeros_like(x)
    to_i, from_i = _overlap(down)
    to_j, from_j = _overlap(right)
    moved[:, to_i, to_j] = x[:, from_i, from_j]
    return moved


def _overlap(step: int) -> tuple[slice, slice]:
    if step == 0:
        return slice(None), slice(None)
    return (slice(1, None), slice(None, -1)) if step > 0 else (slice(None, -1), slice(1, None))


@triton.jit
def back_inputs(up_shares, left_shares, seeds, source, at, i, j, n, m, x_steps, SOURCE: tl.constexpr,
                OPEN_END: tl.constexpr):  # fmt: skip
    """What the step to cells (i, j) reads: the shares that the cells right of it and below it gave it (lanes i and
    i + 1, one antidiagonal on), and what enters there.
    """
    valid = (j >= 0) & (j < m) & (i < n)
    left_of_right = tl.load(left_shares + at + x_steps, mask=valid & (j + 1 < m), other=0.0)
    up_of_below = tl.load(up_shares + at + x_steps + 1, mask=valid & (i + 1 < n), other=0.0)
    left_of_below = tl.load(left_shares + at + x_steps + 1, mask=valid & (i + 1 < n), other=1.0)
    if SOURCE:
        enters = tl.load(source + at, mask=valid, other=0.0)
    elif OPEN_END:
        enters = tl.load(seeds + j, mask=valid & (i == n - 1), other=0.0)
    else:
        enters = tl.where((i == n - 1) & (j == m - 1), 1.0, 0.0).to(left_of_right.dtype)
    return left_of_right, up_of_below, left_of_below, enters


@triton.jit
def back_kernel(up_shares, left_shares, seeds, source, expected, edges, progress, x_lengths, y_lengths, first_pair,
                columns, blocks, x_steps, y_steps, ALL_PAIRS: tl.constexpr, FULL: tl.constexpr, SOURCE: tl.constexpr,
                OPEN_END: tl.constexpr, BLOCKS: tl.constexpr, LANES: tl.constexpr, STEPS: tl.constexpr):  # fmt: skip
    """E(i, j) = left(i, j+1) E(i, j+1) + up(i+1, j) E(i+1, j) + diagonal(i+1, j+1) E(i+1, j+1) + source(i, j).

    diagonals_kernel's scheme backwards: from the last antidiagonal to the first, each block of rows taking the row
    below its last from the block below. Without SOURCE, 1 enters at the last cell or, open at the end, `seeds`
    (pairs, y_steps) enter the last row.
    """
    number = take_number(progress, BLOCKS)
    local = (number // blocks).to(tl.int64)
    block = blocks - 1 - number % blocks
    n, m = pair_lengths(local + first_pair, x_lengths, y_lengths, columns, x_steps, y_steps, ALL_PAIRS, FULL)
    plane = local * (x_steps + y_steps - 1) * x_steps
    seeds += local * y_steps
    edge_out = edges + number.to(tl.int64) * y_steps
    edge_in = edge_out - y_steps
    done_out = progress + 1 + number
    done_in = done_out - 1
    dtype = expected.dtype.element_ty
    lane = tl.arange(0, LANES)
    top = block * LANES
    i = top + lane
    steps = tl.where(top < n, tl.minimum(n - top, LANES) + m - 1, 0)
    follows = top + LANES < n  # there is a block below
    right = tl.zeros((LANES,), dtype)
    below_next = right  # E of the row below, one column further, and the share that its diagonal gave
    share_next = right
    known = tl.full([], 0, tl.int32)
    at = plane + (top + steps - 1).to(tl.int64) * x_steps + i
    ahead = ()
    edge_ahead = ()
    if BLOCKS:
        if follows:
            known = wait_for(done_in, known, tl.minimum(m, STEPS))
    for u in tl.static_range(STEPS):
        j = steps - 1 - u - lane
        ahead = ahead + (back_inputs(up_shares, left_shares, seeds, source, at - u * x_steps, i, j, n, m, x_steps,
                                     SOURCE, OPEN_END),)  # fmt: skip
        edge = tl.full([], 0.0, dtype)
        if BLOCKS:
            column = steps - 1 - u - (LANES - 1)
            edge = tl.load(edge_in + column, mask=follows & (column >= 0), other=0.0, cache_modifier=".cg")
        edge_ahead = edge_ahead + (edge,)
    for chunk in range((steps + STEPS - 1) // STEPS):
        now = ahead
        edge_now = edge_ahead
        coming = (chunk + 1) * STEPS
        if BLOCKS:
            if follows:
                known = wait_for(done_in, known, tl.minimum(m, coming + STEPS))
        ahead = ()
        edge_ahead = ()
        for u in tl.static_range(STEPS):
            j = steps - 1 - coming - u - lane
            ahead = ahead + (back_inputs(up_shares, left_shares, seeds, source, at - (STEPS + u) * x_steps, i, j, n, m,
                                         x_steps, SOURCE, OPEN_END),)  # fmt: skip
            edge = tl.full([], 0.0, dtype)
            if BLOCKS:
                column = steps - 1 - coming - u - (LANES - 1)
                edge = tl.load(edge_in + column, mask=follows & (column >= 0), other=0.0, cache_modifier=".cg")
            edge_ahead = edge_ahead + (edge,)
        for u in tl.static_range(STEPS):
            j = steps - 1 - chunk * STEPS - u - lane
            valid = (j >= 0) & (j < m) & (i < n)
            left_of_right, up_of_below, left_of_below, value = now[u]
            below = tl.gather(right, tl.minimum(lane + 1, LANES - 1), 0)
            below = tl.where(lane == LANES - 1, edge_now[u], below)
            value += left_of_right * right + up_of_below * below + share_next * below_next
            value = tl.where(valid, value, 0.0)
            tl.store(expected + at, value, mask=valid)
            if BLOCKS:
                tl.store(edge_out + j, value, mask=valid & (lane == 0))
            right = value
            below_next = below
            share_next = tl.maximum(1.0 - up_of_below - left_of_below, 0.0)
            at -= x_steps
        if BLOCKS:
            if (chunk % 4 == 3) | (coming >= steps):
                # Lane 0, which the block above reads, is the last to begin.
                report(done_out, coming - (tl.minimum(n - top, LANES) - 1))


@triton.jit
def tangent_kernel(up_shares, left_shares, tangent, result, mean, edges, progress, x_lengths, y_lengths, first_pair,
                   columns, blocks, x_steps, y_steps, ALL_PAIRS: tl.constexpr, FULL: tl.constexpr,
                   BLOCKS: tl.constexpr, LANES: tl.constexpr, STEPS: tl.constexpr):  # fmt: skip
    """mean(i, j) = up(i, j) r(i-1, j) + left(i, j) r(i, j-1) + diagonal(i, j) r(i-1, j-1); r = tangent + mean."""
    number = take_number(progress, BLOCKS)
    local = (number // blocks).to(tl.int64)
    block = number % blocks
    n, m = pair_lengths(local + first_pair, x_lengths, y_lengths, columns, x_steps, y_steps, ALL_PAIRS, FULL)
    plane = local * (x_steps + y_steps - 1) * x_steps
    edge_out = edges + number.to(tl.int64) * y_steps
    edge_in = edge_out - y_steps
    done_out = progress + 1 + number
    done_in = done_out - 1
    dtype = result.dtype.element_ty
    lane = tl.arange(0, LANES)
    top = block * LANES
    i = top + lane
    steps = tl.where(top < n, tl.minimum(n - top, LANES) + m - 1, 0)
    before = tl.zeros((LANES,), dtype)
    above_before = before
    known = tl.full([], 0, tl.int32)
    at = plane + top.to(tl.int64) * x_steps + i
    for step in range(steps):
        j = step - lane
        valid = (j >= 0) & (j < m) & (i < n)
        up = tl.load(up_shares + at, mask=valid, other=0.0)
        left = tl.load(left_shares + at, mask=valid, other=0.0)
        v = tl.load(tangent + at, mask=valid, other=0.0)
        edge = tl.full([], 0.0, dtype)
        if BLOCKS:
            if block > 0:
                known = wait_for(done_in, known, tl.minimum(m, step + 1))
                edge = tl.load(edge_in + step, mask=step < m, other=0.0, cache_modifier=".cg")
        above = tl.where(lane == 0, edge, tl.gather(before, tl.maximum(lane - 1, 0), 0))
        average = up * above + left * before + (1.0 - up - left) * above_before
        tl.store(mean + at, average, mask=valid)
        tl.store(result + at, average + v, mask=valid)
        if BLOCKS:
            tl.store(edge_out + j, average + v, mask=valid & (lane == LANES - 1))
            if (step % STEPS == STEPS - 1) | (step == steps - 1):
                report(done_out, step + 1 - (LANES - 1))
        before = tl.where(valid, average + v, 0.0)
        above_before = above
        at += x_steps


@triton.jit
def gradient_kernel(x, y, expected, cost, grad, x_lengths, y_lengths, first_pair, columns, x_steps, y_steps, C,
                    ALL_PAIRS: tl.constexpr, FULL: tl.constexpr, ROOT: tl.constexpr, FOR_Y: tl.constexpr,
                    BLOCK: tl.constexpr, CHANNELS: tl.constexpr):  # fmt: skip
    """grad(i, c) = sum_j weight(i, j) (x(i, c) - y(j, c)), weight = 2 E, or E / cost for the Euclidean cost; FOR_Y the
    same with the sequences exchanged.

    As matrix products, with both sequences taken relative to one of their frames, so that a common offset costs no
    digits.
    """
    local = tl.program_id(0).to(tl.int64)
    pair = local + first_pair
    n, m = pair_lengths(pair, x_lengths, y_lengths, columns, x_steps, y_steps, ALL_PAIRS, FULL)
    x += (pair // columns if ALL_PAIRS else pair) * x_steps * C
    y += (pair % columns if ALL_PAIRS else pair) * y_steps * C
    plane = local * (x_steps + y_steps - 1) * x_steps
    lane = tl.arange(0, BLOCK)
    own = tl.program_id(1) * BLOCK
    k = own + lane
    c = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    length = m if FOR_Y else n
    other_length = n if FOR_Y else m
    others = x if FOR_Y else y
    at = k[:, None].to(tl.int64) * C + c[None, :]
    origin = tl.load(others + c, mask=c < C, other=0.0)[None, :]
    frames = tl.load((y if FOR_Y else x) + at, mask=(k < length)[:, None] & (c < C)[None, :], other=0.0) - origin
    dtype = grad.dtype.element_ty
    weights = tl.zeros((BLOCK,), dtype)
    product = tl.zeros((BLOCK, CHANNELS), dtype)
    for start in range(0, tl.where(own < length, other_length, 0), BLOCK):
        top = start if FOR_Y else own
        first = own if FOR_Y else start
        # A tile of E, read by antidiagonals: row d holds (first + d - i, top + i).
        d = tl.arange(0, 2 * BLOCK)[:, None]
        j_local = d - lane[None, :]
        inside = (j_local >= 0) & (j_local < BLOCK) & (first + j_local < m) & (top + lane < n)[None, :]
        cell = plane + (top + first + d).to(tl.int64) * x_steps + (top + lane)[None, :]
        weight = tl.load(expected + cell, mask=inside, other=0.0)
        if ROOT:
            distance = tl.load(cost + cell, mask=inside, other=0.0)
            weight = tl.where(distance > 0, weight / distance, 0.0)
        else:
            weight *= 2.0
        tile = tl.gather(weight, lane[:, None] + lane[None, :], 0)  # (j, i)
        if not FOR_Y:
            tile = tl.trans(tile)
        k_other = start + lane
        other = tl.load(others + k_other[:, None].to(tl.int64) * C + c[None, :],
                        mask=(k_other < other_length)[:, None] & (c < C)[None, :], other=0.0)  # fmt: skip
        other = tl.where((k_other < other_length)[:, None], other - origin, 0.0)
        weights += tl.sum(tile, 1)
        product += tl.dot(tile, other, input_precision="ieee" if dtype == tl.float64 else "tf32x3", out_dtype=dtype)
    total = tl.where((k < length)[:, None], weights[:, None] * frames - product, 0.0)
    steps = y_steps if FOR_Y else x_steps
    tl.store(grad + local * steps * C + at, total, mask=(k < steps)[:, None] & (c < C)[None, :])


def _walk_back(pairs: Pairs, kept: Record, first: int, last: int, source: Tensor | None = None) -> Tensor:
    """Expected alignments, skewed; or, with a source, what the same walk gathers of it."""
    expected, open_end = _like(pairs, kept), pairs.rules.open_end
    seeds = _seeds(kept) if open_end else kept.up
    added = kept.up if source is None else _like(pairs, kept).copy_(source)
    flags = {"SOURCE": source is not None, "OPEN_END": open_end}
    _run(back_kernel, pairs, kept, (seeds, added, expected), first, last, **flags)
    return expected


def _walk_forward(pairs: Pairs, kept: Record, tangent: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
    result, mean = _like(pairs, kept), _like(pairs, kept)
    _run(tangent_kernel, pairs, kept, (_like(pairs, kept).copy_(tangent), result, mean), first, last)
    return result, mean


def _like(pairs: Pairs, kept: Record) -> Tensor:
    full = pairs.x_lengths is None and pairs.y_lengths is None
    return skewed(kept.up, *kept.up.shape, zero=not full)  # padding is not written


def _run(
    kernel: Any,
    pairs: Pairs,
    kept: Record,
    tensors: tuple[Tensor, ...],
    first: int,
    last: int,
    **flags: bool,
) -> None:
    x_steps, y_steps = pairs.steps
    lanes, blocks, *joints = row_blocks(kept.up, last - first, x_steps, y_steps, kept.up.dtype)
    full = pairs.x_lengths is None and pairs.y_lengths is None
    x_lengths, y_lengths = (kept.up, kept.up) if full else pairs.lengths()
    sizes = (first, pairs.columns, blocks, x_steps, y_steps)
    launch(
        kernel,
        ((last - first) * blocks,),
        (kept.up, kept.left, *tensors, *joints, x_lengths, y_lengths),
        sizes,
        lanes // 32,
        ALL_PAIRS=pairs.all_pairs,
        FULL=full,
        **flags,
        BLOCKS=blocks > 1,
        LANES=lanes,
        STEPS=STEPS,
    )


def _gradients(
    pairs: Pairs, expected: Tensor, cost: Tensor | None, first: int, last: int, x_grad: Tensor, y_grad: Tensor
) -> None:
    """Write each pair's own gradients."""
    x_steps, y_steps = pairs.steps
    x, y, channels = pairs.x.detach().contiguous(), pairs.y.detach().contiguous(), pairs.x.shape[2]
    full = pairs.x_lengths is None and pairs.y_lengths is None
    x_lengths, y_lengths = (x, x) if full else pairs.lengths()
    block, wide = 32, min(64, max(16, triton.next_power_of_2(channels)))  # several programs share a processor
    sizes = (first, pairs.columns, x_steps, y_steps, channels)
    for grad, steps in ((x_grad, x_steps), (y_grad, y_steps)):
        launch(
            gradient_kernel,
            (last - first, triton.cdiv(steps, block), triton.cdiv(channels, wide)),
            (x, y, expected, expected if cost is None else cost, grad, x_lengths, y_lengths),
            sizes,
            4,
            ALL_PAIRS=pairs.all_pairs,
            FULL=full,
            ROOT=pairs.root,
            FOR_Y=grad is y_grad,
            BLOCK=block,
            CHANNELS=wide,
        )
