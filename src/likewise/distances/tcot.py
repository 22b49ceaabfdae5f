"""TCOT: temporally coupled optimal transport."""

from likewise.distances.transport import TransportDistance
from likewise.ops.ground import GroundCost
from likewise.ops.transport import Settings


class TCOT(TransportDistance):
    """<T, D>, where T is Sinkhorn's plan for the cost D_ij (1 + weight |i/N - j/M|), which grows with the time
    difference.

    i and j count the N frames of x and the M frames of y from 1.

    reg: 1 / lambda of the paper, which takes lambda = 1. weight: 1 in the paper; with 0 it is ``Sinkhorn``.
    ground, n_iter, tolerance, max_iter: as in ``Sinkhorn``. The paper stops after at most 100 iterations.

    Departures: the value is <T, D>, without the factor, which affects only the plan; run to convergence unless n_iter
        is given. Differentiable and symmetric, like ``Sinkhorn``.
    Reference: Su et al. (2019), as Su & Wen compare it with TAP (Temporal alignment prediction, ICLR 2022).

    Example:
        >>> tcot = TCOT()
        >>> tcot([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([0.3381])
    """

    def __init__(
        self,
        reg: float = 1.0,
        *,
        weight: float = 1.0,
        ground: str | GroundCost = "sqeuclidean",
        n_iter: int | None = None,
        tolerance: float | None = None,
        max_iter: int = 1000,
    ) -> None:
        stop = {"n_iter": n_iter, "tolerance": tolerance, "max_iter": max_iter}
        super().__init__(Settings.of(self.name, reg, time_weight=weight, **stop), ground)

    def config(self) -> dict[str, object]:
        """The constructor's arguments."""
        return {"reg": self.settings.reg, "weight": self.settings.time_weight, **self._stopping()}
