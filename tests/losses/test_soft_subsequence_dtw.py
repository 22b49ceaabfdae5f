"""Soft subsequence DTW as a loss, against enumerated paths and against soft-DTW of padded costs."""

import math

import pytest
import torch

import likewise as lw
from likewise.losses.soft_subsequence_dtw import SoftSubsequenceDTW
from likewise.ops.soft_dtw import soft_dtw_cost
from tests.losses.problems import paths


def by_enumeration(cost, gamma):
    """The loss of one pair, cost (Tx, Ty)."""
    rows, columns = cost.shape
    padded = [[0.0, *cost[i].tolist(), 0.0] for i in range(rows)]
    weights = [math.exp(-sum(padded[i][j] for i, j in path) / gamma) for path in paths(rows, columns + 2)]
    return -gamma * math.log(sum(weights))


@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_paths_in_loops(gamma):
    generator = torch.Generator().manual_seed(0)
    cost = torch.rand(5, 4, 3, generator=generator, dtype=torch.float64)
    x_lengths, y_lengths = torch.tensor([4, 1, 3, 1, 2]), torch.tensor([3, 3, 1, 1, 2])
    expected = [
        by_enumeration(cost[b, : x_lengths[b], : y_lengths[b]], gamma) for b in range(len(cost))
    ]  # fmt: skip
    assert SoftSubsequenceDTW(gamma, reduction="sum")(cost, x_lengths, y_lengths).item() == pytest.approx(
        sum(expected), rel=1e-12
    )
    assert SoftSubsequenceDTW(gamma)(cost.mT.contiguous().mT, x_lengths, y_lengths).item() == pytest.approx(
        sum(expected) / 5
    )


@pytest.mark.parametrize("gamma", [0.01, 1.0, 30.0])
def test_soft_dtw_of_costs_between_zeros(gamma):
    cost = 4 * torch.rand(3, 25, 10, generator=torch.Generator().manual_seed(1))
    expected = soft_dtw_cost(torch.nn.functional.pad(cost, (1, 1)), gamma=gamma).mean()
    assert torch.allclose(SoftSubsequenceDTW(gamma)(cost), expected, rtol=1e-5, atol=1e-5)


def test_subsequence_soft_dtw_but_for_its_ways_in_and_out():
    """A stretch within x has two ways in and two out, so that with little gamma both agree up to them."""
    x = torch.eye(6, dtype=torch.float64)[None]
    y = x[:, 2:4]
    found = SoftSubsequenceDTW(1e-3)(torch.cdist(x, y).square())
    expected = lw.SoftDTW(1e-3, subsequence=True)(y, x)
    assert found.item() == pytest.approx(expected.item() - 2e-3 * math.log(2), abs=1e-9)


def test_derivatives():
    cost = torch.rand(2, 4, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64).requires_grad_()
    lengths = torch.tensor([4, 2]), torch.tensor([1, 3])
    assert torch.autograd.gradcheck(lambda cost: SoftSubsequenceDTW(0.5)(cost, *lengths), cost)
    assert torch.autograd.gradgradcheck(lambda cost: SoftSubsequenceDTW(0.5)(cost, *lengths), cost)


def test_padding_changes_nothing():
    cost = torch.rand(2, 4, 5)
    x_lengths, y_lengths = torch.tensor([4, 2]), torch.tensor([3, 5])
    expected = SoftSubsequenceDTW()(cost, x_lengths, y_lengths)
    padding = torch.ones(2, 4, 5, dtype=torch.bool)
    padding[0, :, :3] = padding[1, :2] = False
    cost = cost.masked_fill(padding, torch.nan).requires_grad_()
    found = SoftSubsequenceDTW()(cost, x_lengths, y_lengths)
    found.backward()
    assert torch.equal(found, expected)
    assert cost.grad is not None
    assert (cost.grad[padding] == 0).all()
    assert cost.grad.isfinite().all()


def test_no_pairs_and_half_precision():
    cost = torch.zeros(0, 2, 3, requires_grad=True)
    SoftSubsequenceDTW()(cost).backward()
    assert SoftSubsequenceDTW()(torch.ones(1, 2, 2).half()).dtype == torch.float32


def test_bad_input_is_refused():
    cost = torch.rand(2, 3, 4)
    with pytest.raises(ValueError, match="SoftSubsequenceDTW: gamma must be positive"):
        SoftSubsequenceDTW(0)
    with pytest.raises(ValueError, match=r"SoftSubsequenceDTW: expected cost of shape \(B, Tx, Ty\), got \(3, 4\)"):
        SoftSubsequenceDTW()(cost[0])
    with pytest.raises(
        ValueError, match=r"SoftSubsequenceDTW: expected cost with at least one frame of each sequence, got \(2, 0, 4\)"
    ):
        SoftSubsequenceDTW()(cost[:, :0])
    with pytest.raises(ValueError, match=r"x_lengths\[1\] is 4; lengths must be between 1 and 3"):
        SoftSubsequenceDTW()(cost, torch.tensor([3, 4]))


def test_repr():
    assert repr(SoftSubsequenceDTW(0.5)) == "SoftSubsequenceDTW(reduction=mean, gamma=0.5)"
