"""The tables of many pairs in Triton: each lane holds one pair, and a few rows stay in registers as columns go by.

``cell`` has the recurrences of ``moves.py``. A cell carries its value, to which gaps are added, and in CARRY and BALL
another number: D + c and c. Only the values of the row above a strip are kept: the other number follows from its
costs. Lanes with fewer rows begin later: all end in the last row of the last strip, and rows above the first pass on
the border.
"""

import triton
import triton.language as tl

from likewise.ops.engine.windows import window_row
from likewise.ops.launch.arguments import float64_from

WARP = tl.constexpr(0)  # as in moves.py
EDIT = tl.constexpr(1)
CARRY = tl.constexpr(2)
COUNT = tl.constexpr(3)
BALL = tl.constexpr(4)
FOLLOW = tl.constexpr(5)
NONE = tl.constexpr(0)  # borders
GAPS = tl.constexpr(1)
FREE = tl.constexpr(2)


@triton.jit
def frame_cost(x, y, mask, C, x_step, y_step, ONE: tl.constexpr, ROOT: tl.constexpr):
    """c between a frame of x and one of y."""
    d = tl.load(x, mask=mask, other=0.0) - tl.load(y, mask=mask, other=0.0)
    total = tl.abs(d) if (ONE and ROOT) else d * d
    if not ONE:
        for c in range(1, C):
            d = tl.load(x + c * x_step, mask=mask, other=0.0) - tl.load(y + c * y_step, mask=mask, other=0.0)
            total += d * d
        if ROOT:
            total = tl.sqrt(total)
    return total


@triton.jit
def split(gap, cost, diameter, EDGED: tl.constexpr):
    """The cost of BALL besides the penalty. Next to the border, whose diameter is -inf, there is no gap."""
    least = tl.minimum(gap, cost)
    if EDGED:
        least = tl.maximum(least, -diameter)
    return tl.where(gap + cost <= diameter, 0.0, least)


@triton.jit
def cell(diagonal, diagonal_more, up, up_more, left, left_more, cost, own, x_gap, y_gap, entry, penalty, hit, miss,
         within, RECURRENCE: tl.constexpr, TABLE: tl.constexpr, EDGED: tl.constexpr, RECORD: tl.constexpr):  # fmt: skip
    """The value of a cell, the other number that it carries, and the move: 0 diagonal, 1 above, 2 left."""
    if RECURRENCE == WARP:
        by_x = up + penalty
        by_y = left + penalty
        by_both = diagonal
    elif RECURRENCE == FOLLOW:
        by_x = up
        by_y = left
        by_both = diagonal
    elif RECURRENCE == BALL:
        by_x = up + (penalty + split(x_gap, cost, up_more, EDGED))
        by_y = left + (penalty + split(y_gap, cost, left_more, EDGED))
        by_both = diagonal + cost
    else:
        by_x = up + x_gap
        by_y = left + y_gap
        if RECURRENCE == EDIT:
            by_both = diagonal + cost
        elif RECURRENCE == CARRY:
            by_both = diagonal + ((cost + entry) if TABLE else cost)
        else:
            by_both = diagonal + tl.where(cost < within, hit, miss)
    gap = tl.minimum(by_x, by_y)
    value = tl.minimum(gap, by_both)
    move = 0
    if RECORD:
        move = tl.where(gap < by_both, tl.where(by_y < by_x, 2, 1), 0)
    if RECURRENCE == WARP:
        value += (cost * entry) if TABLE else cost
    more = value
    if RECURRENCE == CARRY:
        more = value + cost
    if RECURRENCE == BALL:
        more = cost
    if RECURRENCE == FOLLOW:
        value += cost
        more = tl.where(gap < by_both, tl.where(by_y < by_x, left_more, up_more), diagonal_more) + own
    return value, more, move


@triton.jit
def table_entry(weights, offset, size, longest, slope, RECURRENCE: tl.constexpr):
    """The factor of WARP or the added cost of CARRY, given offset = i - j and size = max(n, m)."""
    apart = tl.abs(offset)
    if RECURRENCE == WARP:
        entry = tl.load(weights + tl.minimum(tl.maximum(2 * apart - size + longest, 0), 2 * longest))
    else:
        entry = slope * apart.to(slope.dtype)
    return entry


