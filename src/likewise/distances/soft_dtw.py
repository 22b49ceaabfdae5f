"""Soft-DTW and its divergence."""

from torch import Tensor

from likewise import _check
from likewise.distances.alignment import PlanAlignment
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.ops.ground import GroundCost, at_least_float32, evaluate, is_fused, resolve
from likewise.ops.rules import Rules
from likewise.ops.soft_dtw import checked_soft_dtw, soft_dtw_again, soft_dtw_matrix, soft_dtw_plan


class SoftDTW(Distance):
    """Soft-DTW: the softmin of the costs of all monotone paths, -gamma log sum exp(-cost / gamma).

    gamma: the smoothing, in the unit of the ground cost; towards 0 the value becomes DTW's. The value can be negative,
        even for equal sequences, where ``SoftDTWDivergence`` is zero.
    ground, band, itakura, open_begin, open_end, subsequence: as in ``DTW``.

    It is twice differentiable; ``align`` gives the expected alignment, d value / d cost, which is differentiable too.
    Reference: Cuturi & Blondel (2017), arXiv:1703.01541.

    Example:
        >>> soft_dtw = SoftDTW(gamma=0.1)
        >>> soft_dtw([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([0.9307])
    """

    def __init__(
        self,
        gamma: float = 1.0,
        *,
        ground: str | GroundCost = "sqeuclidean",
        band: float | None = None,
        itakura: float | None = None,
        open_begin: bool = False,
        open_end: bool = False,
        subsequence: bool = False,
    ) -> None:
        super().__init__()
        self.gamma = _check.positive(self.name, "gamma", gamma)
        self.ground = resolve(self.name, ground)
        self.rules = Rules.of(
            self.name, band=band, itakura=itakura, open_begin=open_begin, open_end=open_end, subsequence=subsequence
        )
        self.symmetric = self.rules.symmetric and is_fused(self.ground)  # a callable need not be symmetric

    def forward(self, x: Sequences, y: Sequences) -> Tensor:
        """Distances (B,) between x[b] and y[b]."""
        if type(self) is SoftDTW:
            value = soft_dtw_again(x, y, self.gamma, self.ground, self.rules)
            if value is not None:
                return value
        return super().forward(x, y)

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        return checked_soft_dtw(x, y, x_lengths, y_lengths, self.gamma, self.ground, self.rules)

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M) of padded sequences."""
        if not is_fused(self.ground):
            return super().all_pairs(x, y, x_lengths, y_lengths)
        return soft_dtw_matrix(x, y, x_lengths, y_lengths, gamma=self.gamma, ground=self.ground, rules=self.rules)

    def align(self, x: Sequences, y: Sequences) -> PlanAlignment:
        """The expected alignment of every pair."""
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)

        def plan() -> Tensor:
            # Half precision is passed unchanged to a callable; PyTorch cannot evaluate the named costs in it.
            frames = (at_least_float32(x), at_least_float32(y)) if is_fused(self.ground) else (x, y)
            cost = evaluate(self.name, self.ground, *frames, x_lengths, y_lengths)
            return soft_dtw_plan(cost, x_lengths, y_lengths, gamma=self.gamma, rules=self.rules).to(x.dtype)

        return PlanAlignment(
            lambda: self.paired(x, y, x_lengths, y_lengths),
            plan,
            full_lengths(x, x_lengths),
            full_lengths(y, y_lengths),
            self.rules,
        )

    def config(self) -> dict[str, object]:
        """The constructor's arguments."""
        return {"gamma": self.gamma, "ground": self.ground, **self.rules.settings()}

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(**self.config())


class SoftDTWDivergence(SoftDTW):
    """Soft-DTW shifted to be zero for equal sequences: s(x, y) - (s(x, x) + s(y, y)) / 2.

    Takes the arguments of ``SoftDTW`` except open ends, with which a sequence would not be nearest to itself. With a
    window and unequal lengths it can be negative: the window of (x, y) then has more paths than those of (x, x) and
    (y, y). ``align`` returns soft-DTW's plan of (x, y), which is also the derivative of the divergence with respect to
    their cost.
    Reference: Blondel, Mensch & Vert (2021), arXiv:2010.08354.

    Example:
        >>> divergence = SoftDTWDivergence()
        >>> divergence([[0.0, 1.0, 3.0]], [[0.0, 1.0, 3.0]])
        tensor([0.])
    """

    def __init__(
        self,
        gamma: float = 1.0,
        *,
        ground: str | GroundCost = "sqeuclidean",
        band: float | None = None,
        itakura: float | None = None,
    ) -> None:
        super().__init__(gamma, ground=ground, band=band, itakura=itakura)

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Divergences (B,) of padded pairs."""
        dtype, x, y = x.dtype, self._wide(x), self._wide(y)
        value = super().paired(x, y, x_lengths, y_lengths)
        return _check.fits(self.name, value - (self._own(x, x_lengths) + self._own(y, y_lengths)) / 2, dtype)

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Divergences (N, M) of padded sequences."""
        if not is_fused(self.ground):
            return Distance.all_pairs(self, x, y, x_lengths, y_lengths)  # computed pair by pair, as divergences
        dtype, x, y = x.dtype, self._wide(x), None if y is None else self._wide(y)
        value, own_x = super().all_pairs(x, y, x_lengths, y_lengths), self._own(x, x_lengths)
        own = own_x[:, None] + (own_x if y is None else self._own(y, y_lengths))
        return _check.fits(self.name, value - own / 2, dtype)

    def config(self) -> dict[str, object]:
        """The constructor's arguments, without the open ends."""
        return {name: value for name, value in super().config().items() if not name.startswith("open")}

    def _wide(self, x: Tensor) -> Tensor:
        """Half precision as float32, so that values are subtracted before rounding; callables get x unchanged."""
        return at_least_float32(x) if is_fused(self.ground) else x

    def _own(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        return super().paired(x, x, lengths, lengths)
