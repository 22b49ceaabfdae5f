import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from likewise.data.split import HeldOutClasses, split_items


@given(
    labels=st.lists(st.sampled_from("abcde"), min_size=6, max_size=80),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 100),
)
def test_every_item_is_in_one_part_and_every_class_stays(labels, share, seed):
    kept, out = split_items("op", labels, len(labels), share, seed=seed)
    assert sorted([*kept, *out]) == list(range(len(labels)))
    assert {labels[i] for i in kept} == set(labels)
    assert (np.diff(kept) > 0).all()
    assert (np.diff(out) > 0).all()
    room = len(labels) - len(set(labels))  # a class keeps one item
    assert len(out) <= min(max(1, round(share * len(labels))), room)
    for name in set(labels):
        exact = share * labels.count(name)
        held = sum(labels[i] == name for i in out)
        assert held <= exact + 2


def test_a_share_of_each_class():
    labels = np.repeat(np.arange(10), 50)
    _, out = split_items("op", labels, 500, 0.2)
    assert np.bincount(labels[out]).tolist() == [10] * 10


def test_classes_of_two_give_the_right_total():
    _, out = split_items("op", np.repeat(np.arange(100), 2), 200, 0.1)
    assert len(out) == 20  # of 20 of the classes, and not of every class, nor of none


def test_held_out_classes():
    labels = np.repeat([f"class {i}" for i in range(20)], 3)
    kept, out = HeldOutClasses(0.25, seed=1).split(labels)
    assert len(set(labels[out])) == 5
    assert not set(labels[out]) & set(labels[kept])
    assert len(kept) + len(out) == 60
    assert (
        len(set(labels[HeldOutClasses(0.01).split(labels)[1]])) == 2
    )  # with one class alone, every neighbour would be correct
    with pytest.raises(ValueError, match="2 of 3 classes would be held out; training needs two"):
        HeldOutClasses(0.2).split([0, 1, 2])
    with pytest.raises(TypeError, match="expected share to be a number"):
        HeldOutClasses("0.2")
    with pytest.raises(ValueError, match="seed must be a whole number of 0 or more"):
        HeldOutClasses(0.2, -1)


def test_impossible_splits():
    with pytest.raises(ValueError, match="a split needs at least two items, got 1"):
        split_items("op", [0], 1, 0.5)
    with pytest.raises(ValueError, match="every class has only one item"):
        split_items("op", [0, 1, 2], 3, 0.5)
