"""GDTW on a GPU: the grid is searched (grid.py), the best path polished (polish.py), and its
derivative computed (gradient.py), all there.

The search is in y's precision, the rest in float64. All passes are launched without waiting for any; a solution waits
once, for a number per pair that tells whether it has settled. Pairs that have not, that must be refused, or that have
Huber's loss go to the host: the C++ kernel polishes what the GPU found on the grid. Derivatives wait for nothing.
"""

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from likewise.ops import cpu
from likewise.ops.gdtw import _LIMITS, Inputs, _Problem, _run
from likewise.ops.gdtw.gpu.gradient import bends_kernel, response_kernel, x_gradient_kernel, y_gradient_kernel
from likewise.ops.gdtw.gpu.grid import PLAN, STATE, TILE, bellman_kernel, nodes_kernel, path_kernel, refine_kernel
from likewise.ops.gdtw.gpu.polish import polish_kernel
from likewise.ops.gdtw.gpu.table import SPLIT, WIDE, look_kernel, table_kernel
from likewise.ops.gdtw.reference import default_nodes
from likewise.ops.launch.arguments import ceil_div, float64_bits, power_of_2
from likewise.ops.launch.launcher import launch
from likewise.ops.launch.tape import find, record

ROW_BYTES = 128 << 20  # memory for the rows of all knots; more pairs are solved in turn
MOST_PASSES = 40
SETTLED, NOT_SEARCHED = 1, 2  # outcomes of polish_kernel
TILE_NODES: int = TILE.value
NODES_A_WARP = 16  # of a target row, in bellman_kernel


@dataclass(frozen=True)
class _Scratch:
    """Memory of the kernels. Only ``state`` and ``best`` have a shape; the others are flat."""

    found: Tensor  # (B, Tx), the nodes of a path
    totals: Tensor  # (B,), its objective
    state: Tensor  # (B, 4): see STATE
    best: Tensor  # (B, Tx), the best warps
    bounds: tuple[Tensor, Tensor, Tensor]  # (B, Tx) each: low and high of the grid, and how wide the first was
    plan: Tensor  # (B, Tx, 8): see refine_kernel
    table: Tensor  # (B, Tx, 5, 3): see table_kernel
    room: Tensor  # (B, Tx), for lanes that exchange numbers
    rows: Tensor  # (B, Tx + 1, nodes)
    frames: Tensor  # y (B, C, Ty)
    firsts: Tensor  # (B, Tx)
    unsound: Tensor  # (B,)


@dataclass(frozen=True)
class _Found:
    """What a solution writes."""

    values: Tensor  # (B,)
    warps: Tensor  # (B, Tx)
    holds: Tensor  # (B, Tx, 2)
    outcomes: Tensor  # (B,)


