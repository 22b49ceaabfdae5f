"""interpolate: from one sequence to another, along their alignment."""

from collections.abc import Sequence

import torch
from torch import Tensor

from likewise import _check
from likewise._modes import evaluating
from likewise.data.batch import Batch, as_sequences
from likewise.distances.distance import Distance
from likewise.distances.warp import interpolate as at_times
from likewise.models.metric import Metric


def interpolate(
    distance: Distance, x: object, y: object, shares: Sequence[float] | Tensor = (0.0, 0.25, 0.5, 0.75, 1.0)
) -> Batch:
    """Sequences on the way from x to y: at share t, matched frames are mixed and so are their times.

    A cell (i, j) of the path becomes the frame (1 - t) x_i + t y_j at the time (1 - t) i + t j; frames in between are
    linear. t = 0 gives x, t = 1 gives y (of a subsequence, the stretch that is matched), and 1/2 their average along
    the alignment. Lengths go from x's to y's.

    x, y: one sequence each, (T, C) or (T,). A Metric interpolates between its encoded sequences.

    Example:
        >>> from likewise import DTW
        >>> between = interpolate(DTW(), [0.0, 0.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 2.0], [0.0, 0.5, 1.0])
        >>> between[1].flatten()
        tensor([0., 0., 0., 3., 1.])
    """
    if not isinstance(distance, Distance):
        raise TypeError(f"interpolate: expected distance to be a Distance, got {type(distance).__name__}")
    first, second = Batch(*as_sequences("interpolate", "x", [x])), Batch(*as_sequences("interpolate", "y", [y]))
    given = [float(_check.number("interpolate", "shares", share)) for share in list(shares)]
    if not given or not all(0 <= share <= 1 for share in given):
        _check.refuse("interpolate", f"expected shares between 0 and 1, got {given}")
    if isinstance(distance, Metric):
        encoded = distance.embed(first), distance.embed(second)
        if not all(isinstance(one, Batch) for one in encoded):
            _check.refuse("interpolate", "the metric's encoder returns vectors, which have no alignment")
        (first, second), distance = encoded, distance.distance  # type: ignore[assignment]
    with torch.no_grad(), evaluating(distance):
        path = distance.align(first, second).path(0).cpu()
    i, j = path.unbind(1)
    return Batch.from_list([_between(first[0], second[0], i, j, share) for share in given])


def _between(x: Tensor, y: Tensor, i: Tensor, j: Tensor, share: float) -> Tensor:
    frames = torch.lerp(x[i.to(x.device)].double(), y[j.to(y.device)].double(), share)  # (K, C)
    times = torch.lerp(i.double(), j.double(), share)
    low, high = float(times[0]), float(times[-1])
    steps = max(1, round(high - low) + 1)
    at = torch.linspace(low, high, steps, dtype=torch.float64)
    if len(frames) == 1:
        return frames.expand(steps, -1).to(x.dtype)
    return at_times(times[None].to(x.device), frames[None], at[None].to(x.device))[0].to(x.dtype)