@triton.jit
def strip(x, y, x_gaps, y_gaps, weights, row, plane, moves, top, n, m, C, x_step, y_step, longest, penalty, slope,
          hit, miss, within, size, begin, end, border, own_first, own_count, LANES: tl.constexpr, ROWS: tl.constexpr,
          ONE: tl.constexpr, RECURRENCE: tl.constexpr, ROOT: tl.constexpr, BORDER: tl.constexpr, TABLE: tl.constexpr,
          EDGED: tl.constexpr, RECORD: tl.constexpr, WINDOW: tl.constexpr, TOP: tl.constexpr):  # fmt: skip
    """Rows top..top+ROWS-1 over the columns begin..end-1; `row` holds the values above and receives the last. So do,
    for FOLLOW, its sums one `plane` behind and its costs two.

    FOLLOW's frames are windows that slide: a cost is that of the cell before on the diagonal, plus that of the part
    that enters, less that of the part that leaves. In the rows that have no such cell at hand it is summed up whole.

    `border` is what lies left of row top - 1. With TOP, some lanes may still be above their first row. Returns what
    lies left of the last row.
    """
    lane = tl.arange(0, LANES)
    dtype = penalty.dtype
    far = tl.full((LANES,), float("inf"), dtype)
    nothing = tl.zeros((LANES,), dtype)
    ABOVE: tl.constexpr = 1 if RECURRENCE == CARRY or RECURRENCE == BALL else 0  # costs of the row above are needed too
    CARRIED: tl.constexpr = ABOVE == 1 or RECURRENCE == FOLLOW
    more_row = row + plane
    above_first = lane * 0
    above_last = lane * 0 + end
    previous = border  # what a match in row top goes on from
    previous_more = border
    if WINDOW != 0:
        above_first, above_last = window_row(WINDOW, size, n, m, top - 1)
        if TOP:
            above_first = tl.where(top > 0, above_first, 0)
            above_last = tl.where(top > 0, above_last, end)
        before = lane * 0 + begin - 1
        reached = (before >= 0) & (before >= above_first) & (before <= above_last)
        corner = tl.load(row + before * LANES + lane, mask=reached, other=float("inf"))
        if RECURRENCE == CARRY:
            corner += frame_cost(x + tl.maximum(top - 1, 0) * C * x_step + lane * 0, y + (begin - 1) * C * y_step,
                                 reached, C, x_step, y_step, ONE, ROOT)  # fmt: skip
        previous = tl.where(before >= 0, corner, border)
        if RECURRENCE == FOLLOW:
            corner = tl.load(more_row + before * LANES + lane, mask=reached, other=float("inf"))
            previous_more = tl.where(before >= 0, corner, border)
    left = ()
    left_more = ()
    x_gap = ()
    entries = ()
    firsts = ()
    lasts = ()
    longer = tl.maximum(n, m)
    for r in tl.static_range(ROWS):
        i = top + r
        gap = nothing
        if RECURRENCE != WARP and RECURRENCE != FOLLOW:
            gap = nothing + tl.load(x_gaps + tl.maximum(i, 0) * x_step)
        if BORDER == NONE:
            border = far
            if TOP:
                border = tl.where(i < 0, 0.0, far)
        if BORDER == GAPS:
            border += tl.where(i < 0, 0.0, gap) if TOP else gap
        here = border
        if WINDOW != 0:
            here = tl.where(begin == 0, border, far)
        x_gap = x_gap + (gap,)
        left = left + (far if RECURRENCE == CARRY else here,)
        if CARRIED:
            left_more = left_more + (-far if RECURRENCE == BALL else here,)
        if TABLE:
            entries = entries + (table_entry(weights, i + 1 - begin, longer, longest, slope, RECURRENCE),)
        if WINDOW != 0:
            first, last = window_row(WINDOW, size, n, m, i)
            firsts = firsts + (first,)
            lasts = lasts + (last,)
    frames = ()
    x_first = ()
    for r in tl.static_range(ABOVE + ROWS):
        frames = frames + (x + tl.maximum(top + r - ABOVE, 0) * C * x_step,)
        x_first = x_first + (tl.load(frames[r]),)
    y_at = y + begin * C * y_step
    slid = ()  # what costs are without the part that enters
    DIRECT: tl.constexpr = TOP or WINDOW != 0
    cost_at = more_row + plane + begin * LANES + lane
    if RECURRENCE == FOLLOW:
        for _ in tl.static_range(ROWS):
            slid = slid + (nothing,)
        for c in range(C - own_count):
            y_part = tl.load(y_at + c * y_step)
            summed = ()
            for r in tl.static_range(ROWS):
                d = y_part - tl.load(frames[r] + c * x_step)
                summed = summed + (slid[r] + d * d,)
            slid = summed
    gap_at = y_gaps + begin * y_step
    row_at = row + begin * LANES + lane
    more_at = more_row + begin * LANES + lane
    for j in range(begin, end):
        loaded = tl.load(row_at)
        if WINDOW != 0:
            loaded = tl.where((j < above_first) | (j > above_last), far, loaded)
        y_c = tl.load(y_at)
        y_gap = nothing
        if RECURRENCE != WARP and RECURRENCE != FOLLOW:
            y_gap = tl.load(gap_at)
        cost = ()
        if RECURRENCE == FOLLOW:
            whole = nothing
            if DIRECT:
                for c in range(C):
                    d = tl.load(y_at + c * y_step) - tl.load(x + (tl.maximum(top, 0) * C + c) * x_step)
                    whole += d * d
            entering = slid
            for c in range(C - own_count, C):
                y_part = tl.load(y_at + c * y_step)
                summed = ()
                for r in tl.static_range(ROWS):
                    d = y_part - tl.load(frames[r] + c * x_step)
                    summed = summed + (entering[r] + d * d,)
                entering = summed
            for r in tl.static_range(ROWS):
                if DIRECT and r == 0:
                    cost = cost + (whole,)
                elif TOP:
                    cost = cost + (tl.where(top + r <= 0, whole, entering[r]),)
                else:
                    cost = cost + (entering[r],)
            leaving = (nothing if DIRECT else tl.load(cost_at),)  # for the next column
            for r in tl.static_range(ROWS - 1):
                leaving = leaving + (cost[r],)
            for c in range(own_count):
                y_part = tl.load(y_at + c * y_step)
                summed = ()
                for r in tl.static_range(ROWS):
                    d = y_part - tl.load(x + (tl.maximum(top + r - 1, 0) * C + c) * x_step)
                    summed = summed + (leaving[r] - d * d,)
                leaving = summed
            slid = leaving
            tl.store(cost_at, cost[ROWS - 1])
            cost_at += LANES
        else:
            for r in tl.static_range(ABOVE + ROWS):
                d = y_c - x_first[r]
                cost = cost + (tl.abs(d) if (ONE and ROOT) else d * d,)
        if not ONE and RECURRENCE != FOLLOW:
            for c in range(1, C):
                y_c = tl.load(y_at + c * y_step)
                total = ()
                for r in tl.static_range(ABOVE + ROWS):
                    d = y_c - tl.load(frames[r] + c * x_step)
                    total = total + (cost[r] + d * d,)
                cost = total
            if ROOT:
                total = ()
                for r in tl.static_range(ABOVE + ROWS):
                    total = total + (tl.sqrt(cost[r]),)
                cost = total
        own = ()
        if RECURRENCE == FOLLOW:
            for _ in tl.static_range(ROWS):
                own = own + (nothing,)
            for c in range(own_first, own_first + own_count):
                y_c = tl.load(y_at + c * y_step)
                total = ()
                for r in tl.static_range(ROWS):
                    d = y_c - tl.load(frames[r] + c * x_step)
                    total = total + (own[r] + d * d,)
                own = total
        if TABLE:
            shifted = (table_entry(weights, top - j, longer, longest, slope, RECURRENCE),)
            for r in tl.static_range(ROWS - 1):
                shifted = shifted + (entries[r],)
            entries = shifted
        up = loaded
        up_more = loaded
        if RECURRENCE == CARRY:
            up_more = loaded + cost[0]
            if TOP:
                up = tl.where(top <= 0, far, loaded)
                up_more = tl.where(top <= 0, loaded, up_more)
        if RECURRENCE == BALL:
            up_more = cost[0]
            if TOP:
                up_more = tl.where(top <= 0, -far, up_more)
        if RECURRENCE == FOLLOW:
            up_more = tl.load(more_at)
        diagonal = previous
        diagonal_more = previous_more
        previous = up_more if RECURRENCE == CARRY else up
        previous_more = up_more
        column = ()
        column_more = ()
        word = lane * 0
        for r in tl.static_range(ROWS):
            value, more, move = cell(diagonal, diagonal_more, up, up_more, left[r], left_more[r] if CARRIED else up,
                                     cost[ABOVE + r], own[r] if RECURRENCE == FOLLOW else up, x_gap[r], y_gap,
                                     entries[r] if TABLE else penalty, penalty, hit, miss, within, RECURRENCE, TABLE,
                                     EDGED, RECORD)  # fmt: skip
            if RECORD:
                word |= move << (2 * r)
            if WINDOW != 0:
                outside = (j < firsts[r]) | (j > lasts[r])
                value = tl.where(outside, far, value)
                if RECURRENCE == CARRY:
                    more = tl.where(outside, far, more)
            if TOP:
                value = tl.where(top + r < 0, up, value)
                more = tl.where(top + r < 0, up_more, more)
            diagonal = left_more[r] if RECURRENCE == CARRY else left[r]
            diagonal_more = left_more[r] if CARRIED else up
            up = value
            up_more = more
            column = column + (value,)
            if CARRIED:
                column_more = column_more + (more,)
        left = column
        if CARRIED:
            left_more = column_more
        if TOP:
            up = tl.where(top + ROWS <= 0, loaded, up)
        tl.store(row_at, up)
        if RECURRENCE == FOLLOW:
            tl.store(more_at, up_more)
        if RECORD:
            tl.store(moves + j * LANES + lane, word.to(tl.int16))
        y_at += C * y_step
        gap_at += y_step
        row_at += LANES
        more_at += LANES
    return border


