"""EMD: exact optimal transport between the frames of two sequences, the earth mover's distance."""

from torch import Tensor

from likewise import _check
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.distances.transport import MassAlignment
from likewise.ops.ground import GroundCost, at_least_float32, evaluate, is_fused, resolve
from likewise.ops.transport.exact import exact_plan


class EMD(Distance):
    """The minimum of <T, D> over plans T whose rows sum to 1/Tx and columns to 1/Ty: mass moved times cost.

    ground: "sqeuclidean" (default; squared: the 2-Wasserstein distance, squared), "euclidean" (the 1-Wasserstein
        distance), "cosine", or a callable (B, Tx, C), (B, Ty, C) -> (B, Tx, Ty).

    The order of the frames does not matter. The derivative with respect to the cost is the plan (the envelope theorem);
    if several plans are optimal, it is one of them. Plans are computed on the CPU, in float64, pair by pair:
    milliseconds for a hundred frames. ``Sinkhorn`` is a faster approximation.
    Reference: Rubner, Tomasi & Guibas (2000), doi 10.1023/A:1026543900054.

    Example:
        >>> emd = EMD()
        >>> emd([[0.0, 1.0, 2.0]], [[2.0, 0.0]])
        tensor([0.3333])
    """

    def __init__(self, *, ground: str | GroundCost = "sqeuclidean") -> None:
        super().__init__()
        self.ground = resolve(self.name, ground)
        self.symmetric = is_fused(self.ground)

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        cost, plan = self._solve(x, y, x_lengths, y_lengths)
        return _check.finite_values(self.name, (cost * plan).sum((1, 2)).to(x.dtype))

    def align(self, x: Sequences, y: Sequences) -> MassAlignment:
        """An optimal plan of every pair."""
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        dtype = x.dtype
        return MassAlignment(
            lambda: self.paired(x, y, x_lengths, y_lengths),
            lambda: self._solve(x, y, x_lengths, y_lengths)[1].to(dtype),
            full_lengths(x, x_lengths),
            full_lengths(y, y_lengths),
        )

    def _solve(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        # Half precision is passed unchanged to a callable; PyTorch cannot evaluate the named costs in it.
        frames = (at_least_float32(x), at_least_float32(y)) if is_fused(self.ground) else (x, y)
        cost = evaluate(self.name, self.ground, *frames, x_lengths, y_lengths)
        return cost, exact_plan(cost, x_lengths, y_lengths)

    def config(self) -> dict[str, object]:
        """The constructor's arguments."""
        return {"ground": self.ground}

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(ground=self.ground)
