"""Losses of warps, against plain loops and dense sums."""

import math

import numpy as np
import pytest
import torch

import likewise as lw
from likewise import losses

POINT_LOSSES = [
    losses.WarpError(1),
    losses.WarpError(2),
    losses.MaxPositionError(1),
    losses.MaxPositionError(2),
    losses.MaxPositionError(1, temperature=0.3),
    losses.MaxPositionError(2, temperature=2.0),
]


def problem(seed, dimensions=()):
    """found, true, times (4, 6), lengths (4,): two to six points of four pairs."""
    generator = torch.Generator().manual_seed(seed)
    found, true = (torch.randn(4, 6, *dimensions, generator=generator, dtype=torch.float64) for _ in range(2))
    times = torch.rand(4, 6, generator=generator, dtype=torch.float64).cumsum(1)
    return found, true, times, torch.tensor([6, 2, 4, 5])


def each(found, true, lengths):
    """For every pair, the list of its points' errors."""
    for b, length in enumerate(lengths.tolist()):
        yield [math.dist(np.atleast_1d(found[b, k]), np.atleast_1d(true[b, k])) for k in range(length)]


def in_loops(loss, errors):
    powers = [error**loss.power for error in errors]
    if isinstance(loss, losses.WarpError):
        return sum(powers) / len(powers)
    if loss.temperature is None:
        return max(powers)
    return loss.temperature * math.log(sum(math.exp(p / loss.temperature) for p in powers) / len(powers))


@pytest.mark.parametrize("loss", POINT_LOSSES, ids=repr)
@pytest.mark.parametrize("dimensions", [(), (2,)], ids=["times", "positions"])
def test_points_in_loops(loss, dimensions):
    if dimensions and isinstance(loss, losses.WarpError):
        with pytest.raises(ValueError, match=r"WarpError: expected found of shape \(B, K\), got \(4, 6, 2\)"):
            loss(torch.zeros(4, 6, 2), torch.zeros(4, 6, 2))
        return
    found, true, _, lengths = problem(0, dimensions)
    values = [in_loops(loss, errors) for errors in each(found, true, lengths)]
    assert loss(found, true, lengths).item() == pytest.approx(sum(values) / 4)
    loss.reduction = "sum"
    assert loss(found, true, lengths).item() == pytest.approx(sum(values))
    loss.reduction = "mean"
    full = [in_loops(loss, errors) for errors in each(found, true, torch.full((4,), 6))]
    assert loss(found, true).item() == pytest.approx(sum(full) / 4)


def test_time_error_is_the_integral():
    found, true, times, lengths = problem(1)
    expected = []
    for b, length in enumerate(lengths.tolist()):
        at = np.linspace(times[b, 0].item(), times[b, length - 1].item(), 200_001)
        errors = np.interp(at, times[b, :length], (found - true)[b, :length])
        expected.append(np.abs(errors).mean())
    assert losses.TimeError()(found, true, times, lengths).item() == pytest.approx(np.mean(expected), rel=1e-4)
    evaluated = lw.evaluation.time_error(found, true, times, lengths)
    torch.testing.assert_close(losses.TimeError()(found, true, times, lengths), evaluated.mean())
    torch.testing.assert_close(losses.TimeError(reduction="sum")(found, true, times, lengths), evaluated.sum())


def test_time_error_by_hand():
    # From 2 late to 1 early over 3 s: triangles of 2 s and 1 s; then 1 early throughout for 1 s.
    found, true = torch.tensor([[2.0, 2.0, 3.0]]), torch.tensor([[0.0, 3.0, 4.0]])
    assert losses.TimeError()(found, true, torch.tensor([0.0, 3.0, 4.0])).item() == pytest.approx((2 + 0.5 + 1) / 4)


@pytest.mark.parametrize("loss", [*POINT_LOSSES, losses.TimeError()], ids=repr)
def test_derivatives(loss):
    found, true, times, lengths = problem(2)
    rest = (times, lengths) if isinstance(loss, losses.TimeError) else (lengths,)
    found.requires_grad_()
    assert torch.autograd.gradcheck(lambda found: loss(found, true, *rest), (found,))
    exact = true.clone().requires_grad_()
    loss(exact, true, *rest).backward()
    assert torch.equal(exact.grad, torch.zeros_like(exact))  # zero, and not NaN, where nothing is wrong


