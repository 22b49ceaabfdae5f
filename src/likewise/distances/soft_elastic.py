"""Soft versions of elastic distances."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from likewise import _check
from likewise.distances.alignment import PlanAlignment
from likewise.distances.distance import Distance, Sequences, full_lengths
from likewise.distances.elastic import Elastic, total
from likewise.ops.elastic import Recurrence
from likewise.ops.elastic.soft import soft_elastic, soft_elastic_plan
from likewise.ops.ground import at_least_float32

CELLS_KEPT = 1 << 22  # with more cells, the backward pass computes the values again instead of keeping every step


class SoftElastic(Distance):
    """The soft version of an elastic distance: the softmin of the costs of all paths.

    The value is -gamma log sum exp(-cost / gamma), summed over all paths, as soft-DTW is for DTW.

    distance: ``ADTW``, ``WDTW``, ``DDTW``, ``WDDTW``, ``ERP``, ``MSM``, ``TWE`` or your own ``Elastic``, with its
        settings and rules. ``EDR`` and ``LCSS`` count matches, have no derivative and raise an error.
    gamma: the smoothing, in the unit of the distance; towards 0 the value becomes the distance's. The value can be
        negative, even for equal sequences.

    It is differentiable to any order where the costs of the moves are; ``align`` gives the probability that a path
    visits each cell. It runs in plain torch, on any device. Memory: O(T^2) for each pair of a chunk; the backward pass
    of many pairs computes the values again, chunk by chunk.

    For ERP and TWE, exp(-value / gamma) is the sum over paths of Marteau & Gibet (2015), arXiv:1005.5141, without the
    terms that make it positive definite. Soft-MSM as Holder proposes it squares the costs and smooths C as well; here
    only the minimum is soft. For DTW use ``SoftDTW``, which has its own kernels.
    Reference: Cuturi & Blondel (2017), arXiv:1703.01541.

    Example:
        >>> from likewise import MSM
        >>> SoftElastic(MSM(cost=0.5), gamma=0.1)([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([1.4307])
    """

    def __init__(self, distance: Elastic, gamma: float = 1.0) -> None:
        super().__init__()
        if not isinstance(distance, Elastic):
            given = type(distance).__name__
            fix = "; use SoftDTW" if given == "DTW" else ""
            raise TypeError(f"SoftElastic: expected an elastic distance such as MSM(), got {given}{fix}")
        if distance.moves().recurrence == Recurrence.COUNT:
            _check.refuse("SoftElastic", f"{distance.name} counts matches, which have no derivative; use ERP or MSM")
        if distance.moves().recurrence == Recurrence.FOLLOW:
            _check.refuse("SoftElastic", f"the value of {distance.name} is not the least cost of any path; use SoftDTW")
        self.distance = distance
        self.gamma = _check.positive("SoftElastic", "gamma", gamma)
        self.symmetric = distance.symmetric

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        large = len(x) * x.shape[1] * y.shape[1] > CELLS_KEPT
        if large and torch.is_grad_enabled() and (x.requires_grad or y.requires_grad):
            return checkpoint(self._value, x, y, x_lengths, y_lengths, use_reentrant=False)  # type: ignore[no-any-return]
        return self._value(x, y, x_lengths, y_lengths)

    def _value(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        inner = self.distance

        def of(x: Tensor, y: Tensor) -> Tensor:
            a, b = inner.sides(x, y, x_lengths, y_lengths)
            if not len(x):
                return at_least_float32(x.sum((1, 2)) + y.sum((1, 2)))
            weights = inner.weights_of(a, b)
            value = soft_elastic(a, b, inner.moves(), self.gamma, rules=inner.rules, weights=weights)
            return inner.scaled(value, inner.lengths_of(a), inner.lengths_of(b))

        value = total(of(a, b) for a, b in inner.channels(x, y))
        return _check.fits(self.name, value, x.dtype)

    def align(self, x: Sequences, y: Sequences) -> PlanAlignment:
        """The probability that a path visits each cell, for every pair."""
        inner = self.distance
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        inner.check_one_path(x)

        def plan() -> Tensor:
            a, b = inner.sides(x, y, x_lengths, y_lengths)
            weights = inner.weights_of(a, b)
            found = soft_elastic_plan(a, b, inner.moves(), self.gamma, rules=inner.rules, weights=weights)
            before, after = inner.first_frame, inner.shortest - 1 - inner.first_frame  # frames without a slope
            return torch.nn.functional.pad(found, (before, after, before, after)).to(x.dtype)

        return PlanAlignment(
            lambda: self.paired(x, y, x_lengths, y_lengths),
            plan,
            full_lengths(x, x_lengths),
            full_lengths(y, y_lengths),
            inner.rules,
        )

    def config(self) -> dict[str, object]:
        """The constructor's arguments."""
        return {"distance": self.distance, "gamma": self.gamma}

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"gamma={self.gamma}"
