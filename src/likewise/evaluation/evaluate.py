"""evaluate: all scores of a distance, without storing all pairs."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from likewise import _check
from likewise._labels import is_map_style, labelled, rows_of, same_items
from likewise._modes import evaluating
from likewise._progress import track
from likewise.data.batch import Batch, as_sequences
from likewise.data.overlap import overlap
from likewise.distances.dtw import DTW
from likewise.evaluation import ranking
from likewise.evaluation.candidates import Candidates, HasMatrix, embedded, ranked_strip
from likewise.evaluation.classification import mean_f1
from likewise.evaluation.clustering import clustering_agreement
from likewise.evaluation.labels import Labels, read_k, read_matrix, ready_strip, row_slices
from likewise.evaluation.scores import Scores

VOTERS, VOTES = 5, 3  # the vote score: 3 of the 5 nearest
QUERIES_A_READING = 1024  # queries per pass over references that are on disk

# A Dataset, an ImageSet, a map-style dataset with labels, or a pair (items, labels).
Labelled = Any


class Items(Protocol):
    """Sequences or vectors that can be sliced: a Batch, a tensor, an array or a list."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: slice, /) -> Any: ...


def evaluate(
    metric: HasMatrix,
    queries: Labelled,
    references: Labelled | None = None,
    *,
    ks: Sequence[int] = (1,),
    nmi: bool = False,
    nearest_only: bool = False,
    candidates: Candidates | None = None,
    chunk: int | None = None,
    workers: int = 0,
    progress: bool = False,
) -> Scores:
    """Score a distance by how well queries find references of their class.

    metric: a Distance, or a Metric, whose encoder then runs once for each item.
    queries, references: a Dataset each, or a pair (items, labels); labels are numbers or names, and classes are matched
    by name. Without references, or if both are the same items, queries are compared with each other, and each is left
    out of its own references. Queries that are found among other references, with the same ids or all of them, raise a
    warning, since each is then its own nearest neighbour.
    ks: the k of k-NN accuracy and of Recall@k. nmi: cluster the queries too, where they are vectors.
    nearest_only: leave out map and map_at_r, which need every distance and are then NaN. The other scores only need the
    nearest references, and are the same. An index finds these where it is exact and faster: under DTW with a band, and
    among many vectors.
    candidates: Candidates(cheap distance, keep): the metric only compares the pairs that it keeps; the other references
    rank after them, by the cheap distance.
    chunk: queries at once; by default as many as make about a million distances. progress draws a bar on stderr.
    workers: processes that read items of a map-style dataset that does not fit in memory. A Metric encodes them as they
        are read. Other distances read all references again for each chunk of a thousand queries, in this process.

    Distances are computed for a chunk of queries at a time and reduced immediately: memory grows with the number of
    references, not of pairs. The metric runs in evaluation mode, without gradients.

    Example:
        >>> from likewise import Euclidean
        >>> x, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1]]), ["walk", "walk", "run", "run"]
        >>> evaluate(Euclidean(), queries=(x, labels), ks=(1, 3))
        Scores(accuracy=1.0000, f1=1.0000, map=1.0000, map@r=1.0000, knn@3=0.0000, recall@3=1.0000,
               queries=4, references=4)
    """
    op = "evaluate"
    if not callable(getattr(metric, "matrix", None)):
        hint = "; for a ready matrix, use evaluate_matrix" if isinstance(metric, Tensor) else ""
        raise TypeError(f"{op}: expected metric to be a Distance or a Metric, got {type(metric).__name__}{hint}")
    items, row_labels = _pair(op, "queries", queries)
    others, col_labels = (items, None) if references is None else _pair(op, "references", references)
    own = same_items(items, others)  # an item is not its own reference
    others = items if own else others
    if not own:
        warn_of_own_references(op, queries, items, references, others)
    for name, part in (("queries", items), ("references", others)):
        if len(part) == 0:
            _check.refuse(op, f"{name} are empty")
    if own and len(items) < 2:
        _check.refuse(op, "without references, there must be at least two queries")
    names = "the labels of queries", "the labels of references"
    labels = Labels.of(op, row_labels, col_labels, (len(items), len(others)), names, own=own)
    ks = read_ks(op, ks, labels)
    workers = _check.whole(op, "workers", workers, least=0)
    if chunk is not None:
        chunk = _check.whole(op, "chunk", chunk)
    elif is_map_style(others) and not callable(getattr(metric, "embed", None)):
        chunk = QUERIES_A_READING
    if candidates is not None and not isinstance(candidates, Candidates):
        raise TypeError(f"{op}: expected candidates to be Candidates(metric, keep), got {type(candidates).__name__}")
    with torch.no_grad(), evaluating(metric, None if candidates is None else candidates.metric):
        x, y, distance = embedded(metric, items, others, workers)
        agreement = clustering_agreement(_vectors(op, x), labels.rows) if nmi else None
        parts: Iterable[slice] = row_slices(len(items), len(others), chunk)
        if progress:
            parts = track(list(parts), f"evaluate: {len(items):,} x {len(others):,}")
        searcher = None
        if nearest_only and candidates is None:
            searcher, x = _searcher(x, y, distance, most_neighbors(labels, ks))
        strip_of = _all_pairs(op, x, y, distance, labels)
        if candidates is not None:
            strip_of = _chosen_pairs(op, candidates, items, others, x, y, distance, labels, workers)
        if searcher is not None:
            found = [_found(labels, searcher, x, part, ks) for part in parts]
        else:
            most = most_neighbors(labels, ks)
            found = [reduce_strip(labels, part, strip_of(part), most, nearest_only=nearest_only) for part in parts]
        return scores_of(labels, found, ks, agreement)


