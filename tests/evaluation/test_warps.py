"""Errors of warps, against dense quadrature and plain loops."""

import pytest
import torch

from likewise.evaluation.warps import (
    position_error,
    share_below,
    time_deviation,
    time_error,
    trajectory_error,
)
from likewise.testing import assert_close


def problem(seed=0, batch=4, points=6):
    generator = torch.Generator().manual_seed(seed)
    times = (torch.rand(batch, points, generator=generator, dtype=torch.float64) + 0.1).cumsum(1)
    found = times + torch.randn(batch, points, generator=generator, dtype=torch.float64)
    return found, times.clone(), times


def dense(found, true, times, power):
    """The integral of |e|^power over time by the duration, by quadrature; one item."""
    total = 0.0
    for k in range(len(times) - 1):
        a = torch.linspace(0, 1, 200_001, dtype=torch.float64)
        e = (found[k] - true[k]) * (1 - a) + (found[k + 1] - true[k + 1]) * a
        total += torch.trapezoid(e.abs() ** power, a) * (times[k + 1] - times[k])
    return total / (times[-1] - times[0])


@pytest.mark.parametrize("seed", range(3))
def test_integrals_are_exact(seed):
    found, true, times = problem(seed)
    error = torch.stack([dense(*item, 1) for item in zip(found, true, times, strict=True)])
    deviation = torch.stack([dense(*item, 2) for item in zip(found, true, times, strict=True)]).sqrt()
    assert_close(time_error(found, true, times), error, 1e-8, "TimeErr")
    assert_close(time_deviation(found, true, times), deviation, 1e-8, "TimeDev")


def test_times_may_be_shared():
    found, true, times = problem()
    shared = times[0].expand_as(times)
    assert torch.equal(time_error(found, true, times[0]), time_error(found, true, shared))


@pytest.mark.parametrize("measure", [time_error, time_deviation])
def test_padding_changes_nothing(measure):
    found, true, times = problem()
    lengths = torch.tensor([6, 2, 4, 3])
    expected = [
        measure(f[None, :n], t[None, :n], s[None, :n]) for f, t, s, n in zip(found, true, times, lengths, strict=True)
    ]
    beyond = torch.arange(6) >= lengths[:, None]
    padded = [t.masked_fill(beyond, torch.nan) for t in (found, true, times)]
    padded[0].requires_grad_()
    value = measure(*padded, lengths)
    assert_close(value, torch.cat(expected), 1e-12, "padded")
    (grad,) = torch.autograd.grad(value.sum(), padded[0])
    assert grad.isfinite().all()
    assert (grad[beyond] == 0).all()


@pytest.mark.parametrize("measure", [time_error, time_deviation])
def test_they_are_losses(measure):
    found, true, times = problem()
    assert torch.autograd.gradcheck(lambda f: measure(f, true, times), found.requires_grad_())


@pytest.mark.parametrize("measure", [time_error, time_deviation])
def test_no_error_has_no_gradient(measure):
    _, true, times = problem()
    found = true.clone().requires_grad_()
    value = measure(found, true, times)
    assert (value == 0).all()
    assert (torch.autograd.grad(value.sum(), found)[0] == 0).all()


def test_positions():
    found, true = torch.randn(3, 5, 2), torch.randn(3, 5, 2)
    apart = [[float((f - t).norm()) for f, t in zip(a, b, strict=True)] for a, b in zip(found, true, strict=True)]
    assert_close(position_error(found, true), torch.tensor([max(row) for row in apart]), 1e-6, "largest")
    mean = torch.tensor([(sum(d * d for d in row) / 5) ** 0.5 for row in apart])
    assert_close(trajectory_error(found, true), mean, 1e-6, "mean")
    lengths = torch.tensor([1, 5, 3])
    padded = found.masked_fill((torch.arange(5) >= lengths[:, None])[..., None], torch.nan)
    expected = torch.tensor([max(row[:n]) for row, n in zip(apart, lengths, strict=True)])
    assert_close(position_error(padded, true, lengths), expected, 1e-6, "padded")
    equal = true.clone().requires_grad_()
    (grad,) = torch.autograd.grad(position_error(equal, true).sum(), equal)
    assert grad.isfinite().all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f, t, s: time_error(f, t[:, :3], s), r"time_error: found is \(4, 6\), but true is \(4, 3\)"),
        (lambda f, t, s: time_error(f, t, s[:, :2]), r"time_error: expected times of shape \(4, 6\) or \(K,\)"),
        (lambda f, t, s: time_error(f, t, s.flip(1)), r"time_error: times\[0\] do not increase"),
        (lambda f, t, s: time_error(f[:, :1], t[:, :1], s[:, :1]), "time_error: expected found of shape .* at least 2"),
        (lambda f, t, s: time_deviation(f, t, s, torch.tensor([1, 2, 2, 2])), "lengths must be at least 2"),
        (lambda f, t, s: position_error(f[None, None], t[None, None]), "position_error: expected found of shape"),
        (lambda f, t, s: share_below(f, (1,)), r"share_below: expected errors of shape \(B,\)"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(*problem())
