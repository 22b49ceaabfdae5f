"""Whether one method is better than another, over the same folds and seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from likewise import _check

MOST_EXACT = 20  # pairs for which all 2^n flips of signs are tried
DRAWS = 1 << 20  # flips that are drawn for more


@dataclass(frozen=True)
class PairedTest:
    """What the pairs say: the mean of a - b, and p-values of two two-sided tests.

    permutation: of the sign-flip permutation test, whose statistic is the mean difference.
    wilcoxon: of the Wilcoxon signed-rank test, which sees only the ranks of the differences; ties share their mean
        rank, and pairs without a difference are left out.
    pairs: how many there were; the smallest p that n pairs can give is 2 / 2^n, .016 for seven.

    Example:
        >>> paired_test([0.9, 0.8, 0.7], [0.8, 0.7, 0.6]).pairs
        3
    """

    difference: float
    permutation: float
    wilcoxon: float
    pairs: int


def paired_test(a: Sequence[float], b: Sequence[float], *, seed: int = 0) -> PairedTest:
    """Compare scores of two methods on the same folds or seeds, without assuming a distribution.

    Under the null hypothesis the sign of each difference a_i - b_i is a coin toss. p is the share of the 2^n flips of
    signs whose sum is at least as far from 0 as the one observed: exact up to 20 pairs, beyond that from 2^20 random
    flips. Scores of folds of the same data are not independent: read p as a summary, not as a guarantee.

    Example:
        >>> paired_test([0.90, 0.88, 0.93, 0.91], [0.85, 0.86, 0.90, 0.92]).permutation
        0.25
    """
    op = "paired_test"
    if len(a) != len(b) or not len(a):
        _check.refuse(op, f"expected as many scores of both, at least one, got {len(a)} and {len(b)}")
    difference = torch.tensor(list(a), dtype=torch.float64) - torch.tensor(list(b), dtype=torch.float64)
    if not difference.isfinite().all():
        _check.refuse(op, "scores must be finite")
    # 0.9 - 0.8 and 0.8 - 0.7 differ in the last digit, and are meant to be equal.
    size = difference.abs().mul(1e12).round()
    changed = difference[size > 0]
    ranks = torch.tensor([_mean_rank(size[size > 0], value) for value in size[size > 0]], dtype=torch.float64)
    return PairedTest(
        difference=float(difference.mean()),
        permutation=_flipped(difference, seed),
        wilcoxon=_flipped(ranks * changed.sign(), seed),
        pairs=len(difference),
    )


def _mean_rank(values: torch.Tensor, value: torch.Tensor) -> float:
    return float((values < value).sum() + ((values == value).sum() + 1) / 2)


def _flipped(values: torch.Tensor, seed: int) -> float:
    """The share of flips of signs whose sum is no closer to 0 than that of the values."""
    if len(values) <= MOST_EXACT:
        sums = torch.zeros(1, dtype=torch.float64)
        for value in values:
            sums = torch.cat([sums + value, sums - value])
    else:
        generator = torch.Generator().manual_seed(seed)
        rounds = range(0, DRAWS, 1 << 14)
        signs = (torch.randint(2, (1 << 14, len(values)), generator=generator) * 2 - 1 for _ in rounds)
        sums = torch.cat([values.sum()[None], *((sign * values).sum(1) for sign in signs)])
    return float((sums.abs() >= values.sum().abs() * (1 - 1e-9)).double().mean())
