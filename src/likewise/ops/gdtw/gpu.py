"""GDTW on a GPU: the grid is searched (ops/gpu/warp_grid.py), the best path polished (warp_polish.py), and its
derivative computed (warp_gradient.py), all there.

The search is in x's precision, the rest in float64. All passes are launched without waiting for any; a solution waits
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
from likewise.ops.gdtw import _Problem, _run
from likewise.ops.gpu.warp_gradient import bends_kernel, response_kernel, x_gradient_kernel, y_gradient_kernel
from likewise.ops.gpu.warp_grid import PLAN, STATE, TILE, bellman_kernel, nodes_kernel, path_kernel, refine_kernel
from likewise.ops.gpu.warp_polish import polish_kernel
from likewise.ops.gpu.warp_table import SPLIT, WIDE, look_kernel, table_kernel
from likewise.ops.launch.arguments import ceil_div, float64_bits, power_of_2
from likewise.ops.launch.launcher import launch
from likewise.ops.launch.tape import find, record

ROW_BYTES = 128 << 20  # room for the rows of all knots; more pairs than fit take turns
MOST_PASSES = 40
SETTLED, NOT_SEARCHED = 1, 2  # outcomes of polish_kernel
TILE_NODES: int = TILE.value
NODES_A_WARP = 16  # of a target row, in bellman_kernel


@dataclass(frozen=True)
class _Scratch:
    """What the kernels keep. Only ``state`` and ``best`` have a shape; the others are as long as it takes."""

    found: Tensor  # (B, Ty), the nodes of a path
    totals: Tensor  # (B,), its objective
    state: Tensor  # (B, 4): see STATE
    best: Tensor  # (B, Ty), the best warps
    bounds: tuple[Tensor, Tensor, Tensor]  # (B, Ty) each: low and high of the grid, and how wide the first was
    plan: Tensor  # (B, Ty, 8): see refine_kernel
    table: Tensor  # (B, Ty, 5, 3): see table_kernel
    room: Tensor  # (B, Ty), for lanes that exchange numbers
    rows: Tensor  # (B, Ty + 1, nodes)
    frames: Tensor  # x (B, C, Tx)
    firsts: Tensor  # (B, Ty)
    unsound: Tensor  # (B,)


@dataclass(frozen=True)
class _Found:
    """What a solution writes."""

    values: Tensor  # (B,)
    warps: Tensor  # (B, Ty)
    holds: Tensor  # (B, Ty, 2)
    outcomes: Tensor  # (B,)


@dataclass(frozen=True)
class _Search:
    """Pairs on the device. Kernels do not read what is absent: ``flags`` tell, and ``reg`` stands in its place."""

    x: Tensor  # (B, Tx, C)
    y: Tensor
    lengths: tuple[Tensor, Tensor]
    settings: tuple[Tensor, ...]  # times_x, times_y, reg, lower, upper, slope_min, slope_max
    flags: dict[str, bool]
    subsequence: bool
    huber: float
    nodes: int
    refinements: int

    @classmethod
    def of(cls, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None, *given: Any) -> "_Search":
        times_x, times_y, reg, lower, upper, slope_min, slope_max, *options = given
        flags = {
            "LENGTHS": x_lengths is not None or y_lengths is not None,
            "BAND": lower is not None,
            "SLOPES": slope_min is not None,
        }
        lengths = (reg, reg)
        if flags["LENGTHS"]:
            lengths = _lengths(x_lengths, x), _lengths(y_lengths, y)
        limits = (reg if each is None else each for each in (lower, upper, slope_min, slope_max))
        settings = tuple(each.contiguous() for each in (times_x, times_y, reg, *limits))
        return cls(x.contiguous(), y.contiguous(), lengths, settings, flags, *options)

    def parts(self) -> "list[_Search]":
        """As many at a time as there is room for."""
        row = self.stride() * self.y.element_size()
        at_once = min(65535, max(1, ROW_BYTES // (row * max(1, self.y.shape[1]))))  # CUDA's limit
        if 0 < self.x.shape[0] <= at_once:
            return [self]
        tensors = (self.x, self.y, *self.lengths, *self.settings)
        cut = zip(*(each.split(at_once) for each in tensors), strict=True)
        return [replace(self, x=c[0], y=c[1], lengths=c[2:4], settings=c[4:]) for c in cut if len(c[0])]

    def most_nodes(self, first: bool) -> int:
        """Nodes of the longest row, on the first pass or on those after it; ``node_count`` says more."""
        most = (self.nodes or max(self.x.shape[1], 50)) | 1
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
        """What the GPU finds; the best warps on the grid (B, Ty); and which pairs are left to the host."""
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
        given = (self.x, self.y, *self.lengths, *self.settings, *tensors)
        addresses = [each.data_ptr() for each in given]
        # Tensors that are one, like the times of x and of y, must be one again.
        key = (kind, self.x.shape, self.y.shape, self.x.dtype, self.x.get_device(), *self.flags.values(), self.huber,
               self.subsequence, self.nodes, self.refinements, *map(addresses.index, addresses))  # fmt: skip
        tape = find(key)
        room = self.y.new_empty(sum(sizes), dtype=torch.float64)
        if tape is not None and not functools.reduce(operator.or_, addresses) & 15:
            if tape.run(self.x.get_device(), (*addresses, room.data_ptr())):
                return room

        return record(key, lambda: (work(room) or room, given))

    def run_more(self, scratch: _Scratch, passes: int) -> None:
        """Two more passes, for pairs whose grid moves on."""
        for number in (passes, passes + 1):
            self.run_pass(scratch, number)

    def search(self) -> Tensor:
        """The best warps (B, Ty); NaN where the losses overflow."""
        scratch, passes = self.scratch(), self.refinements + 2
        self.begin(scratch)
        while passes < MOST_PASSES and not bool(scratch.state[:, 3].all()):
            self.run_more(scratch, passes)
            passes += 2
        return scratch.best

    def look(self, scratch: _Scratch) -> None:
        """Launch what looks for what must be refused, and turns x."""
        (count, x_steps, channels), y_steps = self.x.shape, self.y.shape[1]
        launch(
            look_kernel,
            (count, max(x_steps, y_steps)),
            (self.x, self.y, *self.lengths, *self.settings[:2], *self.settings[3:], scratch.unsound, scratch.frames),
            (x_steps, y_steps, channels),
            1,
            **self.flags,
            CHANNELS=_channels(channels),
        )

    def polish(self, scratch: _Scratch, found: _Found) -> None:
        """Launch what takes the best warps to first-order optimality."""
        (count, x_steps, channels), y_steps = self.x.shape, self.y.shape[1]
        launch(
            table_kernel,
            (count, y_steps),
            (self.x, self.y, scratch.best, *self.lengths, *self.settings[:2], scratch.table, scratch.firsts),
            (x_steps, y_steps, channels, x_steps.bit_length()),
            1,
            LENGTHS=self.flags["LENGTHS"],
            CHANNELS=_channels(channels),
        )
        kept = scratch.best, scratch.table, scratch.firsts, scratch.state, scratch.unsound
        written = scratch.room, found.values, found.warps, found.holds, found.outcomes
        lanes = power_of_2(y_steps)
        launch(
            polish_kernel,
            (count,),
            (*kept, *self.lengths, *self.settings, *written),
            (x_steps, y_steps, x_steps.bit_length()),
            _warps(lanes),
            SUBSEQUENCE=self.subsequence,
            **self.flags,
            LANES=lanes,
        )

    def found(self) -> _Found:
        """Room for a solution."""
        count, knots = self.y.shape[:2]
        return _Found(
            self.y.new_empty(count, dtype=torch.float64),
            self.y.new_empty(count, knots, dtype=torch.float64),
            self.y.new_empty(count, knots, 2, dtype=torch.int32),
            self.y.new_empty(count, dtype=torch.int32),
        )

    def room(self) -> tuple[int, ...]:
        """How many float64 each part of the scratch takes."""
        (count, x_steps, channels), knots = self.x.shape, self.y.shape[1]
        each, size = count * knots, self.x.element_size()
        numbers = (each, count, STATE.value * count, each, each, each, each, PLAN.value * each)
        numbers += (WIDE.value * SPLIT.value * each, each)
        frames = ceil_div((each + count) * self.stride() * size, 8), ceil_div(count * channels * x_steps * size, 8)
        return _rounded(*numbers, *frames, ceil_div(each, 2), ceil_div(count, 2))

    def scratch(self, room: Tensor | None = None) -> _Scratch:
        """Room for the kernels: one allocation, cut up. They need no shapes, and views take time."""
        (count, knots), sizes = self.y.shape[:2], self.room()
        each = count * knots
        if room is None:
            room = self.y.new_empty(sum(sizes), dtype=torch.float64)
        found, totals, state, best, low, high, wide, plan, table, lanes, rows, turned, firsts, unsound = room.split(
            sizes
        )
        dtype, whole = self.x.dtype, torch.int32
        return _Scratch(
            found, totals, state[: STATE.value * count].view(count, STATE.value), best[:each].view(count, knots),
            (low, high, wide), plan, table, lanes, rows.view(dtype), turned.view(dtype), firsts.view(whole),
            unsound.view(whole),
        )  # fmt: skip

    def lay_out(self, scratch: _Scratch, number: int) -> None:
        """Launch what judges the pass before and begins that of this number."""
        lanes = power_of_2(self.y.shape[1])
        kept = scratch.found, scratch.totals, scratch.state, scratch.best, *scratch.bounds, scratch.plan
        launch(
            refine_kernel,
            (self.x.shape[0],),
            (*kept, scratch.unsound, *self.lengths, *self.settings),
            (self.x.shape[1], self.y.shape[1], self.nodes, self.refinements, number),
            _warps(lanes),
            FIRST=number == 0,
            SUBSEQUENCE=self.subsequence,
            ROUNDING=4 * torch.finfo(self.x.dtype).eps,
            **self.flags,
            LANES=lanes,
        )

    def run_pass(self, scratch: _Scratch, number: int) -> None:
        """Launch the pass of this number, from 0, and what judges it."""
        (count, x_steps, channels), y_steps = self.x.shape, self.y.shape[1]
        stride, most, given = self.stride(), self.most_nodes(number == 0), self.flags["LENGTHS"]
        lanes, width = 64 if most <= 64 else TILE_NODES, power_of_2(most)
        launch(
            nodes_kernel,
            (ceil_div(most, lanes), y_steps, count),
            (scratch.frames, self.y, *self.lengths, *self.settings[:2], scratch.plan, scratch.state, scratch.rows),
            (x_steps, y_steps, channels, stride, self.nodes, number, x_steps.bit_length(), float64_bits(self.huber)),
            lanes // 32,
            HUBER=self.huber < math.inf,
            LENGTHS=given,
            LANES=lanes,
        )
        numbers = x_steps, y_steps, stride, self.nodes, number
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


def _lengths(lengths: Tensor | None, x: Tensor) -> Tensor:
    if lengths is None:
        return torch.full((x.shape[0],), x.shape[1], dtype=torch.int64, device=x.device)
    return lengths.to(x.device, torch.int64).contiguous()


def _channels(channels: int) -> int:
    """That a program takes at once."""
    return min(128, power_of_2(max(channels, 1)))


def _warps(lanes: int) -> int:
    return min(16, max(4, lanes // 64))


def _rounded(*sizes: int) -> tuple[int, ...]:
    """Numbers of float64 such that what lies behind another begins at a multiple of 256 bytes."""
    return tuple(ceil_div(size, 32) * 32 for size in sizes)


def solve(x: Tensor, y: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Values, warps and holds, as the C++ kernel gives them. Waits for the GPU."""
    pairs = _Search.of(x, y, *given)
    found, first = [], 0
    for part in pairs.parts():
        if part.huber < math.inf:
            written, best, left = part.found(), part.search(), list(range(part.x.shape[0]))
        else:
            written, best, left = part.solve()
        if left:
            _polish_on_host(part, best, left, first, written)
        found.append((written.values, written.warps, written.holds))
        first += part.x.shape[0]
    if len(found) == 1:
        return found[0]
    if not found:
        none = pairs.found()
        return none.values, none.warps, none.holds
    values, warps, holds = (torch.cat(each) for each in zip(*found, strict=True))
    return values, warps, holds


