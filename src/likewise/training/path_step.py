"""The step for pairs with a known alignment, and the input of each path loss."""

from functools import singledispatch

import torch
from torch import Tensor

from likewise import _check
from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.distances.gdtw import GDTW
from likewise.distances.warp import Warp, even_times, interpolate
from likewise.losses.along_truth import AlongPath, AlongWarp
from likewise.losses.dilate import Dilate
from likewise.losses.path_loss import PathLoss
from likewise.losses.soft_subsequence_dtw import SoftSubsequenceDTW
from likewise.losses.warp_error import MaxPositionError, TimeError, WarpError
from likewise.models.metric import take
from likewise.ops.ground import sqeuclidean, zero_padding
from likewise.training.pairs import AlignedPairs
from likewise.training.step import Step


def path_step(step: Step) -> Tensor:
    """The loss of AlignedPairs: of warps, of soft alignments, or of features along the known path.

    Its input depends on the loss: WarpError, TimeError and MaxPositionError get the points as mapped by GDTW's warp;
    Dilate gets the expected alignment of a SoftDTW; AlongPath and AlongWarp get the features along the true path; and
    SoftSubsequenceDTW gets the costs between all frames. For your own loss write a step, or register a function of
    (loss, distance, pairs) with ``path_value.register(YourLoss)``.

    Example:
        >>> from likewise import GDTW, FrameMLP, Metric, losses
        >>> x = torch.randn(2, 9, 3).cumsum(1)
        >>> pairs = AlignedPairs(x, x, torch.linspace(0, 1, 9).expand(2, -1))
        >>> metric = Metric(FrameMLP(3, 8), GDTW())
        >>> path_step(Step(metric, pairs, torch.arange(2), losses.WarpError())).requires_grad
        True
    """
    pairs, ranks = step.batch, step.ranks
    if not isinstance(pairs, AlignedPairs):
        _check.refuse("fit", f"path_step needs AlignedPairs(x, y, truth), got {type(pairs).__name__}")
    rows = step.rows
    x, y = (ranks.gather_encoded(step.metric.encode(take(side, rows)), len(pairs)) for side in (pairs.x, pairs.y))
    return path_value(step.loss, step.metric.distance, pairs.encoded(x, y))


@singledispatch
def path_value(loss: object, distance: Distance, pairs: AlignedPairs) -> Tensor:
    """The value of a path loss for pairs of features."""
    _check.refuse("fit", f"there is no step for {type(loss).__name__}; pass your own with step=")


@path_value.register(WarpError)
@path_value.register(TimeError)
@path_value.register(MaxPositionError)
def _(loss: PathLoss, distance: Distance, pairs: AlignedPairs) -> Tensor:
    points, truth, lengths = truth_at(pairs)
    found = warp_of(distance, pairs)(points)
    more = (points,) if isinstance(loss, TimeError) else ()
    return loss(found, truth.to(found), *more, lengths)


@path_value.register
def _(loss: Dilate, distance: Distance, pairs: AlignedPairs) -> Tensor:
    alignment = distance.align(pairs.x, pairs.y)
    points, truth, lengths = truth_at(pairs)
    x_times, y_times = times_of(pairs)
    where = interpolate(points, truth, x_times, lengths)  # (B, Tx), in y's time
    penalty = (where[:, :, None] - y_times[:, None]).square().to(alignment.plan)
    x_lengths, y_lengths = _lengths(pairs.x), _lengths(pairs.y)
    value = alignment.value if loss.alpha else None
    return loss(value, alignment.plan if loss.alpha < 1 else None, penalty, x_lengths, y_lengths)


@path_value.register
def _(loss: AlongPath, distance: Distance, pairs: AlignedPairs) -> Tensor:
    points, truth, lengths = truth_at(pairs)
    x_times, y_times = times_of(pairs)
    cells = torch.stack([_nearest(x_times, points), _nearest(y_times, truth)], 2)  # (B, K, 2)
    return loss(_costs(pairs.x, pairs.y), cells, lengths)


@path_value.register
def _(loss: AlongWarp, distance: Distance, pairs: AlignedPairs) -> Tensor:
    points, truth, lengths = truth_at(pairs)
    x_times, y_times = times_of(pairs)
    warped = Warp(points, truth, lengths).apply(_values(pairs.y), y_times, _lengths(pairs.y))
    own = _values(pairs.x)
    if pairs.points is not None:
        own = interpolate(x_times, own, points, _lengths(pairs.x))
    return loss(warped, own.to(warped), points, lengths)


@path_value.register
def _(loss: SoftSubsequenceDTW, distance: Distance, pairs: AlignedPairs) -> Tensor:
    return loss(_costs(pairs.y, pairs.x), _lengths(pairs.y), _lengths(pairs.x))


def warp_of(distance: Distance, pairs: AlignedPairs) -> Warp:
    """GDTW's warps from x's time to y's."""
    if not isinstance(distance, GDTW):
        _check.refuse("fit", f"this loss needs the warp of a GDTW; the distance is {type(distance).__name__}")
    if distance.subsequence and (pairs.x_times is None or pairs.y_times is None):
        _check.refuse("fit", "a subsequence needs AlignedPairs with x_times and y_times, in the same unit")
    return distance.warp(pairs.x, pairs.y, pairs.x_times, pairs.y_times)


def truth_at(pairs: AlignedPairs) -> tuple[Tensor, Tensor, Tensor | None]:
    """Points (B, K) in x's time, the matching times of y (B, K), and the number of real ones of each pair."""
    if pairs.points is not None:
        return pairs.points.expand_as(pairs.truth), pairs.truth, pairs.lengths
    points = times_of(pairs)[0]
    if pairs.truth.shape[1] < points.shape[1]:
        steps = points.shape[1]
        _check.refuse(
            "fit", f"truth has {pairs.truth.shape[1]} points for the {steps} frames of x; pass points= with their times"
        )
    lengths = _lengths(pairs.x) if pairs.lengths is None else pairs.lengths
    return points, pairs.truth[:, : points.shape[1]].to(points), lengths


def times_of(pairs: AlignedPairs) -> tuple[Tensor, Tensor]:
    """The times of the frames of x (B, Tx) and of y (B, Ty), as in GDTW."""
    found = []
    for side, times in ((pairs.x, pairs.x_times), (pairs.y, pairs.y_times)):
        values = _values(side)
        if times is None:
            found.append(even_times(values, _lengths(side)).to(pairs.truth))
        else:
            found.append(times.expand(len(values), -1)[:, : values.shape[1]])
    return found[0], found[1]


def _values(side: Batch | Tensor) -> Tensor:
    if isinstance(side, Batch):
        return zero_padding(side.values, side.lengths)
    return side


def _lengths(side: Batch | Tensor) -> Tensor | None:
    return side.lengths if isinstance(side, Batch) else None


def _costs(x: Batch | Tensor, y: Batch | Tensor) -> Tensor:
    return sqeuclidean(_values(x), _values(y))


def _nearest(times: Tensor, at: Tensor) -> Tensor:
    """The frame (B, K) nearest to each point in time."""
    return (times[:, None] - at[:, :, None]).abs().argmin(2)
