"""GDTW on a GPU: the grid is searched (ops/gpu/warp_grid.py), the best path polished (warp_polish.py), and its
derivative computed (warp_gradient.py), all there.

The search is in x's precision, the rest in float64. All passes are launched without waiting for any; a solution waits
once, for a number per pair that tells whether it has settled. If one has not, if one must be refused, or for Huber's
loss, the C++ kernel polishes what the GPU finds on the grid. Derivatives wait for nothing.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
from torch import Tensor

from likewise.ops import cpu
from likewise.ops.gdtw import _Problem, _run
from likewise.ops.gpu.common import float64_bits, launch
from likewise.ops.gpu.warp_gradient import bends_kernel, response_kernel, x_gradient_kernel, y_gradient_kernel
from likewise.ops.gpu.warp_grid import PLAN, STATE, TILE, bellman_kernel, nodes_kernel, path_kernel, refine_kernel
from likewise.ops.gpu.warp_polish import polish_kernel
from likewise.ops.gpu.warp_table import SPLIT, WIDE, look_kernel, table_kernel

ROW_BYTES = 128 << 20  # room for the rows of all knots; more pairs than fit take turns
MOST_PASSES = 40
SETTLED, NOT_SEARCHED = 1, 2  # outcomes of polish_kernel


@dataclass(frozen=True)
class _Scratch:
    """What the kernels keep."""

    found: Tensor  # (B, Ty), the nodes of a path
    totals: Tensor  # (B,), its objective
    kept: Tensor  # (B (4 + Ty),): the states, then the best warps
    bounds: tuple[Tensor, ...]  # (B, Ty) each: low and high of the grid, and how wide the first was
    plan: Tensor  # (B, Ty, 8)
    rows: Tensor  # (B, Ty + 1, nodes)
    frames: Tensor  # x (B, C, Tx)

    def state_and_best(self) -> tuple[Tensor, Tensor]:
        count, knots = self.found.shape
        state, best = self.kept.split((STATE.value * count, count * knots))
        return state.view(count, STATE.value), best.view(count, knots)


@dataclass(frozen=True)
class _Search:
    """Pairs on the device."""

    x: Tensor  # (B, Tx, C)
    y: Tensor
    lengths: tuple[Tensor, Tensor]
    settings: tuple[Tensor, ...]  # times_x, times_y, reg, lower, upper, slope_min, slope_max
    subsequence: bool
    huber: float
    nodes: int
    refinements: int

    @classmethod
    def of(cls, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None, *given: Any) -> "_Search":
        *settings, subsequence, huber, nodes, refinements = given
        lengths = [
            torch.full((len(x),), steps, dtype=torch.int64, device=x.device)
            if each is None
            else each.to(x.device, torch.int64).contiguous()
            for each, steps in ((x_lengths, x.shape[1]), (y_lengths, y.shape[1]))
        ]
        x, y, *settings = (each.detach().contiguous() for each in (x, y, *settings))
        return cls(x, y, (lengths[0], lengths[1]), tuple(settings), subsequence, huber, nodes, refinements)

    def parts(self) -> "list[_Search]":
        """As many at a time as there is room for."""
        row = triton.cdiv(self.most_nodes(True), TILE.value) * TILE.value * self.y.element_size()
        at_once = min(65535, max(1, ROW_BYTES // (row * max(1, self.y.shape[1]))))  # CUDA's limit
        tensors = (self.x, self.y, *self.lengths, *self.settings)
        cut = zip(*(each.split(at_once) for each in tensors), strict=True)
        return [replace(self, x=c[0], y=c[1], lengths=c[2:4], settings=c[4:]) for c in cut if len(c[0])]

    def most_nodes(self, first: bool) -> int:
        """Nodes of the longest row, on the first pass or on those after it; ``node_count`` says more."""
        most = (self.nodes or max(self.x.shape[1], 50)) | 1
        if not first:
            most = min(most, max(most // 2, 50) | 1)
        return most - 2 if most > TILE.value and most % TILE.value == 1 else most

    def begin(self) -> _Scratch:
        """Launch as many passes as there will be, but for pairs whose grid moves on more than once."""
        scratch = self.scratch()
        self.lay_out(scratch, 0)
        for number in range(self.refinements + 2):
            self.run_pass(scratch, number)
        return scratch

    def solve(self) -> tuple[Tensor, ...] | None:
        """Values, warps and holds, if all pairs settle on the GPU."""
        scratch, passes = self.begin(), self.refinements + 2
        while True:
            *found, outcomes = self.polish(scratch)
            outcomes = outcomes.tolist()  # waits for the GPU
            if all(outcome == SETTLED for outcome in outcomes):
                return tuple(found)
            if passes >= MOST_PASSES or NOT_SEARCHED not in outcomes:
                return None
            self.run_more(scratch, passes)
            passes += 2

    def run_more(self, scratch: _Scratch, passes: int) -> None:
        """Two more passes, for pairs whose grid moves on."""
        for number in (passes, passes + 1):
            self.run_pass(scratch, number)

    def search(self) -> Tensor:
        """The best warps (B, Ty), on the host; NaN where the losses overflow."""
        scratch, passes = self.begin(), self.refinements + 2
        while True:
            state, best = replace(scratch, kept=scratch.kept.cpu()).state_and_best()
            if passes >= MOST_PASSES or bool(state[:, 3].all()):
                return best
            self.run_more(scratch, passes)
            passes += 2

    def polish(self, scratch: _Scratch) -> tuple[Tensor, ...]:
        """Launch what takes the best warps to first-order optimality: values, warps, holds, outcomes."""
        (count, x_steps, channels), y_steps = self.x.shape, self.y.shape[1]
        state, best = scratch.state_and_best()
        times = self.settings[:2]
        table = best.new_empty(count, y_steps, WIDE.value, SPLIT.value)
        firsts, outcomes = (torch.empty(shape, dtype=torch.int32, device=best.device) for shape in (best.shape, count))
        unsound = torch.zeros_like(outcomes)
        values, warps, room = torch.empty_like(scratch.totals), torch.empty_like(best), torch.empty_like(best)
        holds = torch.empty(count, y_steps, 2, dtype=torch.int32, device=best.device)
        numbers, tile = (x_steps, y_steps, channels), min(128, triton.next_power_of_2(max(channels, 1)))
        launch(
            look_kernel,
            (count, max(x_steps, y_steps)),
            (self.x, self.y, *self.lengths, *times, *self.settings[3:], unsound),
            numbers,
            1,
            CHANNELS=tile,
        )
        launch(
            table_kernel,
            (count, y_steps),
            (self.x, self.y, best, *self.lengths, *times, table, firsts),
            (*numbers, x_steps.bit_length()),
            1,
            CHANNELS=tile,
        )
        written = (room, values, warps, holds, outcomes)
        lanes = triton.next_power_of_2(y_steps)
        launch(
            polish_kernel,
            (count,),
            (best, table, firsts, state, unsound, *self.lengths, *self.settings, *written),
            (x_steps, y_steps, x_steps.bit_length()),
            min(16, max(4, lanes // 64)),
            SUBSEQUENCE=self.subsequence,
            LANES=lanes,
        )
        return values, warps, holds, outcomes

    def scratch(self) -> _Scratch:
        """Room for the kernels."""
        count, knots = self.y.shape[:2]

        def numbers(*shape: int) -> Tensor:
            return self.y.new_empty(shape, dtype=torch.float64)

        stride = triton.cdiv(self.most_nodes(True), TILE.value) * TILE.value
        return _Scratch(
            found=numbers(count, knots),
            totals=numbers(count),
            kept=numbers(count * (STATE.value + knots)),
            bounds=tuple(numbers(count, knots) for _ in range(3)),
            plan=numbers(count, knots, PLAN.value),
            rows=self.y.new_empty(count, knots + 1, stride),
            frames=self.x.transpose(1, 2).contiguous(),
        )

    def lay_out(self, scratch: _Scratch, number: int) -> None:
        """Launch what judges the pass before and begins that of this number."""
        state, best = scratch.state_and_best()
        lanes = triton.next_power_of_2(self.y.shape[1])
        launch(
            refine_kernel,
            (len(self.x),),
            (scratch.found, scratch.totals, state, best, *scratch.bounds, scratch.plan, *self.lengths, *self.settings),
            (self.x.shape[1], self.y.shape[1], self.nodes, self.refinements, number),
            min(16, max(4, lanes // 64)),
            FIRST=number == 0,
            SUBSEQUENCE=self.subsequence,
            ROUNDING=4 * torch.finfo(self.x.dtype).eps,
            LANES=lanes,
        )

    def run_pass(self, scratch: _Scratch, number: int) -> None:
        """Launch the pass of this number, from 0, and what judges it."""
        (x_steps, channels), (count, y_steps) = self.x.shape[1:], self.y.shape[:2]
        state, _ = scratch.state_and_best()
        stride, most = scratch.rows.shape[2], self.most_nodes(number == 0)
        lanes = 64 if most <= 64 else TILE.value
        launch(
            nodes_kernel,
            (triton.cdiv(most, lanes), y_steps, count),
            (scratch.frames, self.y, *self.lengths, *self.settings[:2], scratch.plan, state, scratch.rows),
            (x_steps, y_steps, channels, stride, self.nodes, number, x_steps.bit_length(), float64_bits(self.huber)),
            lanes // 32,
            HUBER=self.huber < float("inf"),
            LANES=lanes,
        )
        numbers = x_steps, y_steps, stride, self.nodes, number
        launch(
            bellman_kernel,
            (count, 2),
            (scratch.rows, scratch.plan, state, *self.lengths),
            numbers,
            lanes // 16,
            LANES=lanes,
        )
        width = triton.next_power_of_2(most)
        launch(
            path_kernel,
            (count, 2),
            (scratch.rows, scratch.plan, state, scratch.found, scratch.totals, *self.lengths),
            numbers,
            max(1, width // 1024),
            WIDTH=width,
        )
        self.lay_out(scratch, number + 1)


def solve(x: Tensor, y: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Values, warps and holds, as the C++ kernel gives them. Waits for the GPU."""
    pairs = _Search.of(x, y, *given)
    parts = pairs.parts()
    if parts and pairs.huber == float("inf"):
        found = [part.solve() for part in parts]
        if len(found) == 1 and found[0] is not None:
            return found[0][0], found[0][1], found[0][2]
        settled = [each for each in found if each is not None]
        if len(settled) == len(parts):
            values, warps, holds = (torch.cat(each) for each in zip(*settled, strict=True))
            return values, warps, holds
    return _polish_on_host(pairs, parts)


