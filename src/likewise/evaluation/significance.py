"""Significance tests for two methods on the same folds and seeds, with SciPy."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from likewise import _check

MOST_EXACT = 20  # the most pairs for an exact test, of 2^20 sign flips
DRAWS = 1 << 16  # random sign flips, for more pairs


@dataclass(frozen=True)
class PairedTest:
    """The mean of a - b over the pairs, and the p-values of two two-sided tests.

    permutation: the sign-flip permutation test of the mean difference.
    wilcoxon: the Wilcoxon signed-rank test, which uses only the ranks of the differences; ties share their mean rank,
        and zero differences are dropped.
    pairs: the number of pairs n; the smallest possible p is 2 / 2^n, .016 for seven pairs.

    Example:
        >>> paired_test([0.9, 0.8, 0.7], [0.8, 0.7, 0.6]).pairs
        3
    """

    difference: float
    permutation: float
    wilcoxon: float
    pairs: int


def paired_test(a: Sequence[float], b: Sequence[float], *, seed: int = 0) -> PairedTest:
    """Compare the scores of two methods on the same folds or seeds, without assuming a distribution.

    Under the null hypothesis, the sign of each difference a_i - b_i is a coin toss. p is the share of the 2^n sign
    flips whose sum is at least as far from 0 as the observed one: exact up to 20 pairs, beyond that estimated from
    2^16 random flips. Folds of the same data are not independent: take p as a summary, not as a guarantee.

    Example:
        >>> paired_test([0.90, 0.88, 0.93, 0.91], [0.85, 0.86, 0.90, 0.92]).permutation
        0.25
    """
    from scipy import stats

    op = "paired_test"
    if len(a) != len(b) or not len(a):
        _check.refuse(op, f"expected the same number of scores of both, at least one, got {len(a)} and {len(b)}")
    first, second = (torch.tensor(list(scores), dtype=torch.float64) for scores in (a, b))
    if not (first - second).isfinite().all():
        _check.refuse(op, "scores must be finite")
    steps = _in_steps(first, second)
    changed = steps[steps != 0].numpy()
    if len(changed) == len(set(abs(changed))) > 0:
        wilcoxon = float(stats.wilcoxon(changed, method="exact").pvalue)  # type: ignore[attr-defined]
    else:  # SciPy's test is exact only without ties: flip the signs of the ranks
        ranks = stats.rankdata(abs(changed))
        wilcoxon = _flipped(torch.tensor(ranks) * steps[steps != 0].sign(), seed)
    return PairedTest(float((first - second).mean()), _flipped(first - second, seed), wilcoxon, len(steps))


def _in_steps(a: Tensor, b: Tensor) -> Tensor:
    """a - b as whole numbers, for exact ties: 0.9 - 0.8 and 0.8 - 0.7 differ only in the last digit."""
    scale = float(torch.cat([a, b]).abs().max())
    return ((a - b) / (scale or 1.0) * 1e12).round().long()


def _flipped(values: Tensor, seed: int) -> float:
    """The share of sign flips whose sum is at least as far from 0 as that of the values (n,)."""
    if len(values) <= MOST_EXACT:
        sums = torch.zeros(1, dtype=torch.float64)
        for value in values:
            sums = torch.cat([sums + value, sums - value])
        # Sums that differ only by rounding count as equal.
        return float((sums.abs() >= values.sum().abs() - 1e-9 * values.abs().sum()).double().mean())
    from scipy import stats

    return float(
        stats.permutation_test(
            (values.numpy(),),
            lambda x, axis: x.sum(axis),
            permutation_type="samples",
            n_resamples=DRAWS,
            batch=DRAWS,
            rng=seed,
        ).pvalue
    )
