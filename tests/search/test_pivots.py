import pytest
import torch

import likewise as lw
from likewise.search.exhaustive import Exhaustive
from likewise.search.pivots import PivotSearch, refusal
from tests.search.test_exhaustive import walks


class Counted(lw.Euclidean):
    """A metric that abandons: pairs above their limit are infinitely far."""

    metric = True

    def __init__(self):
        super().__init__()
        self.compared = 0

    def some_pairs(self, x, y, pairs, limits=None):
        self.compared += len(pairs)
        D = self(lw.Batch(x.values, x.lengths)[pairs[:, 0]], lw.Batch(y.values, y.lengths)[pairs[:, 1]])
        return D if limits is None else D.masked_fill(limits < D, torch.inf)


class Loose(Counted):
    metric = False


def same(searcher, distance, items, queries, **options):
    found = searcher.search(queries, **options)
    truth = Exhaustive(distance, items).search(queries, **options)
    assert torch.equal(found.items, truth.items)
    assert torch.equal(found.counts, truth.counts)
    assert torch.equal(found.ends, truth.ends)
    torch.testing.assert_close(found.distances, truth.distances)
    return found


@pytest.mark.parametrize("levels", [None, 1], ids=["numbers", "ties"])
def test_equals_exhaustive_search(levels):
    distance = Counted()
    items, queries = lw.Batch(walks(300, 9, levels=levels)), lw.Batch(walks(6, 9, seed=1, levels=levels))
    searcher = PivotSearch(distance, items)
    for options in (
        {"k": 1, "within": None},
        {"k": 7, "within": 4.0},
        {"k": None, "within": 5.0},
        {"k": 500, "within": None},
    ):
        same(searcher, distance, items, queries, **options)
    skip = torch.tensor([3, -1, 0, 299, 7, 7])
    same(searcher, distance, items, queries, k=3, within=None, skip=skip)
    same(searcher, distance, items, items[:4], k=1, within=None)
    wide = items.to(torch.float64)
    same(PivotSearch(distance, wide), distance, wide, queries.to(torch.float64), k=5, within=None)


def test_pivots_leave_out_pairs():
    distance, items = Counted(), lw.Batch(walks(2000, 4, 1))
    searcher = PivotSearch(distance, items)
    distance.compared = 0
    found = same(searcher, distance, items, lw.Batch(walks(5, 4, 1, seed=1)), k=1, within=None)
    assert distance.compared < 5 * 2000 / 4
    assert found.stats.killed["pivots"] > 5 * 2000 * 0.7


def test_equal_items():
    items = lw.Batch(torch.ones(100, 3, 1))
    found = PivotSearch(Counted(), items).search(items[:2], k=3, within=None)
    assert found.items.tolist() == [[0, 1, 2]] * 2


def test_where_pivots_do_not_apply():
    items = lw.Batch(walks(80))
    assert refusal(Counted(), items) is None
    assert "not known to be a metric" in refusal(Loose(), items)
    assert "not known to be a metric" in refusal(lw.DTW(), items)
    assert "fewer than 64" in refusal(Counted(), items[:9])
    banded = Counted()
    banded.rules = lw.DTW(band=3).rules
    assert "triangle inequality may fail" in refusal(banded, items)
    assert lw.Index(Loose(), items).search(walks(1), k=1).stats.method == "exhaustive"
    assert lw.Index(Counted(), items).search(walks(1), k=1).stats.method == "pivots"


@pytest.mark.skipif(not hasattr(lw, "MSM"), reason="the elastic distances are not there yet")
def test_elastic_distances():
    items, queries = lw.Batch(walks(150, 12, 1), [12, 7, 9] * 50), lw.Batch(walks(4, 12, 1, seed=1), [12, 5, 12, 8])
    for name in ("MSM", "TWE", "ERP", "ADTW", "LCSS", "EDR"):
        distance = getattr(lw, name)()
        found = lw.Index(distance, items).search(queries, k=4)
        truth = Exhaustive(distance, items).search(queries, k=4, within=None)
        torch.testing.assert_close(found.distances, truth.distances)
        assert torch.equal(found.items, truth.items), name
        assert found.stats.method == ("pivots" if distance.metric else "exhaustive")