def evaluate_matrix(
    D: Tensor, row_labels: object, col_labels: object | None = None, *, ks: Sequence[int] = (1,)
) -> Scores:
    """Score a ready matrix of distances (N, M) by how well rows find columns of their class.

    Labels are numbers or names. Without col_labels, rows and columns are the same items, and the diagonal is ignored.
    ks: the k of k-NN accuracy and of Recall@k.

    Example:
        >>> D = torch.tensor([[0.1, 0.9], [0.8, 0.3], [0.2, 0.6]])
        >>> print(evaluate_matrix(D, torch.tensor([0, 1, 1]), torch.tensor([0, 1]), ks=(1, 2)))
        3 queries, 2 references, 2 classes
          accuracy  0.6667
          f1        0.6667
          map       0.8333
          map@r     0.6667
          knn@2     0.3333
          recall@2  1.0000
    """
    labels, strips = read_matrix("evaluate_matrix", D, row_labels, col_labels)
    return _score(labels, strips, read_ks("evaluate_matrix", ks, labels), None)


def warn_of_own_references(op: str, queries: Labelled, items: Items, references: Labelled, others: Items) -> None:
    """Warn if queries are among the references: all of them, or some with the same ids."""
    if isinstance(items, (Batch, Tensor)) != isinstance(others, (Batch, Tensor)):
        return
    ids = getattr(queries, "ids", None), getattr(references, "ids", None)
    found = overlap(items, others, ids=ids)
    own = len(found) if len(found) == len(items) else len(found.known)
    if own:
        warnings.warn(
            f"{op}: {own} of {len(items)} queries are references too: {found.named('queries', 'references')}. Each is "
            f"its own nearest neighbour, which raises the scores. Leave them out of the references, or compare the "
            f"items with each other: {op}(metric, queries).",
            stacklevel=3,
        )


@dataclass(frozen=True)
class Strip:
    """The results of a strip of the matrix: labels of the nearest columns (n, K), and precisions (n,)."""

    neighbors: Tensor
    precision: Tensor
    precision_at_r: Tensor


def most_neighbors(labels: Labels, ks: tuple[int, ...]) -> int:
    """The number of nearest columns that the scores of these ks need."""
    return max(1, *ks, VOTERS if labels.candidates >= VOTERS else 1)


def reduce_strip(labels: Labels, part: slice, strip: Tensor, most: int, *, nearest_only: bool = False) -> Strip:
    """Reduce the rows ``part`` of a matrix, ready to be ranked, to what the scores need."""
    neighbors = labels.columns[ranking.nearest(strip, most).cpu()]
    if nearest_only:
        return _without_precision(neighbors)
    given = (t.to(strip.device) for t in (labels.rows[part], labels.columns, labels.relevant[part]))
    precision = ranking.average_precision(strip, *given)
    return Strip(neighbors, precision.full.cpu(), precision.at_r.cpu())


def _score(labels: Labels, strips: Iterator[tuple[slice, Tensor]], ks: tuple[int, ...], nmi: float | None) -> Scores:
    """Reduce the strips of a matrix, one by one."""
    most = most_neighbors(labels, ks)
    return scores_of(labels, [reduce_strip(labels, part, strip, most) for part, strip in strips], ks, nmi)


