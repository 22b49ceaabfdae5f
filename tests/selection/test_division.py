import pytest
import torch

import likewise as lw
from likewise.selection import division
from likewise.selection.division import divide
from tests.selection.test_search import walks


def test_large_data_are_scored_by_a_sample():
    many = lw.Dataset(torch.randn(3000, 1024, 1), ["a", "b", "c"] * 1000)
    parts = divide(many, 0.2, None, 0)
    assert len(parts.train) == 2400
    assert len(parts.held) * len(parts.references) * 1024**2 <= 1.1 * division.MOST_CELLS
    assert set(parts.held.labels) == set(parts.references.labels) == {"a", "b", "c"}
    assert set(parts.held.ids).isdisjoint(parts.train.ids)


def test_groups_and_unseen_classes():
    data = walks()
    parts = divide(data, 0.2, data.groups, 0)
    assert set(parts.held.groups).isdisjoint(parts.train.groups)
    assert parts.groups == tuple(str(group) for group in parts.held.groups)
    assert divide(data, 0.2, None, 0).groups is None
    four = lw.Dataset(data.items, [str(i % 4) for i in range(60)])
    parts = divide(four, lw.HeldOutClasses(0.5), None, 0)
    assert set(parts.held.labels).isdisjoint(parts.train.labels)
    assert parts.references is None
    single = lw.Dataset(data.items[:12], ["a"] * 6 + ["b"] * 6, groups=["s"] * 6 + ["t"] * 6)
    with pytest.raises(ValueError, match="no class is in both parts"):
        divide(single, 0.5, single.groups, 0)
    # A class of one subject, who is held out, cannot be found.
    some = lw.Dataset(data.items[:12], ["a", "b"] * 4 + ["c"] * 4, groups=["s", "s", "t", "t"] * 2 + ["t"] * 4)
    parts = divide(some, 0.5, some.groups, 0)
    assert set(parts.held.labels) <= set(parts.train.labels)
