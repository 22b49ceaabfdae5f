"""Open-ended matches: all of them, kept apart, against the plain reference."""

import numpy as np
import pytest
import torch

from likewise import DTW, Batch
from likewise.ops.search import reference
from likewise.search.stretches import StretchSearch, refusal


def brute_force(query, items, k, exclude, root):
    hits = []
    for i, item in enumerate(items):
        cost = (query[:, None] - item).square().sum(-1)
        values, starts = reference.stretches((cost.sqrt() if root else cost).double().numpy())
        hits += [(v, i, s, e + 1) for e, (v, s) in enumerate(zip(values.tolist(), starts.tolist(), strict=True))]
    kept: list[tuple[float, int, int, int]] = []
    for hit in sorted(hits):
        apart = all(hit[1] != other[1] or abs(hit[2] - other[2]) >= exclude * len(query) for other in kept)
        if apart and len(kept) < k:
            kept.append(hit)
    return kept


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("exclude", [0.0, 0.5, 1.0])
def test_all_matches(exclude, root):
    torch.manual_seed(0)
    items = [torch.randn(n, 2, dtype=torch.float64) for n in (40, 7, 1, 25)]
    query = torch.randn(5, 2, dtype=torch.float64)
    distance = DTW(subsequence=True, ground="euclidean" if root else "sqeuclidean")
    found = StretchSearch(distance, Batch.from_list(items)).search(
        Batch(query[None]), k=8, within=None, exclude=exclude
    )
    expected = brute_force(query, items, 8, exclude, root)
    np.testing.assert_allclose(found.distances[0], [hit[0] for hit in expected])
    places = torch.stack([found.items[0], found.starts[0], found.ends[0]], 1).tolist()
    assert places == [list(hit[1:]) for hit in expected]
    best = distance.matrix(query[None], Batch.from_list(items))
    np.testing.assert_allclose(found.distances[0, 0], best.min())


def test_within_and_skip():
    items = Batch.from_list([[0.0, 1.0, 2.0, 9.0, 1.0, 2.0], [1.0, 2.0]])
    searcher = StretchSearch(DTW(subsequence=True), items)
    found = searcher.search(Batch.from_list([[1.0, 2.0]]), k=None, within=0.0, exclude=1.0, skip=torch.tensor([1]))
    assert found.items.tolist() == [[0, 0]]
    assert found.starts.tolist() == [[1, 4]]


def test_what_is_refused():
    assert refusal(DTW(subsequence=True)) is None
    for distance in (DTW(), DTW(subsequence=True, band=2), DTW(subsequence=True, ground="cosine")):
        assert refusal(distance) is not None
