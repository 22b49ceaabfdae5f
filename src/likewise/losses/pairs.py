"""Positive and negative pairs in a matrix of distances, and sums over them."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from likewise import _check
from likewise._labels import read_codes


@dataclass(frozen=True)
class Pairs:
    """Distances (N, M) of anchors (rows) to items (columns), and which of them are positive and negative pairs.

    distances: (N, M), float32 or better; 0 where a cell is not a pair.
    positives, negatives: (N, M) bool, pairs of the same class and of different classes.
    row_labels, col_labels: (N,) and (M,) int64, the classes of anchors and of items.

    Example:
        >>> pairs = Pairs.of("loss", torch.tensor([[0.1, 0.8, 0.5]]), [0], [0, 0, 1])
        >>> pairs.positives.tolist(), pairs.complete.tolist()
        ([[True, True, False]], [True])
    """

    distances: Tensor
    positives: Tensor
    negatives: Tensor
    row_labels: Tensor
    col_labels: Tensor

    @classmethod
    def of(cls, op: str, D: Tensor, row_labels: object, col_labels: object | None) -> "Pairs":
        """Pairs from D (N, M) and its labels, which are checked.

        Without col_labels, rows and columns are the same items, and the diagonal is left out and may have any values.
        With col_labels every cell is a pair, including the diagonal.

        Example:
            >>> Pairs.of("loss", torch.zeros(3, 3), [0, 0, 1], None).positives.int()
            tensor([[0, 1, 0],
                    [1, 0, 0],
                    [0, 0, 0]], dtype=torch.int32)
        """
        _check.is_tensor(op, "D", D)
        if D.ndim != 2:
            _check.refuse(op, f"expected D of shape (N, M), got {tuple(D.shape)}")
        if col_labels is None and D.shape[0] != D.shape[1]:
            _check.refuse(op, f"without col_labels, D must be square, got {tuple(D.shape)}; pass col_labels")
        given = [("row_labels", row_labels, D.shape[0]), ("col_labels", col_labels, D.shape[1])]
        codes = read_codes(op, D.device, *given[: 1 if col_labels is None else 2])
        rows, columns = codes[0], codes[-1]
        distances = D.to(torch.promote_types(D.dtype, torch.float32))
        same = rows[:, None] == columns
        positives = same
        if col_labels is None:
            diagonal = torch.eye(len(D), dtype=torch.bool, device=D.device)
            distances, positives = distances.masked_fill(diagonal, 0), same & ~diagonal
        _check_finite(op, distances)
        return cls(distances, positives, ~same, rows, columns)

    @property
    def complete(self) -> Tensor:
        """(N,), True for anchors that have a positive and a negative."""
        return self.positives.any(1) & self.negatives.any(1)

    def farthest_positive(self) -> Tensor:
        """(N,), each anchor's largest distance to its class; 0 without any."""
        farthest = torch.where(self.positives, self.distances, -torch.inf).amax(1)
        return torch.where(self.positives.any(1), farthest, 0)

    def nearest_negative(self) -> Tensor:
        """(N,), each anchor's smallest distance to other classes; 0 without any."""
        nearest = torch.where(self.negatives, self.distances, torch.inf).amin(1)
        return torch.where(self.negatives.any(1), nearest, 0)

    def mined(self, margin: float) -> "Pairs":
        """The hard pairs: positives with p > n_min - margin, negatives with n < p_max + margin.

        n_min is the distance to the anchor's nearest negative, p_max that to its farthest positive. An anchor keeps
        either both kinds or none. The choice itself has no gradient.

        Example:
            >>> D = torch.tensor([[0.1, 0.8, 0.5, 2.0]])
            >>> hard = Pairs.of("loss", D, [0], [0, 0, 1, 1]).mined(0.1)
            >>> hard.positives, hard.negatives
            (tensor([[False,  True, False, False]]), tensor([[False, False,  True, False]]))
        """
        nearest, farthest = self.nearest_negative()[:, None], self.farthest_positive()[:, None]
        positives = self.positives & (self.distances > nearest - margin)
        negatives = self.negatives & (self.distances < farthest + margin)
        hard = replace(self, positives=positives, negatives=negatives)
        # An anchor with one kind has the other, up to rounding.
        kept = (hard.complete & self.complete)[:, None]
        return replace(self, positives=positives & kept, negatives=negatives & kept)


def mean_of(values: Tensor, keep: Tensor) -> Tensor:
    """Mean (N,) over the kept cells of each row; 0 for a row without kept cells.

    Example:
        >>> mean_of(torch.tensor([[1.0, 5.0], [2.0, 2.0]]), torch.tensor([[True, True], [False, False]]))
        tensor([3., 0.])
    """
    return sum_of(values, keep) / keep.sum(1).clamp(min=1)


def sum_of(values: Tensor, keep: Tensor) -> Tensor:
    """Sum (N,) over the kept cells of each row."""
    return torch.where(keep, values, 0).sum(1)


def log_sum_exp(values: Tensor, keep: Tensor, dim: int | tuple[int, ...] = 1) -> Tensor:
    """log of the sum of exp(values) over the kept cells; without any, a finite number whose exp is 0.

    The result and its gradients are always finite, whereas the gradient of torch.logsumexp is NaN if all values are
    -inf.
    """
    some = keep.any(dim, keepdim=True)
    summed = values.masked_fill(~keep, -torch.inf).masked_fill(~some, 0).logsumexp(dim)
    return summed.masked_fill(~some.reshape(summed.shape), torch.finfo(values.dtype).min / 2)


def _check_finite(op: str, distances: Tensor) -> None:
    """Raise an error for NaN and infinities; skipped where values cannot be read, as in a traced function."""
    if _check.numbers_hidden() or _check.all_finite(distances):
        return
    row, column = (~distances.isfinite()).nonzero()[0].tolist()
    _check.refuse(op, f"D[{row}, {column}] is {distances[row, column].item()}; distances must be finite")
