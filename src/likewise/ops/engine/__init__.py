"""The alignment recurrence on a GPU, in Triton, for DTW and soft-DTW alike.

Values are costs r: DTW's R, or soft-DTW's R / (gamma ln 2), so that softmin(a) = -log2 sum_k 2^(-a_k). There are
three regimes:

``warps``: a warp aligns a pair, and its rows stay in registers. It is used for almost everything.
``lanes``: each lane aligns one pair, and eight rows stay in registers while it goes through the columns. It is used for
many pairs that are short, or have a narrow window, outside of which lanes visit no cell.
``diagonals``: each lane has one row of a pair, and an antidiagonal is one step. It is used for the moves of paths,
second derivatives, and pairs whose costs do not fit in memory.
"""

import torch
from torch import Tensor

from likewise.ops.engine.columns import by_column, cells, column_size
from likewise.ops.engine.diagonals import FEW_CHANNELS, places, run_diagonals
from likewise.ops.engine.inputs import limit, look, unlooked
from likewise.ops.engine.lanes import LANES, run_lanes
from likewise.ops.engine.pairs import Pairs
from likewise.ops.engine.products import product_costs
from likewise.ops.engine.warps import run_warps, shape
from likewise.ops.rules import NONE

COST_BYTES = 1 << 30  # memory for costs that are computed ahead
MANY = 4096  # pairs that fill a GPU with one lane each
SHORT = 64  # steps; in shorter pairs, most lanes of a warp are idle


def values(pairs: Pairs) -> Tensor:
    """Values (pairs,), from the kernel that suits their number; raises an error if x or y is not finite, or too large.

    Memory: O(Tx + Ty) for each pair in progress and, with many channels or given costs, at most 1 GiB for costs.
    """
    if pairs.count == 0:
        return pairs.x.new_empty(0)
    (x_steps, y_steps), given = pairs.steps, pairs.y is None
    many = pairs.count >= (MANY if pairs.x.is_cuda else 2 * LANES)  # the interpreter, which tests use, should see both
    if many and not given and suits_lanes(pairs):
        largest = pairs.require_finite()
        result = run_lanes(pairs)
        if largest > limit(pairs):
            pairs.require_finite(result)
        return result
    stored = given or pairs.x.shape[2] > FEW_CHANNELS
    at_once = COST_BYTES // (column_size(x_steps) * y_steps * pairs.x.element_size()) if stored else pairs.alignments
    if at_once == 0 and not given:
        inputs = look(pairs, turn_y=True, places=places(pairs, pairs.count))
        kept = run_diagonals(pairs, 0, pairs.count, record=False, inputs=inputs)
        inputs.require_fine(kept)
        return kept.values
    at_once = min(max(1, at_once), pairs.alignments)
    how = shape(pairs, at_once, given=stored, record=False)
    zeros = how.places(x_steps, at_once)
    inputs = unlooked(pairs) if given else look(pairs, turn_x=stored, turn_y=True, places=zeros)
    result, found = pairs.x.new_empty(pairs.count), []
    for first in range(0, pairs.alignments, at_once):
        last, cost = min(first + at_once, pairs.alignments), None
        if given:
            cost = by_column(pairs.x, last - first, x_steps, y_steps)
            cells(cost, x_steps).copy_(inputs.x[first:last])
        elif stored:
            cost = product_costs(inputs, first, last)
        found.append(run_warps(inputs, how, first, last, result, cost=cost, poison=not many))
    if given:
        pairs.require_finite(torch.cat([result, *(kept.flags for kept in found)]))
    inputs.require_fine(*found)
    return result


def suits_lanes(pairs: Pairs) -> bool:
    """Whether pairs of sequences are compared faster with one lane each."""
    return min(pairs.steps) < SHORT or (pairs.rules.window.kind != NONE and pairs.x.shape[2] <= FEW_CHANNELS)
