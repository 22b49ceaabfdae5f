import math

import pytest
import torch

from likewise.distances.coupled_gru import CoupledGRU
from likewise.distances.siamese_gru import SiameseGRU
from likewise.dynamics import couple, couple_gru, follow, lyapunov, synchronization_error, transverse_lyapunov


def logistic(h):
    return 4 * h * (1 - h)


def starts(count=8):
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(count, 1, generator=generator, dtype=torch.float64) for _ in range(2))


@pytest.mark.parametrize(("coupling", "together"), [(0.0, False), (0.15, False), (0.3, True), (0.5, True)])
def test_they_synchronise_where_the_transverse_exponent_says_so(coupling, together):
    pair = couple(logistic, coupling)
    a, b = follow(pair, *starts(), steps=400)
    error = synchronization_error(a, b)[:, -50:].amax(1)
    assert bool((error < 1e-9).all()) == together
    exponent = transverse_lyapunov(pair, next(starts(500)), steps=50, burn_in=10).mean()
    assert bool(exponent < 0) == together


def test_couplings_of_units():
    a, b = torch.tensor([[1.0, 1.0]]), torch.tensor([[3.0, 3.0]])
    found, other = couple(lambda h: 2 * h, torch.tensor([0.0, 0.5]))(a, b)
    assert found.tolist() == [[2.0, 4.0]]
    assert other.tolist() == [[6.0, 4.0]]


def test_coupling_new_states_is_the_coupled_gru():
    torch.manual_seed(0)
    network, x = CoupledGRU(2, hidden=(4,), coupling_bias=-1.0).double(), torch.randn(1, 9, 2).double()
    start = torch.zeros(1, 4).double()
    a, b = follow(couple_gru(network), start, start, inputs=x[0])
    alignment = network.align(x, x)
    torch.testing.assert_close(a, alignment.x_states.detach())
    torch.testing.assert_close(b, alignment.y_states.detach())
    # Two different inputs, by hand: the gate sees h + h'.
    network.cells[0].weight_hc.data.mul_(9)
    y, states = torch.randn(1, 9, 2).double(), [start, start]
    gate = network.cells[0]
    for t in range(9):
        c = (sum(states) @ gate.weight_hc.T + gate.bias_hc).sigmoid()
        assert ((c > 0) & (c < 1)).all()
        n = [_new_and_update(gate, s, v[:, t]) for s, v in zip(states, (x, y), strict=True)]
        mixed = [(1 - c) * n[0][0] + c * n[1][0], (1 - c) * n[1][0] + c * n[0][0]]
        states = [(1 - z) * m + z * h for (_, z), m, h in zip(n, mixed, states, strict=True)]
    torch.testing.assert_close(torch.linalg.vector_norm(states[0] - states[1], dim=1), network(x, y))


def _new_and_update(cell, h, x):
    given, own = x @ cell.weight_ih.T + cell.bias_ih, h @ cell.weight_hh.T + cell.bias_hh
    r, z = ((given[:, k : k + 4] + own[:, k : k + 4]).sigmoid() for k in (0, 4))
    return (given[:, 8:] + r * own[:, 8:]).tanh(), z


def test_transverse_exponents_of_coupled_grus():
    torch.manual_seed(0)
    gru = torch.nn.GRUCell(2, 5).double()
    with torch.no_grad():
        gru.weight_hh.mul_(9)
    start = torch.rand(5).double()
    alone = lyapunov(gru, start, steps=60, burn_in=20)
    torch.testing.assert_close(
        transverse_lyapunov(couple_gru(gru, 0.0), start, steps=60, burn_in=20), alone, atol=1e-8, rtol=0
    )
    half = transverse_lyapunov(couple_gru(gru, 0.5), start, steps=60, burn_in=20)
    assert half[0] < alone[0]
    assert half[0] > -30  # the update gates keep a difference: it is not zero at once


def test_equal_new_states_do_not_make_equal_states():
    """The paper has a coupling of one half give a distance of zero; z differs where inputs differ."""
    torch.manual_seed(0)
    network = CoupledGRU(2, hidden=(4,), coupling_bias=0.0)
    torch.nn.init.zeros_(network.cells[0].weight_hc)  # c is one half at all times
    x, y = torch.randn(2, 3, 20, 2)
    assert (network(x, y) > 1e-4).all()
    with torch.no_grad():
        network.cells[0].weight_ih[4:8] = 0  # now z does not see the input
    assert (network(x, y) < 1e-6).all()


