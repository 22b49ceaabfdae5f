"""DTW on a GPU: the kernels in ops/engine compute values; paths are traced back from the moves that they record."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.engine import Pairs, values
from likewise.ops.engine.diagonals import Record, run_diagonals
from likewise.ops.launch.launcher import launch
from likewise.ops.rules import Rules

CELLS_AT_ONCE = 1 << 30  # moves in memory at once, one byte each
PATH_NUMBERS = 1 << 27  # numbers of the paths that are summed at once


def value(x: Tensor, y: Tensor | None, x_lengths: Any, y_lengths: Any, root: bool, *rules: Any) -> Tensor:
    """Values of pairs, (B,)."""
    return values(_pairs(x, y, x_lengths, y_lengths, root, *rules))


def matrix(x: Tensor, y: Tensor, x_lengths: Any, y_lengths: Any, symmetric: bool, root: bool, *rules: Any) -> Tensor:
    """Values of all pairs, (N, M)."""
    pairs = _pairs(x, y, x_lengths, y_lengths, root, *rules, all_pairs=True, symmetric=symmetric)
    return values(pairs).reshape(len(x), len(y))


def path(
    x: Tensor, y: Tensor | None, x_lengths: Any, y_lengths: Any, root: bool, *rules: Any, all_pairs: bool = False
) -> tuple[Tensor, Tensor]:
    """Optimal paths (pairs, Tx + Ty - 1, 2), padded with -1, and their numbers of steps."""
    pairs = _pairs(x, y, x_lengths, y_lengths, root, *rules, all_pairs=all_pairs)
    longest = max(0, sum(pairs.steps) - 1)
    backwards = torch.full((pairs.count, longest, 2), -1, dtype=torch.int64, device=x.device)
    found = _trace(pairs, backwards)
    # Reverse each path: step k is step (count - 1 - k) from the end.
    k = found[:, None] - 1 - torch.arange(longest, device=x.device)
    forwards = backwards.gather(1, k.clamp(min=0)[..., None].expand(-1, -1, 2))
    return forwards.masked_fill_((k < 0)[..., None], -1), found


def steps(x: Tensor, y: Tensor, x_lengths: Any, y_lengths: Any, root: bool, *rules: Any) -> Tensor:
    """Numbers of steps of the optimal paths of all pairs, (N, M)."""
    pairs = _pairs(x, y, x_lengths, y_lengths, root, *rules, all_pairs=True)
    return _trace(pairs, None).reshape(len(x), len(y))


def gradient(
    weights: Tensor, x: Tensor, y: Tensor | None, x_lengths: Any, y_lengths: Any, root: bool, *rules: Any
) -> tuple[Tensor, Tensor]:
    """Sum of weights * d value, along the paths."""
    all_pairs = weights.ndim == 2
    paths, steps = path(x, y, x_lengths, y_lengths, root, *rules, all_pairs=all_pairs)
    real = torch.arange(paths.shape[1], device=x.device) < steps[:, None]  # (pairs, K)
    i, j = paths.clamp(min=0).unbind(-1)
    each = weights.reshape(-1, 1) * real
    if y is None:
        plan = torch.zeros_like(x)
        plan.view(len(x), -1).scatter_add_(1, i * x.shape[2] + j, each)
        return plan, x.new_zeros(0)
    row, column = _pairs(x, y, x_lengths, y_lengths, root, *rules, all_pairs=all_pairs).items(0, len(paths))
    i, j = (row[:, None] * x.shape[1] + i).flatten(), (column[:, None] * y.shape[1] + j).flatten()
    frames_x, frames_y = x.reshape(-1, x.shape[2]), y.reshape(-1, y.shape[2])
    difference = frames_x[i] - frames_y[j]
    if root:
        distance = torch.linalg.vector_norm(difference, dim=1, keepdim=True)
        step = torch.where(distance > 0, difference / distance, 0)
    else:
        step = 2 * difference
    step = step * each.reshape(-1, 1)
    x_grad = torch.zeros_like(frames_x).index_add_(0, i, step)
    y_grad = torch.zeros_like(frames_y).index_add_(0, j, step, alpha=-1)
    return x_grad.view_as(x), y_grad.view_as(y)


def matched(
    x: Tensor, y: Tensor, x_lengths: Any, y_lengths: Any, rows: Tensor, weights: Tensor, root: bool, *rules: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Values (M,), and in float64 the sums (N, Tx, C) and weights (N, Tx) of the matches of each frame of x."""
    sums = torch.zeros(x.shape[0] * x.shape[1], x.shape[2], dtype=torch.float64, device=x.device)
    counts = torch.zeros(x.shape[0] * x.shape[1], dtype=torch.float64, device=x.device)
    found = [x.new_empty(0)]
    chunk = max(1, PATH_NUMBERS // max(1, 2 * (x.shape[1] + y.shape[1])))
    for first in range(0, len(y), chunk):
        part = slice(first, first + chunk)
        row = rows[part].to(x.device)
        lengths = None if x_lengths is None else x_lengths[row.to(x_lengths.device)]
        other = None if y_lengths is None else y_lengths[part]
        pair = x[row], y[part].contiguous(), lengths, other, root, *rules
        found.append(value(*pair))
        paths, steps = path(*pair)
        real = torch.arange(paths.shape[1], device=x.device) < steps[:, None]
        i, j = paths[real].unbind(-1)
        item = real.nonzero()[:, 0]
        frames, at = y[part][item, j].double(), row[item] * x.shape[1] + i
        weight = weights.to(x.device)[part][item]
        if root:
            weight = weight / torch.linalg.vector_norm(x[row][item, i].double() - frames, dim=1).clamp(min=1e-12)
        counts.index_add_(0, at, weight)
        sums.index_add_(0, at, weight[:, None] * frames)
    return torch.cat(found), sums.view(x.shape), counts.view(x.shape[:2])


def _trace(pairs: Pairs, paths: Tensor | None) -> Tensor:
    """Numbers of steps (pairs,) int64; writes the paths, last step first, if there is room for them."""
    x_steps, y_steps = pairs.steps
    found = torch.zeros(pairs.count, dtype=torch.int64, device=pairs.x.device)
    chunk = max(1, CELLS_AT_ONCE // max(1, x_steps * y_steps))
    for first in range(0, pairs.count, chunk):
        last = min(first + chunk, pairs.count)
        kept = run_diagonals(pairs, first, last, record=True)
        pairs.require_finite(kept.outcome)
        tensors = (kept.moves, *_ends(pairs, kept, first, last), found if paths is None else paths, found)
        sizes = (first, x_steps, y_steps, x_steps + y_steps - 1)
        launch(trace_kernel, (last - first,), tensors, sizes, 1, WRITE=paths is not None)
    return found


@triton.jit
def trace_kernel(moves, ends_x, ends_y, paths, steps, first_pair, x_steps, y_steps, longest, WRITE: tl.constexpr):
    """Walk back from the last cell; the path leaves the first row upwards."""
    local = tl.program_id(0).to(tl.int64)
    pair = local + first_pair
    moves += local * (x_steps + y_steps - 1) * x_steps  # skewed: cell (i, j) at (i + j) * x_steps + i
    paths += pair * longest * 2
    i = tl.load(ends_x + local)
    j = tl.load(ends_y + local)
    count = i * 0
    while i >= 0:
        if WRITE:
            tl.store(paths + count * 2, i)
            tl.store(paths + count * 2 + 1, j)
        count += 1
        move = tl.load(moves + (i + j) * x_steps + i)
        i -= (move != 2).to(tl.int64)
        j -= (move != 1).to(tl.int64)
    tl.store(steps + pair, count)


def _pairs(
    x: Tensor, y: Tensor | None, x_lengths: Any, y_lengths: Any, root: bool, *rules: Any, **options: bool
) -> Pairs:
    given = Rules.from_plain(*rules)
    return Pairs("dtw", x, y, x_lengths, y_lengths, given, soft=False, scale=1.0, root=root, **options)


def _ends(pairs: Pairs, kept: Record, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Last cell of each path."""
    item, other = pairs.items(first, last)
    x_lengths, y_lengths = pairs.lengths()
    ends_y = kept.last_row.argmin(1) if pairs.rules.open_end else y_lengths[other] - 1
    return x_lengths[item] - 1, ends_y
