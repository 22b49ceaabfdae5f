"""Precision against recall."""

from dataclasses import dataclass

import torch
from torch import Tensor

from likewise import _check
from likewise.evaluation.labels import read_matrix
from likewise.evaluation.ranking import hit_precision


@dataclass(frozen=True)
class PrecisionRecall:
    """The mean precision (P,) at each recall (P,) of a set of queries; ``viz.plot_precision_recall`` draws it.

    Example:
        >>> D = torch.tensor([[0.1, 0.2]])
        >>> precision_recall_curve(D, torch.tensor([1]), torch.tensor([1, 0]), points=2).area
        1.0
    """

    recall: Tensor
    precision: Tensor

    @property
    def area(self) -> float:
        """The area under the curve: the mean average precision, up to the number of points."""
        return self.precision.mean().item()


def precision_recall_curve(
    D: Tensor, row_labels: object, col_labels: object | None = None, *, points: int = 200
) -> PrecisionRecall:
    """The mean, over rows, of the precision at each recall.

    Recalls are the middles of ``points`` equal steps from 0 to 1. A row's precision at recall r is that at its
    ceil(r R)-th relevant column of R; equal distances count together, and nothing is interpolated, so the area is the
    mean average precision. Rows without a column of their label are left out; if there are no others, the precision
    is 0. Without col_labels, the diagonal is ignored.

    Example:
        >>> D = torch.tensor([[0.1, 0.2, 0.3]])
        >>> precision_recall_curve(D, torch.tensor([1]), torch.tensor([1, 0, 1]), points=2).precision
        tensor([1.0000, 0.6667], dtype=torch.float64)
    """
    op = "precision_recall_curve"
    points = _check.whole(op, "points", points)
    labels, strips = read_matrix(op, D, row_labels, col_labels)
    relevant = labels.relevant
    recall = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    total = torch.zeros(points, dtype=torch.float64)
    for part, strip in strips:
        precision_of = hit_precision(strip.cpu(), labels.rows[part], labels.columns, relevant[part])
        for i, hits in enumerate(relevant[part].tolist()):
            if hits:
                at = ((recall * hits).ceil().long() - 1).clamp_(0, hits - 1)
                total += torch.from_numpy(precision_of(i)[0])[at]
    return PrecisionRecall(recall, total / (relevant > 0).sum().clamp(min=1))
