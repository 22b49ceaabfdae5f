"""Prepare x and y for the kernels in one launch: check numbers and lengths, and transpose.

Whether all numbers are finite must be known before a result is returned, which normally means waiting for the GPU. The
kernel here runs first and writes its answer to host memory. The host launches the other kernels, then waits only for
this answer, not for the alignment.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise import _check
from likewise.ops.engine.pairs import Pairs
from likewise.ops.launch.answers import Answer, free_answer
from likewise.ops.launch.arguments import ceil_div, float64_bits, float64_from, power_of_2
from likewise.ops.launch.launcher import launch, recorder

STEPS = 64  # steps that a program checks


@triton.jit
def look_through(frames, turned, lengths, checked, answer, item, steps, C, limit, GIVEN: tl.constexpr,
                 FULL: tl.constexpr, TURN: tl.constexpr, STEPS: tl.constexpr, CHANNELS: tl.constexpr):  # fmt: skip
    """Check and transpose some steps of one item of x or y."""
    start = tl.program_id(1) * STEPS
    t = start + tl.arange(0, STEPS)
    n = steps
    if GIVEN:
        length = tl.load(lengths + item)
        n = tl.minimum(tl.maximum(length, 1), steps.to(tl.int64)).to(tl.int32)
        tl.store(answer + 1, 1, mask=length != n.to(tl.int64))
    if not FULL:
        tl.store(checked + item, n.to(tl.int64), mask=start == 0)
    wrong = tl.zeros((STEPS, CHANNELS), tl.int32)
    for first in range(0, C, CHANNELS):
        c = first + tl.arange(0, CHANNELS)
        real = (t < n)[:, None] & (c < C)[None, :]
        tile = tl.load(frames + (item * steps + t)[:, None] * C + c[None, :], mask=real, other=0.0)
        wrong += tl.where(tl.abs(tile) <= limit, 0, 1)  # NaN is not
        if TURN:
            inside = (t < steps)[:, None] & (c < C)[None, :]
            tl.store(turned + (item * C + c)[None, :] * steps + t[:, None], tile, mask=inside)
    tl.store(answer, 1, mask=tl.sum(tl.sum(wrong, 1), 0) > 0)


@triton.jit(do_not_specialize=["x_items", "x_steps", "y_steps", "places", "limit_bits"])
def look_kernel(x, y, x_turned, y_turned, x_lengths, y_lengths, x_checked, y_checked, progress, answer, x_items,
                x_steps, y_steps, places, limit_bits, C, FULL: tl.constexpr, GIVEN_X: tl.constexpr,
                GIVEN_Y: tl.constexpr, TURN_X: tl.constexpr, TURN_Y: tl.constexpr, STEPS: tl.constexpr,
                CHANNELS: tl.constexpr):  # fmt: skip
    """Transpose x and y (items, steps, C) to (items, C, steps), clip lengths to 1..steps, zero `progress` (places,).

    `answer` gets 1 in its first place if a number is beyond the limit or not finite, in its second if a length is out
    of range. Programs: (items of x and then of y, blocks of steps).
    """
    item = tl.program_id(0).to(tl.int64)
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    for first in range(program * 128, places, tl.num_programs(0) * tl.num_programs(1) * 128):
        place = first + tl.arange(0, 128)
        tl.store(progress + place, tl.zeros((128,), tl.int32), mask=place < places)
    limit = float64_from(limit_bits).to(x.dtype.element_ty)
    if item < x_items:
        look_through(x, x_turned, x_lengths, x_checked, answer, item, x_steps, C, limit, GIVEN_X, FULL, TURN_X, STEPS,
                     CHANNELS)  # fmt: skip
    else:
        look_through(y, y_turned, y_lengths, y_checked, answer, item - x_items, y_steps, C, limit, GIVEN_Y, FULL,
                     TURN_Y, STEPS, CHANNELS)  # fmt: skip


@dataclass
class Inputs:
    """The inputs of the kernels. Unused tensors are x."""

    pairs: Pairs
    x: Tensor  # (items, Tx, C), or given costs
    x_turned: Tensor  # (items, C, Tx)
    y_turned: Tensor  # (items, C, Ty)
    y: Tensor
    full: bool  # every step is real
    x_lengths: Tensor
    y_lengths: Tensor
    progress: list[Tensor] = field(default_factory=list)  # zeros that are not in use yet
    answer: Answer | None = None

    def take_progress(self, places: int) -> Tensor:
        """Zeros (places,) int32."""
        if self.progress and self.progress[-1].shape[0] == places:
            return self.progress.pop()
        recorder.calls = None  # repeating the launches would not zero these
        return self.x.new_zeros(places, dtype=torch.int32)

    def require_fine(self, *found: Any) -> None:
        """Raise an error if a length is out of range, x or y is not finite, or results of these are too large."""
        if self.answer is None:
            return
        huge, beyond = self.answer.take()
        if beyond:
            self.pairs.lengths()
        if huge:
            self.pairs.require_finite()
            for kept in found:
                self.pairs.require_finite(kept.outcome)


def look(pairs: Pairs, *, turn_x: bool = False, turn_y: bool = False, places: int = 0, walks: int = 1) -> Inputs:
    """Prepare x and y, with zeros (places,) for the blocks of each walk; call ``require_fine`` after all launches."""
    assert pairs.y is not None
    x, y = pairs.x.contiguous(), pairs.y.contiguous()
    (x_steps, y_steps), channels = pairs.steps, x.shape[2]
    x_lengths = _given(pairs, "x_lengths", pairs.x_lengths, x_steps)
    y_lengths = _given(pairs, "y_lengths", pairs.y_lengths, y_steps)
    full = x_lengths is None and y_lengths is None
    progress = x.new_empty((walks, places), dtype=torch.int32) if places else x
    answer = free_answer(x)
    ready = Inputs(
        pairs,
        x,
        x_turned=x.new_empty(x.shape) if turn_x else x,
        y_turned=y.new_empty(y.shape) if turn_y else x,
        y=y,
        full=full,
        x_lengths=x if full else x.new_empty(len(x), dtype=torch.int64),
        y_lengths=x if full else x.new_empty(len(y), dtype=torch.int64),
        progress=list(progress.unbind()) if places else [],
        answer=answer,
    )
    launch(
        look_kernel,
        (len(x) + len(y), ceil_div(max(x_steps, y_steps), STEPS)),
        (
            x,
            y,
            ready.x_turned,
            ready.y_turned,
            x if x_lengths is None else x_lengths,
            x if y_lengths is None else y_lengths,
            ready.x_lengths,
            ready.y_lengths,
            progress,
            x.new_empty(2, dtype=torch.int32) if answer is None else answer.numbers,
        ),
        (len(x), x_steps, y_steps, walks * places, float64_bits(limit(pairs)), channels),
        4,
        FULL=full,
        GIVEN_X=x_lengths is not None,
        GIVEN_Y=y_lengths is not None,
        TURN_X=turn_x,
        TURN_Y=turn_y,
        STEPS=STEPS,
        CHANNELS=min(32, power_of_2(channels)),
    )
    if answer is not None:
        answer.mark()
    return ready


def unlooked(pairs: Pairs, *, turn_x: bool = False, turn_y: bool = False) -> Inputs:
    """Unchecked inputs, for given costs, or if the result is checked anyway."""
    x = pairs.x.detach().contiguous()
    y = x if pairs.y is None else pairs.y.detach().contiguous()
    full = pairs.x_lengths is None and pairs.y_lengths is None
    x_lengths, y_lengths = (x, x) if full else pairs.lengths()
    x_turned = x.transpose(1, 2).contiguous() if turn_x else x
    y_turned = y.transpose(1, 2).contiguous() if turn_y else x
    return Inputs(pairs, x, x_turned, y_turned, y, full, x_lengths, y_lengths)


def unless_full(lengths: Tensor | None, steps: int) -> Tensor | None:
    """The lengths, or None if every step is known to be real without a GPU synchronisation."""
    if lengths is None or (lengths.is_cpu and not (lengths.numpy() != steps).any()):
        return None
    return lengths


def _given(pairs: Pairs, name: str, lengths: Tensor | None, steps: int) -> Tensor | None:
    """Lengths on the device, or None if every step is real. Lengths on the CPU are checked there."""
    lengths = unless_full(lengths, steps)
    if lengths is None:
        return None
    if lengths.is_cpu:
        _check.lengths_range(pairs.op, name, lengths, steps)
    return lengths.contiguous().to(pairs.x.device)


def limit(pairs: Pairs) -> float:
    """The largest number of x and y with which no cost overflows and no value comes near UNREACHABLE."""
    channels = pairs.x.shape[2]
    largest = 1e28 / (sum(pairs.steps) * pairs.scale)  # cost
    square = min(largest * largest if pairs.root else largest, 1e37)
    return math.sqrt(square / (4 * channels))