def test_stacked_networks():
    torch.manual_seed(0)
    network, x = CoupledGRU(2, hidden=(4, 3), coupling_bias=-1.0, standardize=False).double(), torch.randn(1, 9, 2)
    start, x = torch.zeros(1, 7).double(), x.double()
    a, b = follow(couple_gru(network), start, start, inputs=x[0])
    alignment = network.align(x, x)  # of the last layer
    torch.testing.assert_close(a[:, :, 4:], alignment.x_states.detach())
    torch.testing.assert_close(b[:, :, 4:], alignment.y_states.detach())
    # Without coupling, a pair is the stack of GRUs twice, whichever way it is written.
    gru = torch.nn.GRU(2, 3, num_layers=2, batch_first=True).double()
    siamese = SiameseGRU(2, hidden=(3, 3), standardize=False).double()
    siamese.load_gru(gru)
    other = torch.randn(1, 6).double()
    for system in (gru, siamese):
        for pair in (couple_gru(system, 0.0), couple(system, 0.0)):
            a, b = follow(pair, other, 0 * other, inputs=x[0])
            torch.testing.assert_close(a[:, :, 3:], gru(x, other.reshape(2, 1, 3))[0].detach())
            torch.testing.assert_close(b[:, :, 3:], gru(x)[0].detach())
    torch.testing.assert_close(lyapunov(siamese, other[0], steps=30), lyapunov(gru, other[0], steps=30))
    units = torch.tensor([0.5] * 3 + [0.0] * 3).double()
    assert transverse_lyapunov(couple_gru(gru, units), other[0], steps=20, burn_in=5).isfinite().all()


def test_one_way():
    a, b = torch.tensor([[1.0]]), torch.tensor([[3.0]])
    assert couple(lambda h: 2 * h, 0.25, one_way=True)(a, b) == (torch.tensor([[2.0]]), torch.tensor([[5.0]]))
    # The drive is the logistic map with ln 2; a response that is pulled by c has ln 2 + ln(1 - c).
    found = transverse_lyapunov(couple(logistic, 0.6, one_way=True), next(starts(500)), steps=50, burn_in=10).mean()
    alone = lyapunov(logistic, next(starts(500)), steps=50, burn_in=10).mean()
    assert float(found - alone) == pytest.approx(math.log(0.4), abs=1e-6)


def test_following_is_stepping():
    torch.manual_seed(0)
    gru, x = torch.nn.GRU(2, 3, batch_first=True), torch.randn(5, 2)
    a, b = follow(couple(gru, 0.0), torch.zeros(1, 3), torch.ones(1, 3), inputs=x)
    torch.testing.assert_close(a, gru(x[None])[0].detach())
    torch.testing.assert_close(b, gru(x[None], torch.ones(1, 1, 3))[0].detach())


def test_the_error_is_the_norm_of_the_difference_and_padding_does_not_matter():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(3, 4, 2, generator=generator) for _ in range(2))
    lengths = torch.tensor([4, 1, 2])
    expected = [[float((x[n, t] - y[n, t]).norm()) if t < lengths[n] else 0.0 for t in range(4)] for n in range(3)]
    for n, length in enumerate(lengths.tolist()):
        x[n, length:] = torch.nan
    x.requires_grad_()
    found = synchronization_error(x, y, lengths)
    torch.testing.assert_close(found, torch.tensor(expected))
    found.sum().backward()
    assert x.grad.isfinite().all()
    assert synchronization_error(x[:0], y[:0]).shape == (0, 4)


def test_bad_arguments_are_refused():
    a = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="follow: give either steps or inputs"):
        follow(couple(logistic, 0.1), a, a)
    with pytest.raises(ValueError, match=r"follow: expected b of shape \(N, S\), got \(1,\)"):
        follow(couple(logistic, 0.1), a, a[0], steps=3)
    with pytest.raises(TypeError, match="couple: expected coupling to be a number, got str"):
        couple(logistic, "strong")
    with pytest.raises(ValueError, match="couple_gru: a GRUCell has no coupling; pass coupling="):
        couple_gru(torch.nn.GRUCell(1, 2))
    with pytest.raises(ValueError, match="couple_gru: expected a GRU of one direction"):
        couple_gru(torch.nn.GRU(1, 2, bidirectional=True), 0.1)
    with pytest.raises(ValueError, match=r"couple_gru: expected coupling of 4 units, got \(2,\)"):
        couple_gru(torch.nn.GRU(1, 2, num_layers=2), torch.zeros(2))
    with pytest.raises(TypeError, match=r"couple_gru: expected a GRU with biases, a GRUCell, .* got LSTM"):
        couple_gru(torch.nn.LSTM(1, 2), 0.1)
    x = torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match=r"x is \(1, 2, 3\) and y is \(1, 1, 3\); trajectories must be equally long"):
        synchronization_error(x, x[:, :1])
    with pytest.raises(ValueError, match=r"expected y of shape \(N, T, S\)"):
        synchronization_error(x, x[0])