def _polish_on_host(pairs: _Search, parts: list[_Search]) -> tuple[Tensor, Tensor, Tensor]:
    """What the GPU finds on the grid, polished by the C++ kernel, which refuses what cannot be solved."""
    count, knots = pairs.y.shape[:2]
    warps = torch.cat([part.search() for part in parts]) if parts else torch.empty(0, knots, dtype=torch.float64)
    values, holds = warps.new_empty(count), torch.empty(count, knots, 2, dtype=torch.int32)
    host = (each.cpu() for each in (pairs.x, pairs.y, *pairs.lengths, *pairs.settings))
    options = (pairs.subsequence, pairs.huber, pairs.nodes, pairs.refinements)
    _run(cpu.native.gdtw_polish, _Problem.of(*host, *options), values, warps, holds)
    values, warps, holds = (each.to(pairs.x.device) for each in (values, warps, holds))
    return values, warps, holds


def gradient(
    value_grad: Tensor, warp_grad: Tensor, warp: Tensor, holds: Tensor, x: Tensor, y: Tensor, *given: Any
) -> tuple[Tensor, ...]:
    """Gradients of x, y, reg, lower, upper, slope_min and slope_max."""
    pairs = _Search.of(x, y, *given)
    value_grad, warp_grad, warp, holds = (each.contiguous() for each in (value_grad, warp_grad, warp, holds))
    grads = [torch.empty_like(each) for each in (pairs.x, pairs.y, *pairs.settings[2:])]
    (count, x_steps, channels), y_steps = x.shape, y.shape[1]
    if not count:
        return tuple(grads)
    slopes, curvatures, room, response = (torch.empty_like(warp) for _ in range(4))
    times_x, times_y, reg = pairs.settings[:3]
    frames = pairs.x, pairs.y, warp, holds
    places = *pairs.lengths, times_x, times_y
    numbers = x_steps, y_steps, channels, float64_bits(pairs.huber)
    lanes = triton.next_power_of_2(y_steps)
    loss = {"HUBER": pairs.huber < float("inf"), "CHANNELS": min(128, triton.next_power_of_2(max(channels, 1)))}
    launch(bends_kernel, (count, y_steps), (*frames, *places, slopes, curvatures), numbers, 1, **loss)
    launch(
        response_kernel,
        (count,),
        (value_grad, warp_grad, warp, holds, slopes, curvatures, *places, reg, room, response, *grads[2:]),
        (x_steps, y_steps),
        min(16, max(4, lanes // 64)),
        SUBSEQUENCE=pairs.subsequence,
        LANES=lanes,
    )
    moved = *frames, value_grad, response, *places
    launch(y_gradient_kernel, (count, y_steps), (*moved, grads[1]), numbers, 1, **loss)
    launch(x_gradient_kernel, (count, x_steps), (*moved, grads[0]), numbers, 1, **loss, KNOTS=4, LANES=lanes)
    return tuple(grads)
