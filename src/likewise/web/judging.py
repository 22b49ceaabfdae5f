"""Judging: how well a metric's neighbours share a label, query by query."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise.evaluation.classification import count_pairs, mean_f1
from likewise.evaluation.intervals import bootstrap_f1, bootstrap_interval
from likewise.evaluation.ranking import average_precision, hit_precision, nearest
from likewise.models.metric import Metric, take
from likewise.web.collection import Collection
from likewise.web.refusals import Refusal
from likewise.web.work import Job

MOST_QUERIES, MOST_REFERENCES = 1000, 20_000
CELLS = 1 << 35  # cells of alignment tables: a few seconds of DTW
DRAWS = 2000  # resamplings of the queries for an interval
VOTERS = 5
LISTED = 60  # rows of a list
POINTS = 50  # of the curve of precision against recall
PIECE = 16  # queries between two checks of a job


@dataclass(frozen=True)
class Verdict:
    """The judgement of a metric by leave-one-out: scores with intervals, and what happened to each query.

    queries: (Q,) positions of the items judged; of a large collection a sample, the same one for every metric.
    references: how many items they were compared with.
    scores: name -> (value, low, high), with a 95 % interval by resampling the queries.
    nearest, distance, predicted, precision: (Q,), the nearest item, its distance and class, and the average precision.
    confusion: (K, K). curve: recall and precision. hardest, suspects: rows of tables.
    """

    queries: np.ndarray
    references: int
    scores: dict[str, tuple[float, float, float]]
    nearest: np.ndarray
    distance: np.ndarray
    predicted: np.ndarray
    precision: np.ndarray
    confusion: np.ndarray
    curve: tuple[list[float], list[float]]
    hardest: list[dict[str, Any]]
    suspects: list[dict[str, Any]]


def judge(collection: Collection, name: str, job: Job, *, seed: int = 0) -> Verdict:
    """Judge a metric: every query looks for its class among the other items."""
    if collection.labels is None:
        raise Refusal(422, "judging needs labels, and these items have none")
    if len(collection) < 2:
        raise Refusal(422, "judging needs at least two items")
    queries, references = _sample(collection, seed)
    D = _distances(collection, name, queries, references, job)
    D[torch.from_numpy(references[None] == queries[:, None])] = torch.nan  # no item finds itself
    rows, columns = (torch.from_numpy(collection.codes[items]) for items in (queries, references))
    relevant = columns.bincount(minlength=len(collection.classes))[rows] - 1
    job.check()
    order = nearest(D, min(VOTERS, len(references) - 1))
    predicted = columns[order[:, 0]]
    precision = average_precision(D, rows, columns, relevant).full
    job.check()
    return Verdict(
        queries=queries,
        references=len(references),
        scores=_scores(rows, predicted, precision, relevant > 0, seed),
        nearest=references[order[:, 0].numpy()],
        distance=D.gather(1, order[:, :1])[:, 0].numpy(),
        predicted=predicted.numpy(),
        precision=precision.numpy(),
        confusion=count_pairs(rows, predicted, len(collection.classes)).numpy(),
        curve=_curve(D, rows, columns, relevant),
        hardest=_hardest(D, rows, columns, queries, references),
        suspects=_suspects(D, rows, columns, columns[order], queries),
    )


def _sample(collection: Collection, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Queries, and references that hold them: as many as a few seconds allow."""
    generator = np.random.default_rng(seed)
    total = len(collection)
    references = np.arange(total)
    if total > MOST_REFERENCES:
        references = np.sort(generator.choice(total, MOST_REFERENCES, replace=False))
    steps = float(collection.lengths.mean())
    count = min(MOST_QUERIES, len(references), max(50, int(CELLS / (len(references) * steps * steps))))
    return np.sort(generator.choice(references, count, replace=False)), references


