"""Many pairs: each lane aligns one pair, and eight rows stay in registers while it goes through the columns."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.engine.pairs import Pairs
from likewise.ops.engine.windows import UNREACHABLE, softmin2, softmin3, window_row
from likewise.ops.launch.arguments import float64_bits, float64_from, processors
from likewise.ops.launch.launcher import launch

LANES = 64  # pairs of one program


@triton.jit
def lane_strip(x, y, row_buffer, top, n, m, C, x_step, y_step, scale, size, begin, end, corner, above,
               LANES: tl.constexpr, ROWS: tl.constexpr, SOFT: tl.constexpr, ROOT: tl.constexpr,
               WINDOW: tl.constexpr, TOP: tl.constexpr):  # fmt: skip
    """Rows top..top+ROWS-1 over the columns begin..end-1; row_buffer has the row above and receives the last.

    With TOP, some lanes may still be above their first row: their values are set, not computed.
    """
    lane = tl.arange(0, LANES)
    far = tl.full((LANES,), UNREACHABLE, scale.dtype)
    previous = tl.where(top == 0, corner, far) if TOP else far  # the row above, one column to the left
    above_first = lane * 0
    above_last = lane * 0 + end
    if WINDOW != 0:
        first, last = window_row(WINDOW, size, n, m, top - 1)
        above_first = tl.where(top > 0, first, above_first)
        above_last = tl.where(top > 0, last, above_last)
        j = lane * 0 + begin - 1
        reached = (j >= 0) & (j >= above_first) & (j <= above_last)
        previous = tl.load(row_buffer + j * LANES + lane, mask=reached, other=previous)
    left = ()
    frames = ()
    for r in tl.static_range(ROWS):
        left = left + ((tl.where(top + r == -1, corner, far) if TOP else far),)
        frames = frames + (x + tl.maximum(top + r, 0) * C * x_step,)
    x_first = ()
    for r in tl.static_range(ROWS):
        x_first = x_first + (tl.load(frames[r]),)
    for j in range(begin, end):
        y_c = tl.load(y + j * C * y_step)
        cost = ()
        for r in tl.static_range(ROWS):
            cost = cost + ((y_c - x_first[r]) * (y_c - x_first[r]),)
        for c in range(1, C):
            y_c = tl.load(y + (j * C + c) * y_step)
            total = ()
            for r in tl.static_range(ROWS):
                d = y_c - tl.load(frames[r] + c * x_step)
                total = total + (cost[r] + d * d,)
            cost = total
        up = tl.load(row_buffer + j * LANES + lane)
        if WINDOW != 0:
            up = tl.where((j < above_first) | (j > above_last), UNREACHABLE, up)
        diagonal = previous
        previous = up
        column = ()
        for r in tl.static_range(ROWS):
            up = (tl.sqrt(cost[r]) if ROOT else cost[r]) * scale + softmin3(up, diagonal, left[r], SOFT)
            if WINDOW != 0:
                first, last = window_row(WINDOW, size, n, m, top + r)
                up = tl.where((j < first) | (j > last), UNREACHABLE, up)
            if TOP:
                up = tl.where(top + r < 0, above, up)
            diagonal = left[r]
            column = column + (up,)
        left = column
        tl.store(row_buffer + j * LANES + lane, up)


@triton.jit(do_not_specialize=["x_steps", "y_steps"])
def lanes_kernel(x, y, values, row_buffers, x_lengths, y_lengths, tasks, blocks, x_steps, y_steps, C, x_items, y_items,
                 scale_bits, size_bits, LANES: tl.constexpr, ROWS: tl.constexpr, ALL_PAIRS: tl.constexpr,
                 SYMMETRIC: tl.constexpr, SOFT: tl.constexpr, ROOT: tl.constexpr, WINDOW: tl.constexpr,
                 OPEN_BEGIN: tl.constexpr, OPEN_END: tl.constexpr):  # fmt: skip
    """y (y_steps, C, y_items), and x (x_items, x_steps, C) for all pairs, else (x_steps, C, x_items).

    SYMMETRIC: only blocks on the diagonal or right of it are computed; the others get arbitrary numbers.
    """
    program = tl.program_id(0)
    lane = tl.arange(0, LANES)
    scale = float64_from(scale_bits).to(x.dtype.element_ty)
    size = float64_from(size_bits)
    row_buffer = row_buffers + program.to(tl.int64) * y_steps * LANES
    # Open at the beginning, a path enters cell (0, j) once; each of the two neighbours above adds one half.
    corner = (1.0 if SOFT else 0.0) if OPEN_BEGIN else 0.0
    above = corner if OPEN_BEGIN else UNREACHABLE
    for task in range(program, tasks, tl.num_programs(0)):
        item = (task // blocks).to(tl.int64)
        column = ((task % blocks) * LANES + lane).to(tl.int64)
        m = tl.load(y_lengths + column).to(tl.int32)
        if ALL_PAIRS:
            x_at = x + item * x_steps * C
            n = tl.load(x_lengths + item).to(tl.int32)
            longest = n
            shortest = n
            x_step = 1
        else:
            x_at = x + column
            n = tl.load(x_lengths + column).to(tl.int32)
            longest = tl.max(n, 0)
            shortest = tl.min(n, 0)
            x_step = x_items
        widest = tl.max(m, 0)
        for j in range(widest):
            tl.store(row_buffer + j * LANES + lane, tl.full((LANES,), above, scale.dtype))
        # All lanes end in the last row of the last strip; the first strip may begin above row 0.
        strips = (longest + ROWS - 1) // ROWS
        if SYMMETRIC:
            strips = tl.where((task % blocks + 1) * LANES > item, strips, 0)
        for strip in range(strips):
            bottom = longest - (strips - 1 - strip) * ROWS
            top = bottom - ROWS - (longest - n)
            begin = 0
            end = widest
            if WINDOW != 0 and bottom - ROWS >= longest - shortest:
                first, last = window_row(WINDOW, size, n, m, top)
                begin = tl.min(first + lane * 0, 0)
                first, last = window_row(WINDOW, size, n, m, top + ROWS - 1)
                end = tl.max(last + lane * 0, 0) + 1
            if bottom - ROWS <= longest - shortest:
                lane_strip(x_at, y + column, row_buffer, top, n, m, C, x_step, y_items, scale, size, begin, end,
                           corner, above, LANES, ROWS, SOFT, ROOT, WINDOW, True)  # fmt: skip
            else:
                lane_strip(x_at, y + column, row_buffer, top, n, m, C, x_step, y_items, scale, size, begin, end,
                           corner, above, LANES, ROWS, SOFT, ROOT, WINDOW, False)  # fmt: skip
        value = tl.load(row_buffer + (m - 1) * LANES + lane)
        if OPEN_END:
            value = tl.full((LANES,), UNREACHABLE, scale.dtype)
            first, last = window_row(WINDOW, size, n, m, n - 1)
            for j in range(widest):
                candidate = tl.load(row_buffer + j * LANES + lane)
                value = softmin2(value, tl.where((j < first) | (j > last), UNREACHABLE, candidate), SOFT)
        tl.store(values + item * y_items + column, value / scale)


def run_lanes(pairs: Pairs) -> Tensor:
    """Values (pairs,) by the lanes kernel. Scratch: O(Ty) for each of a fixed number of programs."""
    x, y = pairs.x.detach(), pairs.y.detach()
    x_steps, y_steps = pairs.steps
    x_lengths, y_lengths = pairs.lengths()
    # Lanes of similar length waste little; unused lanes repeat the last item.
    keys = y_lengths if pairs.all_pairs else x_lengths * (y_steps + 1) + y_lengths
    order = torch.argsort(keys)
    order = torch.cat([order, order[-1:].expand(-len(order) % LANES)])
    y_lanes = y[order].permute(1, 2, 0).contiguous()  # (Ty, C, items)
    x_order = order[: len(x)] if pairs.symmetric else torch.arange(len(x), device=x.device)
    x_lanes = x[x_order].contiguous() if pairs.all_pairs else x[order].permute(1, 2, 0).contiguous()
    blocks = len(order) // LANES
    tasks = blocks * len(x) if pairs.all_pairs else blocks
    programs = min(tasks, 16 * processors(x))
    found = x.new_empty(len(x) if pairs.all_pairs else 1, len(order))
    row_buffers = x.new_empty(programs, y_steps, LANES)
    lengths = (x_lengths[x_order if pairs.all_pairs else order], y_lengths[order])
    sizes = (tasks, blocks, x_steps, y_steps, x.shape[2], len(order), len(order))
    launch(
        lanes_kernel,
        (programs,),
        (x_lanes, y_lanes, found, row_buffers, *lengths),
        (*sizes, float64_bits(pairs.scale), float64_bits(pairs.rules.window.size)),
        LANES // 32,
        LANES=LANES,
        ROWS=8,
        ALL_PAIRS=pairs.all_pairs,
        SYMMETRIC=pairs.symmetric,
        SOFT=pairs.soft,
        ROOT=pairs.root,
        WINDOW=pairs.rules.window.kind,
        OPEN_BEGIN=pairs.rules.open_begin,
        OPEN_END=pairs.rules.open_end,
    )
    found, order = found[:, : pairs.columns], order[: pairs.columns]
    result = torch.empty_like(found)
    if pairs.symmetric:
        result[order[:, None], order] = found.triu() + found.triu(1).T
    else:
        result[:, order] = found
    return result.flatten()
