"""Calls of DTW's CPU kernels: the choice of the kernel, and the division among threads."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise.ops import cpu
from likewise.ops.rules import Rules

Lengths = Tensor | None

# Cells times channels of a pair. Pairs below this are always computed in lanes, regardless of their number: the last
# bit of a value then depends neither on the number of pairs nor on whether a search found it.
LONG_WORK = 1 << 20
SHARED_WORK = 1 << 23  # shorter pairs are not shared by threads
# Steps of both sequences. The rounding errors of a sum in float32 grow with the number of its terms, and costs that are
# small beside the sum are lost: values of longer pairs are computed in float64.
LONGEST_IN_FLOAT32 = 4096


def value(x: Tensor, y: Tensor | None, x_lengths: Lengths, y_lengths: Lengths, root: bool, *rules: Any) -> Tensor:
    """DTW of paired sequences, or of given costs without y."""
    problem = cpu.problem("dtw", x, y, x_lengths, y_lengths, Rules.from_plain(*rules), root=root)
    if problem.loses_digits(LONGEST_IN_FLOAT32):
        wide = value(x.double(), y if y is None else y.double(), x_lengths, y_lengths, root, *rules)
        return cpu.finite_values("dtw", wide.float())
    values, pairs = x.new_empty(problem.pairs), torch.arange(problem.pairs)
    blocks = -(-problem.pairs // problem.lanes)
    if y is None or _prefers_pairs(problem, len(pairs), blocks * problem.lanes, blocks):
        _run_pairs(problem, pairs, values)
    else:
        problem.run_blocks(cpu.native.dtw_blocks, pairs, values.data_ptr())
    return cpu.finite_values("dtw", values)


def matrix(
    x: Tensor, y: Tensor, x_lengths: Lengths, y_lengths: Lengths, symmetric: bool, root: bool, *rules: Any
) -> Tensor:
    """DTW of all pairs; symmetric: x against itself, and each pair is computed once."""
    problem = cpu.problem("dtw", x, y, x_lengths, y_lengths, Rules.from_plain(*rules), root=root, all_pairs=True)
    if problem.loses_digits(LONGEST_IN_FLOAT32):
        wide = matrix(x.double(), y.double(), x_lengths, y_lengths, symmetric, root, *rules)
        return cpu.finite_values("dtw", wide.float())
    rows, columns, lanes = len(x), len(y), problem.lanes
    values = x.new_empty(rows, columns)
    blocks = -(-columns // lanes)
    runs = sum(min(rows, (b + 1) * lanes) for b in range(blocks)) if symmetric else rows * blocks
    count = rows * (rows - 1) // 2 if symmetric else rows * columns
    long = problem.cells * x.shape[2] >= LONG_WORK
    if long and _prefers_pairs(problem, count, runs * lanes, blocks * -(-rows // cpu.TILE_ROWS)):
        # By columns: the layout of y is computed once for all pairs of a column.
        column, row = torch.tril_indices(rows, rows, -1) if symmetric else _grid(columns, rows)
        _run_pairs(problem, row * columns + column, values)
        if symmetric:
            values.fill_diagonal_(0.0)  # the cost of a frame with itself is exactly 0
            values[column, row] = values[row, column]
    elif columns < lanes // 2:
        problem.run_blocks(cpu.native.dtw_blocks, torch.arange(problem.pairs), values.data_ptr())
    else:
        problem.run_tiles(cpu.native.dtw_tile, values, symmetric)
    return cpu.finite_values("dtw", values)


def _grid(rows: int, columns: int) -> Tensor:
    """Indices (2, rows * columns) of all cells of a matrix, row by row."""
    return torch.stack([torch.arange(rows).repeat_interleave(columns), torch.arange(columns).repeat(rows)])


def _prefers_pairs(problem: cpu.Problem, pairs: int, in_lanes: int, parts: int) -> bool:
    """Whether the kernel for one pair at a time is faster than the one whose lanes are pairs.

    in_lanes: the pairs that the latter computes, including idle lanes; parts: the pieces into which threads can divide
    it.
    """
    threads = torch.get_num_threads()
    if pairs < problem.lanes * threads // 2:
        return problem.pairs > 0
    group = cpu.native.dtw_group(cpu.INSTRUCTION_SET, problem.x.dtype == torch.float64)
    steps_x, steps_y = problem.x.shape[1], problem.longest_y
    # The lanes of a pair are rows, in whole staggered groups. Its kernel is half as fast otherwise.
    alone = 2 * pairs * (-(-steps_x // group) * group) * (steps_y + group)
    together = in_lanes * steps_x * steps_y * max(1.0, threads / max(parts, 1))
    return alone < together * (4 if problem.overflows_cache else 1)


def _run_pairs(problem: cpu.Problem, pairs: Tensor, values: Tensor) -> None:
    """Values of the listed pairs, one at a time. Each thread takes whole pairs; the remaining long ones are shared."""
    threads, channels = torch.get_num_threads(), 1 if problem.y is None else problem.x.shape[2]
    shared = len(pairs) % threads if len(pairs) < 8 * threads else 0
    if problem.cells * (channels + 2) < SHARED_WORK:
        shared = 0
    whole = len(pairs) - shared
    cpu.share_out(
        whole,
        problem.cells,
        lambda begin, end: cpu.native.dtw_values(
            cpu.INSTRUCTION_SET, problem.native, pairs.data_ptr(), values.data_ptr(), begin, end
        ),
    )
    for k in range(whole, len(pairs)):
        _share_pair(problem, pairs[k : k + 1], values, threads)


def _share_pair(problem: cpu.Problem, pair: Tensor, values: Tensor, threads: int) -> None:
    """The value of one pair, whose groups of rows the threads share.

    A group ends after the one above it, so at most ``threads`` of them are in progress, and only their last rows and
    the one before are kept. This does not hold across pairs, so each pair is shared separately.
    """
    group = cpu.native.dtw_group(cpu.INSTRUCTION_SET, values.dtype == torch.float64)
    row = pair // len(problem.y_lengths) if problem.all_pairs else pair
    groups = -(-int(problem.x_lengths[row]) // group)
    first, state = np.array([0, groups]), np.zeros(2 + groups, np.int64)
    between = values.new_empty(threads + 1, problem.longest_y + 1 + 2 * group)
    cpu.share_out(
        threads,
        problem.cells,
        lambda begin, end: cpu.native.dtw_shared_values(
            cpu.INSTRUCTION_SET,
            problem.native,
            pair.data_ptr(),
            first.ctypes.data,
            1,
            state.ctypes.data,
            between.data_ptr(),
            len(between),
            values.data_ptr(),
        ),
    )


def path(
    x: Tensor, y: Tensor | None, x_lengths: Lengths, y_lengths: Lengths, root: bool, *rules: Any
) -> tuple[Tensor, Tensor]:
    """Optimal paths of paired sequences, and their numbers of steps."""
    problem = cpu.problem("dtw", x, y, x_lengths, y_lengths, Rules.from_plain(*rules), root=root)
    paths = torch.full((problem.pairs, max(0, x.shape[1] + problem.longest_y - 1), 2), -1)
    steps = torch.empty(problem.pairs, dtype=torch.int64)
    problem.run(cpu.native.dtw_paths, paths.data_ptr(), steps.data_ptr())
    return paths, _found(steps, x.dtype)


def steps(x: Tensor, y: Tensor, x_lengths: Lengths, y_lengths: Lengths, root: bool, *rules: Any) -> Tensor:
    """Numbers of steps of the optimal paths of all pairs."""
    problem = cpu.problem("dtw", x, y, x_lengths, y_lengths, Rules.from_plain(*rules), root=root, all_pairs=True)
    steps = torch.empty(len(x), len(y), dtype=torch.int64)
    problem.run(cpu.native.dtw_paths, 0, steps.data_ptr())
    return _found(steps, x.dtype)


def matched(
    x: Tensor,
    y: Tensor,
    x_lengths: Lengths,
    y_lengths: Lengths,
    rows: Tensor,
    weights: Tensor,
    root: bool,
    *rules: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Values, and the sums and weights of the frames of y that match each frame of x."""
    problem = cpu.problem("dtw", x, y, x_lengths, y_lengths, Rules.from_plain(*rules), root=root, all_pairs=True)
    values = x.new_empty(len(y))
    order, weights = problem.by_length(rows * len(y) + torch.arange(len(y))), weights.contiguous()
    # Several pairs share an item of x: each part of them is summed separately. The number of parts is fixed, so the
    # sums do not depend on the number of threads.
    blocks = -(-len(y) // problem.lanes)
    parts = max(1, min(8, blocks))
    sums, counts = np.zeros((parts, *x.shape)), np.zeros((parts, *x.shape[:2]))

    def run_parts(begin: int, end: int) -> None:
        for part in range(begin, end):
            cpu.native.dtw_matched(
                cpu.INSTRUCTION_SET,
                problem.native,
                order.data_ptr(),
                len(order),
                weights.data_ptr(),
                sums[part].ctypes.data,
                counts[part].ctypes.data,
                values.data_ptr(),
                blocks * part // parts,
                blocks * (part + 1) // parts,
            )

    cpu.share_out(parts, problem.cells * max(1, len(y) // parts), run_parts)
    return cpu.finite_values("dtw", values), torch.from_numpy(sums.sum(0)), torch.from_numpy(counts.sum(0))


def _found(steps: Tensor, dtype: torch.dtype) -> Tensor:
    """Return steps if every pair has a path."""
    if np.count_nonzero(steps.numpy()) < steps.numel():  # faster than steps.all(), which matters for short paths
        pair = (steps == 0).nonzero()[0].tolist()
        _check.refuse("dtw", f"pair {pair} has no path: its costs overflow {dtype}")
    return steps


def gradient(
    weights: Tensor, x: Tensor, y: Tensor | None, x_lengths: Lengths, y_lengths: Lengths, root: bool, *rules: Any
) -> tuple[Tensor, Tensor]:
    """Sum of weights * d value, weights (B,) for pairs or (N, M) for all pairs."""
    all_pairs = weights.ndim == 2
    problem = cpu.problem("dtw", x, y, x_lengths, y_lengths, Rules.from_plain(*rules), root=root, all_pairs=all_pairs)
    weights = weights.contiguous()
    return problem.gradients(
        lambda x_grad, y_grad, begin, end: cpu.native.dtw_gradients(
            cpu.INSTRUCTION_SET, problem.native, weights.data_ptr(), x_grad, y_grad, begin, end
        )
    )