def _distances(collection: Collection, name: str, queries: np.ndarray, references: np.ndarray, job: Job) -> Tensor:
    """Distances (Q, R), a few queries at a time."""
    metric, items = collection.many(name, references)
    distance = metric
    if isinstance(metric, Metric):
        job.check()
        items, distance = metric.embed(items), metric.distance
    place = torch.from_numpy(np.searchsorted(references, queries))
    strips = []
    with torch.no_grad():
        for part in place.split(PIECE):
            job.check()
            strips.append(distance.matrix(take(items, part), items).float().cpu())
    return torch.cat(strips)


def _scores(
    rows: Tensor, predicted: Tensor, precision: Tensor, matched: Tensor, seed: int
) -> dict[str, tuple[float, float, float]]:
    """Accuracy, macro-F1 and mean average precision, with intervals."""
    right, known = (rows == predicted).double(), precision[matched]
    mean = float(known.mean()) if len(known) else 0.0
    return {
        "accuracy": (float(right.mean()), *bootstrap_interval(right, draws=DRAWS, seed=seed)),
        "macro-F1": (mean_f1(rows, predicted), *bootstrap_f1(rows, predicted, draws=DRAWS, seed=seed)),
        "MAP": (mean, *bootstrap_interval(known, draws=DRAWS, seed=seed)),
    }


def _curve(D: Tensor, rows: Tensor, columns: Tensor, relevant: Tensor) -> tuple[list[float], list[float]]:
    """Recall, and the mean precision at it."""
    recall = (torch.arange(POINTS, dtype=torch.float64) + 0.5) / POINTS
    total, count = torch.zeros(POINTS, dtype=torch.float64), 0
    precision_of = hit_precision(D, rows, columns, relevant)
    for i, hits in enumerate(relevant.tolist()):
        if hits:
            at = ((recall * hits).ceil().long() - 1).clamp(0, hits - 1)
            total += torch.from_numpy(precision_of(i)[0])[at]
            count += 1
    return recall.tolist(), (total / max(1, count)).tolist()


def _nearest_two(D: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(Q,): the distance to the nearest item of the query's class, to the nearest of another, and which that is."""
    D = D.nan_to_num(nan=torch.inf)
    same = columns[None] == rows[:, None]
    positive = D.masked_fill(~same, torch.inf).amin(1)
    negative, place = D.masked_fill(same, torch.inf).min(1)
    return positive, negative, place


def _hardest(
    D: Tensor, rows: Tensor, columns: Tensor, queries: np.ndarray, references: np.ndarray
) -> list[dict[str, Any]]:
    """Items of other classes that are nearest, beside the nearest of the query's own class."""
    positive, negative, place = _nearest_two(D, rows, columns)
    ratio = (negative / positive.clamp(min=1e-12)).nan_to_num(nan=torch.inf)
    return [
        {
            "query": int(queries[i]),
            "item": int(references[int(place[i])]),
            "distance": float(negative[i]),
            "own": float(positive[i]),
        }
        for i in ratio.argsort(stable=True)[:LISTED].tolist()
        if bool(negative[i].isfinite()) and bool(positive[i].isfinite())
    ]


def _suspects(D: Tensor, rows: Tensor, columns: Tensor, voters: Tensor, queries: np.ndarray) -> list[dict[str, Any]]:
    """Queries whose neighbours agree on another class, the most certain first."""
    positive, negative, _ = _nearest_two(D, rows, columns)
    found = []
    for i, votes in enumerate(voters.tolist()):
        label = max(sorted(set(votes)), key=votes.count)
        agree = votes.count(label)
        if label != int(rows[i]) and agree > len(votes) // 2:
            margin = float(positive[i] / negative[i].clamp(min=1e-12))
            margin = margin if np.isfinite(margin) else 1e9
            found.append(
                {"item": int(queries[i]), "suggested": label, "votes": agree, "of": len(votes), "margin": margin}
            )
    return sorted(found, key=lambda row: (-row["votes"], -row["margin"]))[:LISTED]
