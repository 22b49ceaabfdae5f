"""Search: GDTW's pairs on a GPU, and the launches of the kernels that search the grid and polish the best path."""

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from likewise.ops.gdtw import Inputs
from likewise.ops.gdtw.gpu.bellman import PARTS, bellman_kernel, path_kernel
from likewise.ops.gdtw.gpu.grid import PLAN, STATE, TILE, refine_kernel
from likewise.ops.gdtw.gpu.losses import COLUMNS, ROWS, distances_kernel, nodes_kernel
from likewise.ops.gdtw.gpu.polish import polish_kernel
from likewise.ops.gdtw.gpu.table import SPLIT, WIDE, look_kernel, table_kernel
from likewise.ops.gdtw.reference import default_nodes
from likewise.ops.launch.arguments import ceil_div, float64_bits, power_of_2
from likewise.ops.launch.launcher import launch
from likewise.ops.launch.tape import find, record

ROW_BYTES = 256 << 20  # memory for the rows of all knots; more pairs are solved one group after another
MOST_PASSES = 40
SETTLED, NOT_SEARCHED = 1, 2  # outcomes of polish_kernel
TILE_NODES: int = TILE.value


@dataclass(frozen=True)
class Scratch:
    """Memory of the kernels. Only ``state`` and ``best`` have a shape; the others are flat."""

    found: Tensor  # (B, Tx), the nodes of a path
    totals: Tensor  # (B,), its objective
    state: Tensor  # (B, 4): see STATE
    best: Tensor  # (B, Tx), the best warps
    bounds: tuple[Tensor, Tensor, Tensor]  # (B, Tx) each: low and high of the grid, and the width of the first
    plan: Tensor  # (B, Tx, 8): see refine_kernel
    table: Tensor  # (B, Tx, 5, 3): see table_kernel
    room: Tensor  # (B, Tx), for lanes that exchange numbers
    rows: Tensor  # (B, Tx + 1, nodes)
    origins: Tensor  # the same: see bellman_kernel
    maps: Tensor  # (B, 2 PARTS, nodes): see path_kernel
    frames: Tensor  # y (B, C, Ty)
    distances: Tensor  # (B, Tx, Ty): see distances_kernel
    moves: Tensor  # (B, Ty)
    firsts: Tensor  # (B, Tx)
    unsound: Tensor  # (B,)


@dataclass(frozen=True)
class Found:
    """The result of a solution."""

    values: Tensor  # (B,)
    warps: Tensor  # (B, Tx)
    holds: Tensor  # (B, Tx, 2)
    outcomes: Tensor  # (B,)


