"""Expected alignments from the shares that a warp recorded: ``ops/engine/warps.py`` backwards."""

import triton
import triton.language as tl
from torch import Tensor

from likewise.ops.engine.columns import column_size, load_rows, store_rows
from likewise.ops.engine.diagonals import pair_lengths, report, take_number, wait_for
from likewise.ops.engine.inputs import Inputs
from likewise.ops.engine.prefetch import FAR, LINE, ask_for
from likewise.ops.engine.warps import LANES, Found, Shape
from likewise.ops.launch.launcher import launch

STEPS = 8  # columns processed at a time
REPORT = 4  # times that many columns between reports

SIZES = ["first_pair", "columns", "strips", "x_steps", "y_steps"]


@triton.jit
def own_shares(up_shares, left_shares, at, lane, m, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Shares of the predecessors above and left of the cells of each lane's rows, at one step; 0 outside."""
    inside = (at - lane >= 0) & (at - lane < m)
    place = (at * LANES + lane) * ROWS
    ups = load_rows(up_shares, place, inside, 0.0, ROWS, LANES)
    return ups, load_rows(left_shares, place, inside, 0.0, ROWS, LANES)


@triton.jit(do_not_specialize=SIZES)
def backwards_kernel(up_shares, left_shares, seeds, expected, edges, progress, x_lengths, y_lengths, first_pair,
                     columns, strips, x_steps, y_steps, column, ALL_PAIRS: tl.constexpr, FULL: tl.constexpr,
                     OPEN_END: tl.constexpr, WAITS: tl.constexpr, FAR: tl.constexpr, ROWS: tl.constexpr,
                     LANES: tl.constexpr, STEPS: tl.constexpr, REPORT: tl.constexpr):  # fmt: skip
    """E(i, j), which cell (i, j) passes on in its shares: up to (i-1, j), left to (i, j-1), the rest to (i-1, j-1).

    1 enters at the last cell or, open at the end, `seeds` (pairs, y_steps) enter the last row. `expected` is stored by
    column. A strip passes the values from its first row to the strip above through `edges` (programs, 2, y_steps).
    """
    number = take_number(progress, WAITS)
    local = (number // strips).to(tl.int64)
    strip = strips - 1 - number % strips
    n, m = pair_lengths(local + first_pair, x_lengths, y_lengths, columns, x_steps, y_steps, ALL_PAIRS, FULL)
    dtype = expected.dtype.element_ty
    share = (local * strips + strip) * (y_steps + LANES - 1) * (ROWS * LANES)
    up_shares += share
    left_shares += share
    expected += local * y_steps * column
    seeds += local * y_steps
    edge_out = edges + number.to(tl.int64) * 2 * y_steps
    edge_in = edge_out - 2 * y_steps
    done_out = progress + 1 + number
    done_in = done_out - 1
    lane = tl.arange(0, LANES)
    top = strip * (LANES * ROWS)
    first_row = top + lane * ROWS
    follows = top + LANES * ROWS < n  # there is a strip below
    last_lane = (tl.minimum(n - top, LANES * ROWS) - 1) // ROWS
    steps = tl.where(top < n, m + last_lane, 0)
    nothing = tl.zeros((LANES,), dtype)
    no_rows = ()
    for _ in tl.static_range(ROWS):
        no_rows = no_rows + (nothing,)
    to_left = no_rows  # passed from the column to the right to this one, in its row
    to_diagonal = no_rows  # and in the row above
    first_up = nothing  # passed up by the first row
    below_diagonal = nothing
    known = tl.full([], 0, tl.int32)
    ahead = ()
    edges_ahead = ()
    for _ in tl.static_range(STEPS):
        ahead = ahead + ((no_rows, no_rows),)
        edges_ahead = edges_ahead + ((tl.full([], 0.0, dtype), tl.full([], 0.0, dtype)),)
    for chunk in range(tl.where(steps > 0, -1, 0), (steps + STEPS - 1) // STEPS):  # the first turn only loads
        now = ahead
        edges_now = edges_ahead
        coming = (chunk + 1) * STEPS
        if WAITS:
            if follows:
                known = wait_for(done_in, known, tl.minimum(m, coming + STEPS))
        if FAR > 0:
            far = m - 1 - (coming + (FAR - 1) * STEPS) + last_lane
            for k in tl.static_range(0, STEPS * ROWS, LINE):
                place = tl.maximum(far - STEPS + 1, 0) * (LANES * ROWS) + lane * (STEPS * ROWS) + k
                ask_for(up_shares + place)
                ask_for(left_shares + place)
        ahead = ()
        edges_ahead = ()
        for u in tl.static_range(STEPS):
            at = m - 1 - (coming + u) + last_lane
            ahead = ahead + (own_shares(up_shares, left_shares, at, lane, m, ROWS, LANES),)
            from_up = tl.full([], 0.0, dtype)
            from_diagonal = from_up
            if WAITS:
                at = m - 1 - coming - u
                reads = (tl.where(follows, at, -1) >= 0) & (at < m)
                from_up = tl.load(edge_in + at, mask=reads, other=0.0, cache_modifier=".cg")
                from_diagonal = tl.load(edge_in + y_steps + at, mask=reads, other=0.0, cache_modifier=".cg")
            edges_ahead = edges_ahead + ((from_up, from_diagonal),)
        for u in tl.static_range(STEPS):
            j = m - 1 - (chunk * STEPS + u) + (last_lane - lane)
            inside = (j >= 0) & (j < m)
            below = tl.minimum(lane + 1, LANES - 1)
            edge_up, edge_diagonal = edges_now[u]
            up = tl.where(lane == last_lane, edge_up, tl.gather(first_up, below, 0))
            diagonal = below_diagonal
            below_diagonal = tl.where(lane == last_lane, edge_diagonal, tl.gather(to_diagonal[0], below, 0))
            ups, lefts = now[u]
            found = ()  # from the last row to the first
            new_left = ()
            new_diagonal = ()
            for r in tl.static_range(ROWS - 1, -1, -1):
                real = inside & (first_row + r < n)
                value = (to_left[r] + diagonal) + up
                if OPEN_END:
                    value += tl.load(seeds + j, mask=real & (first_row + r == n - 1), other=0.0)
                value = tl.where(real, value, 0.0)
                diagonal = to_diagonal[r]
                up = value * ups[r]
                found = (value,) + found
                new_left = (value * lefts[r],) + new_left
                new_diagonal = (value * tl.maximum(1.0 - ups[r] - lefts[r], 0.0),) + new_diagonal
            to_left = new_left
            to_diagonal = new_diagonal
            first_up = up
            store_rows(expected, j.to(tl.int64) * column + first_row, found, inside & (first_row < n), ROWS, LANES)
            if WAITS:
                tl.store(edge_out + j, first_up, mask=inside & (lane == 0))
                tl.store(edge_out + y_steps + j, to_diagonal[0], mask=inside & (lane == 0))
        if not OPEN_END:  # as if from the right of the last cell
            entered = ()
            for r in tl.static_range(ROWS):
                entered = entered + (tl.where((chunk == -1) & (first_row + r == n - 1), 1.0, to_left[r]).to(dtype),)
            to_left = entered
        if WAITS:
            if (chunk % REPORT == REPORT - 1) | (coming >= steps):
                report(done_out, coming - last_lane)


def expected_alignments(
    inputs: Inputs, how: Shape, kept: Found, first: int, last: int, seeds: Tensor | None, expected: Tensor
) -> Tensor:
    """Expected alignments of pairs first..last-1, by column, written to the cells of ``expected``."""
    (x_steps, y_steps), x, count = inputs.pairs.steps, inputs.x, last - first
    up_shares, left_shares = kept.shares
    strips = how.strips(x_steps)
    edges = x.new_empty((count * strips, 2, y_steps)) if how.waits else x
    progress = inputs.take_progress(how.places(x_steps, count)) if how.waits else x
    launch(
        backwards_kernel,
        (count * strips,),
        (
            up_shares,
            left_shares,
            up_shares if seeds is None else seeds,
            expected,
            edges,
            progress,
            inputs.x_lengths,
            inputs.y_lengths,
        ),
        (first, inputs.pairs.columns, strips, x_steps, y_steps, column_size(x_steps)),
        1,
        ALL_PAIRS=inputs.pairs.all_pairs,
        FULL=inputs.full,
        OPEN_END=seeds is not None,
        WAITS=how.waits,
        FAR=FAR,
        ROWS=how.rows,
        LANES=LANES,
        STEPS=STEPS,
        REPORT=REPORT,
    )
    return expected
