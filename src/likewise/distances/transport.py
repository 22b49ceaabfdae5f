"""Shared parts of the transport distances: their alignment, and the base class of the regularised ones."""

from torch import Tensor, is_grad_enabled

from likewise.distances.alignment import PlanAlignment
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.ops.dtw import dtw_cost_path
from likewise.ops.ground import GroundCost, is_fused, resolve
from likewise.ops.transport import Settings, transport, transport_matrix, transport_plan


class MassAlignment(PlanAlignment):
    """A soft alignment with total mass 1: rows of the plan sum to 1/Tx, columns to 1/Ty.

    A plan need not be monotone; ``path`` is the monotone path that follows it most closely.

    Example:
        >>> from likewise.distances.emd import EMD
        >>> alignment = EMD().align([[0.0, 1.0]], [[1.0, 0.0]])
        >>> alignment.plan
        tensor([[[0.0000, 0.5000],
                 [0.5000, 0.0000]]])
        >>> alignment.warp
        tensor([[1., 0.]])
    """

    def path(self, b: int) -> Tensor:
        """(K, 2) int64, the monotone path of item b with the largest sum of (mass - half a full match) over cells."""
        b = self._item(b)
        n, m = int(self.x_lengths[b]), int(self.y_lengths[b])
        whole = self.plan[b, :n, :m].detach().float() * max(n, m)  # 1 for a full match
        path, steps = dtw_cost_path(0.5 - whole[None])
        return path[0, : int(steps[0])]


class TransportDistance(Distance):
    """<T, D>, where T is the plan of a transport problem with uniform masses, which ``settings`` defines."""

    def __init__(self, settings: Settings, ground: str | GroundCost) -> None:
        super().__init__()
        self.settings = settings
        self.ground = resolve(self.name, ground)
        # If the iterations stop early, rows fit better than columns; converged plans are symmetric.
        self.symmetric = settings.n_iter is None and is_fused(self.ground)

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        return transport(x, y, x_lengths, y_lengths, settings=self.settings, ground=self.ground)

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M) of padded sequences; pair by pair with gradients or a callable ground cost."""
        differentiable = is_grad_enabled() and (x.requires_grad or (y is not None and y.requires_grad))
        if differentiable or not is_fused(self.ground):
            return super().all_pairs(x, y, x_lengths, y_lengths)
        return transport_matrix(x, y, x_lengths, y_lengths, settings=self.settings, ground=self.ground)

    def align(self, x: Sequences, y: Sequences) -> MassAlignment:
        """The plan of every pair: each row sums to 1/Tx and each column to 1/Ty."""
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)

        def plan() -> Tensor:
            return transport_plan(x, y, x_lengths, y_lengths, settings=self.settings, ground=self.ground).plan

        return MassAlignment(
            lambda: self.paired(x, y, x_lengths, y_lengths),
            plan,
            full_lengths(x, x_lengths),
            full_lengths(y, y_lengths),
        )

    def _stopping(self) -> dict[str, object]:
        settings = self.settings
        stop = {"n_iter": settings.n_iter, "tolerance": settings.tolerance, "max_iter": settings.max_iter}
        return {"ground": self.ground, **stop}

    def config(self) -> dict[str, object]:
        """The constructor's arguments."""
        raise NotImplementedError(f"{self.name}.config")

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        shown = self.config()
        if shown.get("max_iter") == Settings.max_iter:
            del shown["max_iter"]
        return describe(**shown)
