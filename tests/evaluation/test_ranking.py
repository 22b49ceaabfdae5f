import numpy as np
import pytest
import torch

from likewise.evaluation import ranking
from likewise.evaluation.labels import Labels, ready_strip, row_slices


def problem(n, m, classes, *, tied=False, own=False, dtype=torch.float32):
    generator = torch.Generator().manual_seed(n + m)
    D = torch.randn(n, m, generator=generator, dtype=torch.float64)
    D = ((D * 2).round() if tied else D).to(dtype)
    rows = torch.randint(classes + 1, (n,), generator=generator)  # no column has the last class
    columns = rows if own else torch.randint(classes, (m,), generator=generator)
    labels = Labels.of("test", rows, None if own else columns, (n, m))
    return ready_strip("test", D, 0, own), labels


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_ways_to_average_precision_agree(tied, own, dtype):
    strip, labels = problem(300, 300, 7, tied=tied, own=own, dtype=dtype)  # large enough to be shared by threads
    given = strip, labels.rows, labels.columns, labels.relevant
    before = strip.clone()
    fast, plain = ranking._by_binary_search(*given), ranking._by_sorting(*given)
    torch.testing.assert_close(fast.full, plain.full)
    torch.testing.assert_close(fast.at_r, plain.at_r)
    torch.testing.assert_close(strip, before, equal_nan=True)
    assert (fast.full[labels.relevant == 0] == 0).all()
    assert (fast.at_r <= fast.full + 1e-12).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_changes_nothing(threads):
    strip, labels = problem(257, 300, 5)
    given = strip, labels.rows, labels.columns, labels.relevant
    expected = ranking._by_binary_search(*given)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        found = ranking._by_binary_search(*given)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found.full, expected.full)


def test_rows_that_are_not_next_to_each_other():
    strip, labels = problem(60, 90, 4)
    given = labels.rows, labels.columns, labels.relevant
    expected = ranking.average_precision(strip, *given)
    for other in (strip.T.contiguous().T, strip.repeat(1, 2)[:, :90]):
        found = ranking.average_precision(other, *given)
        assert torch.equal(found.full, expected.full)
        assert torch.equal(ranking.nearest(other, 5), ranking.nearest(strip, 5))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("k", [1, 5, 39])
def test_nearest_is_a_stable_sort(tied, own, k):
    strip, _ = problem(40, 40, 3, tied=tied, own=own)
    expected = np.argsort(strip.numpy(), axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(ranking.nearest(strip, k), expected)


def test_all_columns_are_nearest():
    strip, _ = problem(5, 6, 2, tied=True)
    np.testing.assert_array_equal(ranking.nearest(strip, 6), np.argsort(strip.numpy(), axis=1, kind="stable"))


def test_vote(monkeypatch):
    labels = torch.tensor([[4, 2, 4], [3, 1, 2], [5, 5, 0], [7, 7, 7]])
    for at_once in (ranking.VOTES_AT_ONCE, 1, 20):
        monkeypatch.setattr(ranking, "VOTES_AT_ONCE", at_once)
        assert ranking.vote(labels).tolist() == [4, 1, 5, 7]


def test_strips_cover_all_rows():
    assert [(s.start, s.stop) for s in row_slices(5, 7, 2)] == [(0, 2), (2, 4), (4, 5)]
    assert row_slices(3, 1 << 30) == [slice(0, 1), slice(1, 2), slice(2, 3)]
    assert len(row_slices(10_000, 10_000)) < 100


def test_on_the_cpu_positions_are_not_sorted(monkeypatch):
    strip, labels = problem(20, 30, 3)
    monkeypatch.setattr(ranking, "_by_sorting", None)
    assert ranking.average_precision(strip, labels.rows, labels.columns, labels.relevant).full.shape == (20,)
