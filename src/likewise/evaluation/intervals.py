"""Bootstrap intervals of a mean and of macro-F1 over queries."""

import torch
from torch import Tensor

from likewise import _check
from likewise._labels import number_labels, read_labels

MOST_DRAWN = 1 << 24  # positions drawn at once


def bootstrap_interval(
    values: object, *, level: float = 0.95, draws: int = 2000, groups: object = None, seed: int = 0
) -> tuple[float, float]:
    """A percentile interval of the mean of values (N,): from the means of ``draws`` samples with replacement.

    NaN values are left out. groups: (N,), such as the subject of each query: whole groups are drawn, since queries from
    one subject are not independent.

    Example:
        >>> low, high = bootstrap_interval([0.0, 1.0, 1.0, 1.0])
        >>> low, high
        (0.25, 1.0)
    """
    op = "bootstrap_interval"
    level, draws = _check.fraction(op, "level", level), _check.whole(op, "draws", draws)
    numbers = torch.as_tensor(values, dtype=torch.float64)
    if numbers.ndim != 1:
        _check.refuse(op, f"expected values of shape (N,), got {tuple(numbers.shape)}")
    known = ~numbers.isnan()
    if not known.any():
        return 0.0, 0.0
    if groups is None:
        sums, counts = numbers[known], known[known].double()
    else:
        codes = torch.from_numpy(number_labels(read_labels(op, "groups", groups, len(numbers)))[1][0])[known]
        sums, counts = (
            torch.zeros(int(codes.max()) + 1, dtype=torch.float64).index_add_(0, codes, each)
            for each in (numbers[known], torch.ones(len(codes), dtype=torch.float64))
        )
        sums, counts = sums[counts > 0], counts[counts > 0]
    means = _means(sums, counts, draws, torch.Generator().manual_seed(_check.whole(op, "seed", seed, least=0)))
    ends = torch.quantile(means, torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64))
    return float(ends[0]), float(ends[1])


def bootstrap_f1(
    actual: Tensor, predicted: Tensor, *, level: float = 0.95, draws: int = 2000, groups: object = None, seed: int = 0
) -> tuple[float, float]:
    """A percentile interval of macro-F1, of predictions (N,) as indices of classes; see ``bootstrap_interval``.

    Example:
        >>> low, high = bootstrap_f1(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 1, 0]))
        >>> low < 0.733 < high
        True
    """
    op = "bootstrap_f1"
    level, draws = _check.fraction(op, "level", level), _check.whole(op, "draws", draws)
    if not len(actual):
        return 0.0, 0.0
    classes = int(torch.maximum(actual, predicted).max()) + 1
    codes = torch.arange(len(actual))
    if groups is not None:
        codes = torch.from_numpy(number_labels(read_labels(op, "groups", groups, len(actual)))[1][0])
    parts = int(codes.max()) + 1
    hits, sizes = torch.zeros(2, parts * classes, dtype=torch.float64)  # TP, and 2 TP + FP + FN
    one = torch.ones(len(actual), dtype=torch.float64)
    hits.index_add_(0, codes * classes + actual, (actual == predicted).double())
    for each in (actual, predicted):
        sizes.index_add_(0, codes * classes + each, one)
    generator = torch.Generator().manual_seed(_check.whole(op, "seed", seed, least=0))
    found, chunk = [], max(1, MOST_DRAWN // parts)
    for first in range(0, draws, chunk):
        count = min(chunk, draws - first)
        drawn = torch.randint(parts, (count, parts), generator=generator)
        times = torch.zeros(count, parts, dtype=torch.float64).scatter_add_(
            1, drawn, torch.ones(1, 1, dtype=torch.float64).expand_as(drawn)
        )
        hit, size = times @ hits.view(parts, classes), times @ sizes.view(parts, classes)
        found.append((2 * hit / size.clamp(min=1)).sum(1) / (size > 0).sum(1))
    ends = torch.quantile(torch.cat(found), torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64))
    return float(ends[0]), float(ends[1])


def _means(sums: Tensor, counts: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """The means (draws,) of samples with replacement of parts with these sums and counts."""
    found, chunk = [], max(1, MOST_DRAWN // len(sums))
    for first in range(0, draws, chunk):
        drawn = torch.randint(len(sums), (min(chunk, draws - first), len(sums)), generator=generator)
        found.append(sums[drawn].sum(1) / counts[drawn].sum(1))
    return torch.cat(found)
