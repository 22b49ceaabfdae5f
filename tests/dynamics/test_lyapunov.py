"""Exponents of systems with known values, and of networks against plain loops."""

import math

import pytest
import torch

from likewise import dynamics
from likewise.dynamics import couple, lyapunov, recurrence, transverse_lyapunov


def logistic(h):
    return 4 * h * (1 - h)


def many(count=2000):
    """Starts of trajectories of the logistic map; their mean exponent over few steps is one's over many."""
    return torch.rand(count, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def of(*values):
    return torch.tensor(values, dtype=torch.float64)


def gru(hidden=6, gain=1.0, seed=0):
    torch.manual_seed(seed)
    module = torch.nn.GRU(3, hidden).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(gain)
    return module


def test_logistic_map_has_ln_2():
    assert lyapunov(logistic, many(), steps=60, burn_in=20).mean() == pytest.approx(math.log(2), abs=0.01)


def test_linear_map_has_the_logs_of_its_eigenvalues():
    A = torch.randn(4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    expected = torch.linalg.eigvals(A).abs().log().sort(descending=True).values
    A, expected = A / expected[0].exp(), expected - expected[0]  # so that nothing overflows
    found = lyapunov(lambda h: h @ A.T, of(1, 2, 3, 4), steps=400, burn_in=60)
    torch.testing.assert_close(found, expected, atol=1e-2, rtol=0)


def test_the_largest_alone_is_the_first_of_all():
    A = torch.diag(of(0.5, 0.9, 0.2))
    found = lyapunov(lambda h: h @ A, torch.ones(2, 3).double(), steps=50, burn_in=50, count=2)
    torch.testing.assert_close(found, of(0.9, 0.5).log().expand(2, 2), atol=1e-6, rtol=0)


def test_it_equals_plain_products_of_jacobians():
    module, state = gru(gain=2.0), torch.rand(6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    step = recurrence(module)
    product, h = torch.eye(6, dtype=torch.float64), state
    for _ in range(12):
        J = torch.stack([  # by finite differences
            (step((h + 1e-6 * e)[None]) - step((h - 1e-6 * e)[None]))[0].detach() / 2e-6
            for e in torch.eye(6, dtype=torch.float64)
        ]).T  # fmt: skip
        product, h = J @ product, step(h[None])[0].detach()
    # The sum of all S exponents is that of log |det|, for any initial directions.
    expected = torch.linalg.det(product).abs().log() / 12
    assert lyapunov(module, state, steps=12, burn_in=0).sum() == pytest.approx(float(expected), abs=1e-6)


def test_gain_turns_order_into_chaos():
    calm = [float(lyapunov(gru(20, 1.0, seed), steps=60, burn_in=30, count=1)) for seed in range(2)]
    wild = [float(lyapunov(gru(20, 8.0, seed), steps=150, burn_in=100, count=1)) for seed in range(2)]
    assert max(calm) < 0
    assert max(wild) > 0


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_steps_of_networks_are_the_networks(kind, batch_first):
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(3, 4, num_layers=2, batch_first=batch_first).double()
    step, x = recurrence(module), torch.randn(2, 5, 3).double()
    state = torch.zeros(2, step.size).double()
    for t in range(5):
        state = step(state, x[:, t])
    expected = module(x if batch_first else x.transpose(0, 1))[1]
    parts = torch.stack(expected if kind == "LSTM" else [expected])  # (parts, layers, N, H)
    torch.testing.assert_close(state, parts.permute(2, 0, 1, 3).reshape(2, -1))


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_a_cell_is_a_network_of_one_layer(kind):
    torch.manual_seed(0)
    whole, cell = getattr(torch.nn, kind)(3, 4), getattr(torch.nn, f"{kind}Cell")(3, 4)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in whole.state_dict().items()})
    state, x = torch.randn(2, recurrence(cell).size), torch.randn(2, 3)
    torch.testing.assert_close(recurrence(cell)(state, x), recurrence(whole)(state, x))


def test_inputs_drive_the_system():
    module, x = gru(gain=6.0), torch.randn(80, 3, generator=torch.Generator().manual_seed(0)).double()
    alone = lyapunov(module, steps=60, burn_in=20)
    driven = lyapunov(module, inputs=5 * x, burn_in=20)
    assert driven.shape == (6,)
    assert not torch.allclose(alone, driven)
    several = lyapunov(module, torch.zeros(2, 6).double(), inputs=torch.stack([x, 5 * x]), burn_in=20)
    torch.testing.assert_close(
        several[1], lyapunov(module, torch.zeros(6).double(), inputs=5 * x, burn_in=20), atol=0.05, rtol=0
    )

    def decay(h, x):
        return x * h

    factors = torch.full((50, 1), 0.5, dtype=torch.float64)
    torch.testing.assert_close(lyapunov(decay, of(1), inputs=factors, burn_in=0), of(0.5).log())


def test_a_module_with_its_own_step():
    class Halving(torch.nn.Module):
        state_size, channels = 3, None

        def __init__(self):
            super().__init__()
            self.factor = torch.nn.Parameter(of(0.5))

        def step(self, state):
            return self.factor * state

    torch.testing.assert_close(lyapunov(Halving(), steps=20, burn_in=0), of(0.5, 0.5, 0.5).log())


def test_singular_maps_have_minus_infinity():
    A = torch.diag(of(0.5, 0.0))
    assert lyapunov(lambda h: h @ A, of(1, 1), steps=10, burn_in=5)[1] == -math.inf


@pytest.mark.parametrize("coupling", [0.0, 0.1, 0.3, 0.45])
def test_transverse_exponent_of_coupled_maps(coupling):
    found = transverse_lyapunov(couple(logistic, coupling), many(), steps=60, burn_in=20).mean()
    assert found == pytest.approx(math.log(2) + math.log(1 - 2 * coupling), abs=0.01)


def test_coupled_networks_have_the_exponents_of_one_less_the_coupling():
    module = gru(gain=4.0)
    start = torch.rand(6, dtype=torch.float64)
    own = lyapunov(module, start, steps=40, burn_in=10)
    across = transverse_lyapunov(couple(module, 0.2), start, steps=40, burn_in=10)
    torch.testing.assert_close(across, own + math.log(0.6), atol=1e-8, rtol=0)


def test_the_start_is_kept_and_seeds_repeat():
    state = of(0.3, 0.4)
    kept = state.clone()
    first = lyapunov(torch.nn.GRU(1, 2).double(), state, steps=10, burn_in=5)
    assert torch.equal(state, kept)
    assert not first.requires_grad
    module = gru()
    assert torch.equal(lyapunov(module, steps=10, burn_in=0, seed=4), lyapunov(module, steps=10, burn_in=0, seed=4))
    assert not torch.equal(lyapunov(module, steps=10, burn_in=0, seed=4), lyapunov(module, steps=10, burn_in=0, seed=5))
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize(
    ("system", "given", "message"),
    [
        (logistic, {}, "pass an initial state"),
        (logistic, {"state": torch.tensor(1.0)}, r"expected state of shape \(S,\) or \(N, S\)"),
        (logistic, {"state": of(math.nan)}, "state is not finite"),
        (logistic, {"state": of(0.3), "steps": 0}, "steps must be a whole number of 1 or more"),
        (logistic, {"state": of(0.3), "count": 2}, "count must be a whole number from 1 to 1"),
        (logistic, {"state": of(3.0)}, "the states diverged"),
        (lambda h: h[:, :1], {"state": of(1, 2)}, r"states of the same shape, \(2, 2\), got \(2, 1\)"),
        (lambda h: h.detach(), {"state": of(1, 2)}, "cannot be differentiated"),
        (gru(), {"state": of(1, 2)}, "expected a state of 6 numbers, got 2"),
        (gru(), {"inputs": torch.zeros(500, 3).double()}, "the first 500 do not count; lower burn_in"),
        (gru(), {"inputs": torch.zeros(3).double()}, r"expected inputs of shape \(T, C\)"),
        (torch.nn.GRU(1, 2, bidirectional=True), {}, "bidirectional"),
        (torch.nn.LSTM(1, 3, proj_size=2), {}, "proj_size"),
        (torch.nn.GRU(1, 2, num_layers=2, dropout=0.5), {}, r"call .eval\(\) first"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(system, given, message):
    with pytest.raises(ValueError, match=message):
        lyapunov(system, **given)


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="expected a function of states"):
        lyapunov(3, of(1))
    assert set(dynamics.__all__) == {name for name in dynamics.__all__ if hasattr(dynamics, name)}
