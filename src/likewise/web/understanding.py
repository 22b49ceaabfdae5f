"""Why two items are near or far: their alignment, and which frames and channels carry the distance."""

from dataclasses import dataclass

import torch
from torch import Tensor

from likewise._modes import evaluating
from likewise.data.batch import Batch
from likewise.distances.alignment import Alignment, PathAlignment
from likewise.distances.distance import Distance
from likewise.distances.euclidean import Euclidean
from likewise.models.metric import Metric
from likewise.ops.ground import GroundCost, euclidean, sqeuclidean
from likewise.web.refusals import Refusal
from likewise.web.work import Job, checked

NUMBERS_AT_ONCE = 1 << 17  # of the points whose gradients are computed together
LONGEST = 2048  # steps of a sequence whose gradients are integrated
STEPS = 32  # points of the line along which gradients are integrated


@dataclass(frozen=True)
class Contributions:
    """Parts of a distance: ``parts.sum() + rest`` is the distance.

    parts: (T, C) for sequences, (C, H, W) for images: what each frame and channel of x adds.
    rest: what belongs to no frame: the entropy of a soft alignment, the penalty of a warp, or a difference in length.
    method: "cost" where the distance is a sum over matched frames, "gradient" where it was attributed to the input by
        integrated gradients.
    """

    parts: Tensor
    rest: float
    method: str


def contributions(
    metric: Distance, x: Batch | Tensor, y: Batch | Tensor, alignment: Alignment | None, job: Job
) -> Contributions:
    """How much each frame and channel of x, a batch of one item, contributes to its distance to y.

    Where the distance sums a ground cost over matched frames of the items themselves, these costs are the parts. Any
    other metric is integrated along the straight line from y, warped onto x, to x: the parts are
    (x - y') * integral of d(distance)/dx, which sum to the difference of the distances at both ends.

    Reference: Sundararajan, Taly & Yan, Axiomatic Attribution for Deep Networks (2017), arXiv:1703.01365.
    """
    with torch.no_grad(), evaluating(metric):
        value = float(metric(x, y)[0])
    plain = not isinstance(metric, Metric) or (metric.encoder is None)
    inner = metric.distance if isinstance(metric, Metric) else metric
    ground = sqeuclidean if isinstance(inner, Euclidean) else getattr(inner, "ground", None)
    if plain and alignment is not None and ground is not None and ground in (sqeuclidean, euclidean):
        parts = _by_cost(x, y, alignment, ground)
        total = float(parts.sum())
        if isinstance(alignment, PathAlignment) and total > 0:  # a root or a normalisation keeps the shares
            return Contributions(parts * (value / total), 0.0, "cost")
        return Contributions(parts, value - total, "cost")
    return _by_gradient(metric, x, y, alignment, value, job)


def _by_cost(x: Batch | Tensor, y: Batch | Tensor, alignment: Alignment, ground: GroundCost) -> Tensor:
    """(T, C): the plan's weights times the squared differences, channel by channel."""
    a, b = _one(x).double(), _one(y).double()
    if isinstance(alignment, PathAlignment):
        i, j = alignment.path(0).T
        cost = (a[i] - b[j]).square()  # (K, C)
        if ground is euclidean:
            cost = cost / cost.sum(1, keepdim=True).sqrt().clamp(min=1e-300)
        return torch.zeros_like(a).index_add_(0, i, cost)
    plan = alignment.plan[0, : len(a), : len(b)].detach().double()
    if ground is euclidean:
        plan = plan / torch.cdist(a, b).clamp(min=1e-300)
    # sum over j of P_ij (a_i - b_j)^2, without a tensor of all pairs and channels.
    return (plan.sum(1)[:, None] * a.square() - 2 * a * (plan @ b) + plan @ b.square()).clamp(min=0)


def _by_gradient(
    metric: Distance, x: Batch | Tensor, y: Batch | Tensor, alignment: Alignment | None, value: float, job: Job
) -> Contributions:
    """Integrated gradients from y, in the shape of x, to x."""
    target = (x.values[:, : int(x.lengths[0])] if isinstance(x, Batch) else x).float()
    start = warped(y, alignment, target.shape[1])[None].to(target) if isinstance(x, Batch) else y.float()  # type: ignore[union-attr]
    if isinstance(x, Batch) and target.shape[1] > LONGEST:
        raise Refusal(422, f"x: gradients of {target.shape[1]} steps, more than {LONGEST}, take long; choose a stretch")
    other, distance = y, metric
    if isinstance(metric, Metric):  # y is encoded once
        other, distance = metric.embed(y), metric.distance
    total = torch.zeros_like(target)
    shares = (torch.arange(STEPS) + 0.5) / STEPS
    with evaluating(metric), torch.enable_grad():
        for share in checked(job, shares.split(max(1, NUMBERS_AT_ONCE // target.numel()))):
            share = share.reshape(-1, *[1] * (target.ndim - 1)).to(target)
            points = torch.lerp(start, target, share).requires_grad_()
            items = Batch(points) if isinstance(x, Batch) else points
            encoded = metric.encode(items) if isinstance(metric, Metric) else items
            values = distance(encoded, _repeated(other, len(points)))
            total += torch.autograd.grad(values.sum(), points)[0].sum(0, keepdim=True) / STEPS
    parts = (total * (target - start))[0].detach().double()
    parts = torch.where(parts.isfinite(), parts, 0.0)  # a root has no derivative at 0
    return Contributions(parts, value - float(parts.sum()), "gradient")


def _repeated(y: Batch | Tensor, count: int) -> Batch | Tensor:
    """Repeat an item, once for each point."""
    if isinstance(y, Batch):
        return Batch(y.values.expand(count, -1, -1), y.lengths.expand(count))
    return y.expand(count, *y.shape[1:])


def warped(y: Batch | Tensor, alignment: Alignment | None, length: int) -> Tensor:
    """y (T, C) read at the steps that match x's; without an alignment, stretched evenly to x's length."""
    values = _one(y)
    if alignment is None:
        place = torch.linspace(0, len(values) - 1, length)
    else:
        place = alignment.warp[0, :length].detach().nan_to_num(0.0).clamp(0, len(values) - 1)
    low = place.floor().long().clamp(max=len(values) - 1)
    high = (low + 1).clamp(max=len(values) - 1)
    return torch.lerp(values[low], values[high], (place - low).to(values)[:, None])


def _one(x: Batch | Tensor) -> Tensor:
    return x[0].detach()
