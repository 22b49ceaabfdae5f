"""Validation: how well a metric retrieves held-out items from references, in bounded memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from likewise import _check
from likewise._labels import read_labels
from likewise.data.batch import Batch
from likewise.evaluation.retrieval import mean_average_precision, nearest_neighbor_accuracy
from likewise.models.metric import Metric, as_items, evaluating, take
from likewise.training.ranks import ALONE, Ranks

MOST_DISTANCES = 1 << 24  # held at once


@dataclass(frozen=True)
class Validation:
    """Queries and references with their labels."""

    queries: Batch | Tensor
    labels: Tensor
    references: Batch | Tensor
    reference_labels: Tensor

    @classmethod
    def of(cls, val: object, train: Batch | Tensor, labels: Tensor | None) -> "Validation":
        """From (X, y), against the training items, from (X, y, X_references, y_references), or one as it is."""
        if isinstance(val, Validation):
            return val
        if not isinstance(val, (tuple, list)) or len(val) not in (2, 4):
            raise TypeError("fit: expected val to be (X, y), or (X, y, references, reference_labels)")
        queries = as_items("fit", "val", val[0])
        references = train if len(val) == 2 else as_items("fit", "val[2]", val[2])
        if len(val) == 2 and labels is None:
            _check.refuse("fit", "without labels, give val as (X, y, references, reference_labels)")
        reference_labels = labels if len(val) == 2 else as_labels("val[3]", val[3], len(references))
        assert reference_labels is not None
        if not len(queries) or not len(references):
            _check.refuse("fit", "val is empty")
        return cls(queries, as_labels("val[1]", val[1], len(queries)), references, reference_labels)

    def score(self, metric: Metric, ranks: Ranks = ALONE) -> tuple[float, float]:
        """1-NN accuracy and mean average precision of the queries; each process ranks its share of them."""
        rows = ranks.rows(len(self.queries))
        labels, columns = self.labels[rows], self.reference_labels
        hits = precision = found = 0.0
        with torch.no_grad(), evaluating(metric):
            references = metric.embed(self.references)
            queries = metric.embed(take(self.queries, rows))
            chunk = max(1, MOST_DISTANCES // len(references))
            for start in range(0, len(labels), chunk):
                part = slice(start, start + chunk)
                D = metric.distance.matrix(take(queries, part), references)
                known = int(torch.isin(labels[part], columns).sum())  # rows of other classes have no precision
                hits += nearest_neighbor_accuracy(D, labels[part], columns) * len(D)
                precision += mean_average_precision(D, labels[part], columns) * known
                found += known
        device = queries.device
        hits, precision, found = ranks.sum([hits, precision, found], device)
        return hits / len(self.queries), precision / found if found else 0.0


def as_labels(name: str, labels: object, count: int) -> Tensor:
    """Labels (count,) as whole numbers on the CPU."""
    tensor = torch.from_numpy(read_labels("fit", name, labels, count).copy())
    if count and (tensor.is_floating_point() or tensor.dtype == torch.bool):
        raise TypeError(f"fit: expected {name} to be whole numbers, got {tensor.dtype}")
    return tensor.long()
