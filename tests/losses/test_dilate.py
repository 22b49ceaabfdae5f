"""DILATE, against enumerated paths."""

import math

import pytest
import torch

import likewise as lw
from likewise import losses
from tests.losses.problems import paths


def by_enumeration(cost, penalty, gamma, alpha):
    """The loss of one pair, (Tx, Ty) each."""
    every = paths(*cost.shape)
    weights = [math.exp(-sum(cost[i, j].item() for i, j in path) / gamma) for path in every]
    shape = -gamma * math.log(sum(weights))
    timing = sum(w * sum(penalty[i, j].item() for i, j in path) for w, path in zip(weights, every, strict=True))
    return alpha * shape + (1 - alpha) * timing / sum(weights) / cost.numel()


@pytest.mark.parametrize("alpha", [0, 0.3, 1])
@pytest.mark.parametrize("given", [True, False], ids=["penalty", "delays"])
def test_paths_in_loops(alpha, given):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(3, steps, 2, generator=generator, dtype=torch.float64) for steps in (4, 5))
    x_lengths, y_lengths = torch.tensor([4, 1, 3]), torch.tensor([3, 5, 1])
    penalty = torch.rand(3, 4, 5, generator=generator, dtype=torch.float64)
    if not given:
        penalty = torch.tensor([[float((i - j) ** 2) for j in range(5)] for i in range(4)]).expand(3, -1, -1)
    alignment = lw.SoftDTW(gamma=0.7).align(lw.Batch(x, x_lengths), lw.Batch(y, y_lengths))
    found = losses.Dilate(alpha)(
        alignment.value, alignment.plan, penalty if given else None, x_lengths, y_lengths
    )  # fmt: skip
    expected = []
    for b, (rows, columns) in enumerate(zip(x_lengths.tolist(), y_lengths.tolist(), strict=True)):
        cost = torch.cdist(x[b, :rows], y[b, :columns]) ** 2
        expected.append(by_enumeration(cost, penalty[b, :rows, :columns], 0.7, alpha))
    assert found.item() == pytest.approx(sum(expected) / 3, rel=1e-9)
    total = losses.Dilate(alpha, reduction="sum")(alignment.value, alignment.plan, penalty, x_lengths, y_lengths)
    if given:
        assert total.item() == pytest.approx(sum(expected), rel=1e-9)


@pytest.mark.parametrize("alpha", [0, 0.4, 1])
def test_derivatives_go_through_the_second_one_of_soft_dtw(alpha):
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(2, steps, 1, generator=generator, dtype=torch.float64) for steps in (4, 3))
    penalty = torch.rand(4, 3, dtype=torch.float64)  # one for all pairs

    def loss(x, y):
        alignment = lw.SoftDTW(gamma=0.5).align(x, y)
        return losses.Dilate(alpha)(alignment.value, alignment.plan, penalty)

    assert torch.autograd.gradcheck(loss, (x.requires_grad_(), y.requires_grad_()))


def test_padding_changes_nothing():
    plan, penalty = torch.rand(2, 3, 4), torch.rand(2, 3, 4)
    x_lengths, y_lengths = torch.tensor([3, 1]), torch.tensor([2, 4])
    expected = losses.Dilate(0)(None, plan, penalty, x_lengths, y_lengths)
    padding = torch.ones(2, 3, 4, dtype=torch.bool)
    for b, (rows, columns) in enumerate([(3, 2), (1, 4)]):
        padding[b, :rows, :columns] = False
    plan, penalty = plan.masked_fill(padding, torch.nan).requires_grad_(), penalty.masked_fill(padding, torch.nan)
    value = losses.Dilate(0)(None, plan, penalty, x_lengths, y_lengths)
    value.backward()
    assert torch.equal(value, expected)
    assert (plan.grad[padding] == 0).all()


def test_no_pairs_and_half_precision():
    plan = torch.zeros(0, 2, 3, requires_grad=True)
    losses.Dilate()(torch.zeros(0), plan).backward()
    assert losses.Dilate()(torch.ones(1).half(), torch.ones(1, 2, 2).half()).dtype == torch.float32


def test_bad_input_is_refused():
    plan = torch.rand(2, 3, 4)
    with pytest.raises(ValueError, match="alpha must be between 0 and 1, got 2"):
        losses.Dilate(2)
    with pytest.raises(ValueError, match=r"Dilate: with alpha 0.5, the plan must not be None"):
        losses.Dilate()(torch.zeros(2), None)
    with pytest.raises(ValueError, match=r"Dilate: with alpha 1, the value must not be None"):
        losses.Dilate(1)(None, plan)
    with pytest.raises(ValueError, match=r"Dilate: there are 3 values and 2 plans"):
        losses.Dilate()(torch.zeros(3), plan)
    with pytest.raises(ValueError, match=r"Dilate: plan is \(2, 3, 4\), but penalty is \(2, 4, 3\)"):
        losses.Dilate()(torch.zeros(2), plan, plan.mT)
    with pytest.raises(ValueError, match=r"Dilate: expected plan of shape \(B, Tx, Ty\), got \(3, 4\)"):
        losses.Dilate()(torch.zeros(2), plan[0])
    with pytest.raises(ValueError, match=r"x_lengths\[1\] is 4; lengths must be between 1 and 3"):
        losses.Dilate()(torch.zeros(2), plan, None, torch.tensor([3, 4]))


def test_repr():
    assert repr(losses.Dilate(0)) == "Dilate(reduction=mean, alpha=0.0)"
