import json
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from likewise.data.samplers import BatchSampler, ClassBalanced, HardBatch, MPerClass, Shuffled

LABELS = np.repeat([3, 7, 8, 20, 21, 40], [9, 4, 6, 12, 5, 8])


def shuffled(**options):
    return Shuffled(len(LABELS), 8, **options)


def balanced(**options):
    return ClassBalanced(LABELS, 8, **options)


def per_class(**options):
    return MPerClass(LABELS, 8, 2, **options)


def hard(**options):
    return HardBatch(LABELS, 8, 2, **options)


every = pytest.mark.parametrize("make", [shuffled, balanced, per_class, hard])


def distances(seed=0):
    return torch.rand(len(LABELS), len(LABELS), generator=torch.Generator().manual_seed(seed))


@every
def test_an_epoch_has_as_many_batches_as_it_says(make):
    sampler = make()
    batches = list(sampler)
    assert len(batches) == len(sampler) > 0
    for batch in batches:
        assert isinstance(batch, list)
        assert all(type(item) is int and 0 <= item < len(LABELS) for item in batch)


@every
def test_the_seed_and_the_epoch_decide(make):
    assert list(make()) == list(make())
    assert list(make()) != list(make(seed=1))
    sampler = make()
    epochs = [list(sampler), list(sampler), list(sampler)]
    assert epochs[0] != epochs[1] != epochs[2]
    for epoch in (2, 0, 1):
        sampler.set_epoch(epoch)
        assert list(sampler) == epochs[epoch]
    # Different seeds and epochs give different batches.
    assert list(make(seed=1)) not in epochs


@every
@pytest.mark.parametrize("stop", [0, 1, 3, "all"])
def test_resuming_gives_the_remaining_batches(make, stop):
    sampler = make(seed=4)
    list(sampler)
    stop = len(sampler) if stop == "all" else stop
    batches = iter(sampler)
    for _ in range(stop):
        next(batches)
    if stop == 0:
        sampler.set_epoch(1)
    state = sampler.state_dict()
    rest, following = (list(batches) if stop else list(sampler)), list(sampler)
    again = make()
    again.load_state_dict(state)
    if stop < len(sampler):
        again.set_epoch(1)  # as trainers do when they resume within an epoch
        assert list(again) == rest
    assert list(again) == following
    assert list(again) == list(sampler)


def test_the_state_is_plain_numbers():
    sampler = shuffled()
    next(iter(sampler))
    state = json.loads(json.dumps(sampler.state_dict()))
    assert state == {"seed": 0, "epoch": 0, "position": 1, "batches": 6}


@every
def test_leaving_an_epoch_early_moves_on_to_the_next(make):
    sampler, whole = make(), make()
    first, second = list(whole), list(whole)
    assert next(iter(sampler)) == first[0]
    assert list(sampler) == second


@every
@pytest.mark.parametrize("world_size", [2, 4])
def test_processes_share_each_batch(make, world_size):
    alone = make(seed=2)
    ranks = [make(seed=2, rank=rank, world_size=world_size) for rank in range(world_size)]
    for sampler in (alone, *ranks):
        if isinstance(sampler, HardBatch):
            sampler.update(distances(), LABELS)
    for _ in range(2):
        shares = [list(sampler) for sampler in ranks]
        for i, batch in enumerate(alone):
            assert [item for share in shares for item in share[i]] == batch
            sizes = [len(share[i]) for share in shares]
            assert max(sizes) - min(sizes) <= 1
            assert min(sizes) > 0