def scores_of(labels: Labels, strips: Sequence[Strip], ks: tuple[int, ...], nmi: float | None = None) -> Scores:
    """The scores of a matrix from its strips, in the order of the rows."""
    relevant = labels.relevant
    found = torch.cat([strip.neighbors for strip in strips])  # (N, most)
    full = torch.cat([strip.precision for strip in strips]).double()  # (N,)
    at_r = torch.cat([strip.precision_at_r for strip in strips]).double()
    same = found == labels.rows[:, None]
    matched = int((relevant > 0).sum())
    return Scores(
        accuracy=_share(same[:, 0]),
        f1=mean_f1(labels.rows, found[:, 0]),
        map=full.sum().item() / max(1, matched),
        map_at_r=at_r.sum().item() / max(1, matched),
        knn={k: _share(ranking.vote(found[:, :k]) == labels.rows) for k in ks},
        recall={k: _share(same[:, :k].any(1)) for k in ks},
        vote=_share(same[:, :VOTERS].sum(1) >= VOTES) if labels.candidates >= VOTERS else None,
        nmi=nmi,
        queries=len(labels.rows),
        references=len(labels.columns),
        unmatched=len(labels.rows) - matched,
        classes=labels.names,
        actual=labels.rows,
        predicted=found[:, 0],
        precision=full.masked_fill(relevant == 0, torch.nan),
    )


def _without_precision(neighbors: Tensor) -> Strip:
    unknown = torch.full((len(neighbors),), torch.nan, dtype=torch.float64)
    return Strip(neighbors, unknown, unknown)


def _searcher(x: Any, y: Any, distance: Any, most: int) -> tuple[Any, Any]:
    """An index of the references that is exact and faster than all distances, if there is one, and queries for it."""
    from likewise.search.choice import quick  # which imports this package

    if isinstance(distance, DTW) and not is_map_style(x) and not is_map_style(y):
        first, second = (Batch(*as_sequences("evaluate", "items", part)) for part in (x, y))
        alike = first.dtype == second.dtype and first.device == second.device and first.channels == second.channels
        found = quick(distance, second, most) if alike else None
        return found, x if found is None else first
    alike = isinstance(x, Tensor) and isinstance(y, Tensor) and x.dtype == y.dtype and x.device == y.device
    return quick(distance, y, most) if alike and x.ndim == y.ndim and x.shape[1:] == y.shape[1:] else None, x


def _found(labels: Labels, searcher: Any, x: Any, part: slice, ks: tuple[int, ...]) -> Strip:
    """What the scores need of some rows, found by an index."""
    queries = rows_of(x, part)
    skip = torch.arange(part.start, part.start + len(queries)) if labels.own else None
    hits = searcher.search(queries, k=most_neighbors(labels, ks), within=None, exclude=0.0, skip=skip)
    return _without_precision(labels.columns[hits.items])


def _share(right: Tensor) -> float:
    return right.double().mean().item()


def _all_pairs(op: str, x: Items, y: Items, distance: Any, labels: Labels) -> Callable[[slice], Tensor]:
    return lambda part: ready_strip(op, distance.matrix(rows_of(x, part), y), part.start, labels.own)


def _chosen_pairs(
    op: str,
    candidates: Candidates,
    items: Items,
    others: Items,
    x: Items,
    y: Items,
    distance: Any,
    labels: Labels,
    workers: int,
) -> Callable[[slice], Tensor]:
    """Like ``_all_pairs``, with ranks in place of distances: only the candidates are compared by ``distance``."""
    first, second, cheap = embedded(candidates.metric, items, others, workers)
    if any(map(is_map_style, (first, second, x, y))):
        _check.refuse(op, "for a map-style dataset, both the metric and the cheap distance of candidates must embed")
    keep = candidates.count(labels.candidates)

    def strip_of(part: slice) -> Tensor:
        D = cheap.matrix(first[part], second)
        return ranked_strip(op, D, distance, x[part], y, keep, part.start, labels.own)

    return strip_of


def _vectors(op: str, x: Items) -> Tensor:
    tensor = torch.as_tensor(x) if hasattr(x, "ndim") else None
    if tensor is None or tensor.ndim != 2:
        _check.refuse(op, "nmi clusters vectors, but these are sequences; pass nmi=False, or vectors (N, C)")
    return tensor if tensor.is_floating_point() else tensor.float()


def _pair(op: str, name: str, value: object) -> tuple[Any, Any]:
    items, labels = labelled(op, name, value)
    if not hasattr(items, "__len__") or not hasattr(items, "__getitem__"):
        kind = type(items).__name__
        raise TypeError(f"{op}: expected the items of {name} to be a Batch, a tensor or a list, got {kind}")
    return items, labels


def read_ks(op: str, ks: Sequence[int], labels: Labels) -> tuple[int, ...]:
    """The distinct ks in order, each at most the number of references of a row."""
    if not isinstance(ks, (tuple, list, range)):
        raise TypeError(f"{op}: expected ks to be several numbers such as (1, 5), got {type(ks).__name__}")
    return tuple(sorted({read_k(op, k, labels.candidates) for k in ks}))
