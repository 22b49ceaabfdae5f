"""The work of a warp on a strip of rows: costs, the next column, and the values passed between strips."""

import triton
import triton.language as tl

from likewise.ops.engine.columns import load_rows, store_rows
from likewise.ops.engine.diagonals import report, wait_for
from likewise.ops.engine.powers import inverse, logarithm, power_of_gap
from likewise.ops.engine.windows import UNREACHABLE, softmin2, window_row


@triton.jit
def strip_costs(x_frames, y, cost, j, first_row, inside, n, y_steps, column, beyond, GIVEN: tl.constexpr,
                ROOT: tl.constexpr, FEW: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """Costs of each lane's rows in its column j; outside, beyond * beyond or arbitrary numbers."""
    if GIVEN:
        costs = load_rows(cost, j.to(tl.int64) * column + first_row, inside & (first_row < n), 0.0, ROWS, LANES)
    else:
        y_c = tl.load(y + j, mask=inside, other=beyond)
        y += tl.minimum(tl.maximum(j, 0), y_steps - 1)
        costs = ()
        for r in tl.static_range(ROWS):
            e = y_c - x_frames[r * FEW]
            costs = costs + (e * e,)
        for c in tl.static_range(1, FEW):
            y_c = tl.load(y + c * y_steps)
            total = ()
            for r in tl.static_range(ROWS):
                e = y_c - x_frames[r * FEW + c]
                total = total + (costs[r] + e * e,)
            costs = total
        if ROOT:
            total = ()
            for r in tl.static_range(ROWS):
                total = total + (tl.sqrt(costs[r]),)
            costs = total
    return costs


@triton.jit
def strip_cells(costs, left, up, diagonal, inside, j, firsts, lasts, scale, MASK: tl.constexpr, SOFT: tl.constexpr,
                WINDOW: tl.constexpr, RECORD: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr):  # fmt: skip
    """The next column of each lane's rows, and the shares of the predecessors above and left."""
    column = ()
    ups = ()
    lefts = ()
    if SOFT:
        gate = tl.where(inside, 0.0, UNREACHABLE).to(scale.dtype)
    for r in tl.static_range(ROWS):
        if SOFT:  # the row above comes last, so as little as possible waits for it
            low = tl.minimum(left[r], diagonal)
            other = power_of_gap(left[r] - diagonal)  # the weight of the greater of these two, beside the least's 1
            both = 1.0 + other
            gap = up - low
            weight = power_of_gap(gap)
            above = gap < 0
            total = weight * tl.where(above, both, 1.0) + tl.where(above, 1.0, both)
            value = (costs[r] * scale + gate + tl.minimum(up, low)) - logarithm(total)
            if RECORD:
                share = inverse(total)
                weighed = share * weight
                ups = ups + (tl.where(above, share, weighed),)
                share = tl.where(above, weighed, share)
                lefts = lefts + (tl.where(left[r] <= diagonal, share, share * other),)
        elif WHOLE:  # non-negative floats have the order of their bits
            least_bits = tl.minimum(left[r].to(tl.int32, bitcast=True), diagonal.to(tl.int32, bitcast=True))
            least_bits = tl.minimum(least_bits, up.to(tl.int32, bitcast=True))
            value = costs[r] + least_bits.to(tl.float32, bitcast=True)
        else:
            value = costs[r] + tl.minimum(up, tl.minimum(left[r], diagonal))
        if MASK and not SOFT:
            value = tl.where(inside, value, UNREACHABLE)
        if WINDOW != 0:
            value = tl.where((j < firsts[r]) | (j > lasts[r]), UNREACHABLE, value)
        diagonal = left[r]
        up = value
        column = column + (value,)
    return column, ups, lefts


@triton.jit
def edges_of(edge_in, first, lane, top, above_first, above_last, corner, above_all, LINKED: tl.constexpr,
             STEPS: tl.constexpr):  # fmt: skip
    """The values above the strip's first row in columns first, first + 1, ...: lane u has that of column first + u."""
    at = first + lane
    edges = tl.where(at == -1, corner, above_all).to(edge_in.dtype.element_ty)
    if LINKED:
        real = (tl.where(top > 0, at, -1) >= 0) & (lane < STEPS) & (at >= above_first) & (at <= above_last)
        loaded = tl.load(edge_in + at, mask=real, other=UNREACHABLE, cache_modifier=".cg")
        edges = tl.where(top > 0, loaded, edges)
    return edges


@triton.jit
def store_edges(edge_out, outs, base, j, mask, BASED: tl.constexpr):
    """Values for the strip below, of columns j."""
    if BASED:
        outs = tl.where(outs < 1e29, outs.to(tl.float64) + base, UNREACHABLE)
    tl.store(edge_out + j, outs, mask=mask)


@triton.jit
def following(values, lane, LANES: tl.constexpr):
    """The value of the next lane: the first lane gets one after the other."""
    return tl.gather(values, tl.minimum(lane + 1, LANES - 1), 0)


@triton.jit
def poison_of(costs, inside, first_row, n, POSITIVE: tl.constexpr, ROWS: tl.constexpr):
    """NaN if a cost is not finite, else 0. Given costs may have NaN below the last row."""
    total = costs[0] * 0.0
    for r in tl.static_range(ROWS):
        nothing = costs[r] * 0.0
        total += nothing if POSITIVE else tl.where(first_row + r < n, nothing, 0.0)
    return tl.where(inside, total, 0.0)


@triton.jit
def value_column(left, diagonal, poison, best, outs, costs, edge, at, u, inside, up_shares, left_shares, last_row, base,
                 lane, first_row, n, firsts, lasts, scale, MASK: tl.constexpr, SOFT: tl.constexpr,
                 WINDOW: tl.constexpr, OPEN_END: tl.constexpr, RECORD: tl.constexpr, LINKED: tl.constexpr,
                 POISON: tl.constexpr, POSITIVE: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr,
                 LANES: tl.constexpr):  # fmt: skip
    """Step u by (soft) minima of values: lane 0 is at column `at`, below the first lane's `edge`."""
    j = at - lane
    up = tl.where(lane == 0, edge, tl.gather(left[ROWS - 1], tl.maximum(lane - 1, 0), 0))
    left, ups, lefts = strip_cells(costs, left, up, diagonal, inside, j, firsts, lasts, scale, MASK, SOFT, WINDOW,
                                   RECORD, WHOLE, ROWS)  # fmt: skip
    if RECORD:  # in the order of the steps; those of a lane side by side
        place = (at * LANES + lane) * ROWS
        store_rows(up_shares, place, ups, inside, ROWS, LANES)
        store_rows(left_shares, place, lefts, inside, ROWS, LANES)
    if POISON:
        poison += poison_of(costs, inside, first_row, n, POSITIVE, ROWS)
    if OPEN_END:
        for r in tl.static_range(ROWS):
            ends = inside & (first_row + r == n - 1)
            best = softmin2(best, tl.where(ends, left[r], UNREACHABLE), SOFT)
            if RECORD:
                total = left[r].to(tl.float64) + base
                tl.store(last_row + j, tl.where(left[r] < 1e29, total, UNREACHABLE), mask=ends)
    if LINKED:
        outs = tl.where(lane == u, tl.gather(left[ROWS - 1], lane * 0 + (LANES - 1), 0), outs)
    return left, up, poison, best, outs


@triton.jit
def run_strip(x, y, cost, up_shares, left_shares, last_row, edge_in, edge_out, done_in, done_out, top, n, m, C,
              y_steps, column, scale, size, beyond, ROOT: tl.constexpr, SOFT: tl.constexpr, WINDOW: tl.constexpr,
              OPEN_BEGIN: tl.constexpr, OPEN_END: tl.constexpr, RECORD: tl.constexpr, WAITS: tl.constexpr,
              BASED: tl.constexpr, LINKED: tl.constexpr, POSITIVE: tl.constexpr, POISON: tl.constexpr,
              FEW: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr, STEPS: tl.constexpr,
              REPORT: tl.constexpr):  # fmt: skip
    """Compute the strip of rows from `top` on; return its value in the last cell or row, its base and its poison."""
    GIVEN: tl.constexpr = FEW == 0
    AHEAD: tl.constexpr = WAITS or RECORD
    MASK: tl.constexpr = GIVEN or ROOT or SOFT
    dtype = scale.dtype
    WHOLE: tl.constexpr = POSITIVE and not (SOFT or BASED) and dtype == tl.float32
    lane = tl.arange(0, LANES)
    first_row = top + lane * ROWS
    far = tl.full((LANES,), UNREACHABLE, dtype)
    follows = top + LANES * ROWS < n
    rows = tl.minimum(n - top, LANES * ROWS)
    # Open at the beginning, a path enters cell (0, j) once; each of the two neighbours above adds one half.
    corner = (1.0 if SOFT else 0.0) if OPEN_BEGIN else 0.0
    above_all = corner if OPEN_BEGIN else UNREACHABLE
    begin = m * 0
    end = m
    above_first = begin
    above_last = m - 1
    x_frames = ()
    left = ()
    firsts = ()
    lasts = ()
    for r in tl.static_range(ROWS):
        left = left + (far,)
        for c in tl.static_range(FEW):
            x_frames = x_frames + (tl.load(x + (first_row + r) * C + c, mask=first_row + r < n, other=0.0),)
        first = lane * 0
        last = first
        if WINDOW != 0:
            first, last = window_row(WINDOW, size, n, m, first_row + r)
        firsts = firsts + (first,)
        lasts = lasts + (last,)
    if WINDOW != 0 and not RECORD:  # a record has all cells
        above_first, above_last = window_row(WINDOW, size, n, m, top - 1)
        begin, unused = window_row(WINDOW, size, n, m, top)
        unused, end = window_row(WINDOW, size, n, m, top + rows - 1)
        end += 1
    steps = end - begin + (rows - 1) // ROWS
    # At least one step comes before the first: it finds the value above and left of the strip.
    chunks = steps // STEPS + 1
    done = steps - chunks * STEPS
    diagonal = far
    poison = tl.zeros((LANES,), dtype)
    best = far
    base = tl.full([], 0.0, edge_in.dtype.element_ty)
    known = tl.full([], 0, tl.int32)
    if WAITS:
        if top > 0:
            known = wait_for(done_in, known, tl.minimum(above_last + 1, begin + STEPS))
    if BASED:  # a value near the first
        above = tl.load(edge_in + begin, mask=(top > 0) & (begin >= above_first) & (begin <= above_last), other=0.0,
                        cache_modifier=".cg")  # fmt: skip
        base = tl.where(above < 1e29, above, 0.0)
    costs_ahead = ()
    edges_ahead = tl.full((LANES,), UNREACHABLE, edge_in.dtype.element_ty)
    if AHEAD:
        for _ in tl.static_range(STEPS):
            nothing = ()
            for _ in tl.static_range(ROWS):
                nothing = nothing + (tl.zeros((LANES,), dtype),)
            costs_ahead = costs_ahead + (nothing,)
    # Writing out the first loads would take many times as long to compile: an iteration before the first only loads.
    for chunk in range(-1 if AHEAD else 0, chunks):
        start = begin + done + chunk * STEPS  # lane 0's column in the first step
        costs_now = costs_ahead
        edges = edges_ahead
        if WAITS:
            if top > 0:
                known = wait_for(done_in, known, tl.minimum(above_last + 1, start + 2 * STEPS))
        if AHEAD:
            costs_ahead = ()
            for u in tl.static_range(STEPS):
                j = start + STEPS + u - lane
                inside = (j >= begin) & (j < end)
                costs_ahead = costs_ahead + (strip_costs(x_frames, y, cost, j, first_row, inside, n, y_steps, column,
                                                         beyond, GIVEN, ROOT, FEW, ROWS, LANES),)  # fmt: skip
            edges_ahead = edges_of(edge_in, start + STEPS, lane, top, above_first, above_last, corner, above_all,
                                   LINKED, STEPS)  # fmt: skip
        else:
            edges = edges_of(edge_in, start, lane, top, above_first, above_last, corner, above_all, LINKED, STEPS)
        if BASED:
            edges = tl.where(edges < 1e29, edges - base, UNREACHABLE)
        edges = edges.to(dtype)
        outs = far
        for u in tl.static_range(STEPS):
            j = start + u - lane
            inside = (j >= begin) & (j < end)
            if AHEAD:
                costs = costs_now[u]
            else:
                costs = strip_costs(x_frames, y, cost, j, first_row, inside, n, y_steps, column, beyond, GIVEN,
                                    ROOT, FEW, ROWS, LANES)  # fmt: skip
            left, diagonal, poison, best, outs = value_column(
                left, diagonal, poison, best, outs, costs, edges, start + u, u, inside, up_shares, left_shares,
                last_row, base, lane, first_row, n, firsts, lasts, scale, MASK, SOFT, WINDOW, OPEN_END, RECORD,
                LINKED, POISON, POSITIVE, WHOLE, ROWS, LANES)  # fmt: skip
            edges = following(edges, lane, LANES)
        if LINKED:
            j = start + lane - (LANES - 1)
            writes = (tl.where(follows, lane, STEPS) < STEPS) & (j >= begin) & (j < end)
            store_edges(edge_out, outs, base, j, writes, BASED)
        if BASED:  # keep values near zero: subtract the least, and remember it in float64
            shift = far
            for r in tl.static_range(ROWS):
                shift = tl.minimum(shift, tl.where(first_row + r < n, left[r], UNREACHABLE))
            least = tl.min(shift, 0)
            least = tl.where(least < 1e29, least, 0.0)
            moved = ()
            for r in tl.static_range(ROWS):
                moved = moved + (left[r] - least,)
            left = moved
            diagonal -= least
            best -= least
            base += least.to(tl.float64)
        if WAITS:
            if follows & ((chunk % REPORT == REPORT - 1) | (chunk == chunks - 1)):
                report(done_out, start + STEPS - (LANES - 1))
    for r in tl.static_range(ROWS):
        if not OPEN_END:
            best = tl.where(first_row + r == n - 1, left[r], best)
    # A sum of one number: a minimum would replace larger or non-finite numbers by UNREACHABLE.
    return tl.sum(tl.where(lane == (rows - 1) // ROWS, best, 0.0), 0), base, poison
