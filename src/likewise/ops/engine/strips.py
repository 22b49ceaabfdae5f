"""The work of a warp on a strip of rows: costs, the next column, and the values passed between strips."""

import triton
import triton.language as tl

from likewise.ops.engine.columns import load_rows
from likewise.ops.engine.diagonals import report, wait_for
from likewise.ops.engine.windows import UNREACHABLE, softmin2, window_row


@triton.jit
def _unit_power(x):
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def _unit_logarithm(x):
    return tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def _unit_inverse(x):
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


# Triton's own functions also handle numbers that do not occur here, and take many times as long.
COMPILED = tl.constexpr(isinstance(_unit_power, triton.runtime.JITFunction))


@triton.jit
def power(x):
    """2 to the x, x at most 0."""
    if COMPILED and x.dtype == tl.float32:
        return _unit_power(x)
    return tl.exp2(x)


@triton.jit
def logarithm(x):
    """log2 x, x from 1 to 3."""
    if COMPILED and x.dtype == tl.float32:
        return _unit_logarithm(x)
    return tl.log2(x)


@triton.jit
def inverse(x):
    """1 / x, x from 1 to 3."""
    if COMPILED and x.dtype == tl.float32:
        return _unit_inverse(x)
    return 1.0 / x


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
    for r in tl.static_range(ROWS):
        if SOFT:
            low = tl.minimum(left[r], diagonal)  # independent of the row above
            high = tl.maximum(left[r], diagonal)
            least = tl.minimum(up, low)
            if RECORD:
                from_up = power(least - up)
                from_left = power(least - left[r])
                total = from_up + from_left + power(least - diagonal)
                share = inverse(total)
                ups = ups + (from_up * share,)
                lefts = lefts + (from_left * share,)
            else:  # of the three powers, that of the least is 1
                middle = tl.maximum(low, tl.minimum(up, high))
                total = 1.0 + (power(least - middle) + power(least - tl.maximum(up, high)))
            value = costs[r] * scale + (least - logarithm(total))
        elif WHOLE:  # non-negative floats have the order of their bits
            least_bits = tl.minimum(left[r].to(tl.int32, bitcast=True), diagonal.to(tl.int32, bitcast=True))
            least_bits = tl.minimum(least_bits, up.to(tl.int32, bitcast=True))
            value = costs[r] + least_bits.to(tl.float32, bitcast=True)
        else:
            value = costs[r] + tl.minimum(up, tl.minimum(left[r], diagonal))
        if MASK:
            value = tl.where(inside, value, UNREACHABLE)
        if WINDOW != 0:
            value = tl.where((j < firsts[r]) | (j > lasts[r]), UNREACHABLE, value)
        diagonal = left[r]
        up = value
        column = column + (value,)
    return column, ups, lefts


@triton.jit
def edge_of(edge_in, at, top, first, last, corner, above_all, LINKED: tl.constexpr):
    """The value above the strip's first row in column `at`."""
    edge = tl.where(at == -1, corner, above_all).to(edge_in.dtype.element_ty)
    if LINKED:
        loaded = tl.load(edge_in + at, mask=(top > 0) & (at >= 0) & (at >= first) & (at <= last), other=UNREACHABLE,
                         cache_modifier=".cg")  # fmt: skip
        edge = tl.where(top > 0, loaded, edge)
    return edge


