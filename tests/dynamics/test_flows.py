"""Flows against what is known of them: exact solutions, Lorenz's exponents, and thresholds of synchrony."""

import math

import pytest
import torch

from likewise.dynamics import (
    couple_flow,
    drive_response,
    flow,
    follow,
    lorenz,
    lyapunov,
    synchronization_error,
    transverse_lyapunov,
)

DT = 0.01


def starts(count, seed=0):
    """States on Lorenz's attractor."""
    x = torch.rand(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x = 30 * x + torch.tensor([-15.0, -15.0, 10.0])
    step = flow(lorenz, DT)
    for _ in range(1000):
        x = step(x)
    return x


def test_a_step_is_of_fourth_order():
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    errors = []
    for count in (10, 20):
        x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        for _ in range(count):
            x = flow(lambda h: h @ turn.T, 1 / count)(x)
        errors.append(float((x - torch.tensor([[math.cos(1), -math.sin(1)]], dtype=torch.float64)).norm()))
    assert errors[0] / errors[1] == pytest.approx(16, rel=0.15)


def test_lorenz_is_chaotic_as_known():
    found = lyapunov(flow(lorenz, DT), starts(24), steps=800, burn_in=100).mean(0) / DT
    assert float(found[0]) == pytest.approx(0.906, abs=0.1)
    assert float(found[1]) == pytest.approx(0.0, abs=0.1)
    assert float(found.sum()) == pytest.approx(-(10 + 1 + 8 / 3), abs=1e-3)  # volumes shrink at this rate everywhere


@pytest.mark.parametrize(("one_way", "pull"), [(False, 2), (True, 1)])
def test_the_transverse_exponents_are_those_less_the_coupling(one_way, pull):
    x = starts(2)
    alone = lyapunov(flow(lorenz, DT), x, steps=100, burn_in=20) / DT
    for coupling in (0.3, torch.full((3,), 0.3), 0.3 * torch.eye(3)):
        pair = couple_flow(lorenz, coupling, DT, one_way=one_way)
        found = transverse_lyapunov(pair, x, steps=100, burn_in=20) / DT
        torch.testing.assert_close(found, alone - pull * 0.3, rtol=0, atol=2e-2)


@pytest.mark.parametrize(("coupling", "one_way", "together"), [(0.2, False, False), (1.0, False, True),
                                                               (0.4, True, False), (2.5, True, True)])  # fmt: skip
def test_a_lorenz_pair_synchronises_beyond_the_threshold(coupling, one_way, together):
    """c > lambda_L / 2 = 0.453, or lambda_L = 0.906 for one that drives the other."""
    a, b = follow(couple_flow(lorenz, coupling, DT, one_way=one_way), starts(4), starts(4, seed=1), steps=2500)
    error = synchronization_error(a, b)[:, -400:].amax(1)
    assert bool((error < 0.05).all()) == together


def test_a_drive_replaces_what_the_response_would_have():
    """Pecora and Carroll: x or y drives the rest into synchrony, z does not."""
    x, other = starts(3), starts(3, seed=1)
    for unit, together in ((0, True), (1, True), (2, False)):
        pair = drive_response(lorenz, unit, DT)
        a, b = follow(pair, x, other, steps=2500)
        assert torch.equal(a[..., unit], b[..., unit])
        assert bool((synchronization_error(a, b)[:, -1] < 1e-6).all()) == together
    exponents = transverse_lyapunov(drive_response(lorenz, 1, DT), x[0], steps=600, burn_in=20, count=2) / DT
    assert float(exponents.sum()) == pytest.approx(-10 - 8 / 3, abs=1e-3)
    assert float(exponents[0]) == pytest.approx(-8 / 3, abs=0.1)
    assert torch.equal(drive_response(lorenz, (0, 1, 2), DT)(x, other)[1], flow(lorenz, DT)(x))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="flow: dt must be positive"):
        flow(lorenz, 0)
    with pytest.raises(ValueError, match=r"couple_flow: expected coupling to be a number, \(S,\) or \(S, S\)"):
        couple_flow(lorenz, torch.zeros(2, 3))
    with pytest.raises(ValueError, match="drive_response: expected driven to hold the index of at least one unit"):
        drive_response(lorenz, ())
