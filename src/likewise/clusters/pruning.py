"""The nearest centre of each item, from bounds: by the triangle inequality, or by envelopes."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise.clusters.members import PAIRED_NUMBERS, take
from likewise.data.batch import Batch
from likewise.distances.distance import Distance
from likewise.distances.dtw import DTW
from likewise.ops.ground import euclidean, sqeuclidean
from likewise.ops.rules import FRACTION, STEPS

MANY = 0.5  # share of all distances from which on the whole matrix is quicker than a choice of pairs
LONG, WIDE = 64, 0.25  # steps from which on, and share of them up to which, bounds pay off
SLACK = 1e-5  # relative: bounds hold for real numbers, not for rounded ones


@dataclass
class Nearest:
    """The nearest centre of each item, kept up to date as the centres move.

    low: (N, K) lower bounds of the distances. labels, distances: (N,), of the nearest centre; of equally near ones the
    first. computed: the number of distances so far.

    NumPy is used instead of PyTorch, whose threads would spin on the cores that we need.
    """

    distance: Distance
    values: Tensor
    lengths: Tensor | None
    centers: Tensor | None = None
    low: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    labels: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    distances: np.ndarray = field(default_factory=lambda: np.empty(0))
    computed: int = 0

    def update(self, z: Tensor, z_lengths: Tensor | None) -> None:
        """Find the nearest of other centres (K, L, C)."""
        bounds, moved = None, np.ones(len(z), dtype=bool)  # (K,)
        if self.centers is not None and self.centers.shape == z.shape:
            moved = (z != self.centers).flatten(1).any(1).cpu().numpy()
            bounds = self._bounds(z, z_lengths, moved)
        if bounds is None or not self._some(z, z_lengths, bounds, moved):
            self._all(z, z_lengths)
        self.labels = self.low.argmin(1)  # what is nearest is exact: nothing else is below it
        self.distances = self.low[np.arange(len(self.low)), self.labels]
        self.centers = z

    def _all(self, z: Tensor, z_lengths: Tensor | None) -> None:
        with torch.no_grad():
            D = self.distance.all_pairs(z, self.values, z_lengths, self.lengths)
        self.low = D.cpu().numpy().T.astype(np.float64)  # (N, K)
        self.computed += self.low.size

    def _some(self, z: Tensor, z_lengths: Tensor | None, low: np.ndarray, moved: np.ndarray) -> bool:
        """Compute the distances that the bounds leave open; False if they are too many."""
        items = np.arange(len(low))
        own = np.stack([self.labels, items], 1)[moved[self.labels]]
        low[own[:, 1], own[:, 0]] = self._pairs(z, z_lengths, own)
        reach = low[items, self.labels]
        wanted = (low <= reach[:, None]) & moved
        wanted[items, self.labels] = False
        pairs = np.argwhere(wanted)[:, ::-1]
        if len(pairs) > MANY * low.size:
            return False
        low[pairs[:, 1], pairs[:, 0]] = self._pairs(z, z_lengths, pairs, reach[pairs[:, 1]])
        self.low = low
        return True

    def _bounds(self, z: Tensor, z_lengths: Tensor | None, moved: np.ndarray) -> np.ndarray | None:
        """Lower bounds (N, K), if there are any; of centres that stayed, those that are known."""
        assert self.centers is not None
        if getattr(self.distance, "metric", False):
            with torch.no_grad():
                drift = self.distance.paired(z, self.centers, z_lengths, z_lengths).double().cpu().numpy()  # (K,)
            self.computed += len(z)
            return np.where(moved, self.low - drift * (1 + SLACK), self.low)
        found = envelope_bounds(self.distance, z, self.values, z_lengths, self.lengths)
        if found is None and moved.mean() > MANY:
            return None
        return np.where(moved, -np.inf if found is None else found, self.low)

    def _pairs(
        self, z: Tensor, z_lengths: Tensor | None, pairs: np.ndarray, limits: np.ndarray | None = None
    ) -> np.ndarray:
        """Distances of chosen pairs (centre, item); those above their limit may be infinite."""
        self.computed += len(pairs)
        index = torch.from_numpy(np.ascontiguousarray(pairs))
        some = getattr(self.distance, "some_pairs", None)
        if callable(some):
            ends = None if limits is None else torch.from_numpy(limits).to(z.dtype)
            found: Any = some(Batch(z, z_lengths), Batch(self.values, self.lengths), index, ends)
            return found.double().cpu().numpy()
        chunk = max(1, PAIRED_NUMBERS // max(1, (z.shape[1] + self.values.shape[1]) * z.shape[2]))
        parts = [np.empty(0)]
        for first in range(0, len(pairs), chunk):
            k, i = index[first : first + chunk].unbind(1)
            ends_z = None if z_lengths is None else z_lengths[k]
            ends_x = None if self.lengths is None else self.lengths[i]
            with torch.no_grad():
                each = self.distance.paired(take(z, k), take(self.values, i), ends_z, ends_x)
            parts.append(each.double().cpu().numpy())
        return np.concatenate(parts)


def envelope_bounds(
    distance: Distance, z: Tensor, x: Tensor, z_lengths: Tensor | None, x_lengths: Tensor | None
) -> np.ndarray | None:
    """Lower bounds (N, K) of DTW with a band, for sequences of one length: LB_Keogh. None where it does not apply.

    Each frame of x is matched with frames of z inside the band, and is at least as far from them as from the box
    around them. Not for short sequences or wide bands either, whose distances cost less than the bounds save.

    Example:
        >>> x, z = torch.randn(4, 80, 1), torch.randn(2, 80, 1)
        >>> bool((envelope_bounds(DTW(band=3), z, x, None, None) <= DTW(band=3).matrix(x, z).numpy()).all())
        True
    """
    if not isinstance(distance, DTW) or distance.ground not in (sqeuclidean, euclidean) or distance.normalize:
        return None
    rules, steps = distance.rules, x.shape[1]
    if rules.open_begin or rules.open_end or rules.window.kind not in (STEPS, FRACTION):
        return None
    uneven = z_lengths is not None or (x_lengths is not None and bool((x_lengths < steps).any()))
    radius = int(rules.window.size * steps if rules.window.kind == FRACTION else rules.window.size)
    if uneven or z.shape[1] != steps or steps < LONG or radius > WIDE * steps:
        return None
    from scipy.ndimage import maximum_filter1d, minimum_filter1d  # not with likewise: it takes long to import

    values, centers = x.cpu().numpy(), z.cpu().numpy()
    found = np.empty((len(x), len(z)))
    for k, center in enumerate(centers):
        upper = maximum_filter1d(center, 2 * radius + 1, axis=0, mode="nearest")
        lower = minimum_filter1d(center, 2 * radius + 1, axis=0, mode="nearest")
        outside = values - np.clip(values, lower, upper)  # (N, T, C)
        squared = np.einsum("ntc,ntc->nt", outside, outside)
        found[:, k] = (squared if distance.ground is sqeuclidean else np.sqrt(squared)).sum(1)
    return found * (1 - SLACK)