@triton.jit
def run_strip(x, y, cost, up_shares, left_shares, last_row, edge_in, edge_out, done_in, done_out, top, n, m, C,
              y_steps, column, scale, size, beyond, ROOT: tl.constexpr, SOFT: tl.constexpr, WINDOW: tl.constexpr,
              OPEN_BEGIN: tl.constexpr, OPEN_END: tl.constexpr, RECORD: tl.constexpr, WAITS: tl.constexpr,
              BASED: tl.constexpr, LINKED: tl.constexpr, POSITIVE: tl.constexpr, POISON: tl.constexpr,
              FEW: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr, STEPS: tl.constexpr,
              REPORT: tl.constexpr):  # fmt: skip
    """Compute the strip of rows from `top` on; return its value in the last cell or row, its base and its poison."""
    GIVEN: tl.constexpr = FEW == 0
    AHEAD: tl.constexpr = WAITS
    MASK: tl.constexpr = GIVEN or ROOT or SOFT
    dtype = scale.dtype
    WHOLE: tl.constexpr = POSITIVE and not (SOFT or BASED) and dtype == tl.float32
    lane = tl.arange(0, LANES)
    first_row = top + lane * ROWS
    far = tl.full((LANES,), UNREACHABLE, dtype)
    follows = top + LANES * ROWS < n
    sender = tl.where(follows, LANES - 1, -1)  # the lane that writes what the strip below reads
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
    if BASED:
        above = edge_of(edge_in, begin, top, above_first, above_last, corner, above_all, LINKED)
        base = tl.where((top > 0) & (above < 1e29), above, base)
    costs_ahead = ()
    edges_ahead = ()
    if AHEAD:
        for _ in tl.static_range(STEPS):
            nothing = ()
            for _ in tl.static_range(ROWS):
                nothing = nothing + (tl.zeros((LANES,), dtype),)
            costs_ahead = costs_ahead + (nothing,)
            edges_ahead = edges_ahead + (tl.full([], UNREACHABLE, edge_in.dtype.element_ty),)
    # Writing out the first loads would take many times as long to compile: an iteration before the first only loads.
    for chunk in range(-1 if AHEAD else 0, chunks):
        costs_now = costs_ahead
        edges_now = edges_ahead
        if AHEAD:
            if top > 0:
                known = wait_for(done_in, known, tl.minimum(above_last + 1, begin + done + (chunk + 2) * STEPS))
            costs_ahead = ()
            edges_ahead = ()
            for u in tl.static_range(STEPS):
                at = begin + done + (chunk + 1) * STEPS + u
                j = at - lane
                inside = (j >= begin) & (j < end)
                costs_ahead = costs_ahead + (strip_costs(x_frames, y, cost, j, first_row, inside, n, y_steps, column,
                                                         beyond, GIVEN, ROOT, FEW, ROWS, LANES),)  # fmt: skip
                edges_ahead = edges_ahead + (edge_of(edge_in, at, top, above_first, above_last, corner, above_all,
                                                     LINKED),)  # fmt: skip
        for u in tl.static_range(STEPS):
            at = begin + done + chunk * STEPS + u  # lane 0's column
            j = at - lane
            inside = (j >= begin) & (j < end)
            if AHEAD:
                costs = costs_now[u]
                edge = edges_now[u]
            else:
                costs = strip_costs(x_frames, y, cost, j, first_row, inside, n, y_steps, column, beyond, GIVEN, ROOT,
                                    FEW, ROWS, LANES)  # fmt: skip
                edge = edge_of(edge_in, at, top, above_first, above_last, corner, above_all, LINKED)
            if BASED:
                edge = tl.where(edge < 1e29, edge - base, UNREACHABLE).to(dtype)
            up = tl.where(lane == 0, edge, tl.gather(left[ROWS - 1], tl.maximum(lane - 1, 0), 0))
            left, ups, lefts = strip_cells(costs, left, up, diagonal, inside, j, firsts, lasts, scale, MASK, SOFT,
                                           WINDOW, RECORD, WHOLE, ROWS)  # fmt: skip
            diagonal = up
            if RECORD:
                for r in tl.static_range(ROWS):
                    tl.store(up_shares + (at * ROWS + r) * LANES + lane, ups[r], mask=inside)
                    tl.store(left_shares + (at * ROWS + r) * LANES + lane, lefts[r], mask=inside)
            if POISON:
                for r in tl.static_range(ROWS):
                    poison += tl.where(inside & (first_row + r < n), costs[r] * 0.0, 0.0)
            if OPEN_END:
                for r in tl.static_range(ROWS):
                    ends = inside & (first_row + r == n - 1)
                    best = softmin2(best, tl.where(ends, left[r], UNREACHABLE), SOFT)
                    if RECORD:
                        total = left[r].to(tl.float64) + base
                        tl.store(last_row + j, tl.where(left[r] < 1e29, total, UNREACHABLE), mask=ends)
            if LINKED:
                out = left[ROWS - 1]
                if BASED:
                    out = tl.where(out < 1e29, out.to(tl.float64) + base, UNREACHABLE)
                tl.store(edge_out + j, out, mask=inside & (lane == sender))
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
                report(done_out, begin + done + (chunk + 1) * STEPS - (LANES - 1))
    for r in tl.static_range(ROWS):
        if not OPEN_END:
            best = tl.where(first_row + r == n - 1, left[r], best)
    # A sum of one number: a minimum would replace larger or non-finite numbers by UNREACHABLE.
    return tl.sum(tl.where(lane == (rows - 1) // ROWS, best, 0.0), 0), base, poison
