"""Augmentations, against their plans: x^ = plan.T @ x."""

import numpy as np
import pytest
import torch

from likewise import Batch
from likewise.data.augment import RandomBlur, RandomBlurOrMerge, RandomMerge
from likewise.testing import assert_close

KINDS = [RandomBlur(), RandomBlur(five=0), RandomBlur(five=1), RandomMerge(), RandomBlurOrMerge()]
LENGTHS = [1, 2, 3, 4, 5, 6, 9, 33]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def plan_of(augment, length, seed=0):
    return torch.from_numpy(augment.plan(length, np.random.default_rng(seed)))


@pytest.mark.parametrize("augment", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_plan_reproduces_the_sequence(augment, dtype):
    x = Batch.from_list([torch.randn(n, 3, dtype=dtype) for n in LENGTHS])
    x.values[~x.mask] = torch.nan
    before = x.values.clone()
    for seed in range(10):
        augmented = augment(x, seeded(seed))
        assert torch.equal(x.values.nan_to_num(), before.nan_to_num())
        assert augmented.batch.dtype == dtype
        for b, n in enumerate(LENGTHS):
            made = augmented.batch[b]
            plan = augmented.plans[b, :n, : len(made)]
            assert_close(made, plan.T @ x[b], 1e-6, "x^ = plan.T x")
            assert_close(plan.sum(0), torch.ones(len(made), dtype=dtype), 1e-6, "columns")
            assert (plan >= 0).all()
            assert augmented.plans[b, n:].abs().sum() == 0
            assert augmented.plans[b, :, len(made) :].abs().sum() == 0
            assert made.abs().sum() > 0  # no sequence of zeros, as in the published code


def test_short_sequences_are_copied_or_blurred_by_three():
    for augment in KINDS:
        for n in (1, 2):
            assert torch.equal(plan_of(augment, n).float(), torch.eye(n))
    for augment in (RandomBlur(five=1), RandomBlurOrMerge(merge=1, five=1)):
        assert plan_of(augment, 3).shape == (3, 1)
        assert plan_of(augment, 4).shape == (4, 2)


def test_windows_of_a_blur():
    for seed in range(20):
        three = plan_of(RandomBlur(five=0), 20, seed)
        column = three[:3, 0]
        assert 0.55 <= column[1] <= 0.9
        assert column[0] == column[2]
        stride = int(three[:, 1].nonzero()[0])
        assert stride in (1, 2, 3)
        assert three.shape[1] == (20 - 3) // stride + 1
        outer, inner, middle, other, last = plan_of(RandomBlur(five=1), 20, seed)[:5, 0]
        assert 0.33 <= middle <= 0.5
        assert inner == other >= 0.16
        assert outer == last >= 0


def test_a_merge_cuts_into_parts():
    counts = set()
    for seed in range(60):
        plan = plan_of(RandomMerge(), 10, seed)
        counts.add(plan.shape[1])
        assert ((plan > 0).sum(1) == 1).all()  # every frame goes to one part
        assert (plan.argmax(1).diff() >= 0).all()  # and parts follow each other
    assert counts == {5, 6, 7, 8}


def test_half_are_merged_and_a_fifth_blurred_by_five():
    kinds = {"merge": 0, 3: 0, 5: 0}
    for seed in range(600):
        plan = plan_of(RandomBlurOrMerge(), 20, seed)
        once = ((plan > 0).sum(1) == 1).all()
        sizes = (plan > 0).sum(0)
        kinds["merge" if once and not (sizes == sizes[0]).all() else int(sizes[0])] += 1
    assert abs(kinds["merge"] / 600 - 0.5) < 0.1
    assert abs(kinds[5] / 600 - 0.2) < 0.07


def test_the_same_seed_gives_the_same():
    x = torch.randn(4, 12, 2)
    a, b = (RandomBlurOrMerge()(x, seeded(3)) for _ in range(2))
    assert torch.equal(a.plans, b.plans)
    assert a.batch == b.batch


def test_an_empty_batch_stays_empty():
    augmented = RandomBlurOrMerge()(torch.empty(0, 5, 2))
    assert len(augmented.batch) == 0
    assert augmented.plans.shape[0] == 0


def test_gradients_flow_to_the_original():
    x = torch.randn(2, 8, 3, requires_grad=True)
    augmented = RandomMerge()(x, seeded())
    (grad,) = torch.autograd.grad(augmented.batch.values.sum(), x)
    assert_close(grad, augmented.plans.sum(2)[..., None].expand(-1, -1, 3), 1e-6, "gradient")