@pytest.mark.parametrize("loss", [*POINT_LOSSES, losses.TimeError()], ids=repr)
def test_padding_changes_nothing(loss):
    found, true, times, lengths = problem(3)
    rest = (times, lengths) if isinstance(loss, losses.TimeError) else (lengths,)
    expected = loss(found, true, *rest)
    padding = torch.arange(6) >= lengths[:, None]
    found, true, times = (value.masked_fill(padding, torch.nan) for value in (found, true, times))
    rest = (times, lengths) if isinstance(loss, losses.TimeError) else (lengths,)
    found.requires_grad_()
    value = loss(found, true, *rest)
    value.backward()
    assert torch.equal(value, expected)
    assert (found.grad[padding] == 0).all()
    assert found.grad.isfinite().all()


@pytest.mark.parametrize("loss", [*POINT_LOSSES, losses.TimeError()], ids=repr)
def test_odd_sizes(loss):
    times = (torch.arange(3.0),) if isinstance(loss, losses.TimeError) else ()
    empty = torch.zeros(0, 3, requires_grad=True)
    loss(empty, torch.zeros(0, 3), *times).backward()
    half = loss(torch.ones(2, 3, dtype=torch.bfloat16), torch.zeros(2, 3), *times)
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(1)
    strided = torch.randn(3, 2).T
    torch.testing.assert_close(loss(strided, 0 * strided, *times), loss(strided.contiguous(), 0 * strided, *times))


def test_the_maximum_shares_its_derivative_among_equals():
    found = torch.tensor([[2.0, 1.0, -2.0]], requires_grad=True)
    losses.MaxPositionError(1)(found, torch.zeros(1, 3)).backward()
    assert found.grad.tolist() == [[0.5, 0.0, -0.5]]


def test_a_low_temperature_is_the_maximum():
    found, true, _, lengths = problem(4, (3,))
    sharp = losses.MaxPositionError(1, temperature=1e-4)(found, true, lengths)
    assert sharp.item() == pytest.approx(losses.MaxPositionError(1)(found, true, lengths).item(), abs=1e-3)


def test_a_warp_is_learned_through():
    y = torch.sin(torch.linspace(0, 6, 30, dtype=torch.float64))[None, :, None].requires_grad_()
    x, times = y.detach()[:, :20] + 0.1, torch.linspace(0.1, 0.9, 5, dtype=torch.float64)
    warp = lw.GDTW(reg=0.01).warp(x, y)
    losses.TimeError()(warp(times), times[None] ** 1.1, times).backward()
    assert y.grad.isfinite().all()
    assert y.grad.abs().sum() > 0


def test_bad_input_is_refused():
    times = torch.arange(3.0)
    with pytest.raises(ValueError, match=r"TimeError: found is \(1, 3\), but true is \(1, 2\)"):
        losses.TimeError()(times[None], times[None, :2], times)
    with pytest.raises(ValueError, match=r"TimeError: times\[0\] do not increase"):
        losses.TimeError()(times[None], times[None], times.flip(0))
    with pytest.raises(ValueError, match=r"TimeError: expected times of shape \(1, 3\) or \(K,\), got \(4,\)"):
        losses.TimeError()(times[None], times[None], torch.arange(4.0))
    with pytest.raises(ValueError, match="TimeError: lengths must be at least 2"):
        losses.TimeError()(times[None], times[None], times, torch.tensor([1]))
    with pytest.raises(ValueError, match="two change points or more"):
        losses.TimeError()(times[None, :1], times[None, :1], times[:1])
    with pytest.raises(TypeError, match=r"MaxPositionError: expected found to be a torch\.Tensor, got list"):
        losses.MaxPositionError()([[1.0]], [[1.0]])
    with pytest.raises(ValueError, match="MaxPositionError: expected found with at least one point"):
        losses.MaxPositionError()(torch.zeros(1, 0), torch.zeros(1, 0))
    with pytest.raises(ValueError, match="power"):
        losses.WarpError(3)
    with pytest.raises(ValueError, match="temperature must be positive"):
        losses.MaxPositionError(temperature=0)
    with pytest.raises(ValueError, match="expected reduction to be 'mean' or 'sum', got 'max'"):
        losses.WarpError(reduction="max")
    with pytest.raises(TypeError, match="lengths to be an int64 tensor"):
        losses.WarpError()(times[None], times[None], [3])


def test_repr():
    assert repr(losses.MaxPositionError()) == "MaxPositionError(reduction=mean, power=2, temperature=None)"
