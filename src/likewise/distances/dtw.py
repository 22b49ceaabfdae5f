"""Dynamic time warping."""

from torch import Tensor

from likewise import _check
from likewise.distances.alignment import PathAlignment
from likewise.distances.distance import Distance, Sequences, describe, full_lengths
from likewise.ops.dtw import checked_dtw_matrix, checked_dtw_path, dtw, dtw_path, dtw_steps
from likewise.ops.ground import GroundCost, is_fused, resolve
from likewise.ops.rules import Rules


class DTW(Distance):
    """Dynamic time warping: the smallest sum of costs along a monotone path that matches x with y.

    ground: cost between two frames: "sqeuclidean" (the default; no root is taken), "euclidean", "cosine", or
        a function of (B, Tx, C) and (B, Ty, C) that returns (B, Tx, Ty).
    band: Sakoe-Chiba radius; an int counts steps, a float is a fraction of the shorter length. It is measured from the
        diagonals through both corners, so it never excludes every path.
    itakura: largest slope of a parallelogram between the corners, at least 1.
    open_begin, open_end: the path may start, or stop, anywhere in y. ``subsequence`` opens both: all of x is matched
        to a stretch of y.
    normalize: "lengths" divides by Tx + Ty, "steps" by the number of cells on the path.

    Derivatives are those of the optimal path. Values equal aeon's, tslearn's (squared) and dtaidistance's (squared).
    Memory: O(T) for each pair in progress. Reference: Sakoe & Chiba (1978).

    Example:
        >>> import torch
        >>> dtw = DTW()
        >>> dtw([[0.0, 1.0, 2.0]], [[0.0, 2.0]])
        tensor([1.])
        >>> dtw.matrix([[0.0, 1.0], [1.0, 3.0, 3.0]])
        tensor([[0., 9.],
                [9., 0.]])
    """

    def __init__(
        self,
        *,
        ground: str | GroundCost = "sqeuclidean",
        band: float | None = None,
        itakura: float | None = None,
        open_begin: bool = False,
        open_end: bool = False,
        subsequence: bool = False,
        normalize: str | None = None,
    ) -> None:
        super().__init__()
        self.ground = resolve("DTW", ground)
        self.rules = Rules.of(
            "DTW", band=band, itakura=itakura, open_begin=open_begin, open_end=open_end, subsequence=subsequence
        )
        if normalize not in (None, "lengths", "steps"):
            _check.refuse("DTW", f'normalize must be None, "lengths" or "steps", got {normalize!r}')
        self.normalize = normalize
        self.symmetric = self.rules.symmetric and is_fused(self.ground)  # a callable need not be symmetric

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        value = dtw(x, y, x_lengths, y_lengths, ground=self.ground, rules=self.rules)
        if self.normalize == "lengths":
            return value / (full_lengths(x, x_lengths) + full_lengths(y, y_lengths))
        if self.normalize == "steps":
            return value / dtw_path(x, y, x_lengths, y_lengths, ground=self.ground, rules=self.rules)[1]
        return value

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M) of padded sequences."""
        if not is_fused(self.ground):
            return super().all_pairs(x, y, x_lengths, y_lengths)
        value = checked_dtw_matrix(x, y, x_lengths, y_lengths, self.ground, self.rules)
        if y is None:
            y, y_lengths = x, x_lengths
        if self.normalize == "lengths":
            return value / (full_lengths(x, x_lengths)[:, None] + full_lengths(y, y_lengths))
        if self.normalize == "steps":
            return value / dtw_steps(x, y, x_lengths, y_lengths, ground=self.ground, rules=self.rules)
        return value

    def align(self, x: Sequences, y: Sequences) -> PathAlignment:
        """The optimal path of every pair."""
        x, y, x_lengths, y_lengths = self._pair(x, y, paired=True)
        return PathAlignment(
            lambda: self.paired(x, y, x_lengths, y_lengths),
            lambda: checked_dtw_path(x.detach(), y.detach(), x_lengths, y_lengths, self.ground, self.rules),
            x,
            y,
            lambda: full_lengths(x, x_lengths),
            lambda: full_lengths(y, y_lengths),
        )

    def config(self) -> dict[str, object]:
        """The constructor's arguments."""
        return {"ground": self.ground, **self.rules.settings(), "normalize": self.normalize}

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe(**self.config())
