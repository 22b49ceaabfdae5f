import numpy as np
import pytest
import torch

from likewise.data.episodes import Episodes
from tests.data.test_samplers import LABELS

SUBJECTS = np.arange(len(LABELS)) % 3


def episodes(**options):
    return Episodes(LABELS, **{"ways": 3, "shots": 1, "queries": 2, "batches": 4} | options)


@pytest.mark.parametrize("groups", [None, SUBJECTS])
@pytest.mark.parametrize(("shots", "queries", "per_batch"), [(1, 2, 1), (2, 1, 3), (1, 3, 2)])
def test_every_episode_is_one(groups, shots, queries, per_batch):
    sampler = episodes(shots=shots, queries=queries, per_batch=per_batch, groups=groups, batches=30)
    batches = list(sampler)
    assert len(batches) == len(sampler) == 30
    seen = set()
    for batch in batches:
        items = np.array(batch)
        assert len(items) == sampler.batch_size == per_batch * 3 * (shots + queries)
        for support, query in zip(items[sampler.support], items[sampler.query], strict=True):  # (ways, shots), ...
            assert support.shape == (3, shots)
            assert query.shape == (3, queries)
            classes = LABELS[support[:, 0]]
            assert len(set(classes)) == 3
            assert (LABELS[support] == classes[:, None]).all()
            assert (LABELS[query] == classes[:, None]).all()
            assert len({*support.flat, *query.flat}) == 3 * (shots + queries)
            seen |= {*support.flat, *query.flat}
            if groups is not None:
                for shown, asked in zip(groups[support], groups[query], strict=True):
                    assert not set(shown) & set(asked)
    assert len(seen) == len(LABELS)


@pytest.mark.parametrize("options", [{}, {"groups": SUBJECTS, "per_batch": 2}])
def test_it_is_seeded_and_goes_on_in_the_middle(options):
    sampler = episodes(**options)
    first, second = list(sampler), list(sampler)
    assert first != second
    assert first == list(episodes(**options)) != list(episodes(seed=1, **options))
    again = episodes(**options)
    batches = iter(again)
    assert next(batches) == first[0]
    other = episodes(**options)
    other.load_state_dict(again.state_dict())
    assert list(other) == first[1:]
    other.set_epoch(1)
    assert list(other) == second


def test_take_is_the_same_for_everyone_and_moves_nothing():
    sampler = episodes(shots=2, groups=SUBJECTS)
    expected = list(episodes(shots=2, groups=SUBJECTS))
    support, query = sampler.take(50)
    assert (support.shape, query.shape, support.dtype) == ((50, 3, 2), (50, 3, 2), torch.int64)
    assert all(torch.equal(a, b) for a, b in zip(sampler.take(50), (support, query), strict=True))
    assert list(sampler) == expected
    assert (LABELS[support] == LABELS[support[:, :, :1]]).all()
    assert (LABELS[query] == LABELS[support[:, :, :1]]).all()


def test_classes_and_items_come_equally_often():
    support, query = Episodes(np.repeat([0, 1, 2, 3], 5), ways=2, shots=1, queries=1).take(4000)
    assert np.bincount(support.flatten(), minlength=20) == pytest.approx(400, rel=0.2)
    assert np.bincount(query.flatten(), minlength=20) == pytest.approx(400, rel=0.2)


def test_unequal_groups_that_can_just_be_parted():
    # Of class 0 subject 0 has three items and subject 1 has one: two shots can only be subject 0's.
    labels, subjects = [0, 0, 0, 0, 1, 1, 1, 1], ["a", "a", "a", "b", "a", "a", "b", "b"]
    for batch in Episodes(labels, ways=2, shots=2, queries=1, groups=subjects):
        items = np.array(batch).reshape(2, 3)
        own = items[items[:, 0] < 4][0]
        assert set(own[:2]) < {0, 1, 2}
        assert own[2] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ways": 7}, "Episodes: 7 ways need 7 classes, but there are 6; lower ways"),
        ({"ways": 1}, "ways must be a whole number of 2 or more, got 1"),
        ({"shots": 0}, "shots must be a whole number of 1 or more, got 0"),
        ({"queries": 4}, "Episodes: class 7 has 4 items, too few for 1 shot and 4 queries; leave it out"),
        ({"groups": SUBJECTS[:5]}, r"expected groups of shape \(44,\), got \(5,\)"),
        (
            {"groups": np.zeros(44, int)},
            "the groups of class 3 cannot be split into 1 shot and 2 queries of different groups",
        ),
        (
            {"shots": 2, "queries": 2, "groups": np.array([0, 1, 1, 1] * 11)},
            "the groups of class 7 cannot be split into 2 shots and 2 queries",
        ),
    ],
)
def test_undrawable_inputs_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        episodes(**options)
