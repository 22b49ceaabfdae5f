"""Majorise and minimise: align, average what is matched, and again; the cost never rises."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from likewise import _check
from likewise.clusters.members import Log, Members, Report, Solution
from likewise.distances.alignment import PathAlignment
from likewise.distances.cosine import Cosine
from likewise.distances.distance import Distance, full_lengths
from likewise.distances.dtw import DTW
from likewise.distances.euclidean import Euclidean
from likewise.distances.gdtw import GDTW
from likewise.ops import ground as grounds
from likewise.ops.dtw import dtw_matched
from likewise.ops.ground import is_fused

Step = Callable[[Members, Tensor, Tensor | None], tuple[Tensor, Tensor]]  # distances (N,), proposals (K, L, C)
SHARE, LEAST = 0.1, 10  # of the members of each average that steps on subsets see
TRIES = 5  # halvings of a step that raised the cost, where nothing guarantees that it does not


@dataclass(frozen=True)
class MajorizeMinimize:
    """Align the members with their average, replace each of its frames by the mean of what it is matched with, repeat.

    The mean minimises the cost along the paths, and new paths can only lower it further: the cost never rises. This is
    DBA for ``DTW`` (for the Euclidean cost with Weiszfeld's weights, for the cosine cost with directions), the mean of
    the warped members for ``GDTW`` and the mean itself for ``Euclidean(squared=True)``. For other distances with a path
    the mean of what is matched need not lower the cost: a step that raises it is halved, or not taken.

    max_iter: maximum number of iterations. tol: an average has converged when its cost falls by less than this share of
        itself.
    subsets: number of initial steps that see only a random tenth of the members, at least 10. They are cheap, and their
        noise helps to leave shallow minima, as in KASBA. Their result is kept if it costs less than the start.
    seed: of the random draws.

    Reference: Petitjean, Ketterlin & Gancarski (2011); Schultz & Jain (2018), arXiv:1701.06393.

    Example:
        >>> from likewise import DTW, barycenter
        >>> found = barycenter(DTW(), [[0.0, 1.0, 1.0], [0.0, 0.0, 2.0]], solver=MajorizeMinimize(max_iter=5))
        >>> found.sequence.flatten()
        tensor([0.0000, 0.5000, 1.5000])
    """

    max_iter: int = 50
    tol: float = 1e-6
    subsets: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        _check.whole("MajorizeMinimize", "max_iter", self.max_iter, least=0)
        _check.whole("MajorizeMinimize", "subsets", self.subsets, least=0)
        _check.not_negative("MajorizeMinimize", "tol", self.tol)

    def solve(self, members: Members, z: Tensor, lengths: Tensor | None, report: Report | None = None) -> Solution:
        """Improve averages (K, L, C)."""
        found = step_for(members.distance, members.values.shape[2])
        if found is None:
            name = members.distance.name
            why = "aligns each channel by itself" if members.distance.separate else "gives no path to average along"
            _check.refuse("MajorizeMinimize", f"{name} {why}; use LBFGS()")
        step, certain = found
        if self.subsets:
            z = self._on_subsets(step, members, z, lengths)
        kept_z = z.clone()
        distances, proposal = step(members, z, lengths)
        costs = members.costs(distances)
        log, share = Log(costs, report), torch.ones(len(z), dtype=z.dtype, device=z.device)
        for k in range(self.max_iter):
            if not log.active.any():
                break
            active = log.active.to(z.device)
            trial = torch.where(active[:, None, None], torch.lerp(kept_z, proposal, share[:, None, None]), kept_z)
            some = members.of(log.active.to(members.groups.device))
            last = k + 1 == self.max_iter
            if last:  # no proposal is needed any more
                distances, following = some.distances(trial, lengths), trial
            else:
                distances, following = step(some, trial, lengths)
            new = torch.where(active, some.costs(distances), costs)
            better = active & (new < costs)
            fell = costs - new
            done = better & (fell <= self.tol * costs.abs())
            # The step did not help. An exact one then ends the search, others are tried again, shorter.
            share = torch.where(better, 1.0, share / 2).to(share)
            done |= active & ~better & (certain | (share < 0.5**TRIES))
            take = better[:, None, None]
            kept_z, proposal = torch.where(take, trial, kept_z), torch.where(take, following, proposal)
            costs = torch.where(better, new, costs)
            log.add(costs, done)
        return log.solution(kept_z)

    def _on_subsets(self, step: Step, members: Members, z: Tensor, lengths: Tensor | None) -> Tensor:
        """Averages after some steps that see few members, where they cost less than before."""
        generator = torch.Generator().manual_seed(self.seed)
        moved = z
        for _ in range(self.subsets):
            chosen = members.sample(SHARE, LEAST, generator)
            moved = step(members.take(chosen), moved, lengths)[1]
        before, after = (members.costs(members.distances(at, lengths)) for at in (z, moved))
        return torch.where((after < before)[:, None, None], moved, z)


def step_for(distance: Distance, channels: int) -> tuple[Step, bool] | None:
    """A step that proposes better averages, and whether it never raises the cost; None if there is none."""
    if isinstance(distance, DTW) and is_fused(distance.ground) and distance.normalize != "steps":
        return _dtw_step, True
    if isinstance(distance, GDTW):
        exact = distance.ground == "sqeuclidean" and distance.huber is None and distance.knots is None
        return (_warp_step, False) if exact else None  # the solver of the warps has a tolerance
    if isinstance(distance, Euclidean):
        return _mean_step, True
    if isinstance(distance, Cosine):
        return None
    one_path = gives_path(distance) and not (distance.separate and channels > 1)
    return (_path_step, False) if one_path else None


def _dtw_step(members: Members, z: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    distance = members.distance
    assert isinstance(distance, DTW)
    frames_z, frames_x, root, factor = grounds.frames(distance.ground, z, members.values, lengths, members.lengths)
    weights = members.weights
    if distance.normalize == "lengths":
        total = full_lengths(z, lengths).to(members.groups.device)[members.groups]
        total = total + full_lengths(members.values, members.lengths).to(total.device)
        weights, factor = weights / total, factor / total.to(z.device)
    values, sums, counts = dtw_matched(
        frames_z, frames_x, members.groups, weights, lengths, members.lengths, root=root, rules=distance.rules
    )
    sums = sums[..., : z.shape[2]]  # the cosine cost adds two channels for frames of zeros
    return values * factor, _means(sums, counts, z)


def _warp_step(members: Members, z: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean of the members, each warped to the time of its average."""
    sums = torch.zeros(z.shape, dtype=torch.float64, device=z.device)
    counts = torch.zeros(z.shape[:2], dtype=torch.float64, device=z.device)
    found = []
    for part in members.parts(z):
        x, alignment = members.values[part], members.align(z, lengths, part)
        with torch.no_grad():
            found.append(alignment.value)
            place = alignment.warp.double()  # (n, L), where in x each frame of z is matched; NaN in the padding
        real = ~place.isnan()
        weight = members.weights[part].to(z.device)[:, None] * real
        place = torch.where(real, place, 0.0)
        left = place.floor().long().clamp(max=max(x.shape[1] - 2, 0))
        share = (place - left)[..., None]
        right = (left + 1).clamp(max=x.shape[1] - 1)
        warped = torch.lerp(_frames(x, left), _frames(x, right).nan_to_num(), share)
        groups = members.groups[part].to(z.device)
        counts.index_add_(0, groups, weight)
        sums.index_add_(0, groups, weight[..., None] * warped)
    return torch.cat(found), _means(sums, counts, z)


def _mean_step(members: Members, z: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean over the members that have a step; for the Euclidean distance, Weiszfeld's step to the median."""
    distance = members.distance
    assert isinstance(distance, Euclidean)
    found = members.distances(z, lengths)
    weights, x = members.weights.to(z.device), members.values
    if not distance.squared:
        weights = weights / found.double().clamp(min=1e-12)
    steps = min(x.shape[1], z.shape[1])
    real = torch.arange(steps, device=z.device) < full_lengths(x, members.lengths)[:, None]
    each = weights[:, None] * real  # (N, steps)
    frames = x[:, :steps].masked_fill(~real[..., None], 0).double()
    sums, counts = members.total(each[..., None] * frames), members.total(each)
    proposal = z.clone()
    proposal[:, :steps] = _means(sums, counts, z[:, :steps])
    return found, proposal


def _path_step(members: Members, z: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean of what each frame is matched with, by any distance that gives a path."""
    sums = torch.zeros(z.shape[0] * z.shape[1], z.shape[2], dtype=torch.float64, device=z.device)
    counts = torch.zeros(len(sums), dtype=torch.float64, device=z.device)
    found = []
    for part in members.parts(z):
        groups, x, alignment = members.groups[part].to(z.device), members.values[part], members.align(z, lengths, part)
        assert isinstance(alignment, PathAlignment)
        with torch.no_grad():
            found.append(alignment.value)
            cells, item = alignment.cells()
        at, weight = groups[item] * z.shape[1] + cells[:, 0], members.weights[part].to(z.device)[item]
        counts.index_add_(0, at, weight)
        sums.index_add_(0, at, weight[:, None] * x[item, cells[:, 1]].double())
    return torch.cat(found), _means(sums.view(z.shape), counts.view(z.shape[:2]), z)


def _means(sums: Tensor, counts: Tensor, z: Tensor) -> Tensor:
    """Means (K, L, C); frames that nothing is matched with, such as padding, stay as they are."""
    matched = (counts > 0)[..., None]
    return torch.where(matched, sums / torch.where(matched, counts[..., None], 1.0), z.double()).to(z.dtype)


def _frames(x: Tensor, steps: Tensor) -> Tensor:
    """Frames (n, L, C) in float64 of x (n, T, C) at steps (n, L)."""
    return x.gather(1, steps[..., None].expand(-1, -1, x.shape[2])).double()


def gives_path(distance: Distance) -> bool:
    """Whether ``align`` returns paths."""
    return type(distance).align.__annotations__.get("return") is PathAlignment
