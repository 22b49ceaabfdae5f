"""k-means under any distance with an average: assign, average, and again."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise._modes import evaluating
from likewise._progress import track
from likewise.clusters.barycenter import mean_start, read_members, stretched
from likewise.clusters.lbfgs import LBFGS
from likewise.clusters.majorize import MajorizeMinimize, step_for
from likewise.clusters.members import Members
from likewise.clusters.pruning import Nearest
from likewise.data.batch import Batch, as_sequences
from likewise.distances.distance import Distance
from likewise.ops.ground import zero_padding

Improve = Callable[[Members, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class Clustering:
    """K clusters of N items.

    centers: a Batch of K averages. labels: (N,) int64. inertia: the sum of the items' distances to their centres.
    history: (I,), the inertia of each iteration. converged: whether it stopped before ``max_iter``.
    computed: the number of distances that were computed.

    Example:
        >>> from likewise import DTW
        >>> found = kmeans(DTW(), [[0.0, 0.0, 1.0], [0.0, 1.0], [5.0, 4.0], [5.0, 5.0, 4.0]], 2)
        >>> found.inertia, found.converged
        (0.0, True)
    """

    centers: Batch
    labels: np.ndarray
    inertia: float
    history: np.ndarray
    converged: bool
    computed: int

    @property
    def iterations(self) -> int:
        """The number of iterations."""
        return len(self.history)


def kmeans(
    distance: Distance,
    x: object,
    clusters: int,
    *,
    init: object = "k-means++",
    n_init: int = 1,
    max_iter: int = 100,
    tol: float = 1e-4,
    steps: int = 3,
    length: int | None = None,
    seed: int = 0,
    verbose: bool = False,
    progress: bool = False,
    improve: Improve | None = None,
    op: str = "KMeans",
) -> Clustering:
    """Divide items into clusters so that the sum of distance(centre, item) is small; ``likewise.sklearn.KMeans``.

    The arguments are those of the estimator. ``steps`` is the number of steps of the average between two assignments,
    unless ``improve`` moves the centres in another way. ``op`` is the name in errors.
    progress: draw a progress bar on stderr.

    Example:
        >>> from likewise import DTW
        >>> found = kmeans(DTW(), [[0.0, 0.0, 1.0], [0.0, 1.0], [5.0, 4.0], [5.0, 5.0, 4.0]], 2)
        >>> found.labels.tolist()
        [0, 0, 1, 1]
    """
    members, _ = read_members(op, distance, x)
    count = len(members)
    if _check.whole(op, "n_clusters", clusters) > count:
        _check.refuse(op, f"n_clusters is {clusters}, but there are {count} items")
    _check.whole(op, "n_init", n_init)
    _check.whole(op, "max_iter", max_iter)
    _check.not_negative(op, "tol", tol)
    generator = torch.Generator().manual_seed(seed)
    improve = improve or _improvement(members, _check.whole(op, "steps", steps))
    best: Clustering | None = None
    for start in range(n_init):
        z, lengths = _start(op, members, clusters, init, length, generator)
        with torch.no_grad(), evaluating(distance):
            found = _lloyd(members, z, lengths, improve, max_iter, tol, progress)
        if verbose:
            state = "converged" if found.converged else "not converged"
            _say(f"{op}: start {start + 1} of {n_init}: inertia {found.inertia:.6g}, {state} after {found.iterations}")
        best = found if best is None or found.inertia < best.inertia else best
    assert best is not None
    return best


def seeds(members: Members, count: int, generator: torch.Generator) -> Tensor:
    """The items (K,) that k-means++ starts from: far from each other under the distance.

    An item is drawn with a probability proportional to its distance from the nearest one chosen so far. Of several
    candidates, the one that lowers the sum of distances most is kept, as in scikit-learn.
    """
    tries = 2 + int(math.log(count))
    chosen = [int(torch.randint(len(members), (1,), generator=generator))]
    near = _to_items(members, torch.tensor(chosen))[0]
    while len(chosen) < count:
        shares = near - near.min().clamp(max=0)
        free = torch.ones(len(members), dtype=torch.bool)
        free[chosen] = False
        shares = torch.where(free, shares, 0.0)
        if not float(shares.sum()) > 0:  # all others equal a chosen one
            shares = free.double()
        drawn = torch.multinomial(shares, min(tries, int((shares > 0).sum())), generator=generator)
        found = torch.minimum(_to_items(members, drawn), near)  # (tries, N)
        best = int(found.sum(1).argmin())
        chosen.append(int(drawn[best]))
        near = found[best]
    return torch.tensor(chosen)


def _to_items(members: Members, index: Tensor) -> Tensor:
    """Distances (K, N) from some items to all, in float64 on the CPU."""
    lengths = None if members.lengths is None else members.lengths[index]
    rows = members.values[index.to(members.values.device)]
    with torch.no_grad():
        return members.distance.all_pairs(rows, members.values, lengths, members.lengths).double().cpu()


def _start(
    op: str, members: Members, count: int, init: object, length: int | None, generator: torch.Generator
) -> tuple[Tensor, Tensor | None]:
    """The initial centres (K, L, C) and their lengths."""
    if isinstance(init, str):
        if init == "k-means++":
            chosen = seeds(members, count, generator)
        elif init == "random":
            chosen = torch.randperm(len(members), generator=generator)[:count]
        else:
            _check.refuse(op, f'init must be "k-means++", "random" or sequences, got {init!r}')
        lengths = None if members.lengths is None else members.lengths[chosen]
        z, lengths = stretched(members.values[chosen.to(members.values.device)].clone(), lengths, length)
        return z, lengths
    values, lengths = as_sequences(op, "init", init)
    _check.finite(op, "init", values, lengths)
    if len(values) != count:
        _check.refuse(op, f"init has {len(values)} sequences, but n_clusters is {count}")
    if values.shape[2] != members.values.shape[2]:
        _check.refuse(op, f"init has {values.shape[2]} channels, X has {members.values.shape[2]}")
    return stretched(zero_padding(values.to(members.values), lengths), lengths, length)


def _lloyd(
    members: Members, z: Tensor, lengths: Tensor | None, improve: Improve, max_iter: int, tol: float, progress: bool
) -> Clustering:
    nearest = Nearest(members.distance, members.values, members.lengths)
    history: list[float] = []
    before, converged, best = np.empty(0), False, (math.inf, z, np.empty(0))
    rounds: Iterable[int] = range(max_iter)
    if progress:
        rounds = track(rounds, f"k-means: at most {max_iter} rounds", max_iter)
    for _ in rounds:
        nearest.update(z, lengths)
        z = _fill_empty(nearest, members, z, lengths)
        inertia = float(nearest.distances.sum())
        if inertia < best[0]:  # an improvement may raise the inertia: keep the best
            best = (inertia, z, nearest.labels)
        same = np.array_equal(nearest.labels, before)
        converged = bool(history) and same and history[-1] - inertia <= tol * abs(history[-1])
        history.append(inertia)
        before = nearest.labels
        if converged or len(history) == max_iter:
            break
        sizes = np.bincount(before, minlength=len(z))
        weights = torch.from_numpy(1 / sizes[before])
        z = improve(replace(members, groups=torch.from_numpy(before), weights=weights, count=len(z)), z, lengths)
    inertia, z, labels = best
    return Clustering(Batch(z, lengths), labels, inertia, np.array(history), converged, nearest.computed)


def _improvement(members: Members, steps: int) -> Improve:
    """Some steps towards the averages."""
    found = step_for(members.distance, members.values.shape[2])
    if found is None:
        return lambda members, z, lengths: LBFGS(2 * steps, tol=0).solve(members, z, lengths).values
    step, certain = found
    if not certain:
        return lambda members, z, lengths: MajorizeMinimize(steps, tol=0).solve(members, z, lengths).values

    def improve(members: Members, z: Tensor, lengths: Tensor | None) -> Tensor:
        for _ in range(steps):  # each lowers the cost: nothing to check
            z = step(members, z, lengths)[1]
        return z

    return improve


def _fill_empty(nearest: Nearest, members: Members, z: Tensor, lengths: Tensor | None) -> Tensor:
    """Clusters that emptied take the items that are farthest from their centres, as in scikit-learn."""
    sizes = np.bincount(nearest.labels, minlength=len(z))
    if (sizes > 0).all():
        return z
    z, taken = z.clone(), {}
    far = nearest.distances.copy()
    for empty in np.flatnonzero(sizes == 0):
        item = int(np.where(sizes[nearest.labels] > 1, far, -np.inf).argmax())
        far[item] = -np.inf
        sizes[nearest.labels[item]] -= 1
        taken[int(empty)] = item
        alone = {"groups": torch.zeros(1, dtype=torch.int64), "weights": torch.ones(1, dtype=torch.float64), "count": 1}
        length = int(lengths[empty]) if lengths is not None else z.shape[1]
        z[empty, :length] = mean_start(replace(members.take(torch.tensor([item])), **alone), length)[0][0]
    nearest.update(z, lengths)
    nearest.labels = nearest.labels.copy()
    for empty, item in taken.items():  # one that equals another centre keeps its item all the same
        if not (nearest.labels == empty).any():
            nearest.labels[item] = empty
            nearest.distances[item] = nearest.low[item, empty]
    return z


def _say(text: str) -> None:
    from rich.console import Console

    Console(stderr=True).print(text, highlight=False)
