"""The alignment recurrence on a GPU, in Triton, for DTW and soft-DTW alike.

Values are costs r: DTW's R, or soft-DTW's R / (gamma ln 2), so that softmin(a) = -log2 sum_k 2^(-a_k). Two regimes:

``lanes``: many pairs. Each lane holds one pair; eight rows stay in registers while the columns go by.
``diagonals``: few, long pairs. Each lane holds one row of a pair, and an antidiagonal is one step.
"""

import torch
from torch import Tensor

from likewise.ops.engine.costs import skewed_costs
from likewise.ops.engine.diagonals import FEW_CHANNELS, places, run_diagonals
from likewise.ops.engine.inputs import look
from likewise.ops.engine.lanes import LANES, run_lanes
from likewise.ops.engine.pairs import Pairs

COST_BYTES = 256 << 20  # space for costs that are computed ahead


def values(pairs: Pairs) -> Tensor:
    """Values (pairs,), from the kernel that suits their number; raises an error if x or y is not finite.

    Memory: O(Tx + Ty) for each pair at work and, with many channels, a fixed 256 MiB for costs.
    """
    many = 4096 if pairs.x.is_cuda else 2 * LANES  # the interpreter, which tests use, should see both
    if pairs.y is not None and pairs.count >= many:
        pairs.require_finite()
        return run_lanes(pairs)
    if pairs.count == 0:
        return pairs.x.new_empty(0)
    if pairs.y is None:
        kept = run_diagonals(pairs, 0, pairs.count, record=False)
        pairs.require_finite(kept.outcome)
        return kept.values
    x_steps, y_steps = pairs.steps
    at_once = COST_BYTES // ((x_steps + y_steps) * x_steps * pairs.x.element_size())
    if pairs.x.shape[2] <= FEW_CHANNELS or at_once == 0:
        inputs = look(pairs, turn_y=True, places=places(pairs, pairs.count))
        kept = run_diagonals(pairs, 0, pairs.count, record=False, inputs=inputs)
        inputs.require_fine(kept)
        return kept.values
    at_once = min(at_once, pairs.count)
    inputs, found = look(pairs, turn_x=True, turn_y=True, places=places(pairs, at_once)), []
    for first in range(0, pairs.count, at_once):
        last = min(first + at_once, pairs.count)
        cost = skewed_costs(inputs, first, last)
        found.append(run_diagonals(pairs, first, last, record=False, cost=cost, inputs=inputs))
    inputs.require_fine(*found)
    return found[0].values if len(found) == 1 else torch.cat([kept.values for kept in found])