@every
def test_a_run_can_go_on_with_another_number_of_processes(make):
    alone, one = make(), make(rank=1, world_size=2)
    batches = iter(alone)
    next(batches)
    one.load_state_dict(alone.state_dict())
    assert list(one) == [batch[len(batch) // 2 :] for batch in batches]


@every
@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_data_loader(make, workers):
    loader = DataLoader(TensorDataset(torch.arange(len(LABELS))), batch_sampler=make(), num_workers=workers)
    assert len(loader) == len(make())
    expected = make()
    for _ in range(2):
        assert [batch.tolist() for (batch,) in loader] == list(expected)


def test_a_data_loader_with_workers_reads_ahead():
    sampler, expected = shuffled(), list(shuffled())
    loader = iter(DataLoader(TensorDataset(torch.arange(len(LABELS))), batch_sampler=sampler, num_workers=1))
    next(loader)
    assert sampler.position > 1
    again = shuffled()
    again.load_state_dict(sampler.state_dict(position=1))
    assert list(again) == expected[1:]


@every
def test_labels_and_states_that_do_not_fit_are_refused(make):
    sampler = make()
    state = sampler.state_dict()
    with pytest.raises(ValueError, match=f"{sampler.name}: the state lacks epoch, seed"):
        sampler.load_state_dict({name: value for name, value in state.items() if name not in ("epoch", "seed")})
    with pytest.raises(ValueError, match=f"the state has 99 batches per epoch, this sampler has {len(sampler)}"):
        sampler.load_state_dict(state | {"batches": 99})
    with pytest.raises(ValueError, match="position must be a whole number of 0 or more, got -1"):
        sampler.load_state_dict(state | {"position": -1})
    with pytest.raises(ValueError, match=r"epoch must be a whole number of 0 or more, got 0\.5"):
        sampler.set_epoch(0.5)


@every
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seed": -1}, ValueError, "seed must be a whole number of 0 or more, got -1"),
        ({"seed": "0"}, TypeError, "expected seed to be a number, got str"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank must be between 0 and 1, got 2"),
        ({"world_size": 0}, ValueError, "world_size must be a whole number of 1 or more, got 0"),
        ({"world_size": 3}, ValueError, "batch_size 8 must be a multiple of world_size 3"),
    ],
)
def test_bad_settings_are_refused(make, options, error, message):
    with pytest.raises(error, match=message):
        make(**options)


@pytest.mark.parametrize("kind", [ClassBalanced, MPerClass, HardBatch])
@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ([], ValueError, "there are no labels"),
        ([[0, 1]], ValueError, r"expected labels of shape \(N,\), got \(1, 2\)"),
        ([0.5, float("nan")], ValueError, r"labels\[1\] is NaN"),
        ([None, 1], ValueError, r"labels\[0\] is missing"),
    ],
)
def test_bad_labels_are_refused(kind, labels, error, message):
    with pytest.raises(error, match=f"{kind.__name__}: {message}"):
        kind(labels, 4, **({} if kind is ClassBalanced else {"per_class": 2}))


def test_a_sampler_of_ones_own_needs_one_method():
    class Reversed(BatchSampler):
        batches = 2

        def draw(self, random):
            yield from np.arange(4)[::-1].reshape(2, 2)

    assert list(Reversed(2, seed=0, rank=0, world_size=1)) == [[3, 2], [1, 0]]


@pytest.mark.parametrize(("size", "batch_size", "sizes"), [(7, 3, [3, 3, 1]), (6, 3, [3, 3]), (2, 5, [2]), (1, 1, [1])])
def test_shuffled_gives_every_item_once(size, batch_size, sizes):
    batches = list(Shuffled(size, batch_size))
    assert [len(batch) for batch in batches] == sizes
    assert sorted(item for batch in batches for item in batch) == list(range(size))


def test_shuffled_without_the_last():
    sampler = Shuffled(7, 3, drop_last=True)
    assert [len(batch) for batch in sampler] == [3, 3]
    seen = Counter(item for _ in range(30) for batch in sampler for item in batch)
    assert len(seen) == 7  # another item is left out each time


def test_shuffled_refuses_a_batch_that_leaves_a_process_without_items():
    with pytest.raises(ValueError, match="the last batch has 1 items for 2 processes; pass drop_last=True"):
        Shuffled(9, 4, world_size=2)
    assert len(Shuffled(9, 4, world_size=2, drop_last=True)) == 2
    assert [len(batch) for batch in Shuffled(7, 4, rank=1, world_size=2)] == [2, 2]
    with pytest.raises(
        ValueError, match="3 items are fewer than one batch of 4, and drop_last=True would leave them out"
    ):
        Shuffled(3, 4, drop_last=True)
    with pytest.raises(ValueError, match="size must be a whole number of 1 or more, got 0"):
        Shuffled(0, 4)