@dataclass(frozen=True)
class _Search:
    """Pairs on the device. Absent tensors are not read: ``flags`` mark them, and ``reg`` takes their place."""

    x: Tensor  # (B, Tx, C)
    y: Tensor  # (B, Ty, C)
    lengths: tuple[Tensor, Tensor]  # of y and of x: the kernels take the warped signal first
    times: tuple[Tensor, Tensor]  # of y and of x
    reg: Tensor
    limits: tuple[Tensor, Tensor, Tensor, Tensor]  # lower, upper, slope_min, slope_max
    flags: dict[str, bool]
    subsequence: bool
    huber: float
    nodes: int
    refinements: int

    @classmethod
    def of(cls, given: Inputs) -> "_Search":
        flags = {
            "LENGTHS": given.x_lengths is not None or given.y_lengths is not None,
            "BAND": given.lower is not None,
            "SLOPES": given.slope_min is not None,
        }
        reg = given.reg.contiguous()
        lengths = (reg, reg)
        if flags["LENGTHS"]:
            lengths = _lengths(given.y_lengths, given.y), _lengths(given.x_lengths, given.x)
        times = given.times_y.contiguous(), given.times_x.contiguous()
        lower, upper, slope_min, slope_max = (
            reg if each is None else each.contiguous() for each in given.limits().values()
        )
        limits = lower, upper, slope_min, slope_max
        return cls(given.x.contiguous(), given.y.contiguous(), lengths, times, reg, limits, flags, *given.options())

    def tensors(self) -> tuple[Tensor, ...]:
        """All of them, in the order of the fields."""
        return self.x, self.y, *self.lengths, *self.times, self.reg, *self.limits

    def part(self, pairs: slice | Tensor) -> "_Search":
        """Some of the pairs."""
        return replace(
            self,
            x=self.x[pairs],
            y=self.y[pairs],
            lengths=tuple(each[pairs] for each in self.lengths),
            times=tuple(each[pairs] for each in self.times),
            reg=self.reg[pairs],
            limits=tuple(each[pairs] for each in self.limits),
        )

    def on_host(self) -> Inputs:
        """What was given, on the CPU."""
        (y_lengths, x_lengths), (times_y, times_x) = self.lengths, self.times
        names = ("LENGTHS", "LENGTHS", "", "", "", "BAND", "BAND", "SLOPES", "SLOPES")
        given = x_lengths, y_lengths, times_x, times_y, self.reg, *self.limits
        rest = (each.cpu() if self.flags.get(name, True) else None for name, each in zip(names, given, strict=True))
        return Inputs(self.x.cpu(), self.y.cpu(), *rest, self.subsequence, self.huber, self.nodes, self.refinements)

    def parts(self) -> "list[_Search]":
        """Split the pairs into groups that fit in memory."""
        row = self.stride() * self.x.element_size()
        at_once = min(65535, max(1, ROW_BYTES // (row * max(1, self.x.shape[1]))))  # CUDA's limit
        if 0 < self.y.shape[0] <= at_once:
            return [self]
        return [self.part(slice(first, first + at_once)) for first in range(0, self.x.shape[0], at_once)]

    def most_nodes(self, first: bool) -> int:
        """Nodes of the longest row, on the first pass or on those after it; ``node_count`` says more."""
        steps = self.y.shape[1]
        most = self.nodes | 1 if self.nodes else default_nodes(steps)
        if self.flags["LENGTHS"] and not self.nodes:
            most = max(most, default_nodes(min(steps, 63)))  # short pairs may have more than long ones
        if not first:
            most = min(most, max(most // 2, 50) | 1)
        return most - 2 if most > TILE_NODES and most % TILE_NODES == 1 else most

    def stride(self) -> int:
        """From one row of nodes to the next."""
        return ceil_div(self.most_nodes(True), TILE_NODES) * TILE_NODES

    def begin(self, scratch: _Scratch) -> None:
        """Launch as many passes as there will be, but for pairs whose grid moves on more than once."""
        self.lay_out(scratch, 0)
        self.look(scratch)
        for number in range(self.refinements + 2):
            self.run_pass(scratch, number)

    def solve(self) -> tuple[_Found, Tensor, list[int]]:
        """The GPU's solution, the best warps on the grid (B, Tx), and the pairs that are left to the host."""
        found, passes = self.found(), self.refinements + 2

        def begin(room: Tensor) -> None:
            scratch = self.scratch(room)
            self.begin(scratch)
            self.polish(scratch, found)

        written = found.values, found.warps, found.holds, found.outcomes
        room = self.launch("solve", written, self.room(), begin)
        outcomes = found.outcomes.tolist()  # waits for the GPU
        while NOT_SEARCHED in outcomes and passes < MOST_PASSES:
            scratch = self.scratch(room)
            self.run_more(scratch, passes)
            self.polish(scratch, found)
            outcomes = found.outcomes.tolist()
            passes += 2
        left = [b for b, outcome in enumerate(outcomes) if outcome != SETTLED]
        return found, self.scratch(room).best if left else found.warps, left

    def launch(
        self, kind: str, tensors: tuple[Tensor, ...], sizes: tuple[int, ...], work: Callable[[Tensor], None]
    ) -> Tensor:
        """Call ``work`` with room of these sizes, or repeat what it launched for such tensors before; returns the room.

        It may launch on the pairs, on these tensors and in the room, and do nothing else.
        """
        given = (*self.tensors(), *tensors)
        addresses = [each.data_ptr() for each in given]
        # Tensors that are one, like the times of y and of x, must be one again.
        key = (kind, self.y.shape, self.x.shape, self.y.dtype, self.y.get_device(), *self.flags.values(), self.huber,
               self.subsequence, self.nodes, self.refinements, *map(addresses.index, addresses))  # fmt: skip
        tape = find(key)
        room = self.x.new_empty(sum(sizes), dtype=torch.float64)
        if tape is not None and not functools.reduce(operator.or_, addresses) & 15:
            if tape.run(self.y.get_device(), (*addresses, room.data_ptr())):
                return room

        return record(key, lambda: (work(room) or room, given))

    def run_more(self, scratch: _Scratch, passes: int) -> None:
        """Two more passes, for pairs whose grid moves on."""
        for number in (passes, passes + 1):
            self.run_pass(scratch, number)

    def search(self) -> Tensor:
        """The best warps (B, Tx); NaN where the losses overflow."""
        scratch, passes = self.scratch(), self.refinements + 2
        self.begin(scratch)
        while passes < MOST_PASSES and not bool(scratch.state[:, 3].all()):
            self.run_more(scratch, passes)
            passes += 2
        return scratch.best

    def look(self, scratch: _Scratch) -> None:
        """Launch the kernel that checks the inputs and transposes y."""
        (count, y_steps, channels), x_steps = self.y.shape, self.x.shape[1]
        launch(
            look_kernel,
            (count, max(y_steps, x_steps)),
            (self.y, self.x, *self.lengths, *self.times, *self.limits, scratch.unsound, scratch.frames),
            (y_steps, x_steps, channels),
            1,
            **self.flags,
            CHANNELS=_channels(channels),
        )

    def polish(self, scratch: _Scratch, found: _Found) -> None:
        """Launch the kernel that takes the best warps to first-order optimality."""
        (count, y_steps, channels), x_steps = self.y.shape, self.x.shape[1]
        launch(
            table_kernel,
            (count, x_steps),
            (self.y, self.x, scratch.best, *self.lengths, *self.times, scratch.table, scratch.firsts),
            (y_steps, x_steps, channels, y_steps.bit_length()),
            1,
            LENGTHS=self.flags["LENGTHS"],
            CHANNELS=_channels(channels),
        )
        kept = scratch.best, scratch.table, scratch.firsts, scratch.state, scratch.unsound
        written = scratch.room, found.values, found.warps, found.holds, found.outcomes
        lanes = power_of_2(x_steps)
        launch(
            polish_kernel,
            (count,),
            (*kept, *self.lengths, *self.times, self.reg, *self.limits, *written),
            (y_steps, x_steps, y_steps.bit_length()),
            _warps(lanes),
            SUBSEQUENCE=self.subsequence,
            **self.flags,
            LANES=lanes,
        )

    def found(self) -> _Found:
        """Room for a solution."""
        count, knots = self.x.shape[:2]
        return _Found(
            self.x.new_empty(count, dtype=torch.float64),
            self.x.new_empty(count, knots, dtype=torch.float64),
            self.x.new_empty(count, knots, 2, dtype=torch.int32),
            self.x.new_empty(count, dtype=torch.int32),
        )

    def room(self) -> tuple[int, ...]:
        """How many float64 each part of the scratch takes."""
        (count, y_steps, channels), knots = self.y.shape, self.x.shape[1]
        each, size = count * knots, self.y.element_size()
        numbers = (each, count, STATE.value * count, each, each, each, each, PLAN.value * each)
        numbers += (WIDE.value * SPLIT.value * each, each)
        frames = ceil_div((each + count) * self.stride() * size, 8), ceil_div(count * channels * y_steps * size, 8)
        return _rounded(*numbers, *frames, ceil_div(each, 2), ceil_div(count, 2))

    def scratch(self, room: Tensor | None = None) -> _Scratch:
        """Room for the kernels: one allocation, cut up. They need no shapes, and views take time."""
        (count, knots), sizes = self.x.shape[:2], self.room()
        each = count * knots
        if room is None:
            room = self.x.new_empty(sum(sizes), dtype=torch.float64)
        found, totals, state, best, low, high, wide, plan, table, lanes, rows, turned, firsts, unsound = room.split(
            sizes
        )
        dtype, whole = self.y.dtype, torch.int32
        return _Scratch(
            found, totals, state[: STATE.value * count].view(count, STATE.value), best[:each].view(count, knots),
            (low, high, wide), plan, table, lanes, rows.view(dtype), turned.view(dtype), firsts.view(whole),
            unsound.view(whole),
        )  # fmt: skip

    def lay_out(self, scratch: _Scratch, number: int) -> None:
        """Launch the kernel that evaluates the previous pass and begins the one with this number."""
        lanes = power_of_2(self.x.shape[1])
        kept = scratch.found, scratch.totals, scratch.state, scratch.best, *scratch.bounds, scratch.plan
        launch(
            refine_kernel,
            (self.y.shape[0],),
            (*kept, scratch.unsound, *self.lengths, *self.times, self.reg, *self.limits),
            (self.y.shape[1], self.x.shape[1], self.nodes, self.refinements, number),
            _warps(lanes),
            FIRST=number == 0,
            SUBSEQUENCE=self.subsequence,
            ROUNDING=4 * torch.finfo(self.y.dtype).eps,
            **self.flags,
            LANES=lanes,
        )

    def run_pass(self, scratch: _Scratch, number: int) -> None:
        """Launch the pass with this number, from 0, and the kernel that evaluates it."""
        (count, y_steps, channels), x_steps = self.y.shape, self.x.shape[1]
        stride, most, given = self.stride(), self.most_nodes(number == 0), self.flags["LENGTHS"]
        lanes, width = 64 if most <= 64 else TILE_NODES, power_of_2(most)
        launch(
            nodes_kernel,
            (ceil_div(most, lanes), x_steps, count),
            (scratch.frames, self.x, *self.lengths, *self.times, scratch.plan, scratch.state, scratch.rows),
            (y_steps, x_steps, channels, stride, self.nodes, number, y_steps.bit_length(), float64_bits(self.huber)),
            lanes // 32,
            HUBER=self.huber < math.inf,
            LENGTHS=given,
            LANES=lanes,
        )
        numbers = y_steps, x_steps, stride, self.nodes, number
        launch(
            bellman_kernel,
            (count, 2),
            (scratch.rows, scratch.plan, scratch.state, *self.lengths),
            numbers,
            lanes // NODES_A_WARP,
            LENGTHS=given,
            LANES=lanes,
        )
        launch(
            path_kernel,
            (count, 2),
            (scratch.rows, scratch.plan, scratch.state, scratch.found, scratch.totals, *self.lengths),
            numbers,
            max(1, width // 1024),
            LENGTHS=given,
            WIDTH=width,
        )
        self.lay_out(scratch, number + 1)


def _lengths(lengths: Tensor | None, y: Tensor) -> Tensor:
    if lengths is None:
        return torch.full((y.shape[0],), y.shape[1], dtype=torch.int64, device=y.device)
    return lengths.to(y.device, torch.int64).contiguous()


def _channels(channels: int) -> int:
    """That a program takes at once."""
    return min(128, power_of_2(max(channels, 1)))


def _warps(lanes: int) -> int:
    return min(16, max(4, lanes // 64))


def _rounded(*sizes: int) -> tuple[int, ...]:
    """A number of float64, rounded up so that the next array begins at a multiple of 256 bytes."""
    return tuple(ceil_div(size, 32) * 32 for size in sizes)


def solve(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Values, warps and holds, as from the C++ kernel. Waits for the GPU."""
    pairs = _Search.of(Inputs(*given))
    found, first = [], 0
    for part in pairs.parts():
        if part.huber < math.inf:
            written, best, left = part.found(), part.search(), list(range(part.y.shape[0]))
        else:
            written, best, left = part.solve()
        if left:
            _polish_on_host(part, best, left, first, written)
        found.append((written.values, written.warps, written.holds))
        first += part.y.shape[0]
    if len(found) == 1:
        return found[0]
    if not found:
        none = pairs.found()
        return none.values, none.warps, none.holds
    values, warps, holds = (torch.cat(each) for each in zip(*found, strict=True))
    return values, warps, holds


def _polish_on_host(part: _Search, best: Tensor, left: list[int], first: int, written: _Found) -> None:
    """Polish some pairs' best warps on the grid with the C++ kernel, which reports pairs that cannot be solved.

    first: how many pairs of the batch come before this part.
    """
    rows = torch.tensor(left, device=part.x.device)
    everything = len(left) == part.x.shape[0]
    problem = _Problem.of((part if everything else part.part(rows)).on_host())
    warps = (best if everything else best[rows]).cpu()
    values, holds = warps.new_empty(len(left)), torch.empty(*warps.shape, 2, dtype=torch.int32)
    _run(cpu.native.gdtw_polish, problem, values, warps, holds, numbers=[first + b for b in left])
    for there, here in ((written.values, values), (written.warps, warps), (written.holds, holds)):
        there[rows] = here.to(there.device)


def gradient(value_grad: Tensor, warp_grad: Tensor, warp: Tensor, holds: Tensor, *given: Any) -> tuple[Tensor, ...]:
    """Gradients of x, y, reg, lower, upper, slope_min and slope_max; None for absent ones."""
    pairs = _Search.of(Inputs(*given))
    value_grad, warp_grad, warp, holds = (each.contiguous() for each in (value_grad, warp_grad, warp, holds))
    (count, y_steps, channels), x_steps = pairs.y.shape, pairs.x.shape[1]
    grads = {"x": torch.empty_like(pairs.x), "y": torch.empty_like(pairs.y), "reg": torch.empty_like(pairs.reg)}
    for name, limit, flag in zip(_LIMITS, pairs.limits, ("BAND", "BAND", "SLOPES", "SLOPES"), strict=True):
        grads[name] = torch.empty_like(limit) if pairs.flags[flag] else limit.new_empty(0)
    if not count:
        return tuple(grads.values())
    written = {name: grad if grad.numel() else pairs.reg for name, grad in grads.items()}  # absent ones are not
    frames = pairs.y, pairs.x, warp, holds
    places = *pairs.lengths, *pairs.times
    numbers = y_steps, x_steps, channels, float64_bits(pairs.huber)
    lanes = power_of_2(x_steps)
    loss = {"HUBER": pairs.huber < math.inf, "LENGTHS": pairs.flags["LENGTHS"], "CHANNELS": _channels(channels)}
    sizes = _rounded(*(count * x_steps,) * 4)
    limits = [written[name] for name in ("reg", *_LIMITS)]

    def work(whole: Tensor) -> None:
        slopes, curvatures, room, response = whole.split(sizes)
        launch(bends_kernel, (count, x_steps), (*frames, *places, slopes, curvatures), numbers, 1, **loss)
        launch(
            response_kernel,
            (count,),
            (value_grad, warp_grad, warp, holds, slopes, curvatures, *places, pairs.reg, room, response, *limits),
            (y_steps, x_steps),
            _warps(lanes),
            SUBSEQUENCE=pairs.subsequence,
            **pairs.flags,
            LANES=lanes,
        )
        moved = *frames, value_grad, response, *places
        launch(x_gradient_kernel, (count, x_steps), (*moved, written["x"]), numbers, 1, **loss)
        launch(y_gradient_kernel, (count, y_steps), (*moved, written["y"]), numbers, 1, **loss, KNOTS=4, LANES=lanes)

    pairs.launch("gradient", (value_grad, warp_grad, warp, holds, *written.values()), sizes, work)
    return tuple(grads.values())