@dataclass(frozen=True)
class Search:
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
    def of(cls, given: Inputs) -> "Search":
        """The pairs of an operator's arguments."""
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
        """All tensors, in the order of the fields."""
        return self.x, self.y, *self.lengths, *self.times, self.reg, *self.limits

    def part(self, pairs: slice | Tensor) -> "Search":
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
        """The inputs, on the CPU."""
        (y_lengths, x_lengths), (times_y, times_x) = self.lengths, self.times
        names = ("LENGTHS", "LENGTHS", "", "", "", "BAND", "BAND", "SLOPES", "SLOPES")
        given = x_lengths, y_lengths, times_x, times_y, self.reg, *self.limits
        rest = (each.cpu() if self.flags.get(name, True) else None for name, each in zip(names, given, strict=True))
        return Inputs(self.x.cpu(), self.y.cpu(), *rest, self.subsequence, self.huber, self.nodes, self.refinements)

    def parts(self) -> "list[Search]":
        """Split the pairs into groups that fit in memory."""
        size = self.x.element_size()
        row = self.stride() * (size + 4) + (self.y.shape[1] * size if self.shares_distances() else 0)
        at_once = min(65535, max(1, ROW_BYTES // (row * max(1, self.x.shape[1]))))  # the limit is that of CUDA
        if 0 < self.y.shape[0] <= at_once:
            return [self]
        return [self.part(slice(first, first + at_once)) for first in range(0, self.x.shape[0], at_once)]

    def most_nodes(self, first: bool) -> int:
        """Nodes of the longest row, in the first pass or in later ones; see ``node_count``."""
        steps = self.y.shape[1]
        most = self.nodes | 1 if self.nodes else default_nodes(steps)
        if self.flags["LENGTHS"] and not self.nodes:
            most = max(most, default_nodes(min(steps, 63)))  # short pairs may have more nodes than long ones
        if not first:
            most = min(most, max(most // 2, 50) | 1)
        return most - 2 if most > TILE_NODES and most % TILE_NODES == 1 else most

    def width(self, first: bool) -> int:
        """Lanes for the nodes of a row."""
        return max(64, power_of_2(self.most_nodes(first)))

    def stride(self) -> int:
        """The stride from one row of nodes to the next."""
        return ceil_div(self.most_nodes(True), TILE_NODES) * TILE_NODES

    def shares_distances(self) -> bool:
        """Whether losses are found from the distances of all frames; few nodes are found faster on their own."""
        return self.huber == math.inf and self.y.shape[1] <= 2 * self.most_nodes(True)

    def begin(self, scratch: Scratch) -> None:
        """Launch the usual number of passes; pairs whose grid moves more than once need more."""
        self.lay_out(scratch, 0)
        self.look(scratch)
        for number in range(self.refinements + 2):
            self.run_pass(scratch, number)

    def solve(self) -> tuple[Found, Tensor, list[int]]:
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
        """Call ``work`` with scratch memory of these sizes, or repeat its launches; return the memory.

        It may only launch on the pairs, on these tensors and on the scratch memory.
        """
        given = (*self.tensors(), *tensors)
        addresses = [each.data_ptr() for each in given]
        # Tensors that share memory, like the times of y and of x, must share it again.
        key = (kind, self.y.shape, self.x.shape, self.y.dtype, self.y.get_device(), *self.flags.values(), self.huber,
               self.subsequence, self.nodes, self.refinements, *map(addresses.index, addresses))  # fmt: skip
        tape = find(key)
        room = self.x.new_empty(sum(sizes), dtype=torch.float64)
        if tape is not None and not functools.reduce(operator.or_, addresses) & 15:
            if tape.run(self.y.get_device(), (*addresses, room.data_ptr())):
                return room

        return record(key, lambda: (work(room) or room, given))

    def run_more(self, scratch: Scratch, passes: int) -> None:
        """Launch two more passes, for pairs whose grid still moves."""
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

    def look(self, scratch: Scratch) -> None:
        """Launch the kernels that check the inputs, transpose y and compute distances."""
        (count, y_steps, channels), x_steps = self.y.shape, self.x.shape[1]
        launch(
            look_kernel,
            (count, max(y_steps, x_steps)),
            (self.y, self.x, *self.lengths, *self.times, *self.limits, scratch.unsound, scratch.frames),
            (y_steps, x_steps, channels),
            1,
            **self.flags,
            CHANNELS=channels_at_once(channels),
        )
        if self.shares_distances():
            launch(
                distances_kernel,
                (ceil_div(y_steps, COLUMNS.value), ceil_div(x_steps, ROWS.value), count),
                (scratch.frames, self.x, *self.lengths, scratch.distances, scratch.moves),
                (y_steps, x_steps, channels),
                4,
                LENGTHS=self.flags["LENGTHS"],
            )

    def polish(self, scratch: Scratch, found: Found) -> None:
        """Launch the kernel that takes the best warps to first-order optimality."""
        (count, y_steps, channels), x_steps = self.y.shape, self.x.shape[1]
        launch(
            table_kernel,
            (count, x_steps),
            (self.y, self.x, scratch.best, *self.lengths, *self.times, scratch.table, scratch.firsts),
            (y_steps, x_steps, channels, y_steps.bit_length()),
            1,
            LENGTHS=self.flags["LENGTHS"],
            CHANNELS=channels_at_once(channels),
        )
        kept = scratch.best, scratch.table, scratch.firsts, scratch.state, scratch.unsound
        written = scratch.room, found.values, found.warps, found.holds, found.outcomes
        lanes = power_of_2(x_steps)
        launch(
            polish_kernel,
            (count,),
            (*kept, *self.lengths, *self.times, self.reg, *self.limits, *written),
            (y_steps, x_steps, y_steps.bit_length()),
            warps_of(lanes),
            SUBSEQUENCE=self.subsequence,
            LARGEST=torch.finfo(self.y.dtype).max,
            **self.flags,
            LANES=lanes,
        )

    def found(self) -> Found:
        """Memory for a solution."""
        count, knots = self.x.shape[:2]
        return Found(
            self.x.new_empty(count, dtype=torch.float64),
            self.x.new_empty(count, knots, dtype=torch.float64),
            self.x.new_empty(count, knots, 2, dtype=torch.int32),
            self.x.new_empty(count, dtype=torch.int32),
        )

    def room(self) -> tuple[int, ...]:
        """The size of each part of the scratch memory, in float64."""
        (count, y_steps, channels), knots = self.y.shape, self.x.shape[1]
        each, size = count * knots, self.y.element_size()
        numbers = (each, count, STATE.value * count, each, each, each, each, PLAN.value * each)
        numbers += (WIDE.value * SPLIT.value * each, each)
        cells = (each + count) * self.stride()
        frames = ceil_div(count * channels * y_steps * size, 8)
        distances = ceil_div(each * y_steps * size, 8) if self.shares_distances() else 0
        rows = ceil_div(cells * size, 8), ceil_div(cells, 2), count * PARTS.value * self.width(True)
        moves = ceil_div(count * y_steps * size, 8)
        return rounded(*numbers, *rows, frames, distances, moves, ceil_div(each, 2), ceil_div(count, 2))

    def scratch(self, room: Tensor | None = None) -> Scratch:
        """Scratch memory for the kernels: one allocation, split. Most parts are flat, since views take time."""
        (count, knots), sizes = self.x.shape[:2], self.room()
        each = count * knots
        if room is None:
            room = self.x.new_empty(sum(sizes), dtype=torch.float64)
        found, totals, state, best, low, high, wide, plan, table, lanes, rows, *rest = room.split(sizes)
        origins, maps, turned, distances, moves, firsts, unsound = rest
        dtype, whole = self.y.dtype, torch.int32
        return Scratch(
            found, totals, state[: STATE.value * count].view(count, STATE.value), best[:each].view(count, knots),
            (low, high, wide), plan, table, lanes, rows.view(dtype), origins.view(whole), maps.view(whole),
            turned.view(dtype),
            distances.view(dtype), moves.view(dtype), firsts.view(whole), unsound.view(whole),
        )  # fmt: skip

    def lay_out(self, scratch: Scratch, number: int) -> None:
        """Launch the kernel that evaluates the previous pass and begins the one with this number."""
        lanes = power_of_2(self.x.shape[1])
        kept = scratch.found, scratch.totals, scratch.state, scratch.best, *scratch.bounds, scratch.plan
        launch(
            refine_kernel,
            (self.y.shape[0],),
            (*kept, scratch.unsound, *self.lengths, *self.times, self.reg, *self.limits),
            (self.y.shape[1], self.x.shape[1], self.nodes, self.refinements, number),
            warps_of(lanes),
            FIRST=number == 0,
            SUBSEQUENCE=self.subsequence,
            ROUNDING=4 * torch.finfo(self.y.dtype).eps,
            **self.flags,
            LANES=lanes,
        )

    def run_pass(self, scratch: Scratch, number: int) -> None:
        """Launch the pass with this number, from 0, and the kernel that evaluates it."""
        (count, y_steps, channels), x_steps = self.y.shape, self.x.shape[1]
        stride, most, given = self.stride(), self.most_nodes(number == 0), self.flags["LENGTHS"]
        lanes, width = 64 if most <= 64 else TILE_NODES, self.width(number == 0)
        launch(
            nodes_kernel,
            (ceil_div(most, lanes), x_steps, count),
            (
                scratch.frames,
                self.x,
                scratch.distances,
                scratch.moves,
                *self.lengths,
                *self.times,
                scratch.plan,
                scratch.state,
                scratch.rows,
            ),
            (y_steps, x_steps, channels, stride, self.nodes, number, y_steps.bit_length(), float64_bits(self.huber)),
            lanes // 32,
            SHARED=self.shares_distances(),
            HUBER=self.huber < math.inf,
            LENGTHS=given,
            LANES=lanes,
        )
        numbers = y_steps, x_steps, stride, self.nodes, number
        warps, options = tiles(width)
        launch(
            bellman_kernel,
            (count, 2),
            (scratch.rows, scratch.origins, scratch.plan, scratch.state, *self.lengths),
            numbers,
            warps,
            LENGTHS=given,
            **options,
        )
        launch(
            path_kernel,
            (count,),
            (
                scratch.rows,
                scratch.origins,
                scratch.maps,
                scratch.plan,
                scratch.state,
                scratch.found,
                scratch.totals,
                *self.lengths,
            ),
            numbers,
            min(16, width // 32),
            LENGTHS=given,
            WIDTH=width,
        )
        self.lay_out(scratch, number + 1)


def _lengths(lengths: Tensor | None, y: Tensor) -> Tensor:
    if lengths is None:
        return torch.full((y.shape[0],), y.shape[1], dtype=torch.int64, device=y.device)
    return lengths.to(y.device, torch.int64).contiguous()


def channels_at_once(channels: int) -> int:
    """Channels that a program processes at once."""
    return min(128, power_of_2(max(channels, 1)))


def tiles(width: int) -> tuple[int, dict[str, int]]:
    """The warps of bellman_kernel for rows of this width, the sizes of its groups, and the lanes that share a node.

    Two candidates for each lane, or more: with more lanes, what every lane has to do would take most of the time.
    """
    group = 8 if width < 128 else 16 if width < 1024 else 32
    warps = min(8, width // 32) if width < 1024 else 32
    return warps, {"GROUPS": width // group, "GROUP": group, "SHARE": 2}


def warps_of(lanes: int) -> int:
    return min(16, max(4, lanes // 64))


def rounded(*sizes: int) -> tuple[int, ...]:
    """Sizes in float64, rounded up so that the next array begins at a multiple of 256 bytes."""
    return tuple(ceil_div(size, 32) * 32 for size in sizes)
