import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import likewise as lw
from likewise.search import exhaustive, exhaustive_windows
from likewise.search.exhaustive import Exhaustive
from likewise.search.exhaustive_windows import ExhaustiveStretches, ExhaustiveWindows
from likewise.search.normalization import window_lengths, znormalize


def walks(count, steps=12, channels=2, seed=0, levels=None):
    values = torch.randn(count, steps, channels, generator=torch.Generator().manual_seed(seed)).cumsum(1)
    return values if levels is None else (values * levels).round() / levels


def naive(D, k, within, skip=None):
    """The hits of each row, by sorting (distance, column)."""
    rows = []
    for q, row in enumerate(D.tolist()):
        hits = sorted((d, j) for j, d in enumerate(row) if skip is None or j != skip[q])
        hits = [hit for hit in hits if within is None or hit[0] <= within]
        rows.append(hits[:k])
    return rows


def pairs(found):
    return [
        list(zip(found.distances[q, :n].tolist(), found.items[q, :n].tolist(), strict=True))
        for q, n in enumerate(found.counts.tolist())
    ]


@pytest.mark.parametrize(
    "distance",
    [lw.DTW(), lw.DTW(band=0.2, ground="cosine"), lw.SoftDTW(), lw.Sinkhorn(), lw.MeanFrames()],
    ids=lambda distance: type(distance).__name__,
)
@pytest.mark.parametrize(("k", "within"), [(3, None), (None, 20.0), (2, 5.0), (100, None), (None, None)])
def test_equals_a_sorted_matrix(monkeypatch, distance, k, within):
    monkeypatch.setattr(exhaustive, "PAIRS_AT_ONCE", 20)
    monkeypatch.setattr(exhaustive, "QUERIES_AT_ONCE", 3)
    items = lw.Batch(walks(9), [12, 5, 12, 1, 7, 12, 12, 3, 12])
    queries = lw.Batch(walks(5, seed=1), [12, 4, 12, 2, 12])
    skip = torch.tensor([-1, 0, 8, -1, 3])
    found = Exhaustive(distance, items).search(queries, k=k, within=within, skip=skip)
    D = distance.matrix(queries, items)
    expected = naive(D, k, within, skip.tolist())
    assert [[j for _, j in row] for row in expected] == [[j for _, j in row] for row in pairs(found)]
    for row, hits in zip(expected, pairs(found), strict=True):
        torch.testing.assert_close(torch.tensor([d for d, _ in hits]), torch.tensor([d for d, _ in row]))
    assert found.stats.method == "exhaustive"
    assert found.stats.candidates == 45
    inside = found.items >= 0
    assert (found.ends[inside] == items.lengths[found.items[inside]]).all()
    assert (found.starts[inside] == 0).all()
    assert (found.distances[~inside] == torch.inf).all()


def test_ties_go_to_the_first_item(monkeypatch):
    monkeypatch.setattr(exhaustive, "PAIRS_AT_ONCE", 7)
    items = lw.Batch(torch.ones(20, 3, 1))
    found = Exhaustive(lw.DTW(), items).search(lw.Batch(torch.ones(2, 3, 1)), k=6, within=None)
    assert found.items.tolist() == [list(range(6))] * 2


def test_no_distance_is_nan():
    class Broken(lw.Distance):
        def paired(self, x, y, x_lengths, y_lengths):
            return torch.full((len(x),), torch.nan)

    with pytest.raises(ValueError, match="Broken returned NaN for query 0 and item 0"):
        Exhaustive(Broken(), lw.Batch(walks(2))).search(lw.Batch(walks(1)), k=1, within=None)


def every_window(distance, query, items, lengths, normalize):
    hits = []
    for item, series in enumerate(items):
        for start in range(len(series)):
            for length in lengths:
                window = series[start : start + length]
                if len(window) == length:
                    a, b = (znormalize(query), znormalize(window)) if normalize else (query, window)
                    hits.append((distance([a], [b]).item(), item, start, start + length))
    return sorted(hits)


def apart(hits, exclude, k):
    kept = []
    for hit in hits:
        if all(hit[1] != other[1] or abs(hit[2] - other[2]) >= exclude * (other[3] - other[2]) for other in kept):
            kept.append(hit)
    return kept[:k]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    normalize=st.booleans(),
    stretch=st.sampled_from([None, (0.7, 1.4)]),
    exclude=st.sampled_from([0.0, 0.4, 1.0]),
    k=st.sampled_from([1, 3, None]),
    within=st.sampled_from([None, 3.0]),
)
def test_windows_equal_a_loop(seed, normalize, stretch, exclude, k, within):
    items = lw.Batch(walks(3, 20, 1, seed, levels=2), [20, 4, 9])
    queries = lw.Batch(walks(2, 6, 1, seed + 1, levels=2), [6, 5])
    distance = lw.DTW(band=2)
    searcher = ExhaustiveWindows(distance, items, normalize=normalize, stretch=stretch)
    found = searcher.search(queries, k=k, within=within, exclude=exclude)
    for q, query in enumerate(queries):
        hits = every_window(distance, query, items, window_lengths(len(query), stretch), normalize)
        hits = apart([hit for hit in hits if within is None or hit[0] <= within], exclude, k)
        count = int(found.counts[q])
        assert count == len(hits)
        assert found.items[q, :count].tolist() == [hit[1] for hit in hits]
        assert found.starts[q, :count].tolist() == [hit[2] for hit in hits]
        assert found.ends[q, :count].tolist() == [hit[3] for hit in hits]
        assert found.distances[q, :count].tolist() == [hit[0] for hit in hits]


def test_windows_are_laid_out_in_blocks(monkeypatch):
    items, queries = lw.Batch(walks(2, 30)), lw.Batch(walks(1, 8, seed=3))
    whole = ExhaustiveWindows(lw.DTW(), items).search(queries, k=5, within=None, exclude=0.5)
    monkeypatch.setattr(exhaustive_windows, "NUMBERS_AT_ONCE", 50)
    parts = ExhaustiveWindows(lw.DTW(), items).search(queries, k=5, within=None, exclude=0.5)
    assert torch.equal(whole.starts, parts.starts)
    assert torch.equal(whole.distances, parts.distances)


def test_stretches_of_a_distance_with_free_ends():
    distance, items = lw.DTW(subsequence=True), lw.Batch(walks(3, 30))
    queries = lw.Batch(walks(1, 8, seed=3))
    found = ExhaustiveStretches(distance, items).search(queries, k=3, within=None, exclude=0.5)
    for i in range(3):
        item, start, end = (int(t[0, i]) for t in (found.items, found.starts, found.ends))
        whole = distance([queries[0]], [items[item]])
        torch.testing.assert_close(lw.DTW()([queries[0]], [items[item][start:end]]), whole)
        torch.testing.assert_close(found.distances[0, i], whole[0])