@triton.jit(do_not_specialize=["x_steps", "y_steps", "longest", "own_first", "own_count"])
def sweep_kernel(x, y, x_gaps, y_gaps, x_reach, y_reach, weights, x_lengths, y_lengths, values, ends, rows, moves,
                 tasks, blocks, strips_kept, x_steps, y_steps, C, x_items, y_items, longest, own_first, own_count,
                 penalty_bits, slope_bits, hit_bits, miss_bits, size_bits, LANES: tl.constexpr, ROWS: tl.constexpr,
                 ALL_PAIRS: tl.constexpr, SYMMETRIC: tl.constexpr, ONE: tl.constexpr, RECURRENCE: tl.constexpr,
                 ROOT: tl.constexpr, BORDER: tl.constexpr, LAST_COST: tl.constexpr, TABLE: tl.constexpr,
                 RECORD: tl.constexpr, WINDOW: tl.constexpr, OPEN_BEGIN: tl.constexpr,
                 OPEN_END: tl.constexpr):  # fmt: skip
    """y (y_steps, C, y_items), gaps (y_steps, y_items); x alike, or (x_items, x_steps, C) and gaps (x_items, x_steps)
    for all pairs. SYMMETRIC: items are those of y in the same order, and blocks below the diagonal are left out.

    RECORD: `ends` (tasks * LANES,) get the columns where paths end, `moves` (tasks, strips_kept, y_steps, LANES) two
    bits for each row of a strip.
    """
    EDGED: tl.constexpr = RECURRENCE == BALL and (OPEN_BEGIN or BORDER != NONE)
    program = tl.program_id(0)
    lane = tl.arange(0, LANES)
    dtype = x.dtype.element_ty
    far = tl.full((LANES,), float("inf"), dtype)
    nothing = tl.zeros((LANES,), dtype)
    penalty = float64_from(penalty_bits).to(dtype)
    slope = float64_from(slope_bits).to(dtype)
    hit = float64_from(hit_bits).to(dtype)
    miss = float64_from(miss_bits).to(dtype)
    size = float64_from(size_bits)
    row = rows + program.to(tl.int64) * y_steps * LANES
    plane = (tl.num_programs(0) + program * 0).to(tl.int64) * y_steps * LANES if RECURRENCE == FOLLOW else 0
    more_row = row + plane
    y_step = (y_items + program * 0).to(tl.int64)
    for task in range(program, tasks, tl.num_programs(0)):
        item = (task // blocks).to(tl.int64)
        column = ((task % blocks) * LANES + lane).to(tl.int64)
        m = tl.load(y_lengths + column).to(tl.int32)
        widest = tl.max(m, 0)
        if ALL_PAIRS:
            x_at = x + item * x_steps * C
            x_gaps_at = x_gaps + item * x_steps
            x_reach_at = x_reach + item
            n = tl.load(x_lengths + item).to(tl.int32)
            tallest = n
            shortest = n
            x_step = (program * 0 + 1).to(tl.int64)
            if SYMMETRIC:
                # Nothing is computed if every column precedes the row.
                left_out = item >= ((task % blocks) + 1) * LANES
                widest = tl.where(left_out, 0, widest)
                tallest = tl.where(left_out, 0, tallest)
        else:
            x_at = x + column
            x_gaps_at = x_gaps + column
            x_reach_at = x_reach + column
            n = tl.load(x_lengths + column).to(tl.int32)
            tallest = tl.max(n, 0)
            shortest = tl.min(n, 0)
            x_step = (x_items + program * 0).to(tl.int64)
        y_at = y + column
        y_gaps_at = y_gaps + column
        within = nothing
        if RECURRENCE == COUNT:
            within = tl.maximum(tl.load(y_reach + column), tl.load(x_reach_at))
        above = nothing
        for j in range(widest):
            if BORDER == GAPS:
                above += tl.load(y_gaps_at + j * y_step)
            value = nothing if (OPEN_BEGIN or BORDER == FREE) else (above if BORDER == GAPS else far)
            tl.store(row + j * LANES + lane, value)
            if RECURRENCE == FOLLOW:
                tl.store(more_row + j * LANES + lane, value)
        border = nothing
        strips = (tallest + ROWS - 1) // ROWS
        for s in range(strips):
            bottom = tallest - (strips - 1 - s) * ROWS
            top = bottom - ROWS - (tallest - n)
            begin = 0
            end = widest
            if WINDOW != 0 and bottom - ROWS >= tallest - shortest:
                first, last = window_row(WINDOW, size, n, m, top)
                begin = tl.min(first + lane * 0, 0)
                first, last = window_row(WINDOW, size, n, m, top + ROWS - 1)
                end = tl.max(last + lane * 0, 0) + 1
            kept = moves
            if RECORD:
                kept = moves + ((program * 0 + task).to(tl.int64) * strips_kept + s) * y_steps * LANES
            if bottom - ROWS <= tallest - shortest:
                border = strip(x_at, y_at, x_gaps_at, y_gaps_at, weights, row, plane, kept, top, n, m, C, x_step,
                               y_step, longest, penalty, slope, hit, miss, within, size, begin, end, border, own_first,
                               own_count, LANES, ROWS, ONE, RECURRENCE, ROOT, BORDER, TABLE, EDGED, RECORD, WINDOW,
                               True)  # fmt: skip
            else:
                border = strip(x_at, y_at, x_gaps_at, y_gaps_at, weights, row, plane, kept, top, n, m, C, x_step,
                               y_step, longest, penalty, slope, hit, miss, within, size, begin, end, border, own_first,
                               own_count, LANES, ROWS, ONE, RECURRENCE, ROOT, BORDER, TABLE, EDGED, RECORD, WINDOW,
                               False)  # fmt: skip
        value = tl.load(row + (m - 1) * LANES + lane)  # what decides where an open end is
        ended = m - 1
        x_last = x_at + (n - 1) * C * x_step + lane * 0
        live = m > 0
        if LAST_COST:
            value += frame_cost(x_last, y_at + (m - 1) * C * y_step, live, C, x_step, y_step, ONE, ROOT)
        if OPEN_END:
            first, last = window_row(WINDOW, size, n, m, n - 1)
            for k in range(widest):
                j = widest - 1 - k
                found = tl.load(row + j * LANES + lane)
                if LAST_COST:
                    found += frame_cost(x_last, y_at + j * C * y_step, live, C, x_step, y_step, ONE, ROOT)
                better = (j >= first) & (j <= last) & (found <= value)
                value = tl.where(better, found, value)
                ended = tl.where(better, j, ended)
        if RECURRENCE == FOLLOW:
            value = tl.load(more_row + ended * LANES + lane)
        tl.store(values + item * y_items + column, value)
        if RECORD:
            tl.store(ends + column, ended)