def _polish_on_host(part: _Search, best: Tensor, left: list[int], first: int, written: _Found) -> None:
    """Polish some pairs' best warps on the grid with the C++ kernel, which refuses what cannot be solved.

    first: how many pairs of the batch come before this part.
    """
    rows = torch.tensor(left, device=part.x.device)
    tensors = (part.x, part.y, *part.lengths, *part.settings, best)
    everything = len(left) == part.x.shape[0]
    x, y, *rest, warps = ((each if everything else each[rows]).cpu() for each in tensors)
    lengths = rest[:2] if part.flags["LENGTHS"] else [None, None]
    band = rest[5:7] if part.flags["BAND"] else [None, None]
    slopes = rest[7:] if part.flags["SLOPES"] else [None, None]
    options = part.subsequence, part.huber, part.nodes, part.refinements
    problem = _Problem.of(x, y, *lengths, *rest[2:5], *band, *slopes, *options)
    values, holds = warps.new_empty(len(left)), torch.empty(*warps.shape, 2, dtype=torch.int32)
    _run(cpu.native.gdtw_polish, problem, values, warps, holds, numbers=[first + b for b in left])
    for there, here in ((written.values, values), (written.warps, warps), (written.holds, holds)):
        there[rows] = here.to(there.device)


def gradient(
    value_grad: Tensor, warp_grad: Tensor, warp: Tensor, holds: Tensor, x: Tensor, y: Tensor, *given: Any
) -> tuple[Tensor, ...]:
    """Gradients of x, y, reg, lower, upper, slope_min and slope_max; of none what is absent."""
    pairs = _Search.of(x, y, *given)
    value_grad, warp_grad, warp, holds = (each.contiguous() for each in (value_grad, warp_grad, warp, holds))
    (count, x_steps, channels), y_steps = x.shape, y.shape[1]
    grads = [torch.empty_like(each) for each in (pairs.x, pairs.y, pairs.settings[2])]
    limits = (("BAND", pairs.settings[3:5]), ("SLOPES", pairs.settings[5:]))
    for flag, settings in limits:
        grads += [torch.empty_like(each) if pairs.flags[flag] else each.new_empty(0) for each in settings]
    if not count:
        return tuple(grads)
    times_x, times_y, reg = pairs.settings[:3]
    written = [each if each.numel() else reg for each in grads]  # what is absent is not
    frames = pairs.x, pairs.y, warp, holds
    places = *pairs.lengths, times_x, times_y
    numbers = x_steps, y_steps, channels, float64_bits(pairs.huber)
    lanes = power_of_2(y_steps)
    loss = {"HUBER": pairs.huber < math.inf, "LENGTHS": pairs.flags["LENGTHS"], "CHANNELS": _channels(channels)}
    sizes = _rounded(*(count * y_steps,) * 4)

    def work(whole: Tensor) -> None:
        slopes, curvatures, room, response = whole.split(sizes)
        launch(bends_kernel, (count, y_steps), (*frames, *places, slopes, curvatures), numbers, 1, **loss)
        launch(
            response_kernel,
            (count,),
            (value_grad, warp_grad, warp, holds, slopes, curvatures, *places, reg, room, response, *written[2:]),
            (x_steps, y_steps),
            _warps(lanes),
            SUBSEQUENCE=pairs.subsequence,
            **pairs.flags,
            LANES=lanes,
        )
        moved = *frames, value_grad, response, *places
        launch(y_gradient_kernel, (count, y_steps), (*moved, written[1]), numbers, 1, **loss)
        launch(x_gradient_kernel, (count, x_steps), (*moved, written[0]), numbers, 1, **loss, KNOTS=4, LANES=lanes)

    pairs.launch("gradient", (value_grad, warp_grad, warp, holds, *written), sizes, work)
    return tuple(grads)
