"""Sinkhorn: optimal transport between the frames of two sequences, smoothed by entropy."""

from likewise.distances.transport import TransportDistance
from likewise.ops.ground import GroundCost
from likewise.ops.transport import Settings


class Sinkhorn(TransportDistance):
    """<T, D>, where T minimises <T, D> - reg H(T) over plans with rows 1/Tx and columns 1/Ty, H(T) = -sum T log T.

    reg: the weight of the entropy, in the unit of the ground cost; towards 0 the distance becomes ``EMD``. Cuturi's
        lambda is 1 / reg.
    ground: "sqeuclidean" (default; squared), "euclidean", "cosine", or a callable from (B, Tx, C) and
        (B, Ty, C) to (B, Tx, Ty).
    n_iter: run exactly this many Sinkhorn iterations, columns and then rows; None runs until convergence.
    tolerance: largest total error of the column sums; None is 1e-12 in float64 and 1e-6 otherwise.
    max_iter: the maximum number of Newton steps, used where Sinkhorn's iterations converge too slowly. If they are not
        enough, a warning is issued.

    The order of the frames does not matter; for OPW and TCOT it does. The distance between equal sequences is not zero.
    It is differentiable through the converged plan or, with n_iter, through the iterations. Without n_iter, it is
    symmetric up to the tolerance.
    Reference: Cuturi (2013), arXiv:1306.0895. Departure: it runs to convergence unless n_iter is given.

    Example:
        >>> sinkhorn = Sinkhorn(reg=0.5)
        >>> sinkhorn([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([0.3342])
    """

    def __init__(
        self,
        reg: float = 0.1,
        *,
        ground: str | GroundCost = "sqeuclidean",
        n_iter: int | None = None,
        tolerance: float | None = None,
        max_iter: int = 1000,
    ) -> None:
        stop = {"n_iter": n_iter, "tolerance": tolerance, "max_iter": max_iter}
        super().__init__(Settings.of(self.name, reg, **stop), ground)

    def config(self) -> dict[str, object]:
        """The constructor's arguments."""
        return {"reg": self.settings.reg, **self._stopping()}