def test_classes_are_balanced_in_every_batch_and_over_all():
    sampler = ClassBalanced(LABELS, 16, batches=30)
    total = Counter()
    for batch in sampler:
        counts = Counter(LABELS[batch].tolist())
        assert len(counts) == 6
        assert max(counts.values()) - min(counts.values()) <= 2
        total += counts
    assert max(total.values()) - min(total.values()) <= 1


def test_members_come_once_before_any_comes_again():
    items = [item for batch in ClassBalanced(LABELS, 8, batches=60) for item in batch]
    for label in np.unique(LABELS):
        mine = [item for item in items if LABELS[item] == label]
        size = int((label == LABELS).sum())
        for first in range(0, len(mine) - size, size):
            assert len(set(mine[first : first + size])) == size


def test_a_class_with_one_member_is_repeated():
    batch = next(iter(ClassBalanced([5] + [6] * 9, 6)))
    assert batch.count(0) == 3


def test_each_batch_has_the_same_number_of_each_class():
    for count in (1, 2, 4):
        for batch in MPerClass(LABELS, 4 * count, count, batches=40):
            assert len(set(batch)) == len(batch)
            assert Counter(Counter(LABELS[batch].tolist()).values()) == {count: 4}


def test_classes_come_equally_often_and_members_too():
    batches = list(MPerClass(LABELS, 8, 2, batches=30))
    classes = Counter(LABELS[batch[::2]].tolist()[i] for batch in batches for i in range(4))
    assert set(classes.values()) == {20}
    items = Counter(item for batch in batches for item in batch)
    for label in np.unique(LABELS):
        counts = [items[i] for i in np.flatnonzero(label == LABELS)]
        assert max(counts) - min(counts) <= 1


def test_small_classes_are_refused_or_repeated():
    labels = [0, 0, 0, 1, 2, 2]
    with pytest.raises(
        ValueError,
        match="MPerClass: class 1 has 1 of the 2 members that a batch needs; leave it out, or pass repeat=True",
    ):
        MPerClass(labels, 4, 2)
    sampler = MPerClass(labels, 6, 2, repeat=True)
    assert [batch.count(3) for batch in sampler] == [2]
    assert next(iter(MPerClass([0, 1, 1], 10, 5, repeat=True))).count(0) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 9, "per_class": 2}, "batch_size 9 must be a multiple of per_class 2"),
        ({"batch_size": 28, "per_class": 4}, "a batch needs 7 classes, but there are 6"),
        ({"batch_size": 8, "per_class": 0}, "per_class must be a whole number of 1 or more, got 0"),
        ({"batch_size": 8, "per_class": 2, "batches": 0}, "batches must be a whole number of 1 or more, got 0"),
    ],
)
def test_batches_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=f"MPerClass: {message}"):
        MPerClass(LABELS, **options)


def test_labels_may_be_names_or_tensors():
    names = np.array([f"class {label}" for label in LABELS])
    assert list(MPerClass(torch.tensor(LABELS), 8, 2)) == list(MPerClass(LABELS.tolist(), 8, 2))
    for batch in MPerClass(names, 8, 2):
        assert set(Counter(names[batch]).values()) == {2}


def on_a_line(labels):
    """Distances between items on a line, whose class is their position."""
    places = torch.as_tensor(labels, dtype=torch.float32)
    return (places[:, None] - places).abs()


def test_hard_batches_hold_neighbours():
    sampler = HardBatch(LABELS, 6, 2, hardness=1.0, batches=24)
    sampler.update(on_a_line(LABELS), LABELS)
    closest = {3: {7, 8}, 7: {8, 3}, 8: {7, 3}, 20: {21, 8}, 21: {20, 8}, 40: {21, 20}}
    firsts = Counter()
    for batch in sampler:
        first, *others = LABELS[batch[::2]].tolist()
        assert set(others) == closest[first]
        firsts[first] += 1
    assert set(firsts.values()) == {4}


