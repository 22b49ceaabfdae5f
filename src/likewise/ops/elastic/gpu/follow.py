"""The tables of FOLLOW in Triton: a warp aligns a pair, and its rows stay in registers, as in ``engine.warps``.

The windows of a pair are parts of two sequences, and slide: the cost of a cell is that of the cell before it on the
diagonal, plus that of the part that enters, less that of the part that leaves. Costs above a strip of rows and left
of it are summed up whole.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.elastic.moves import Moves
from likewise.ops.engine.warps import LANES, pair_items
from likewise.ops.engine.windows import window_row
from likewise.ops.launch.arguments import ceil_div, float64_bits, float64_from, power_of_2, processors
from likewise.ops.launch.launcher import launch
from likewise.ops.rules import Rules

FEW = 8  # the most channels whose frames stay in registers
ROWS = 8  # the most rows of a lane, with one channel
REGISTERS = 160  # of a thread: more would leave fewer warps on a multiprocessor
PROGRAMS = 100  # programs for each multiprocessor: it runs 12 at once, and waits less for the last of many


@triton.jit
def whole_cost(x, y, i, j, x_places, y_places, parts, C: tl.constexpr, mask):
    """The cost of cells (i, j), from -1 on, as a sum over their windows."""
    total = tl.zeros(mask.shape, x.dtype.element_ty)
    x += i + 1 + j * 0
    y += j + 1 + i * 0
    for k in range(parts):
        for c in tl.static_range(C):
            a = tl.load(x + c * x_places + k, mask=mask, other=0.0)
            b = tl.load(y + c * y_places + k, mask=mask, other=0.0)
            total += (a - b) * (a - b)
    return total


@triton.jit
def follow_column(enter, leave, own, costs, cost_corner, cost_above, left, sums, up, up_sum, diagonal, diagonal_sum, y,
                  j, begin, inside, firsts, lasts, y_places, parts, ROWS: tl.constexpr, C: tl.constexpr,
                  FROZEN: tl.constexpr, WINDOW: tl.constexpr):  # fmt: skip
    """The next column of each lane: costs, values and sums. FROZEN: some lanes have not begun, and keep their costs."""
    entering = (cost_corner,)
    for r in tl.static_range(ROWS - 1):
        entering = entering + (costs[r],)
    matched = entering
    for c in tl.static_range(C):
        y_in = tl.load(y + c * y_places + j + parts, mask=inside, other=0.0)
        y_out = tl.load(y + c * y_places + j, mask=inside, other=0.0)
        y_own = tl.load(y + c * y_places + j + parts // 2 + 1, mask=inside, other=0.0)
        slid = ()
        met = ()
        for r in tl.static_range(ROWS):
            d = enter[r * C + c] - y_in
            e = leave[r * C + c] - y_out
            slid = slid + ((entering[r] + d * d) - e * e,)
            f = own[r * C + c] - y_own
            met = met + ((matched[r] + f * f) if c > 0 else (f * f),)
        entering = slid
        matched = met
    column = ()
    column_sums = ()
    column_costs = ()
    for r in tl.static_range(ROWS):
        cost = entering[r]
        if FROZEN:
            cost = tl.where(j >= begin, cost, costs[r])
        by_left = left[r] < up
        gap = tl.where(by_left, left[r], up)
        gap_sum = tl.where(by_left, sums[r], up_sum)
        by_gap = gap < diagonal
        value = tl.where(by_gap, gap, diagonal) + cost
        total = tl.where(by_gap, gap_sum, diagonal_sum) + matched[r]
        if WINDOW != 0:
            value = tl.where((j < firsts[r]) | (j > lasts[r]), float("inf"), value)
        diagonal = left[r]
        diagonal_sum = sums[r]
        up = value
        up_sum = total
        column = column + (value,)
        column_sums = column_sums + (total,)
        column_costs = column_costs + (cost,)
    corner = tl.where(j >= begin, cost_above, cost_corner) if FROZEN else cost_above
    return column_costs, corner, column, column_sums


@triton.jit
def follow_strip(x, y, edge, top, n, m, x_places, y_places, y_steps, parts, size, C: tl.constexpr, WINDOW: tl.constexpr,
                 OPEN_BEGIN: tl.constexpr, OPEN_END: tl.constexpr, LINKED: tl.constexpr, ROWS: tl.constexpr,
                 LANES: tl.constexpr):  # fmt: skip
    """Compute the strip of rows from `top` on; return its sum in the last cell or row.

    `edge` (3, y_steps) has the values and sums above the strip, and receives those of its last row; the costs above are
    kept in it, too.
    """
    dtype = x.dtype.element_ty
    lane = tl.arange(0, LANES)
    first_row = top + lane * ROWS
    far = tl.full((LANES,), float("inf"), dtype)
    nothing = tl.zeros((LANES,), dtype)
    rows = tl.minimum(n - top, LANES * ROWS)
    sender = tl.where(top + LANES * ROWS < n, LANES - 1, -1)  # the lane that writes what the strip below reads
    begin = m * 0
    end = m
    above_first = begin
    above_last = m - 1
    firsts = ()
    lasts = ()
    if WINDOW != 0:
        above_first, above_last = window_row(WINDOW, size, n, m, top - 1)
        begin, unused = window_row(WINDOW, size, n, m, top)
        unused, end = window_row(WINDOW, size, n, m, top + rows - 1)
        end += 1
    edge_sums = edge + y_steps
    edge_costs = edge + 2 * y_steps
    for start in range(begin, end - 1, LANES):
        j = start + lane
        above = whole_cost(x, y, top - 1, j, x_places, y_places, parts, C, j < end - 1)
        tl.store(edge_costs + j, above, mask=j < end - 1)
    enter = ()
    leave = ()
    own = ()
    costs = ()
    left = ()
    sums = ()
    cost_corner = whole_cost(x, y, first_row - 1, begin - 1, x_places, y_places, parts, C, first_row - 1 < n)
    for r in tl.static_range(ROWS):
        i = first_row + r
        for c in tl.static_range(C):
            enter = enter + (tl.load(x + c * x_places + i + parts, mask=i < n, other=0.0),)
            leave = leave + (tl.load(x + c * x_places + i, mask=i < n, other=0.0),)
            own = own + (tl.load(x + c * x_places + i + parts // 2 + 1, mask=i < n, other=0.0),)
        costs = costs + (whole_cost(x, y, i, begin - 1, x_places, y_places, parts, C, i < n),)
        left = left + (far,)
        sums = sums + (nothing,)
        if WINDOW != 0:
            first, last = window_row(WINDOW, size, n, m, i)
            firsts = firsts + (first,)
            lasts = lasts + (last,)
    diagonal = far
    diagonal_sum = nothing
    if OPEN_BEGIN:
        diagonal = tl.where(first_row == 0, 0.0, far)
    else:
        diagonal = tl.where((first_row == 0) & (begin == 0), 0.0, far)
    if LINKED:
        reached = (top > 0) & (begin - 1 >= above_first) & (begin - 1 <= above_last) & (begin > 0)
        corner = tl.load(edge + begin - 1, mask=reached, other=float("inf"))
        corner_sum = tl.load(edge_sums + begin - 1, mask=reached, other=0.0)
        diagonal = tl.where((lane == 0) & reached, corner, diagonal)
        diagonal_sum = tl.where(lane == 0, corner_sum, diagonal_sum)
    best = far
    best_sum = nothing
    tl.debug_barrier()  # costs above have been written
    before = tl.maximum(lane - 1, 0)
    steps = end - begin + (rows - 1) // ROWS
    for phase in tl.static_range(2):  # until the last lane has begun, and then
        first_step = begin + (LANES if phase == 1 else 0)
        for at in range(first_step, begin + (steps if phase == 1 else tl.minimum(LANES, steps))):
            j = at - lane
            inside = (j >= begin) & (j < end)
            edge_value = tl.zeros((LANES,), dtype) if OPEN_BEGIN else far
            edge_sum = nothing
            if LINKED:
                known = (top > 0) & (at >= above_first) & (at <= above_last)
                loaded = tl.load(edge + at, mask=known, other=float("inf"))
                edge_value = tl.where(top > 0, loaded, edge_value)
                edge_sum = nothing + tl.load(edge_sums + at, mask=known, other=0.0)
            edge_cost = tl.load(edge_costs + at, mask=at < end - 1, other=0.0)
            up = tl.where(lane == 0, edge_value, tl.gather(left[ROWS - 1], before, 0))
            up_sum = tl.where(lane == 0, edge_sum, tl.gather(sums[ROWS - 1], before, 0))
            cost_above = tl.where(lane == 0, edge_cost, tl.gather(costs[ROWS - 1], before, 0))
            costs, cost_corner, left, sums = follow_column(
                enter, leave, own, costs, cost_corner, cost_above, left, sums, up, up_sum, diagonal, diagonal_sum, y, j,
                begin, inside, firsts, lasts, y_places, parts, ROWS, C, phase == 0, WINDOW)  # fmt: skip
            diagonal = up
            diagonal_sum = up_sum
            if OPEN_END:
                for r in tl.static_range(ROWS):
                    better = inside & (first_row + r == n - 1) & (left[r] < best)
                    best = tl.where(better, left[r], best)
                    best_sum = tl.where(better, sums[r], best_sum)
            if LINKED:
                tl.store(edge + j, left[ROWS - 1], mask=inside & (lane == sender))
                tl.store(edge_sums + j, sums[ROWS - 1], mask=inside & (lane == sender))
    if not OPEN_END:
        for r in tl.static_range(ROWS):
            best = tl.where(first_row + r == n - 1, left[r], best)
            best_sum = tl.where(first_row + r == n - 1, sums[r], best_sum)
    ended = lane == (rows - 1) // ROWS
    # A sum is infinite where there is no path.
    return tl.sum(tl.where(ended, tl.where(best < float("inf"), best_sum, best), 0.0), 0)


SIZES = ["count", "columns", "x_steps", "y_steps", "parts", "size_bits"]


@triton.jit(do_not_specialize=SIZES)
def follow_kernel(x, y, values, edges, x_items, y_items, x_lengths, y_lengths, count, columns, x_steps, y_steps, parts,
                  size_bits, C: tl.constexpr, LISTED: tl.constexpr, SYMMETRIC: tl.constexpr, WINDOW: tl.constexpr,
                  OPEN_BEGIN: tl.constexpr, OPEN_END: tl.constexpr, LINKED: tl.constexpr, ROWS: tl.constexpr,
                  LANES: tl.constexpr):  # fmt: skip
    """x (items, C, x_steps + parts) and y alike, of which window i begins at place i + 1; pairs are LISTED by their
    items, or all pairs. `values` (pairs,) or, if SYMMETRIC, (columns, columns).
    """
    program = tl.program_id(0)
    size = float64_from(size_bits)
    edge = edges + program.to(tl.int64) * 3 * y_steps
    x_places = x_steps + parts
    y_places = y_steps + parts
    for task in range(program, count, tl.num_programs(0)):
        pair = program.to(tl.int64) * 0 + task
        item, other = pair_items(pair, columns, not LISTED, SYMMETRIC)
        if LISTED:
            item = tl.load(x_items + pair)
            other = tl.load(y_items + pair)
        n = tl.load(x_lengths + item).to(tl.int32)
        m = tl.load(y_lengths + other).to(tl.int32)
        value = tl.full([], 0.0, x.dtype.element_ty)
        for top in range(0, n, LANES * ROWS):
            tl.debug_barrier()  # the row above has been written
            value = follow_strip(x + item * C * x_places, y + other * C * y_places, edge, top, n, m, x_places, y_places,
                                 y_steps, parts, size, C, WINDOW, OPEN_BEGIN, OPEN_END, LINKED, ROWS,
                                 LANES)  # fmt: skip
        if SYMMETRIC:
            tl.store(values + item * columns + other, value)
            tl.store(values + other * columns + item, value)
        else:
            tl.store(values + pair, value)


def spread(windows: Tensor, parts: int) -> Tensor:
    """The sequences (B, C, T + parts) that windows (B, T, parts * C) are parts of, with a step before the first.

    Example:
        >>> windows = torch.tensor([[[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]]])
        >>> spread(windows, 3)
        tensor([[[0., 0., 1., 2., 3.]]])
    """
    first = windows[:, 0].unflatten(1, (parts, -1))  # (B, parts, C)
    last = windows[:, 1:, windows.shape[2] - first.shape[2] :]
    return torch.cat([first[:, :1], first, last], 1).mT.contiguous()


def run_follow(
    x: Tensor,
    y: Tensor,
    moves: Moves,
    rules: Rules,
    lengths: tuple[Tensor, Tensor],
    items: tuple[Tensor, Tensor] | None,
    *,
    symmetric: bool = False,
) -> Tensor:
    """Values of listed pairs, or (N, M) of all pairs, given windows (B, T, parts * C)."""
    x_steps, y_steps, channels = x.shape[1], y.shape[1], x.shape[2] // moves.parts
    rows = min(max(1, ROWS // power_of_2(channels)), power_of_2(ceil_div(x_steps, LANES)))
    same = y is x
    x = spread(x.detach(), moves.parts)
    y = x if same else spread(y.detach(), moves.parts)
    shape = (len(items[0]),) if items else (len(x), len(y))
    values = x.new_empty(shape)
    count = (len(x) + 1) // 2 * (len(x) + 1) if symmetric else values.numel()
    if not count:
        return values
    programs = min(count, PROGRAMS * processors(x))
    launch(
        follow_kernel,
        (programs,),
        (x, y, values, x.new_empty(programs, 3, y_steps), *(items or lengths), *lengths),
        (count, len(y), x_steps, y_steps, moves.parts, float64_bits(rules.window.size)),
        1,
        C=channels,
        LISTED=items is not None,
        SYMMETRIC=symmetric,
        WINDOW=rules.window.kind,
        OPEN_BEGIN=rules.open_begin,
        OPEN_END=rules.open_end,
        LINKED=x_steps > LANES * rows,
        ROWS=rows,
        LANES=LANES,
        maxnreg=REGISTERS,
    )
    return values
