"""Few-shot classification: tasks with a few examples of each class."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise._labels import class_names, items_of, labelled, number_labels, read_labels
from likewise._modes import evaluating
from likewise.evaluation.candidates import HasMatrix, embedded
from likewise.evaluation.shots import Combine, mean_shot

# A Dataset, an ImageSet, a map-style dataset with labels, or a pair (items, labels).
Labelled = Any

NUMBERS_AT_ONCE = 1 << 23  # distances read at once


@dataclass(frozen=True)
class FewShotScore:
    """Mean accuracy over episodes, with its confidence interval.

    accuracy: share of correctly classified queries, mean over episodes. interval: half the width of the 95 % confidence
        interval of that mean, 1.96 standard errors.
    accuracies: (E,), the accuracy of each episode.

    Example:
        >>> FewShotScore(0.835, 0.003, torch.tensor([0.8, 0.87]))
        FewShotScore(83.50 % ± 0.30 %, 2 episodes)
    """

    accuracy: float
    interval: float
    accuracies: Tensor = field(repr=False)

    def __repr__(self) -> str:
        share = f"{100 * self.accuracy:.2f} % ± {100 * self.interval:.2f} %"
        return f"FewShotScore({share}, {len(self.accuracies):,} episodes)"


def few_shot_accuracy(
    metric: HasMatrix,
    data: Labelled,
    episodes: Any,
    *,
    count: int = 1000,
    combine: Combine = mean_shot,
    prototypes: bool = False,
    workers: int = 0,
) -> FewShotScore:
    """Accuracy of a distance on few-shot tasks: each query is assigned to the class with the nearest examples.

    metric: a Distance, or a Metric, whose encoder then runs once for each item.
    data: a Dataset, or a pair (items, labels).
    episodes: ``Episodes`` of these labels, of which ``count`` are taken, the same for every distance; or tasks
        (support, query), as returned by ``Episodes.take``.
    combine: how several examples of a class are combined: ``mean_shot``, ``nearest_shot`` or
        ``SoftNearestShot(share)``. The best choice depends on the distance; choose on other classes than those that you
        report.
    prototypes: compare with the mean of a class's examples, as in ``class_distances``.
    workers: the number of processes that read a map-style dataset. Memory: the matrix (N, N) of all items.

    Example:
        >>> from likewise import Episodes, Euclidean
        >>> x, labels = torch.tensor([0.0, 0.1, 0.2, 5.0, 5.1, 5.2])[:, None], ["walk"] * 3 + ["run"] * 3
        >>> few_shot_accuracy(Euclidean(), (x, labels), Episodes(labels, ways=2, shots=1, queries=2), count=50)
        FewShotScore(100.00 % ± 0.00 %, 50 episodes)
    """
    op = "few_shot_accuracy"
    _check_metric(op, metric, "; for a ready matrix, use few_shot_accuracy_matrix")
    items, given = labelled(op, "data", data)
    classes, (codes,) = number_labels(read_labels(op, "the labels of data", given, len(items)))
    support, query = episodes.take(count) if hasattr(episodes, "take") else episodes
    _check_places(op, support, query, len(codes))
    _check_tasks(op, torch.from_numpy(codes), support, query, class_names(classes))
    with torch.no_grad(), evaluating(metric):
        x, _, distance = embedded(metric, items, items, workers)
        D = distance.matrix(x, x)
    return few_shot_accuracy_matrix(D, support, query, combine=combine, prototypes=prototypes)


def few_shot_predict(
    metric: HasMatrix, support: Any, labels: object, queries: Any, *, combine: Combine = mean_shot
) -> Any:
    """Predict the labels (Q,) of queries: each gets the label of the class with the nearest examples.

    metric: a Distance, or a Metric; it need not have seen these classes.
    support, queries: sequences or images, as the metric takes them, or a Dataset.
    labels: the labels of the support, numbers or names; classes may have different numbers of examples.
    combine: as in ``few_shot_accuracy``. As there, distances of both directions are added.

    Example:
        >>> from likewise import DTW
        >>> support = [[0.0, 1, 2], [0.0, 0, 1, 2], [5.0, 4, 3]]
        >>> few_shot_predict(DTW(), support, ["rise", "rise", "fall"], [[1.0, 2, 2, 3], [4.0, 3, 2, 2]]).tolist()
        ['rise', 'fall']
    """
    op = "few_shot_predict"
    _check_metric(op, metric)
    support, queries = items_of(support), items_of(queries)
    given = read_labels(op, "labels", labels, len(support))
    classes, (codes,) = number_labels(given)
    with torch.no_grad(), evaluating(metric):
        x, y, distance = embedded(metric, queries, support, 0)
        D = distance.matrix(x, y) + distance.matrix(y, x).T  # (Q, S)
    if D.isnan().any():
        _check.refuse(op, f"query {int(D.isnan().any(1).nonzero()[0])} has a NaN distance")
    members = [torch.from_numpy(codes == number).to(D.device) for number in range(len(classes))]
    apart = torch.stack([combine(D[:, own]) for own in members], 1)  # (Q, classes)
    return classes[apart.argmin(1).cpu().numpy()]


def few_shot_accuracy_matrix(
    D: Tensor, support: Tensor, query: Tensor, *, combine: Combine = mean_shot, prototypes: bool = False
) -> FewShotScore:
    """Accuracy of episodes drawn from the items of a ready matrix of distances D (N, N).

    support (E, ways, shots) and query (E, ways, queries) are the items of each episode, as returned by
    ``Episodes.take``; a class is its position. A query is assigned to the class with the smallest ``class_distances``,
    the first in case of ties. There must be at least two episodes.

    Example:
        >>> D = torch.tensor([[0.0, 1.0, 5.0, 6.0], [1.0, 0.0, 4.0, 5.0], [5.0, 4.0, 0.0, 1.0], [6.0, 5.0, 1.0, 0.0]])
        >>> support, query = torch.tensor([[[0], [2]], [[1], [3]]]), torch.tensor([[[1], [3]], [[0], [2]]])
        >>> few_shot_accuracy_matrix(D, support, query)
        FewShotScore(100.00 % ± 0.00 %, 2 episodes)
    """
    op = "few_shot_accuracy_matrix"
    _check_episodes(op, D, support, query)
    if len(support) < 2:
        _check.refuse(op, f"expected at least two episodes, got {len(support)}")
    ways, shots, queries = support.shape[1], support.shape[2], query.shape[2]
    truth = torch.arange(ways, device=D.device)[:, None]
    chunk = max(1, NUMBERS_AT_ONCE // (ways * ways * shots * max(shots, queries)))
    parts = []
    for some, asked in zip(support.split(chunk), query.split(chunk), strict=True):
        found = class_distances(D, some, asked, combine=combine, prototypes=prototypes).argmin(3)  # (e, ways, queries)
        parts.append((found == truth).double().mean((1, 2)).cpu())
    accuracies = torch.cat(parts)
    return FewShotScore(
        accuracies.mean().item(), 1.96 * accuracies.std().item() / len(accuracies) ** 0.5, accuracies.float()
    )


def class_distances(
    D: Tensor, support: Tensor, query: Tensor, *, combine: Combine = mean_shot, prototypes: bool = False
) -> Tensor:
    """Distances between each query and each class, (E, ways, queries, ways), from distances D (N, N) between items.

    ``combine`` reduces d(q, s) + d(s, q) over the shots s of the class, by default to the mean. With prototypes,
    half the mean of d(s, s') over all pairs of its shots, in both directions, is subtracted: for a squared Euclidean
    distance d, this is twice the squared distance to the mean of the shots, computed without vectors.

    support (E, ways, shots), query (E, ways, queries): int64 positions in D. Differentiable in D.
    Reference: Su & Wen (ICLR 2022), equation 8, where the shots' distances are added instead; Snell, Swersky & Zemel
    (2017), arXiv:1703.05175, for prototypes.

    Example:
        >>> x = torch.tensor([0.0, 2.0, 5.0])
        >>> D = (x[:, None] - x).square()
        >>> class_distances(D, torch.tensor([[[0, 1]]]), torch.tensor([[[2]]])).item()  # 25 + 9, both ways
        34.0
        >>> class_distances(D, torch.tensor([[[0, 1]]]), torch.tensor([[[2]]]), prototypes=True).item()  # 2 (5 - 1)^2
        32.0
    """
    _check_episodes("class_distances", D, support, query)
    support, query = support.to(D.device), query.to(D.device)
    q, s = query[:, :, :, None, None], support[:, None, None]
    found = combine(D[q, s] + D[s, q])  # (E, ways, queries, ways)
    if prototypes:
        if combine is not mean_shot:
            _check.refuse("class_distances", "prototypes need combine=mean_shot")
        a, b = support[..., None], support[..., None, :]
        found = found - D[a, b].mean((2, 3))[:, None, None]
    return found


def _check_metric(op: str, metric: object, hint: str = "") -> None:
    if not callable(getattr(metric, "matrix", None)):
        hint = hint if isinstance(metric, Tensor) else ""
        raise TypeError(f"{op}: expected metric to be a Distance or a Metric, got {type(metric).__name__}{hint}")


def _check_episodes(op: str, D: Tensor, support: Tensor, query: Tensor) -> None:
    _check.is_tensor(op, "D", D)
    if D.ndim != 2 or D.shape[0] != D.shape[1]:
        _check.refuse(op, f"expected D of shape (N, N), items against themselves, got {tuple(D.shape)}")
    _check_places(op, support, query, len(D))
    if D.isnan().any():
        _check.refuse(op, f"D holds NaN in row {int(D.isnan().any(1).nonzero()[0])}")


def _check_tasks(op: str, codes: Tensor, support: Tensor, query: Tensor, names: Any) -> None:
    """Check that tasks match the labels: the items of a way have one class, and ways differ in class."""
    found = codes[torch.cat([support, query], 2)]  # (E, ways, items)
    first = found[..., :1]
    if (found != first).any():
        episode, way, place = (found != first).nonzero()[0].tolist()
        of = f"{names[found[episode, way, 0]]!r} and {names[found[episode, way, place]]!r}"
        _check.refuse(op, f"way {way} of episode {episode} has items of {of}; draw episodes from the labels of data")
    if (first[..., 0].sort(1).values.diff(dim=1) == 0).any():
        _check.refuse(op, "a class occurs twice in an episode; draw episodes from the labels of data")


def _check_places(op: str, support: Tensor, query: Tensor, size: int) -> None:
    for name, places in (("support", support), ("query", query)):
        if not isinstance(places, Tensor) or places.dtype != torch.int64:
            kind = places.dtype if isinstance(places, Tensor) else type(places).__name__
            raise TypeError(f"{op}: expected {name} to be an int64 tensor, got {kind}")
        if places.ndim != 3 or 0 in places.shape[1:]:
            _check.refuse(op, f"expected {name} of shape (episodes, ways, items), got {tuple(places.shape)}")
        if len(places) and not 0 <= int(places.min()) <= int(places.max()) < size:
            _check.refuse(op, f"{name} holds an index outside of the {size} items")
    if support.shape[:2] != query.shape[:2]:
        shapes = f"{tuple(support.shape)} and {tuple(query.shape)}"
        _check.refuse(op, f"support and query must agree in episodes and ways, got {shapes}")
