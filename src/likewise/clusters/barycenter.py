"""barycenter: the average of sequences under a distance, or of every group of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise._labels import number_labels, read_labels
from likewise._modes import evaluating
from likewise.clusters.lbfgs import LBFGS
from likewise.clusters.majorize import MajorizeMinimize, step_for
from likewise.clusters.members import Members, Report, Solution
from likewise.data.batch import Batch, as_sequences
from likewise.distances.distance import Distance, full_lengths
from likewise.distances.edr import EDR
from likewise.distances.elastic import Elastic
from likewise.distances.lcss import LCSS
from likewise.distances.sbd import SBD
from likewise.distances.shape_dtw import ShapeDTW
from likewise.distances.warp import even_times, interpolate
from likewise.models.metric import Metric
from likewise.ops.ground import at_least_float32, zero_padding


class Solver(Protocol):
    """An algorithm that improves averages: ``MajorizeMinimize``, ``LBFGS``, ``Subgradient``, or your own."""

    def solve(self, members: Members, z: Tensor, lengths: Tensor | None, report: Report | None = None) -> Solution:
        """Improve averages (K, L, C) of the lengths (K,), or of L steps each if None."""
        ...


@dataclass(frozen=True)
class Barycenter:
    """The averages of K groups, and how they were found.

    sequences: a Batch of K averages. labels: (K,), the group of each; of a single one, [0].
    costs: (K,) float64, the weighted mean distance from each average to its items.
    history: (I + 1, K) float64, the costs at the start and after each iteration.
    iterations: (K,), the number of iterations of each. converged: (K,) bool, whether each stopped before ``max_iter``.

    Example:
        >>> from likewise import DTW, barycenter
        >>> found = barycenter(DTW(), [[0.0, 0.0, 2.0], [0.0, 2.0, 4.0]])
        >>> found
        Barycenter(1 average of 3 steps, cost 2, converged after 1 iteration)
        >>> found.sequence.flatten(), found.cost
        (tensor([0., 1., 3.]), 2.0)
    """

    sequences: Batch
    costs: Tensor
    labels: np.ndarray
    history: Tensor
    iterations: Tensor
    converged: Tensor

    @property
    def sequence(self) -> Tensor:
        """The only average, (L, C)."""
        return self.sequences[self._only("sequence")]

    @property
    def cost(self) -> float:
        """The cost of the only average."""
        return float(self.costs[self._only("cost")])

    def _only(self, name: str) -> int:
        if len(self.sequences) != 1:
            _check.refuse("Barycenter", f"there are {len(self.sequences)} averages; use .{name}s")
        return 0

    def __len__(self) -> int:
        return len(self.sequences)

    def __repr__(self) -> str:
        count, longest = len(self), int(self.iterations.max()) if len(self) else 0
        lengths = sorted({int(length) for length in self.sequences.lengths})
        steps = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]}..{lengths[-1]}"
        done = int(self.converged.sum())
        state = "converged" if done == count else "not converged" if not done else f"{done} converged"
        return (
            f"Barycenter({count} average{'s' * (count != 1)} of {steps} steps, cost {float(self.costs.mean()):.4g}, "
            f"{state} after {longest} iteration{'s' * (longest != 1)})"
        )


def barycenter(
    distance: Distance,
    x: object,
    weights: object = None,
    init: object = "mean",
    length: int | None = None,
    *,
    groups: object = None,
    solver: Solver | None = None,
    progress: bool = False,
) -> Barycenter:
    """The average of sequences under a distance: the z that minimises the weighted mean of distance(z, x[i]).

    distance: any distance that gives a path or a derivative. Under a Metric the encoded items are averaged, so the
        result lies in the space of its frames.
    x: items of any lengths: a Dataset, a Batch, an array or tensor (N, T, C), or a list of sequences.
    weights: (N,), not negative; only their proportions within a group matter.
    init: "mean", the mean of the items, stretched to one length; "medoid", the item of the least cost; or a sequence
        (L, C), or one for each group.
    length: steps of the averages; by default the mean length of the group's items, rounded, or that of init.
    groups: (N,), labels: one average for each of the groups, all computed at once.
    solver: by default ``MajorizeMinimize()`` where the distance has it (DBA for ``DTW``), else ``LBFGS()``;
        ``Subgradient()`` takes cheap steps on subsets of many items. The result tells whether it converged.
    progress: draw a bar on stderr.

    On the CPU, paths are never stored: 100 series of 128 steps take about a millisecond per iteration.

    Example:
        >>> from likewise import DTW
        >>> found = barycenter(DTW(), [[0.0, 0.0, 1.0, 3.0], [0.0, 1.0, 3.0, 3.0]], init="medoid")
        >>> found.sequence.flatten(), found.cost
        (tensor([0., 0., 1., 3.]), 0.0)
        >>> barycenter(DTW(), [[0.0, 1.0], [0.0, 3.0], [5.0, 5.0]], groups=["a", "a", "b"]).labels
        array(['a', 'b'], dtype='<U1')
    """
    members, labels = read_members("barycenter", distance, x, weights, groups)
    z, lengths = read_start("barycenter", members, init, length)
    solver = default_solver(members.distance, members.values.shape[2]) if solver is None else solver
    if not callable(getattr(solver, "solve", None)):
        raise TypeError(f"barycenter: expected solver to have a method solve, got {type(solver).__name__}")
    with torch.no_grad(), evaluating(distance):
        found = _solve(solver, members, z, lengths, progress)
    values = found.values.to(_given_dtype(distance, x, members))
    return Barycenter(
        Batch(values, lengths), found.history[-1], labels, found.history, found.iterations, found.converged
    )


def default_solver(distance: Distance, channels: int) -> Solver:
    """The solver that ``barycenter`` uses by default."""
    # Under SBD, MSM, TWE and the like, L-BFGS ends lower and sooner than means along paths; EDR and LCSS have no slope.
    slopes = isinstance(distance, (Elastic, SBD)) and not isinstance(distance, (EDR, LCSS, ShapeDTW))
    return LBFGS() if slopes or step_for(distance, channels) is None else MajorizeMinimize()


def read_members(
    op: str, distance: Distance, x: object, weights: object = None, groups: object = None
) -> tuple[Members, np.ndarray]:
    """The items to average, in float32 or float64, and the names of their groups."""
    if not isinstance(distance, Distance):
        raise TypeError(f"{op}: expected distance to be a Distance, got {type(distance).__name__}")
    if isinstance(distance, Metric):
        x, distance = distance.embed(x), distance.distance
        x = x[:, None] if isinstance(x, Tensor) and x.ndim == 2 else x
    values, lengths = as_sequences(op, "x", x)
    if not len(values):
        _check.refuse(op, "there are no items")
    _check.finite(op, "x", values, lengths)
    values = at_least_float32(values.detach())
    if groups is None:
        labels, codes = np.zeros(1, np.int64), torch.zeros(len(values), dtype=torch.int64)
    else:
        labels, (numbered,) = number_labels(read_labels(op, "groups", groups, len(values)))
        codes = torch.from_numpy(numbered)
    shares = read_weights(op, weights, codes, labels)
    return Members(distance, values, lengths, codes, shares, len(labels)), labels


def read_weights(op: str, weights: object, groups: Tensor, labels: Any) -> Tensor:
    """Weights (N,) in float64 that sum to 1 in each group."""
    if weights is None:
        given = torch.ones(len(groups), dtype=torch.float64)
    else:
        try:
            given = torch.as_tensor(weights, dtype=torch.float64).detach().cpu()
        except (TypeError, ValueError) as error:
            raise TypeError(f"{op}: expected weights to be numbers: {error}") from error
    if given.shape != groups.shape:
        _check.refuse(op, f"expected weights of shape ({len(groups)},), got {tuple(given.shape)}")
    wrong = ~(given.isfinite() & (given >= 0))
    if wrong.any():
        item = int(wrong.nonzero()[0])
        _check.refuse(op, f"weights must be 0 or more and finite, but weights[{item}] is {float(given[item])}")
    total = torch.zeros(len(labels), dtype=torch.float64).index_add_(0, groups, given)
    if (total == 0).any():
        where = "" if len(labels) == 1 else f" of group {str(labels[int((total == 0).nonzero()[0])])!r}"
        _check.refuse(op, f"the weights{where} sum to zero; give at least one item a weight")
    return given / total[groups]


def read_start(op: str, members: Members, init: object, length: int | None) -> tuple[Tensor, Tensor | None]:
    """The averages to begin with, (K, L, C), and their lengths; None if all are L."""
    if length is not None:
        length = _check.whole(op, "length", length)
    if isinstance(init, str):
        if init not in ("mean", "medoid"):
            _check.refuse(op, f'init must be "mean", "medoid" or sequences, got {init!r}')
        if init == "medoid":
            chosen = medoids(members)
            lengths = None if members.lengths is None else members.lengths[chosen]
            return stretched(members.values[chosen], lengths, length)
        return mean_start(members, length)
    values, lengths = _given_start(op, members, init)
    return stretched(values.to(members.values), lengths, length)


def mean_start(members: Members, length: int | None) -> tuple[Tensor, Tensor | None]:
    """The weighted means of the members, each stretched to the length of its average."""
    lengths = full_lengths(members.values, members.lengths).cpu()
    if length is not None:
        wanted = torch.full((members.count,), length)
    else:
        wanted = members.total(lengths.double() * members.weights).round().long().clamp(min=1)
    longest = int(wanted.max())
    even = bool((wanted == longest).all())
    if even and bool((lengths == longest).all()) and members.values.shape[1] == longest:
        resampled = members.values
    else:
        resampled = resample(members.values, members.lengths, wanted[members.groups], longest)
    means = members.total(resampled.double() * members.weights.to(resampled.device)[:, None, None])
    return means.to(members.values.dtype), None if even else wanted


def resample(x: Tensor, lengths: Tensor | None, wanted: Tensor, longest: int) -> Tensor:
    """x (B, T, C) with wanted[b] steps each, (B, longest, C), linear between frames."""
    at = even_times(x.new_empty(len(x), longest, 1), wanted)
    return interpolate(even_times(x, lengths), x, at, lengths).to(x.dtype)


def stretched(values: Tensor, lengths: Tensor | None, length: int | None) -> tuple[Tensor, Tensor | None]:
    """Sequences as they are, or with ``length`` steps each."""
    if length is None or (lengths is None and values.shape[1] == length):
        if lengths is None or bool((lengths == values.shape[1]).all()):
            return values, None
        longest = int(lengths.max())
        return zero_padding(values[:, :longest], lengths), lengths
    return resample(values, lengths, torch.full((len(values),), length), length), None


def medoids(members: Members) -> Tensor:
    """The item (K,) of each group that is nearest to the others, by weighted mean distance; on a tie the first."""
    found = torch.empty(members.count, dtype=torch.int64)
    for k in range(members.count):
        items = (members.groups == k).nonzero()[:, 0]
        some = members.take(items)
        with torch.no_grad():
            D = members.distance.all_pairs(some.values, None, some.lengths, some.lengths)  # (n, n)
        found[k] = items[int((D.double() @ some.weights.to(D.device)).argmin())]
    return found


def _given_start(op: str, members: Members, init: object) -> tuple[Tensor, Tensor | None]:
    if isinstance(init, Barycenter):
        init = init.sequences
    one = isinstance(init, (Tensor, np.ndarray)) and init.ndim < 3
    listed = isinstance(init, Sequence) and len(init) > 0 and np.ndim(init[0]) < 1  # type: ignore[arg-type]
    values, lengths = as_sequences(op, "init", [init] if one or listed else init)
    _check.finite(op, "init", values, lengths)
    if values.shape[2] != members.values.shape[2]:
        _check.refuse(op, f"init has {values.shape[2]} channels, x has {members.values.shape[2]}")
    if len(values) == 1 and members.count > 1:
        return values.expand(members.count, -1, -1), None if lengths is None else lengths.expand(members.count)
    if len(values) != members.count:
        _check.refuse(op, f"init has {len(values)} sequences, but there are {members.count} groups")
    return values, lengths


def _solve(solver: Solver, members: Members, z: Tensor, lengths: Tensor | None, progress: bool) -> Solution:
    if not progress:
        return solver.solve(members, z, lengths)
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        text = f"barycenter: {len(members):,} items" + (f", {members.count:,} groups" if members.count > 1 else "")
        task = bar.add_task(text, total=getattr(solver, "max_iter", None))
        return solver.solve(members, z, lengths, partial(_report, bar, task))


def _report(bar: Any, task: Any, iteration: int, costs: Tensor) -> None:
    bar.update(task, completed=iteration, description=f"barycenter: cost {float(costs.mean()):.4g}")


def _given_dtype(distance: Distance, x: object, members: Members) -> torch.dtype:
    """The dtype of the given items; that of the members may be wider."""
    given = getattr(x, "dtype", None)  # of a Batch or a tensor
    return given if isinstance(given, torch.dtype) and not isinstance(distance, Metric) else members.values.dtype
