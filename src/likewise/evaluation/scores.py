"""Scores: the result of an evaluation."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from likewise import _check
from likewise.evaluation.classification import count_pairs
from likewise.evaluation.intervals import bootstrap_f1, bootstrap_interval


@dataclass(frozen=True, repr=False, eq=False)
class Scores:
    """The result of an evaluation; ``print`` it for a table.

    accuracy: share of queries whose nearest reference has their label.
    f1: macro-F1 of that prediction.
    map: mean average precision over all references; map_at_r: over the R nearest, where R is the number of a query's
        relevant references. NaN after ``evaluate(..., nearest_only=True)``, which does not compute them.
    knn: for each k, the accuracy of the most frequent label among the k nearest.
    recall: for each k, the share of queries with a reference of their label among the k nearest.
    vote: share of queries for which at least 3 of the 5 nearest have their label; None with fewer than 5 references.
    nmi: agreement of k-means clusters of the queries with their labels; None if not requested.
    queries, references: the number of each. unmatched: the number of queries without a reference of their label; these
        count as misses, and are left out of map and map_at_r.
    classes: the names of all K classes, sorted.
    actual, predicted: (N,), the class of each query and of its nearest reference, as indices into classes.
    precision: (N,), the average precision of each query, whose mean is map; NaN for queries without a reference of
    their label.

    Example:
        >>> import torch
        >>> from likewise.evaluation.evaluate import evaluate_matrix
        >>> D = torch.tensor([[0.1, 0.9], [0.8, 0.3], [0.2, 0.6]])
        >>> scores = evaluate_matrix(D, torch.tensor([0, 1, 1]), torch.tensor([0, 1]))
        >>> scores.accuracy
        0.6666666666666666
        >>> scores.confusion
        tensor([[1, 0],
                [1, 1]])
    """

    accuracy: float
    f1: float
    map: float
    map_at_r: float
    knn: dict[int, float]
    recall: dict[int, float]
    vote: float | None
    nmi: float | None
    queries: int
    references: int
    unmatched: int
    classes: tuple[str, ...] = field(metadata={"data": True})
    actual: Tensor = field(metadata={"data": True})
    predicted: Tensor = field(metadata={"data": True})
    precision: Tensor = field(metadata={"data": True})

    @cached_property
    def confusion(self) -> Tensor:
        """Counts (K, K) of queries of class i whose nearest reference is of class j."""
        return count_pairs(self.actual, self.predicted, len(self.classes))

    def interval(
        self, name: str = "map", *, level: float = 0.95, groups: object = None, seed: int = 0
    ) -> tuple[float, float]:
        """A bootstrap interval of "map", "accuracy" or "f1" over the queries; see ``bootstrap_interval``.

        Example:
            >>> import torch
            >>> from likewise.evaluation.evaluate import evaluate_matrix
            >>> scores = evaluate_matrix(torch.tensor([[0.1, 0.9], [0.2, 0.6]]), [0, 1], [0, 1])
            >>> scores.accuracy, scores.interval("accuracy")
            (0.5, (0.0, 1.0))
        """
        if name not in ("map", "accuracy", "f1"):
            _check.refuse("Scores.interval", f'expected "map", "accuracy" or "f1", got {name!r}')
        if name == "map" and math.isnan(self.map):
            _check.refuse("Scores.interval", "there is no map: evaluate(nearest_only=True) does not compute it")
        if name == "f1":
            return bootstrap_f1(self.actual, self.predicted, level=level, groups=groups, seed=seed)
        values = self.precision if name == "map" else (self.actual == self.predicted).double()
        return bootstrap_interval(values, level=level, groups=groups, seed=seed)

    def as_dict(self) -> dict[str, Any]:
        """The numbers without the tensors, for JSON: the k of knn and recall become text, and NaN becomes None.

        Example:
            >>> import json, torch
            >>> from likewise.evaluation.evaluate import evaluate_matrix
            >>> scores = evaluate_matrix(torch.zeros(2, 2), torch.tensor([0, 0]))
            >>> json.dumps(scores.as_dict()["recall"])
            '{"1": 1.0}'
        """
        found: dict[str, Any] = {
            name: getattr(self, name) for name, item in self.__dataclass_fields__.items() if not item.metadata
        }
        for name in ("knn", "recall"):
            found[name] = {str(k): value for k, value in found[name].items()}
        for name in ("map", "map_at_r"):
            found[name] = None if math.isnan(found[name]) else found[name]
        return found

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={value:.4f}" for name, value in self._numbers().items())
        return f"Scores({numbers}, queries={self.queries}, references={self.references})"

    def __str__(self) -> str:
        head = f"{self.queries:,} queries, {self.references:,} references, {len(self.classes):,} classes"
        if self.unmatched:
            head += f"; {self.unmatched:,} without a reference of {'its' if self.unmatched == 1 else 'their'} class"
        numbers = self._numbers()
        width = max(map(len, numbers))
        return "\n".join([head, *(f"  {name:<{width}}  {value:.4f}" for name, value in numbers.items())])

    def _numbers(self) -> dict[str, float]:
        """Every score by a short name, in the order of the table."""
        named = {"accuracy": self.accuracy, "f1": self.f1, "map": self.map, "map@r": self.map_at_r}
        named |= {f"knn@{k}": value for k, value in self.knn.items() if k > 1}  # knn@1 is the accuracy,
        named |= {f"recall@{k}": value for k, value in self.recall.items() if k > 1}  # and so is recall@1
        named = {name: value for name, value in named.items() if not math.isnan(value)}
        optional = {"vote": self.vote, "nmi": self.nmi}
        return named | {name: value for name, value in optional.items() if value is not None}
