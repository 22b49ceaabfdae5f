"""Paired tests against plain enumeration and SciPy."""

import itertools

import numpy as np
import pytest
from scipy import stats

from likewise.evaluation import significance
from likewise.evaluation.significance import paired_test


def pairs(count, shift=0.3, seed=0):
    random = np.random.default_rng(seed)
    a = random.standard_normal(count) + shift
    return a, random.standard_normal(count)


@pytest.mark.parametrize("count", [1, 2, 7, 10])
@pytest.mark.parametrize("seed", range(3))
def test_permutation_by_plain_enumeration(count, seed):
    a, b = pairs(count, seed=seed)
    d = a - b
    sums = [
        abs(sum(s * v for s, v in zip(signs, d, strict=True))) for signs in itertools.product((1, -1), repeat=count)
    ]
    expected = np.mean([s >= abs(d.sum()) - 1e-9 for s in sums])
    found = paired_test(a, b)
    assert found.permutation == pytest.approx(expected)
    assert (found.difference, found.pairs) == (pytest.approx(d.mean()), count)


@pytest.mark.parametrize("seed", range(3))
def test_permutation_with_ties_by_plain_enumeration(seed):
    random = np.random.default_rng(seed)
    a, b = random.integers(0, 20, (2, 10))
    sums = [abs(np.dot(signs, a - b)) for signs in itertools.product((1, -1), repeat=10)]
    expected = np.mean(np.array(sums) >= abs((a - b).sum()))
    assert paired_test(a / 10, b / 10).permutation == expected  # 0.1 + 0.2 is 0.3


def test_twenty_pairs_are_exact():
    a, b = pairs(20)
    d = a - b
    signs = 1 - 2 * (np.arange(1 << 20)[:, None] >> np.arange(20) & 1)
    expected = np.mean(abs(signs @ d) >= abs(d.sum()) - 1e-9)
    assert paired_test(a, b).permutation == pytest.approx(expected, abs=1e-12)
    assert paired_test(a, b, seed=1) == paired_test(a, b)  # nothing is drawn


@pytest.mark.parametrize("count", [12, 15])
def test_permutation_is_scipys(count):
    a, b = pairs(count)
    found = stats.permutation_test((a - b,), np.sum, permutation_type="samples", n_resamples=1 << count)
    assert paired_test(a, b).permutation == pytest.approx(found.pvalue, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_wilcoxon_is_scipys(seed):
    a, b = pairs(12, seed=seed)
    assert paired_test(a, b).wilcoxon == pytest.approx(stats.wilcoxon(a, b, method="exact").pvalue)


@pytest.mark.parametrize("seed", range(3))
def test_wilcoxon_with_ties_and_zeros_by_plain_enumeration(seed):
    random = np.random.default_rng(seed)
    a, b = random.integers(0, 5, 9) / 10, random.integers(0, 5, 9) / 10
    d = np.round(a - b, 6)
    d = d[d != 0]
    ranks = stats.rankdata(abs(d))
    observed = abs((ranks * np.sign(d)).sum())
    sums = [abs((ranks * signs).sum()) for signs in itertools.product((1, -1), repeat=len(d))]
    assert paired_test(a, b).wilcoxon == pytest.approx(np.mean(np.array(sums) >= observed))


def test_the_scale_of_the_scores_does_not_matter():
    a, b = pairs(9)
    small, large = paired_test(a, b), paired_test(a * 1e9, b * 1e9)
    assert (small.permutation, small.wilcoxon) == (large.permutation, large.wilcoxon)


def test_many_pairs_are_sampled(monkeypatch):
    monkeypatch.setattr(significance, "DRAWS", 1 << 15)
    a, b = pairs(25)
    normal = 2 * stats.norm.sf(abs((a - b).sum()) / np.sqrt(((a - b) ** 2).sum()))  # what the flips tend to
    assert paired_test(a, b).permutation == pytest.approx(normal, abs=0.02)


def test_extremes():
    assert paired_test([1.0] * 7, [0.0] * 7).permutation == 2 / 2**7
    same = paired_test([0.5, 0.5], [0.5, 0.5])
    assert (same.permutation, same.wilcoxon, same.difference) == (1.0, 1.0, 0.0)
    # Differences that are equal but for rounding share their rank.
    assert paired_test([0.9, 0.8, 0.2], [0.8, 0.7, 0.3]).wilcoxon == 1.0


def test_bad_scores_are_refused():
    with pytest.raises(
        ValueError, match="paired_test: expected the same number of scores of both, at least one, got 2 and 1"
    ):
        paired_test([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="at least one, got 0 and 0"):
        paired_test([], [])
    with pytest.raises(ValueError, match="scores must be finite"):
        paired_test([float("nan")], [1.0])
