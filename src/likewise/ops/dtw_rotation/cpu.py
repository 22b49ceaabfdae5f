"""Calls of the CPU kernel: threads share the pairs, and each takes the next one when a lane is free."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise.ops import cpu
from likewise.ops.dtw.cpu import LONGEST_IN_FLOAT32
from likewise.ops.rules import Rules

ITERATIONS = 7  # typical, to divide the work


def rotation(
    x: Tensor,
    y: Tensor,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    start: Tensor,
    max_iter: int,
    bias: bool,
    all_pairs: bool,
    *rules: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values (B,), P (B, Cx, Cy), b (B, Cx) and whether the path did not change any more (B,), of B pairs."""
    given = Rules.from_plain(*rules)
    problem = cpu.problem("dtw_rotation", x, y, x_lengths, y_lengths, given, all_pairs=all_pairs)
    if problem.loses_digits(LONGEST_IN_FLOAT32):
        wide = x.double(), y.double(), x_lengths, y_lengths, start.double(), max_iter, bias, all_pairs
        values, rotations, offsets, converged = rotation(*wide, *rules)
        return cpu.finite_values("dtw_rotation", values.float()), rotations.float(), offsets.float(), converged
    count, channels, y_channels = problem.pairs, x.shape[2], y.shape[2]
    rotations, offsets = x.new_empty(count, channels, y_channels), x.new_zeros(count, channels)
    values, converged = x.new_empty(count), np.zeros(count, np.bool_)
    order, first = problem.by_length(torch.arange(count)), np.zeros(1, np.int64)
    start = start.contiguous()
    threads = min(torch.get_num_threads(), -(-count // problem.lanes))
    cpu.share_out(
        threads,
        problem.cells * count * min(ITERATIONS, max_iter),
        lambda begin, end: cpu.native.dtw_rotations(
            cpu.INSTRUCTION_SET,
            problem.native,
            y_channels,
            max_iter,
            bias,
            start.data_ptr(),
            order.data_ptr(),
            count,
            first.ctypes.data,
            rotations.data_ptr(),
            offsets.data_ptr(),
            values.data_ptr(),
            converged.ctypes.data,
        ),
    )
    return cpu.finite_values("dtw_rotation", values), rotations, offsets, torch.from_numpy(converged)
