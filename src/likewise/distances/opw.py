"""OPW: order-preserving Wasserstein distance."""

from likewise.distances.transport import TransportDistance
from likewise.ops.ground import GroundCost
from likewise.ops.transport import Settings


class OPW(TransportDistance):
    """<T, D>, where T minimises <T, D> - lambda1 I(T) + lambda2 KL(T || P) over plans with rows 1/N and columns 1/M.

    With t = i/N - j/M, i and j the frames of x and y counted from 1: I(T) = sum_ij T_ij / (t^2 + 1), the inverse
    difference moment, is large where matches are near in time; P_ij is normal in |t| / sqrt(1/N^2 + 1/M^2) with mean 0
    and standard deviation delta. T is the Sinkhorn scaling of P exp((lambda1 / (t^2 + 1) - D) / lambda2).

    inverse_difference: lambda1, 0 or more, in the unit of the ground cost. kl: lambda2, positive. delta: positive, or
        infinite for no prior. With inverse_difference=0 and delta=inf this is ``Sinkhorn(reg=kl)``.
    ground, n_iter, tolerance, max_iter: as in ``Sinkhorn``. The authors' code runs n_iter=20 iterations, after which
    column sums are off by tens of per cent.

    It is computed in the log domain, so it does not overflow as the authors' code does. It is differentiable and
    symmetric, like ``Sinkhorn``. Departure: it runs to convergence unless n_iter is given.
    Reference: Su & Hua (2019), Order-preserving optimal transport for distances between sequences,
    doi 10.1109/TPAMI.2018.2870154.

    Example:
        >>> OPW()([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([0.3333])
        >>> OPW(inverse_difference=1, kl=1)([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([0.3573])
        >>> OPW(inverse_difference=1, kl=1, n_iter=1)([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([0.3576])
    """

    def __init__(
        self,
        inverse_difference: float = 50.0,
        kl: float = 0.1,
        delta: float = 1.0,
        *,
        ground: str | GroundCost = "sqeuclidean",
        n_iter: int | None = None,
        tolerance: float | None = None,
        max_iter: int = 1000,
    ) -> None:
        prior = {"inverse_difference": inverse_difference, "delta": delta}
        stop = {"n_iter": n_iter, "tolerance": tolerance, "max_iter": max_iter}
        super().__init__(Settings.of(self.name, kl, reg_name="kl", **prior, **stop), ground)

    def config(self) -> dict[str, object]:
        """The constructor's arguments."""
        settings = self.settings
        prior = {"inverse_difference": settings.inverse_difference, "kl": settings.reg, "delta": settings.delta}
        return {**prior, **self._stopping()}
