"""Random matrices of distances with labels, and losses in plain loops over them."""

import pytest
import torch


def matrices(seed, scale=1.0):
    """(D, row_labels, col_labels or None): square, square with its diagonal, and rectangular."""
    generator = torch.Generator().manual_seed(seed)
    for rows, columns, own in ((8, 8, True), (7, 7, False), (5, 11, False), (1, 6, False), (6, 1, False)):
        D = scale * 1.5 * torch.rand(rows, columns, generator=generator, dtype=torch.float64)
        labels = torch.randint(0, 4, (rows,), generator=generator)
        others = labels if rows == columns else torch.randint(0, 4, (columns,), generator=generator)
        yield D, labels, None if own else others


def rows_of(D, row_labels, col_labels=None):
    """For each anchor, its distances to positives and to negatives, as lists of floats."""
    found = []
    columns = row_labels if col_labels is None else col_labels
    for i, label in enumerate(row_labels.tolist()):
        positives, negatives = [], []
        for j, other in enumerate(columns.tolist()):
            if col_labels is None and i == j:
                continue
            (positives if label == other else negatives).append(D[i, j].item())
        found.append((positives, negatives))
    return found


def check_against_loops(kind, per_anchor, scale=1.0, **options):
    """The loss equals the sum and the mean of per_anchor(positives, negatives) over the anchors."""
    for seed in range(6):
        for D, row_labels, col_labels in matrices(seed, scale):
            losses = [per_anchor(p, n) for p, n in rows_of(D, row_labels, col_labels)]
            for reduction, expected in (("sum", sum(losses)), ("mean", sum(losses) / len(losses))):
                found = kind(**options, reduction=reduction)(D, row_labels, col_labels)
                assert found.item() == pytest.approx(expected, rel=1e-9, abs=1e-10), (seed, tuple(D.shape), reduction)


def mined(positives, negatives, margin):
    """The hard positives and negatives of an anchor; both lists are empty if either is."""
    if not positives or not negatives:
        return [], []
    hard_positives = [p for p in positives if p > min(negatives) - margin]
    hard_negatives = [n for n in negatives if n < max(positives) + margin]
    assert bool(hard_positives) == bool(hard_negatives)
    return hard_positives, hard_negatives


def mean(values):
    return sum(values) / len(values) if values else 0.0


def paths(rows, columns):
    """Every monotone path from corner to corner."""
    if rows == 1 and columns == 1:
        return [[(0, 0)]]
    found = []
    for down, right in ((1, 0), (0, 1), (1, 1)):
        if rows > down and columns > right:
            found += [[*path, (rows - 1, columns - 1)] for path in paths(rows - down, columns - right)]
    return found


def vectors(count=9, channels=5, classes=4, seed=0, dtype=torch.float64):
    """Vectors (count, channels) and their labels (count,)."""
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.randn(count, channels, generator=generator, dtype=dtype)
    return x, torch.arange(count) % classes


def unit(v):
    """v at unit length."""
    return v / v.norm()