def test_a_share_of_the_batch_is_hard_and_the_rest_random():
    sampler = HardBatch(LABELS, 10, 2, hardness=0.5, batches=60)
    sampler.update(on_a_line(LABELS), LABELS)
    others = {first: set() for first in np.unique(LABELS).tolist()}
    for batch in sampler:
        first, *rest = LABELS[batch[::2]].tolist()
        nearest = sorted(set(LABELS.tolist()) - {first}, key=lambda label: abs(label - first))[:2]
        assert set(nearest) <= set(rest)
        assert len({first, *rest}) == 5
        others[first] |= set(rest)
    assert all(len(seen) == 5 for seen in others.values())


def test_without_distances_or_hardness_batches_are_random():
    for sampler in (HardBatch(LABELS, 8, 2, batches=40), HardBatch(LABELS, 8, 2, batches=40, hardness=0)):
        groups = set()
        for batch in sampler:
            assert Counter(Counter(LABELS[batch].tolist()).values()) == {2: 4}
            groups.add(frozenset(LABELS[batch].tolist()))
        assert len(groups) > 8


def test_what_is_learned_is_the_mean_in_both_directions():
    sampler = HardBatch([0, 0, 1, 1, 2, 2], 4, 2, momentum=0.75)
    D = torch.tensor([[5.0, 1.0, 2.0], [7.0, 8.0, 9.0]])
    sampler.update(D, [0, 1], [0, 1, 1])
    known = sampler.state_dict()["known"]
    assert known[0, 1] == known[1, 0] == pytest.approx((1 + 2 + 7) / 3)
    assert known[0, 2] == known[0, 0] == torch.inf
    sampler.update(torch.tensor([[3.0, 6.0]]), [1], [0, 2])
    known = sampler.state_dict()["known"]
    assert known[0, 1].item() == pytest.approx(0.75 * 10 / 3 + 0.25 * 3)
    assert known[1, 2] == 6
    sampler.update(torch.empty(0, 0), [])
    sampler.update(torch.ones(2, 2), [0, 0])
    assert torch.equal(sampler.state_dict()["known"], known)


def test_an_update_counts_from_the_next_epoch_on_and_resumes():
    sampler, quiet, state = hard(hardness=1.0), hard(hardness=1.0), {}
    for i, (batch, expected) in enumerate(zip(sampler, quiet, strict=True)):
        assert batch == expected
        sampler.update(on_a_line(LABELS), LABELS)
        if i == 1:
            state = sampler.state_dict()
    assert list(sampler) != list(quiet)
    first = list(hard(hardness=1.0))
    again = hard(hardness=1.0)
    again.load_state_dict(state)
    assert list(again) == first[2:]
    again.update(on_a_line(LABELS), LABELS)
    sampler.set_epoch(1)
    assert list(again) == list(sampler)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.zeros(2, 2), [3, 4]), ValueError, "row_labels hold 4, which is not one of the classes"),
        ((torch.zeros(2, 2), [3, 99]), ValueError, "row_labels hold 99, which is not one of the classes"),
        ((torch.zeros(2, 2), [3]), ValueError, r"expected row_labels of shape \(2,\), got \(1,\)"),
        ((torch.zeros(2, 3), [3, 7]), ValueError, r"expected col_labels of shape \(3,\), got \(2,\)"),
        ((torch.zeros(2), [3, 7]), ValueError, r"expected D of shape \(N, M\), got \(2,\)"),
        ((torch.zeros(2, 2).long(), [3, 7]), TypeError, "expected D to be floating point"),
        ((torch.full((2, 2), torch.nan), [3, 7]), ValueError, "D holds distances that are not finite"),
    ],
)
def test_bad_distances_are_refused(arguments, error, message):
    with pytest.raises(error, match=f"HardBatch: {message}"):
        hard().update(*arguments)


def test_bad_hard_batches_are_refused():
    with pytest.raises(ValueError, match="HardBatch: hardness must be between 0 and 1, got 2"):
        hard(hardness=2)
    with pytest.raises(ValueError, match=r"HardBatch: momentum must be between 0 and 1, got -0\.1"):
        hard(momentum=-0.1)
    with pytest.raises(ValueError, match="HardBatch: the state has 2 classes, this sampler has 6"):
        hard().load_state_dict(hard().state_dict() | {"known": torch.zeros(2, 2)})
