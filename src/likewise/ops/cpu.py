"""Calls of the C++ kernels: tensors become a Problem, and Python threads divide its pairs.

A kernel is a plain function on addresses that releases the GIL and works on a range of pairs; ``share_out`` runs it on
``torch.get_num_threads()`` threads. This module checks the inputs and keeps the tensors alive.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise._check import finite_values as finite_values
from likewise.ops.rules import Rules

try:
    from likewise import _native as native
except ImportError as error:  # a source tree that was never built
    raise ImportError(f"likewise._native is missing ({error}); build it with: pip install .") from error

# The best instruction set that this machine runs; kernels take it as their first argument.
INSTRUCTION_SET: str = native.instruction_sets()[0]

SQUARED, EUCLIDEAN, GIVEN = range(3)  # Ground in problem.h
TILE_ROWS = 32  # rows of a tile of all pairs, which share a block of lanes
CACHE = 1 << 20  # bytes of a core's cache
LONG = 1 << 29  # cells between two checks of the stop flag: a few tenths of a second


@dataclass(frozen=True)
class Problem:
    """A problem for a kernel, with the tensors to which its addresses point."""

    native: object
    x: Tensor
    y: Tensor | None
    x_lengths: Tensor
    y_lengths: Tensor
    all_pairs: bool
    full: bool  # every sequence is as long as its padding

    @property
    def pairs(self) -> int:
        """The number of alignments."""
        return len(self.x_lengths) * len(self.y_lengths) if self.all_pairs else len(self.x_lengths)

    @property
    def longest_y(self) -> int:
        """Steps of y, padding included."""
        return self.x.shape[2] if self.y is None else self.y.shape[1]

    @property
    def cells(self) -> int:
        """Cells of the largest alignment."""
        return self.x.shape[1] * self.longest_y

    def loses_digits(self, longest: int) -> bool:
        """Whether float32 sums along a path of some pair may lose digits: both sequences have more steps in all."""
        if self.x.dtype != torch.float32 or self.pairs == 0:
            return False
        return int(self.x_lengths.max() + self.y_lengths.max()) > longest

    @property
    def lanes(self) -> int:
        """Pairs that a kernel for many pairs processes at once."""
        return native.lanes(INSTRUCTION_SET, self.x.dtype == torch.float64)

    @property
    def fills_lanes(self) -> bool:
        """Whether there are enough pairs to make such a kernel worthwhile on every thread."""
        return self.y is not None and self.pairs >= self.lanes * torch.get_num_threads() // 2

    @property
    def overflows_cache(self) -> bool:
        """Whether sequences with this many channels, one in each lane, no longer fit in the cache."""
        if self.y is None or self.x.shape[2] == 1:
            return False
        return self.longest_y * self.x.shape[2] * self.lanes * self.x.element_size() > CACHE

    def by_length(self, pairs: Tensor) -> Tensor:
        """The order of pairs by length; the lanes of a block then end together."""
        if self.full:
            return pairs
        rows = pairs // len(self.y_lengths) if self.all_pairs else pairs
        columns = pairs % len(self.y_lengths) if self.all_pairs else pairs
        return pairs[torch.argsort(self.x_lengths[rows] * (self.longest_y + 1) + self.y_lengths[columns])]

    def run_blocks(self, kernel: Callable[..., None], pairs: Tensor, *arguments: object) -> None:
        """Call kernel(problem, order, count, *arguments, begin, end) on blocks of lanes, on several threads."""
        order = self.by_length(pairs)
        share_out(
            -(-len(order) // self.lanes),
            self.cells * self.lanes,
            lambda begin, end: kernel(
                INSTRUCTION_SET, self.native, order.data_ptr(), len(order), *arguments, begin, end
            ),
        )

    def run(self, kernel: Callable[..., None], *arguments: object) -> None:
        """Call kernel(problem, *arguments, begin, end) on ranges of pairs, on several threads."""
        share_out(
            self.pairs,
            self.cells,
            lambda begin, end: kernel(INSTRUCTION_SET, self.native, *arguments, begin, end),
        )

    def run_tiles(
        self, kernel: Callable[..., None], values: Tensor, symmetric: bool, described: object | None = None
    ) -> None:
        """Call kernel(problem, row order, column order, symmetric, values, block, first row, last row) on all pairs.

        A tile is one block of columns and some rows: y is interleaved once per tile, and lanes of similar length waste
        little. ``described`` replaces the problem for kernels that need more than it.
        """
        assert self.y is not None
        rows, columns, lanes, height = len(self.x), len(self.y), self.lanes, TILE_ROWS
        row_order, column_order = self._by_length(self.x_lengths), self._by_length(self.y_lengths)
        blocks, strips = -(-columns // lanes), -(-rows // height)
        native_problem = self.native if described is None else described

        def tiles(begin: int, end: int) -> None:
            for tile in range(begin, end):
                block, strip = divmod(tile, strips)
                kernel(
                    INSTRUCTION_SET,
                    native_problem,
                    row_order.data_ptr(),
                    column_order.data_ptr(),
                    symmetric,
                    values.data_ptr(),
                    block,
                    strip * height,
                    min((strip + 1) * height, rows),
                )

        share_out(blocks * strips, self.cells * height * lanes, tiles)

    def _by_length(self, lengths: Tensor) -> Tensor:
        return torch.arange(len(lengths)) if self.full else torch.argsort(lengths, stable=True)

    def gradients(self, kernel: Callable[[int, int, int, int], None], group: int = 1) -> tuple[Tensor, Tensor]:
        """Gradients with respect to x and y, added up by kernel(x_grad, y_grad, begin, end) over ranges of pairs.

        Given costs have one gradient; the second is empty. Unless the problem is all pairs, ranges are cut at multiples
        of ``group``.
        """
        x_grad = zeros_like(self.x)
        if not self.all_pairs:
            y_grad = self.x.new_zeros(0) if self.y is None else zeros_like(self.y)
            share_out(
                -(-self.pairs // group),
                self.cells * group,
                lambda begin, end: kernel(
                    x_grad.data_ptr(), y_grad.data_ptr(), begin * group, min(end * group, self.pairs)
                ),
            )
            return x_grad, y_grad
        # Several rows share a column: each part of the rows sums y's gradient separately. The number of parts is
        # fixed, so the sum does not depend on the number of threads.
        assert self.y is not None
        rows, columns = len(self.x), len(self.y)
        parts = max(1, min(8, rows))
        y_grads = self.y.new_zeros(parts, *self.y.shape)

        def run_parts(begin: int, end: int) -> None:
            for part in range(begin, end):
                first, last = rows * part // parts * columns, rows * (part + 1) // parts * columns
                kernel(x_grad.data_ptr(), y_grads[part].data_ptr(), first, last)

        share_out(parts, self.cells * self.pairs // parts, run_parts)
        return x_grad, y_grads.sum(0)


def problem(
    op: str,
    x: Tensor,
    y: Tensor | None,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    rules: Rules,
    *,
    all_pairs: bool = False,
    root: bool = False,
    gamma: float = 0.0,
) -> Problem:
    """Check the numbers and describe them to the kernels. Without y, x is a given cost (B, Tx, Ty)."""
    x = x.detach().contiguous()
    if y is None:
        count, x_steps, y_steps = x.shape
        rows, columns, channels = count, count, 0
    else:
        y = y.detach().contiguous()
        rows, x_steps, channels = x.shape
        columns, y_steps, _ = y.shape
    full = x_lengths is None and y_lengths is None
    x_lengths = checked_lengths(op, "x_lengths", x_lengths, rows, x_steps)
    y_lengths = checked_lengths(op, "y_lengths", y_lengths, columns, y_steps)
    if y is None:
        _finite_costs(op, x, x_lengths, y_lengths)
    else:
        check_finite(op, "x", x, x_lengths)
        if y.data_ptr() != x.data_ptr() or y_lengths is not x_lengths:
            check_finite(op, "y", y, y_lengths)
    described = native.Problem(
        x=x.data_ptr() if y is not None else 0,
        y=y.data_ptr() if y is not None else 0,
        cost=x.data_ptr() if y is None else 0,
        x_lengths=x_lengths.data_ptr(),
        y_lengths=y_lengths.data_ptr(),
        rows=rows,
        columns=columns,
        x_steps=x_steps,
        y_steps=y_steps,
        channels=channels,
        all_pairs=all_pairs,
        float64=x.dtype == torch.float64,
        ground=GIVEN if y is None else EUCLIDEAN if root else SQUARED,
        window=rules.window.kind,
        window_size=rules.window.size,
        open_begin=rules.open_begin,
        open_end=rules.open_end,
        gamma=gamma,
    )
    return Problem(described, x, y, x_lengths, y_lengths, all_pairs, full)


_thread = threading.local()


@contextmanager
def stoppable(flag: np.ndarray) -> Iterator[None]:
    """Kernels that this thread starts within the block end with KeyboardInterrupt once flag, (1,) uint8, is not 0.

    Example:
        >>> with stoppable(np.ones(1, np.uint8)):
        ...     try:
        ...         share_out(4, 1, lambda begin, end: None)
        ...     except KeyboardInterrupt:
        ...         print("stopped")
        stopped
    """
    before = getattr(_thread, "flag", None)
    _thread.flag = flag
    try:
        yield
    finally:
        _thread.flag = before


def share_out(count: int, cells: int, work: Callable[[int, int], None], threads: int | None = None) -> None:
    """Call work(begin, end) on ranges that cover 0..count, on several threads if that is worthwhile.

    ``cells`` is the work of one item. The ranges do not depend on the number of threads, which is
    ``torch.get_num_threads()`` unless given.
    """
    # About 64 ranges, of at least 50 microseconds of work. Large ones are cut to about a second, for Ctrl-C, but keep
    # enough items for every lane.
    least, most = 250_000 // max(cells, 1), max(16, (1 << 28) // max(cells, 1))
    chunk = max(1, least, min(most, -(-count // 64)))
    given = getattr(_thread, "flag", None)  # the caller's flag, which may stop the kernels
    if given is not None and given[0]:
        raise KeyboardInterrupt
    # Python sees Ctrl-C in its main thread only, and only after a kernel has returned. If one range may take long, the
    # main thread waits for the others instead, and stops them.
    waits = min(chunk, count) * cells > LONG and threading.current_thread() is threading.main_thread()
    if chunk >= count and not waits and given is None:
        work(0, count)
        return
    pending = deque(range(0, count, chunk))
    flag = np.zeros(1, np.uint8) if given is None else given
    watched = waits or given is not None

    def drain() -> None:
        if watched:
            native.watch(flag.ctypes.data)
        try:
            while pending and not flag[0]:
                try:
                    begin = pending.popleft()
                except IndexError:  # another thread has taken the last one
                    return
                work(begin, min(begin + chunk, count))
        except BaseException:  # Ctrl-C, too
            pending.clear()  # the others stop at the end of their range
            raise
        finally:
            if watched:
                native.watch(0)

    helpers = min(threads or torch.get_num_threads(), len(pending)) - (not waits)
    others: list[Future[None]] = [_pool().submit(drain) for _ in range(helpers)]
    try:
        if waits:
            wait(others)
        else:
            drain()
    except BaseException:
        if given is None:  # a flag set by the caller is left set
            flag[0] = 1
        raise
    finally:
        wait([other for other in others if not other.cancel()])  # the memory that they write to must outlive them
    for other in others:
        if not other.cancelled():
            other.result()
    if flag[0]:  # stopped between two ranges
        raise KeyboardInterrupt


def zeros_like(x: Tensor) -> Tensor:
    """Return zeros made by NumPy: PyTorch would wake its threads, which then occupy the cores that we need."""
    return torch.from_numpy(np.zeros(x.shape, np.float64 if x.dtype == torch.float64 else np.float32))


_executor: ThreadPoolExecutor | None = None


def _pool() -> ThreadPoolExecutor:
    global _executor
    if _executor is None:
        _executor = ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="likewise")
    return _executor


def _forget_pool() -> None:
    global _executor
    _executor = None


# A forked child, such as a DataLoader's worker, inherits the pool without its threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def checked_lengths(op: str, name: str, lengths: Tensor | None, count: int, steps: int) -> Tensor:
    """Lengths (count,) in memory that kernels can read; if they are None, every step is real."""
    if lengths is None:
        return _full_lengths(count, steps)
    lengths = lengths.cpu().contiguous()
    _check.lengths_range(op, name, lengths, steps)
    return lengths


@lru_cache(maxsize=4)
def _full_lengths(count: int, steps: int) -> Tensor:
    """Full lengths (count,); the result is shared and must not be changed."""
    return torch.from_numpy(np.full(count, steps, np.int64))


def check_finite(op: str, name: str, x: Tensor, lengths: Tensor) -> None:
    """Raise an error for NaN and infinities in sequences (B, T, C), except in their padding."""
    count, steps, channels = x.shape
    item = native.first_nonfinite(
        INSTRUCTION_SET, x.data_ptr(), lengths.data_ptr(), count, steps, channels, x.dtype == torch.float64
    )
    if item >= 0:
        _check.finite(op, name, x, lengths)  # says where


def _finite_costs(op: str, cost: Tensor, x_lengths: Tensor, y_lengths: Tensor) -> None:
    count, x_steps, y_steps = cost.shape
    suspect = native.first_nonfinite(
        INSTRUCTION_SET, cost.data_ptr(), x_lengths.data_ptr(), count, x_steps, y_steps, cost.dtype == torch.float64
    )
    for item in range(suspect, count) if suspect >= 0 else ():  # it may be padding that is not finite
        real = cost[item, : int(x_lengths[item]), : int(y_lengths[item])]
        wrong = (~real.isfinite()).nonzero()
        if len(wrong):
            i, j = wrong[0].tolist()
            _check.refuse(op, f"cost[{item}] holds {real[i, j].item()} at ({i}, {j})")
