"""evaluate: the scores of a distance on many items, from strips that several workers compute."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from likewise import _check
from likewise._labels import labelled, same_items
from likewise.evaluation.evaluate import (
    Strip,
    most_neighbors,
    read_ks,
    reduce_strip,
    scores_of,
    warn_of_own_references,
)
from likewise.evaluation.labels import Labels, ready_strip, row_slices
from likewise.evaluation.scores import Scores
from likewise.scale.engine import Plan
from likewise.scale.operands import Operands, read_operands
from likewise.scale.progress import watched

OP = "scale.evaluate"
PAIRS_A_JOB = 1 << 24  # at most
STRIPS_A_JOB = 16


@dataclass(frozen=True)
class Shared:
    """The data that all strips share."""

    operands: Operands
    labels: Labels
    most: int


def evaluate(
    metric: Any,
    queries: Any,
    references: Any = None,
    *,
    ks: Sequence[int] = (1,),
    engine: str | None = None,
    devices: Any = None,
    cores: int | None = None,
    progress: bool = False,
) -> Scores:
    """Score a distance as ``likewise.evaluate`` does, with the same result, from strips computed side by side.

    metric, queries, references, ks: as in ``likewise.evaluate``. engine, devices, cores, progress: as in
        ``scale.matrix``.

    Every strip is reduced where it is computed: only neighbours and precisions are sent back.

    Example:
        >>> import likewise as lw
        >>> data = lw.Batch.from_list([[0.0], [0.1], [5.0], [5.1]]), ["walk", "walk", "run", "run"]
        >>> evaluate(lw.DTW(), data).map == lw.evaluate(lw.DTW(), data).map
        True
    """
    plan = Plan.read(OP, engine, devices, cores)
    items, row_labels = labelled(OP, "queries", queries)
    others, col_labels = (items, None) if references is None else labelled(OP, "references", references)
    own = same_items(items, others)
    if not own:
        warn_of_own_references(OP, queries, items, references, others)
    operands = read_operands(OP, metric, items, None if own else others)
    if own and len(operands.x) < 2:
        _check.refuse(OP, "without references, there must be at least two queries")
    names = "the labels of queries", "the labels of references"
    labels = Labels.of(OP, row_labels, col_labels, operands.shape, names, own=own)
    ks = read_ks(OP, ks, labels)
    shared = Shared(operands, labels, most_neighbors(labels, ks))
    strips = row_slices(*operands.shape)
    rows, columns = operands.shape
    together = max(1, min(STRIPS_A_JOB, PAIRS_A_JOB // max(1, columns * (strips[0].stop - strips[0].start))))
    jobs = [
        tuple((part.start, part.stop) for part in strips[first : first + together])
        for first in range(0, len(strips), together)
    ]
    found: dict[Any, list[Strip]] = {}
    with (
        plan.connected(),
        watched(f"evaluate: {rows:,} x {columns:,}", len(jobs), rows * columns, progress=progress) as (_, tally),
    ):
        for done in plan.run(score_strips, shared, jobs):
            found[done.job] = done.result
            tally(done, columns * sum(last - first for first, last in done.job))
    return scores_of(labels, [strip for job in jobs for strip in found[job]], ks)


def score_strips(shared: Shared, job: tuple[tuple[int, int], ...], device: str) -> list[Strip]:
    """Compute some strips of the matrix, and reduce each."""
    labels, columns = shared.labels, slice(0, shared.operands.shape[1])
    found = []
    for first, last in job:
        part = slice(first, last)
        D = ready_strip(OP, shared.operands.compare(part, columns, device), first, labels.own)
        found.append(reduce_strip(labels, part, D, shared.most))
    return found
